"""The binary protocol's commands on a backend that must be asked."""

from functools import partial
from typing import TYPE_CHECKING

from memlite.engine.store import Reads, StoreEngine
from memlite.errors import CommandError
from memlite.protocol.packets import BinaryRequest, Opcode, Status
from memlite.server.binary import BinaryCommands, failure_of
from memlite.server.deferred import Deferred

if TYPE_CHECKING:
    from memlite.server.deferred_connection import DeferredConnection
    from memlite.server.server import Server

__all__ = ["DeferredBinary"]

_SETS = frozenset((Opcode.SET, Opcode.SETQ))
# What neither knows nor changes anything; a NOOP ends each get of several keys.
_FREE = frozenset((Opcode.NOOP, Opcode.VERSION, Opcode.QUIT, Opcode.QUITQ))


class DeferredBinary(Deferred[BinaryCommands]):
    """Says of each command what it must know, and how to carry it out.

    Implements `memlite.protocol.BinaryHandler`. Quiet commands are not told apart: if they fail,
    they are answered like any other.
    """

    def __init__(
        self, server: "Server", engine: StoreEngine, connection: "DeferredConnection"
    ) -> None:
        inner = BinaryCommands(engine, server, connection, [])
        super().__init__(server, engine, connection, inner)

    def binary_get(self, request: BinaryRequest) -> None:
        """GET and its variants; a cas unique from a near cache that is old only fails later."""
        run = partial(self._inner.binary_get, request)
        self._submit("binary_get", Reads.CACHED, (request.key,), run, request=request)

    def binary_touch(self, request: BinaryRequest) -> None:
        """TOUCH, GAT and its variants."""
        run = partial(self._inner.binary_touch, request)
        self._submit("binary_touch", Reads.TO_CHANGE, (request.key,), run, request=request)

    def binary_store(self, request: BinaryRequest) -> None:
        """SET, ADD, REPLACE, APPEND, PREPEND and their quiet variants."""
        whatever_is_there = request.opcode in _SETS and not request.cas
        reads = Reads.NOTHING if whatever_is_there else Reads.TO_CHANGE
        run = partial(self._inner.binary_store, request)
        self._submit("binary_store", reads, (request.key,), run, request=request)

    def binary_too_large(self, request: BinaryRequest) -> None:
        """Refuse a value; see `BinaryCommands`."""
        run = partial(self._inner.binary_too_large, request)
        self._submit("binary_too_large", Reads.NOTHING, (request.key,), run, request=request)

    def binary_delete(self, request: BinaryRequest) -> None:
        """DELETE and DELETEQ."""
        run = partial(self._inner.binary_delete, request)
        self._submit("binary_delete", Reads.TO_CHANGE, (request.key,), run, request=request)

    def binary_count(self, request: BinaryRequest) -> None:
        """INCREMENT, DECREMENT and their quiet variants."""
        run = partial(self._inner.binary_count, request)
        self._submit("binary_count", Reads.TO_CHANGE, (request.key,), run, request=request)

    def binary_admin(self, request: BinaryRequest) -> None:
        """Any other command: FLUSH and STAT after all before them and before all behind them."""
        run = partial(self._inner.binary_admin, request)
        if request.opcode in _FREE:
            self._submit("binary_admin", Reads.NOTHING, (), run, request=request)
        else:
            self._submit_alone("binary_admin", run, False, request=request)

    def binary_reject(self, request: BinaryRequest, status: Status) -> None:
        """Answer what could not be carried out, when it is its turn."""
        run = partial(self._inner.binary_reject, request, status)
        self._submit("binary_reject", Reads.NOTHING, (), run, request=request)

    def _spell(self, request: object, error: CommandError) -> bytes:
        if isinstance(request, BinaryRequest):
            return failure_of(request, error)
        return error.reply
