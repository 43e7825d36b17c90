"""The text protocol's commands: calls the engine and renders the replies."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from memlite.core.build import mypyc_attr
from memlite.core.errors import CommandError
from memlite.engine import MetaEngine, Outcome
from memlite.memory import Item, Part
from memlite.memory.usage import MASK
from memlite.protocol import replies
from memlite.protocol.handler import Shortcuts
from memlite.protocol.limits import CLUSTER_KEY, CLUSTER_LINE, MAX_GET_LENGTH
from memlite.server.execution.command_set import Later
from memlite.server.execution.short_commands import SHORTCUTS, ShortCommands
from memlite.server.interfaces import Client

if TYPE_CHECKING:
    from memlite.server.admin.admin import Admin  # imported lazily, on the first such command

__all__ = ["TextCommands"]

_CR: Final = 13
_SHORTEST_GET: Final = len(b"get k\r\n")
_SPACE: Final = b" "[0]
_E: Final = b"e"[0]
_T: Final = b"t"[0]
_REPLY = {
    Outcome.STORED: replies.STORED,
    Outcome.NOT_STORED: replies.NOT_STORED,
    Outcome.EXISTS: replies.EXISTS,
    Outcome.NOT_FOUND: replies.NOT_FOUND,
    Outcome.NON_NUMERIC: replies.NON_NUMERIC,
}


@mypyc_attr(allow_interpreted_subclasses=True)
class TextCommands(ShortCommands):
    """The text protocol's commands.

    Args:
        engine: holds the items.
        admin: returns the object that carries out administrative commands.
        client: the client that sends the commands.
        out: the list to which replies are appended.
    """

    __slots__ = ("_admin", "_client")

    shortcuts: ClassVar[Shortcuts] = SHORTCUTS
    shows_stored_replies: ClassVar[bool] = True

    def __init__(
        self, engine: MetaEngine, admin: "Callable[[], Admin]", client: Client, out: list[Part]
    ) -> None:
        super().__init__(engine, out)
        self._admin = admin
        self._client = client

    # Reading

    def try_get(self, line: bytes) -> bool:
        """``get <key>*``, in the usual form."""
        # `MemoryEngine.try_get` inlined, as in `Connection.data_received`.
        engine = self._engine
        find = engine.items.get_by_line
        item = find(line) if len(line) <= MAX_GET_LENGTH else None
        if item is None:
            reply = engine.miss(line)
            if reply is None:
                return len(line) > _SHORTEST_GET and self._get_many(line)
            self.out.append(reply)
            return True
        state = engine.usage.fast_read[item.state & MASK]
        if state:
            item.state = state
        elif not engine.can_serve(item):
            return False
        engine.counters.hits += 1
        self.out.append(item.wire)
        return True

    def _get_many(self, line: bytes) -> bool:
        """``get <key>*`` of several keys, without splitting the line into keys."""
        if (
            line[2] != _T  # the parser has seen "ge"
            or line[3] != _SPACE
            or line[-2] != _CR
            or line[-3] == _SPACE
            or line.find(b"  ") >= 0
            or line.find(b"\r") != len(line) - 2  # a key contains one
            or line == CLUSTER_LINE
        ):
            return False
        lines = line.replace(b" ", b"\r\nget ").splitlines(keepends=True)
        del lines[0]  # "get"
        if len(line) > MAX_GET_LENGTH and max(map(len, lines)) > MAX_GET_LENGTH:
            return False
        return self._engine.collect_lines(lines, self.out)

    def immediate_reply(self, line: bytes) -> Part | None:
        """``get <key>*``; of one key, only misses, as connections look up hits themselves."""
        reply = self._engine.miss(line)
        if reply is not None:
            return reply
        # The input may be anything, including several lines.
        if (
            line < b"get "
            or len(line) <= _SHORTEST_GET
            or line[1] != _E
            or line[3] != _SPACE
            or line.find(b"\n") != len(line) - 1
            or not self._get_many(line)
        ):
            return None
        return self.out.pop() if len(self.out) == 1 else b""

    def get(self, keys: list[bytes]) -> None:
        """``get <key>*``."""
        before = len(self.out)
        self._engine.collect(keys, self.out)
        if keys[0] == CLUSTER_KEY and len(keys) == 1 and len(self.out) == before:
            self.out.append(self._nodes(with_unique=False))
        else:
            self.out.append(b"END\r\n")

    def gets(self, keys: list[bytes]) -> Later | None:
        """``gets <key>*``: with cas uniques."""
        fetch = self._engine.fetch
        with_unique = self._engine.with_unique
        found = [(key, with_unique(item)) for key in keys if (item := fetch(key)) is not None]
        if not found and keys == [CLUSTER_KEY]:
            self.out.append(self._nodes(with_unique=True))
            return None
        return self._show_uniques(found)

    def _nodes(self, *, with_unique: bool) -> bytes:
        """Return the reply to a retrieval of `CLUSTER_KEY`, for which there is no item."""
        from memlite.protocol.discovery import old_form

        asked = [b"config", b"get", b"cluster"]
        return old_form(self._admin().execute(asked, False, self._client), with_unique=with_unique)

    def gat(self, exptime: int, keys: list[bytes]) -> None:
        """``gat <exptime> <key>*``: get and touch."""
        for key in keys:
            item = self._engine.fetch_and_touch(key, exptime)
            if item is not None:
                self.out += item.entry()
        self.out.append(replies.END)

    def gats(self, exptime: int, keys: list[bytes]) -> Later | None:
        """``gats <exptime> <key>*``: get and touch, with cas uniques."""
        fetch = self._engine.fetch_and_touch
        # Assigned at once: if the key comes again, an item that has expired by then is removed.
        with_unique = self._engine.with_unique
        found = [
            (key, with_unique(item)) for key in keys if (item := fetch(key, exptime)) is not None
        ]
        return self._show_uniques(found)

    def _show_uniques(self, found: list[tuple[bytes, Item]]) -> Later | None:
        awaits_version = self._engine.awaits_version
        if any(awaits_version(item) for _, item in found):
            return partial(self._with_uniques, found)
        self.out += self._with_uniques(found)
        return None

    def _with_uniques(self, found: list[tuple[bytes, Item]]) -> list[Part]:
        unique = self._engine.unique
        parts: list[Part] = []
        for key, item in found:
            head = replies.value_head_with_cas(key, item.flags, item.size, unique(item))
            parts += (head, item.value_line())
        parts.append(replies.END)
        return parts

    # Storing

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``set <key> <flags> <exptime> <bytes> [noreply]``."""
        try:
            self._engine.set(key, flags, exptime, value)
        except CommandError as error:
            self.reject(replies.error_line(error), noreply)
            return
        if not noreply:
            self.out.append(b"STORED\r\n")

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """``set`` with a value already in the form of a get's reply."""
        try:
            self._engine.set_framed(key, exptime, framed)
        except CommandError as error:
            self.reject(replies.error_line(error), noreply)
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
        """``append``: add to the end of the value."""
        self._answer(noreply, self._engine.append, key, flags, exptime, value)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``prepend``: add to the start of the value."""
        self._answer(noreply, self._engine.prepend, key, flags, exptime, value)

    def cas(
        self, key: bytes, flags: int, exptime: int, value: bytes, unique: int, noreply: bool
    ) -> None:
        """``cas``: store if the item still has the given cas unique."""
        self._answer(noreply, self._engine.cas, key, flags, exptime, value, unique)

    def _answer(
        self, noreply: bool, command: Callable[..., Outcome], *arguments: bytes | int
    ) -> None:
        try:
            reply = _REPLY[command(*arguments)]
        except CommandError as error:
            reply = replies.error_line(error)
        if not noreply:
            self.out.append(reply)

    def too_large(self, command: bytes, key: bytes, noreply: bool) -> None:
        """Refuse a value that is too large; a set also removes the old item, which is now stale."""
        removes = command in (b"set", b"ms")
        name = "set" if removes else command.decode()
        self._engine.refuse_large(key, removes=removes, command=name)
        self.reject(replies.TOO_LARGE, noreply)

    def bad_chunk(self, key: bytes, noreply: bool) -> None:
        """Refuse a value that does not end where its length says."""
        self._engine.count_store(key)
        self.reject(replies.BAD_DATA_CHUNK, noreply)

    # Changing and removing

    def delete(self, key: bytes, noreply: bool) -> None:
        """``delete <key> [noreply]``."""
        reply = replies.DELETED if self._engine.delete(key) else replies.NOT_FOUND
        if not noreply:
            self.out.append(reply)

    def incr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``incr <key> <value>``: the reply is the new number."""
        self._count(noreply, self._engine.incr, key, delta)

    def decr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``decr <key> <value>``: the reply is the new number."""
        self._count(noreply, self._engine.decr, key, delta)

    def _count(
        self, noreply: bool, command: Callable[[bytes, int], int | Outcome], key: bytes, delta: int
    ) -> None:
        try:
            result = command(key, delta)
        except CommandError as error:
            self.reject(replies.error_line(error), noreply)
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
        """Any other command, valid or not."""
        reply = self._admin().execute(words, noreply, self._client)
        if not noreply:
            self.out.append(reply)

    def quit(self) -> None:
        """``quit``."""
        self._client.close()

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer a command that could not be carried out."""
        if not noreply:
            self.out.append(reply)
