"""The text protocol's handler: each command becomes engine calls and reply bytes."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from memlite.backends import Item, Part
from memlite.engine import MetaEngine, Outcome
from memlite.errors import CommandError
from memlite.native import mypyc_attr
from memlite.protocol import replies
from memlite.server.meta import MetaCommands

if TYPE_CHECKING:
    from memlite.server.server import Server

__all__ = ["TextCommands"]

_REPLY = {
    Outcome.STORED: replies.STORED,
    Outcome.NOT_STORED: replies.NOT_STORED,
    Outcome.EXISTS: replies.EXISTS,
    Outcome.NOT_FOUND: replies.NOT_FOUND,
    Outcome.NON_NUMERIC: replies.NON_NUMERIC,
}


@mypyc_attr(allow_interpreted_subclasses=True)
class TextCommands(MetaCommands):
    """Answers a connection's commands at once.

    Implements `memlite.protocol.Handler`. Replies gather in `out`; the connection sends all
    those of one read together.

    Args:
        engine: holds the items.
        server: knows the commands that are not about keys.
        connection: whose commands they are; over UDP the request's.
        out: where replies are appended.

    Attributes:
        out: as above.
    """

    __slots__ = ("_connection", "_server")

    def __init__(
        self, engine: MetaEngine, server: "Server", connection: Any, out: list[Part]
    ) -> None:
        super().__init__(engine, out)
        self._server = server
        self._connection = connection

    # Reading

    def hit(self, line: bytes) -> bool:
        """``get <key>`` when the key is there."""
        reply = self._engine.hit(line)
        if reply is None:
            return False
        self.out.append(reply)
        return True

    def get(self, keys: list[bytes]) -> None:
        """``get <key>*``."""
        self._engine.collect(keys, self.out)
        self.out.append(b"END\r\n")

    def gets(self, keys: list[bytes]) -> None:
        """``gets <key>*``: with cas uniques."""
        fetch = self._engine.fetch
        for key in keys:
            item = fetch(key)
            if item is not None:
                self._append_with_unique(key, item)
        self.out.append(replies.END)

    def gat(self, exptime: int, keys: list[bytes]) -> None:
        """``gat <exptime> <key>*``: get and touch."""
        for key in keys:
            item = self._engine.fetch_and_touch(key, exptime)
            if item is not None:
                self.out += item.entry()
        self.out.append(replies.END)

    def gats(self, exptime: int, keys: list[bytes]) -> None:
        """``gats <exptime> <key>*``: get and touch, with cas uniques."""
        for key in keys:
            item = self._engine.fetch_and_touch(key, exptime)
            if item is not None:
                self._append_with_unique(key, item)
        self.out.append(replies.END)

    def _append_with_unique(self, key: bytes, item: Item) -> None:
        body = item.value_line()
        head = partial(self._head_with_unique, key, item)
        # What gats is about to store has no unique yet; see `DeferredText`.
        later = self._engine.unnumbered(item)
        self.out += (cast("Part", head) if later else head(), body)

    def _head_with_unique(self, key: bytes, item: Item) -> bytes:
        return replies.value_head_with_cas(key, item.flags, item.size, self._engine.unique(item))

    # Storing

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``set <key> <flags> <exptime> <bytes> [noreply]``."""
        try:
            self._engine.set(key, flags, exptime, value)
        except CommandError as error:
            self.reject(error.reply, noreply)
            return
        if not noreply:
            self.out.append(b"STORED\r\n")

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """``set`` of a value that comes as get will send it."""
        try:
            self._engine.set_framed(key, exptime, framed)
        except CommandError as error:
            self.reject(error.reply, noreply)
            return
        if not noreply:
            self.out.append(b"STORED\r\n")

    def add(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``add``: store if absent."""
        self._answer(noreply, self._engine.add, key, flags, exptime, value)

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``replace``: store if present."""
        self._answer(noreply, self._engine.replace, key, flags, exptime, value)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``append``: put behind the present value."""
        self._answer(noreply, self._engine.append, key, flags, exptime, value)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``prepend``: put before the present value."""
        self._answer(noreply, self._engine.prepend, key, flags, exptime, value)

    def cas(
        self, key: bytes, flags: int, exptime: int, value: bytes, unique: int, noreply: bool
    ) -> None:
        """``cas``: store if unchanged since the unique was read."""
        self._answer(noreply, self._engine.cas, key, flags, exptime, value, unique)

    def _answer(
        self, noreply: bool, command: Callable[..., Outcome], *arguments: bytes | int
    ) -> None:
        try:
            reply = _REPLY[command(*arguments)]
        except CommandError as error:
            reply = error.reply
        if not noreply:
            self.out.append(reply)

    def too_large(self, command: bytes, key: bytes, noreply: bool) -> None:
        """Refuse a value; set, which cannot keep its promise, also removes the old one."""
        removes = command in (b"set", b"ms")
        name = "set" if removes else command.decode()
        self._engine.refuse_large(key, removes=removes, command=name)
        self.reject(replies.TOO_LARGE, noreply)

    # Changing and removing

    def delete(self, key: bytes, noreply: bool) -> None:
        """``delete <key> [noreply]``."""
        reply = replies.DELETED if self._engine.delete(key) else replies.NOT_FOUND
        if not noreply:
            self.out.append(reply)

    def incr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``incr <key> <delta>``: the reply is the new number."""
        self._count(noreply, self._engine.incr, key, delta)

    def decr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``decr <key> <delta>``: the reply is the new number."""
        self._count(noreply, self._engine.decr, key, delta)

    def _count(
        self, noreply: bool, command: Callable[[bytes, int], int | Outcome], key: bytes, delta: int
    ) -> None:
        try:
            result = command(key, delta)
        except CommandError as error:
            self.reject(error.reply, noreply)
            return
        if not noreply:
            reply = _REPLY[result] if isinstance(result, Outcome) else b"%d\r\n" % result
            self.out.append(reply)

    def touch(self, key: bytes, exptime: int, noreply: bool) -> None:
        """``touch <key> <exptime>``."""
        reply = replies.TOUCHED if self._engine.touch(key, exptime) else replies.NOT_FOUND
        if not noreply:
            self.out.append(reply)

    # Everything else

    def admin(self, words: list[bytes], noreply: bool) -> None:
        """Any other command, known or not."""
        reply = self._server.admin.execute(words, noreply, self._connection)
        if not noreply:
            self.out.append(reply)

    def quit(self) -> None:
        """``quit``."""
        self._connection.close()

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer what could not be carried out."""
        if not noreply:
            self.out.append(reply)
