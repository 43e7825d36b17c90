"""Assembly of the proxy: the server's connections in front of the nodes."""

from collections.abc import Callable, Sequence
from functools import partial

from memlite.cluster.topology import Topology
from memlite.config import Config
from memlite.core.clock import Clock
from memlite.protocol import Limits, TextParser
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.cluster import Cluster
from memlite.proxy.executor import ForwardingExecution
from memlite.server.connections.connection import Connection, ConnectionServices
from memlite.server.connections.intake import Intake
from memlite.server.connections.listeners import Listener
from memlite.server.connections.receiver import LargeValues
from memlite.server.connections.register import Register
from memlite.server.execution.dialects import TEXT, Dialect
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.lifecycle import Lifecycle, Reloader
from memlite.server.scheduler import Scheduler
from memlite.server.upkeep.ticker import Ticker
from memlite.telemetry.counters import Counters
from memlite.telemetry.sampling import Sampler

__all__ = ["FORWARDED", "Proxy"]

FORWARDED = Dialect(
    partial(TextParser, keep_requests=True), commands=TEXT.commands, login=TEXT.login, fast=True
)
"""The text protocol, whose requests are kept as they arrive."""


class Proxy:
    """A proxy that speaks memcached's text protocol, meta commands included.

    Args:
        config: the settings about connections and the process.
        topology: the nodes.
        listeners: bound sockets for connections; the proxy closes them.
        deadline: seconds within which a node must answer a request.
        owns_process: whether the process is the proxy's alone; see `Lifecycle`.

    Attributes:
        cluster: the nodes.
        lifecycle: starts and stops the proxy.
        scheduler: schedules work on the event loop.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        listeners: Sequence[Listener],
        *,
        deadline: float,
        owns_process: bool = True,
    ) -> None:
        clock, counters = Clock(), Counters()
        self.scheduler = Scheduler()
        self.cluster = Cluster(topology, self.scheduler, deadline)
        instrumentation = Instrumentation(counters, Sampler(), config.verbose)
        self._register = Register(config.conn_limit, counters, clock, instrumentation, None)
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
            auth=None,
        )
        self.lifecycle = Lifecycle(
            listeners=[listener for listener in listeners if not listener.udp],
            udp=(),
            connect=lambda listener: self.connect,
            register=self._register,
            scheduler=self.scheduler,
            backend=None,
            reload=Reloader(()).reload,
            services=[_Ticking(self._ticker(clock, config)), self.cluster],
            backlog=config.listen_backlog,
            owns_process=owns_process,
        )
        self.run = self.lifecycle.run
        self.request_stop = self.lifecycle.request_stop

    def connect(self) -> Connection:
        """Return the protocol for a new connection."""
        return Connection(self._services)

    def _ticker(self, clock: Clock, config: Config) -> Ticker:
        duties: list[Callable[[int], None]] = []
        timeout = config.extended.idle_timeout
        if timeout:
            duties.append(lambda second: self._register.close_idle(second - timeout))
        return Ticker(clock, self.scheduler, self._register.excuse_pause, duties)


class _Ticking:
    """The ticker as a service of the life cycle."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self.stop = ticker.stop

    def start(self) -> None:
        self._ticker.tick()
