"""Assembly of the proxy: the server's connections in front of the nodes."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memlite.cluster.membership.follower import Follower
from memlite.cluster.membership.store import Store
from memlite.cluster.topology import Topology
from memlite.config import Config
from memlite.core.clock import Clock
from memlite.core.errors import StartError
from memlite.protocol import Limits, TextParser
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.cluster import Cluster
from memlite.proxy.executor import ForwardingExecution
from memlite.proxy.node import Access
from memlite.proxy.topology_file import TopologyFile
from memlite.server.connections.connection import Connection, ConnectionServices
from memlite.server.connections.connector import connector
from memlite.server.connections.intake import Intake
from memlite.server.connections.listeners import Listener
from memlite.server.connections.receiver import LargeValues
from memlite.server.connections.register import Register
from memlite.server.execution.dialects import TEXT, Dialect
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.lifecycle import Lifecycle, Reloader, Service
from memlite.server.scheduler import Scheduler
from memlite.server.upkeep.ticker import Ticker
from memlite.telemetry.counters import Counters
from memlite.telemetry.sampling import Sampler

if TYPE_CHECKING:
    from memlite.server.auth.auth import Authenticator
    from memlite.server.connections.tls import Tls

__all__ = ["FORWARDED", "Proxy"]

FORWARDED = Dialect(
    partial(TextParser, keep_requests=True), commands=TEXT.commands, login=TEXT.login, fast=True
)
"""The text protocol, whose requests are kept as they arrive."""


class Proxy:
    """A proxy that speaks memcached's text protocol, meta commands included.

    Args:
        config: the settings about connections and the process.
        topology: the nodes; None if they are found in `store`.
        listeners: bound sockets for connections; the proxy closes them.
        access: how nodes are reached.
        strict: whether a retrieval fails if one of its nodes fails.
        file: the topology file, which is read again when it changes; None if there is none.
        store: where a cluster's members register; None if there are none.
        tls: the TLS settings of clients' connections; None without TLS.
        owns_process: whether the process is the proxy's alone; see `Lifecycle`.

    Attributes:
        cluster: the nodes.
        lifecycle: starts and stops the proxy.
        scheduler: schedules work on the event loop.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology | None,
        listeners: Sequence[Listener],
        *,
        access: Access,
        strict: bool = False,
        file: Path | None = None,
        store: Store | None = None,
        tls: "Tls | None" = None,
        owns_process: bool = True,
    ) -> None:
        clock, counters = Clock(), Counters()
        self.scheduler = Scheduler()
        self.cluster = Cluster(topology, self.scheduler, access, strict=strict)
        self._file = None if file is None else TopologyFile(file, self.cluster.change)
        self._store = store
        self._follower = (
            None
            if store is None
            else Follower(
                store, lambda topology, _: self.cluster.change(topology), self.cluster.suspend
            )
        )
        self._auth = _authenticator(config, counters)
        instrumentation = Instrumentation(counters, Sampler(), config.verbose)
        self._register = Register(config.conn_limit, counters, clock, instrumentation, self._auth)
        admin = ProxyAdmin(
            self.cluster, counters, self._register, clock, instrumentation.set_verbosity
        )
        self._services = ConnectionServices(
            counters=counters,
            clock=clock,
            limits=Limits(
                item_size=config.max_item_size, commands_per_read=config.max_reqs_per_event
            ),
            dialect=FORWARDED,
            negotiates=False,
            execution=ForwardingExecution(self.cluster, admin),
            instrumentation=instrumentation,
            register=self._register,
            scheduler=self.scheduler,
            large_values=LargeValues(counters, clock, lambda continued: continued()),
            intake=Intake(),
            auth=self._auth,
        )
        self.lifecycle = Lifecycle(
            listeners=[listener for listener in listeners if not listener.udp],
            udp=(),
            connect=connector(
                tls,
                self.connect,
                register=self._register,
                counters=counters,
                scheduler=self.scheduler,
                clock=clock,
            ),
            register=self._register,
            scheduler=self.scheduler,
            backend=None,
            reload=Reloader(self._readers(tls)).reload,
            services=self._services_of(self._ticker(clock, config)),
            backlog=config.listen_backlog,
            owns_process=owns_process,
        )
        self.request_stop = self.lifecycle.request_stop

    async def run(self, ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Serve until asked to stop; see `Lifecycle`.

        Raises:
            StartError: the store of the cluster cannot be used.
        """
        if self._store is None:
            await self.lifecycle.run(ready, stopping)
            return
        try:
            await self._store.open()
        except StartError as error:
            raise StartError(f"--cluster: {error}") from None
        try:
            await self.lifecycle.run(ready, stopping)
        finally:
            await self._store.close()

    def _services_of(self, ticker: Ticker) -> list[Service]:
        services: list[Service] = [_Ticking(ticker), self.cluster]
        return services if self._follower is None else [*services, self._follower]

    def connect(self) -> Connection:
        """Return the protocol for a new connection."""
        return Connection(self._services)

    def _readers(self, tls: "Tls | None") -> list[tuple[str, Callable[[], None]]]:
        """Return what SIGHUP reloads."""
        readers: list[tuple[str, Callable[[], None]]] = []
        if self._file is not None:
            readers.append(("topology", self._file.read))
        if self._auth is not None:
            readers.append(("users", self._auth.reload))
        if tls is not None:
            readers.append(("certificates", tls.reload))
        return readers

    def _ticker(self, clock: Clock, config: Config) -> Ticker:
        duties: list[Callable[[int], None]] = []
        if self._file is not None:
            duties.append(self._file.read_if_changed)
        if self._auth is not None:
            duties.append(self._auth.close_overdue)
        timeout = config.extended.idle_timeout
        if timeout:
            duties.append(lambda second: self._register.close_idle(second - timeout))
        return Ticker(clock, self.scheduler, self._register.excuse_pause, duties)


def _authenticator(config: Config, counters: Counters) -> "Authenticator | None":
    if not config.asks_for_password:
        return None
    from memlite.server.auth.auth import Authenticator
    from memlite.server.auth.users import users_of

    return Authenticator(users_of(config, os.environ), counters, config.auth_timeout)


class _Ticking:
    """The ticker as a service of the life cycle."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self.stop = ticker.stop

    def start(self) -> None:
        self._ticker.tick()
