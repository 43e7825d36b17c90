"""A server that is one of several workers: some of its parts cooperate with the others."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from memlite.backends import Backend
from memlite.config import MEGABYTE, Config
from memlite.core import signals
from memlite.core.clock import Clock
from memlite.core.errors import StartError
from memlite.engine.memory import MemoryEngine
from memlite.engine.shared import SharedItems
from memlite.engine.shared_plain import PlainSharedEngine
from memlite.engine.sizes import SizeClasses
from memlite.memory import ItemTable
from memlite.server.connections.connection import Connection
from memlite.server.connections.listeners import Listener
from memlite.server.connections.register import Register
from memlite.server.connections.shared import PassedConnection, SharedConnection
from memlite.server.execution.execution import Execution
from memlite.server.execution.records import make_shared_runner
from memlite.server.execution.runner import Runner
from memlite.server.execution.shared_text import SharedExecution
from memlite.server.lifecycle import Lifecycle, Service
from memlite.server.server import Server
from memlite.server.workers.administration import WorkerAdministration
from memlite.server.workers.board import Board, Cell
from memlite.server.workers.member import Member
from memlite.server.workers.pace import Pace
from memlite.server.workers.shared import Shared

if TYPE_CHECKING:
    from memlite.engine.store import StoreEngine
    from memlite.server.administration import Administration
    from memlite.server.auth.auth import Throttling
    from memlite.server.connections.tls import Tls
    from memlite.server.connections.tls_transport import TlsTransport
    from memlite.server.connections.udp import UdpService
    from memlite.server.http.assembly import Http
    from memlite.server.otlp.service import OtlpService
    from memlite.telemetry.snapshot import Snapshot

__all__ = ["WorkerServer"]

_log = logging.getLogger("memlite")

_TAKEN_AT_ONCE = 32
_STORE_PAUSE = 1.0


class WorkerRegister(Register):
    """Admits connections unless the supervisor marked them as over the limit (``-c``).

    Attributes:
        over: the number of such connections that are about to arrive.
    """

    over = 0

    def _has_room(self) -> bool:
        if not self.over:
            return True
        self.over -= 1
        return False


class WorkerLifecycle(Lifecycle):
    """Takes connections that the supervisor has accepted.

    Attributes:
        channel: passes each connection with two bytes: the index of its listener, and whether it
            is over the limit.
        alive: called while it waits for the store.
        ended: called when a connection has ended.
        replaces: whether another worker with this number has served before.
    """

    channel: socket.socket
    alive: Callable[[], None]
    ended: Callable[[], None]
    replaces: bool

    async def _accept(self, servers: list[asyncio.AbstractServer]) -> None:
        self._scheduler.loop.add_reader(self.channel, self._take)

    async def _open_backend(self, backend: Backend) -> None:
        if not self.replaces:
            await backend.open()
            return
        # The other workers are serving, so wait for the store as they do, until told to stop.
        assert self._stop is not None  # noqa: S101 - set before
        signals.unblock()  # their handlers are installed
        opening = asyncio.ensure_future(self._open_patiently(backend))
        awaited: tuple[asyncio.Future[Any], ...] = (opening, self._stop)
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
            raise StartError("the server is stopping")
        opening.result()

    async def _open_patiently(self, backend: Backend) -> None:
        while True:
            try:
                await backend.open()
                return
            except StartError as error:
                _log.warning("a worker is waiting for the store: %s", error)
            self.alive()
            await asyncio.sleep(_STORE_PAUSE)

    def _take(self) -> None:
        for _ in range(_TAKEN_AT_ONCE):
            try:
                message, files, _, _ = socket.recv_fds(self.channel, 2, 1)
            except OSError:
                return
            if not files:
                self._scheduler.loop.remove_reader(self.channel)  # the supervisor has ended
                return
            accepted = socket.socket(fileno=files[0])
            accepted.setblocking(False)
            listener = self._listeners[message[0]]
            cast("WorkerRegister", self._register).over += message[1]
            self._scheduler.spawn(self._serve_passed(self._connect(listener), accepted))

    async def _serve_passed(
        self, connect: Callable[[], asyncio.Protocol], accepted: socket.socket
    ) -> None:
        def made() -> asyncio.Protocol:
            protocol = cast("PassedConnection | TlsTransport", connect())
            protocol.on_lost = self.ended
            return protocol

        try:
            await self._scheduler.loop.connect_accepted_socket(made, accepted)
        except OSError:  # the client has disconnected
            self.ended()
            with contextlib.suppress(OSError):
                accepted.close()


class WorkerServer(Server):
    """A server that serves a table of items together with other workers.

    The first worker also serves HTTP, exports metrics, and writes the periodic line.

    Args:
        config: the settings.
        listeners: all sockets of the server.
        shared: other state that the workers share.
        board: communication between the workers.
        number: this worker's.
        channel: see `WorkerLifecycle`.
        tls: the TLS settings; None without TLS.
        clock: the clock, which must agree with those of the other workers.

    Attributes:
        member: this worker's side of the board.
    """

    _administration_type = WorkerAdministration
    _lifecycle_type = WorkerLifecycle
    _register_type = WorkerRegister
    _table_in_process = False  # the process's memory says nothing about the items
    _says_how = False  # the parent does

    def __init__(
        self,
        config: Config,
        listeners: Sequence[Listener],
        shared: Shared,
        board: Board,
        number: int,
        channel: socket.socket,
        *,
        tls: "Tls | None",
        clock: Clock,
    ) -> None:
        self._shared = shared
        self._shared_epoch = shared.epoch
        self._board = board
        self._number = number
        self._channel = channel
        self._replaces = board.served(number)
        self._pace = Pace(board)
        self._processes = board.workers
        super().__init__(config, listeners, tls=tls, clock=clock)

    def _make_near_cache(self, backend: Backend, size: int) -> Backend:
        from memlite.backends.coherent import CoherentNearCache

        agreement = self._shared.agreement
        assert agreement is not None  # noqa: S101 - there is a near cache
        return CoherentNearCache(
            backend,
            (size - agreement.size) // self._board.workers,
            ttl=self.config.near_cache_ttl,
            clock=self.clock,
            agreement=agreement,
        )

    def _make_throttle(self) -> "Throttling | None":
        return self._shared.throttle

    def _make_engine(self) -> "tuple[ItemTable, MemoryEngine | StoreEngine]":
        mapping = self._shared.mapping
        if mapping is None:
            return super()._make_engine()
        config = self.config
        item_size, cas = config.max_item_size, not config.disable_cas
        sizes = SizeClasses(
            factor=config.slab_growth_factor,
            chunk_size=config.slab_min_size,
            item_size_max=item_size,
            cas=cas,
        )
        items = SharedItems(mapping, config.memory_limit * MEGABYTE)
        return items, PlainSharedEngine(
            items, self.clock, self.counters, item_size=item_size, cas=cas, sizes=sizes
        )

    def _make_udp(self, listeners: Sequence[Listener]) -> "list[UdpService]":
        services = super()._make_udp(listeners)
        for service in services:  # all workers read one socket, which is counted once
            service.counted = bool(self._number or self._replaces)
        return services

    def _may_administer(self) -> bool:
        return self._pace.admits()

    def _make_http(self, listeners: Sequence[Listener]) -> "Http | None":
        if not self._number:
            return super()._make_http(listeners)
        self._measure_store()  # the first worker shows the result
        return None

    def _make_otlp(self) -> "OtlpService | None":
        if self._number and not self._traced_one_in:
            if self.config.otlp is not None:
                self._measure_store()
            return None
        return super()._make_otlp()

    def _source_of_exports(self) -> "Callable[[], Snapshot] | None":
        return None if self._number else super()._source_of_exports()

    def _unfinished(self) -> bool:
        # The first worker exports the counts of all workers, so it is the last to stop.
        others = self.otlp is not None and not self._number and self._board.others(0)
        return bool(others) or super()._unfinished()

    def _services(self) -> list[Service]:
        self.member = Member(self._board, self._number, self.counters, self.clock, self.scheduler)
        self.member.work = self._count_segments
        services = super()._services()
        if self._number and self.config.stats_interval:
            del services[1]  # the periodic line, which the first worker writes
        # The member starts last: it announces that this worker serves.
        return [*services, self.member]

    def _make_untraced_execution(self) -> Execution:
        if self._shared.mapping is None:
            return super()._make_untraced_execution()
        engine = cast("PlainSharedEngine", self.engine)
        return SharedExecution(engine, self.table, lambda: self.administration.admin)

    def _connection_kind(self) -> type[Connection]:
        return PassedConnection if self._shared.mapping is None else SharedConnection

    def _make_runner(self) -> Runner | None:
        if self._shared.mapping is None:
            return None
        engine = cast("PlainSharedEngine", self.engine)
        return make_shared_runner(engine, self.limits.commands_per_read)

    def _count_segments(self) -> int:
        """Return a number that changes while a segment is evicted."""
        if self._shared.mapping is None:
            return 0
        table = self._shared.mapping.table
        return table.evictions + table.reclaimed + table.reinserted

    def _make_lifecycle(self) -> Lifecycle:
        lifecycle = cast("WorkerLifecycle", super()._make_lifecycle())
        lifecycle.channel = self._channel
        lifecycle.ended = self._count_ended
        lifecycle.replaces = self._replaces
        lifecycle.alive = self.member.beat
        return lifecycle

    def _count_ended(self) -> None:
        board, number = self._board, self._number
        board.write(number, Cell.ENDED, board.read(number, Cell.ENDED) + 1)

    def _make_administration(self) -> "Administration":
        administration = cast("WorkerAdministration", super()._make_administration())
        administration.join(self.member)
        return administration
