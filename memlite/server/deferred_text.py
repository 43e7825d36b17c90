"""The text protocol's commands on a backend that must be asked."""

from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memlite.backends.item import key_of
from memlite.engine import Mode
from memlite.engine.store import Reads, StoreEngine
from memlite.protocol.meta import MetaRequest
from memlite.server.commands import TextCommands
from memlite.server.deferred import Deferred
from memlite.server.meta import MODES

if TYPE_CHECKING:
    from memlite.server.deferred_connection import DeferredConnection
    from memlite.server.server import Server

__all__ = ["DeferredText"]


class DeferredText(Deferred[TextCommands]):
    """Says of each command what it must know, and how to carry it out.

    Implements `memlite.protocol.Handler`.

    Attributes:
        commands: makes the handler that carries them out.
    """

    commands: type[TextCommands] = TextCommands

    def __init__(
        self, server: "Server", engine: StoreEngine, connection: "DeferredConnection"
    ) -> None:
        inner = self.commands(engine, server, connection, [])
        super().__init__(server, engine, connection, inner)

    def hit(self, line: bytes) -> bool:
        """``get <key>`` when the key is at hand."""
        if self._queue:
            return False
        started = perf_counter_ns() if self.timed else 0
        reply = self.straight_hit(line)
        if reply is None:
            return False
        self._out.append(reply)
        if started:
            self._measure("get", started, (key_of(line),))
        return True

    def straight_hit(self, line: bytes) -> bytes | None:
        """Return the reply to ``get <key>``, if it can be sent now."""
        if self._queue:
            return None
        try:
            return self._engine.hit(line)
        except Exception:  # noqa: BLE001 - get meets it again, and answers
            return None

    def get(self, keys: list[bytes]) -> None:
        """``get <key>*``."""
        self._submit("get", Reads.CACHED, keys, partial(self._inner.get, keys))

    def gets(self, keys: list[bytes]) -> None:
        """``gets <key>*``."""
        self._submit("gets", Reads.CURRENT, keys, partial(self._inner.gets, keys))

    def gat(self, exptime: int, keys: list[bytes]) -> None:
        """``gat <exptime> <key>*``."""
        self._submit("gat", Reads.TO_CHANGE, keys, partial(self._inner.gat, exptime, keys))

    def gats(self, exptime: int, keys: list[bytes]) -> None:
        """``gats <exptime> <key>*``."""
        self._submit("gats", Reads.TO_CHANGE, keys, partial(self._inner.gats, exptime, keys))

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``set``."""
        run = partial(self._inner.set, key, flags, exptime, value, noreply)
        self._submit("set", Reads.NOTHING, (key,), run, noreply)

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """``set`` of a value that comes as get will send it."""
        run = partial(self._inner.set_framed, key, exptime, framed, noreply)
        self._submit("set_framed", Reads.NOTHING, (key,), run, noreply)

    def add(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``add``."""
        run = partial(self._inner.add, key, flags, exptime, value, noreply)
        self._submit("add", Reads.TO_CHANGE, (key,), run, noreply)

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``replace``."""
        run = partial(self._inner.replace, key, flags, exptime, value, noreply)
        self._submit("replace", Reads.TO_CHANGE, (key,), run, noreply)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``append``."""
        run = partial(self._inner.append, key, flags, exptime, value, noreply)
        self._submit("append", Reads.TO_CHANGE, (key,), run, noreply)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``prepend``."""
        run = partial(self._inner.prepend, key, flags, exptime, value, noreply)
        self._submit("prepend", Reads.TO_CHANGE, (key,), run, noreply)

    def cas(
        self, key: bytes, flags: int, exptime: int, value: bytes, unique: int, noreply: bool
    ) -> None:
        """``cas``."""
        run = partial(self._inner.cas, key, flags, exptime, value, unique, noreply)
        self._submit("cas", Reads.TO_CHANGE, (key,), run, noreply)

    def delete(self, key: bytes, noreply: bool) -> None:
        """``delete``."""
        run = partial(self._inner.delete, key, noreply)
        self._submit("delete", Reads.TO_CHANGE, (key,), run, noreply)

    def incr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``incr``."""
        run = partial(self._inner.incr, key, delta, noreply)
        self._submit("incr", Reads.TO_CHANGE, (key,), run, noreply)

    def decr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``decr``."""
        run = partial(self._inner.decr, key, delta, noreply)
        self._submit("decr", Reads.TO_CHANGE, (key,), run, noreply)

    def touch(self, key: bytes, exptime: int, noreply: bool) -> None:
        """``touch``."""
        run = partial(self._inner.touch, key, exptime, noreply)
        self._submit("touch", Reads.TO_CHANGE, (key,), run, noreply)

    def too_large(self, command: bytes, key: bytes, noreply: bool) -> None:
        """Refuse a value; see `TextCommands`."""
        run = partial(self._inner.too_large, command, key, noreply)
        self._submit("too_large", Reads.NOTHING, (key,), run, noreply)

    def admin(self, words: list[bytes], noreply: bool) -> None:
        """Any other command, after all before it and before all behind it."""
        self._submit_alone("admin", partial(self._inner.admin, words, noreply), noreply)

    def meta_get(self, request: MetaRequest) -> None:
        """``mg``."""
        reads = Reads.CURRENT_OR_CHANGE if request.unique_asked else Reads.CACHED_OR_CHANGE
        if request.touch is not None:
            reads = Reads.TO_CHANGE
        self._submit("meta_get", reads, (request.key,), partial(self._inner.meta_get, request))

    def meta_set(self, request: MetaRequest, value: bytes) -> None:
        """``ms``."""
        sets = MODES[request.mode] is Mode.SET and request.compare is None
        # A unique that is asked for must be given now, and not when what is held is stored.
        reads = Reads.NOTHING if sets and not request.unique_asked else Reads.TO_CHANGE
        run = partial(self._inner.meta_set, request, value)
        self._submit("meta_set", reads, (request.key,), run)

    def meta_delete(self, request: MetaRequest) -> None:
        """``md``."""
        run = partial(self._inner.meta_delete, request)
        self._submit("meta_delete", Reads.TO_CHANGE, (request.key,), run)

    def meta_count(self, request: MetaRequest) -> None:
        """``ma``."""
        run = partial(self._inner.meta_count, request)
        self._submit("meta_count", Reads.TO_CHANGE, (request.key,), run)

    def meta_debug(self, request: MetaRequest) -> None:
        """``me``."""
        run = partial(self._inner.meta_debug, request)
        self._submit("meta_debug", Reads.CURRENT, (request.key,), run)

    def meta_noop(self) -> None:
        """``mn``, when it is its turn."""
        self._submit("meta_noop", Reads.NOTHING, (), self._inner.meta_noop)

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer what could not be carried out, when it is its turn."""
        run = partial(self._inner.reject, reply, noreply)
        self._submit("reject", Reads.NOTHING, (), run, noreply)
