"""Assembly of the proxy: the server's connections in front of the nodes."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memlite.cluster.membership.follower import FOLLOWS_WITHIN, Follower
from memlite.cluster.membership.store import Store
from memlite.cluster.topology import Topology
from memlite.config import Config
from memlite.core.clock import Clock
from memlite.core.errors import StartError
from memlite.core.logs import report_repeated
from memlite.protocol import Limits, TextParser
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.cluster import Cluster
from memlite.proxy.execution import ForwardingExecution
from memlite.proxy.held_replies import HeldReplies
from memlite.proxy.native_connection import NativeConnection
from memlite.proxy.node import Access
from memlite.proxy.topology_file import TopologyFile
from memlite.proxy.unread_replies import MAX_UNREAD, UnreadReplies
from memlite.proxy.watchers import ProxyWatchers
from memlite.server.connections.accepted import connector
from memlite.server.connections.connection import Connection, ConnectionServices
from memlite.server.connections.intake import Intake
from memlite.server.connections.large_values import LargeValues
from memlite.server.connections.listeners import Listener
from memlite.server.connections.register import Register
from memlite.server.execution.dialects import BINARY, TEXT, Dialect
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.http_settings import not_installed, refuse_http_settings
from memlite.server.lifecycle import Lifecycle, Reloader, Service
from memlite.server.scheduler import Scheduler
from memlite.server.upkeep.ticker import Ticker
from memlite.telemetry.counters import Counters
from memlite.telemetry.hotkeys import HotKeys
from memlite.telemetry.sampling import Sampler

if TYPE_CHECKING:
    from memlite.proxy.move_watch import MoveWatch
    from memlite.proxy.queue import Tracer
    from memlite.proxy.stats_collector import ProxyStatsCollector
    from memlite.proxy.tally import Counts
    from memlite.proxy.trace import Sample, Trace, Tracing
    from memlite.server.auth.auth import Authenticator
    from memlite.server.connections.tls import Tls
    from memlite.server.http.assembly import Http
    from memlite.server.otlp.service import OtlpService
    from memlite.telemetry.slow import SlowLog
    from memlite.telemetry.snapshot import Snapshot
    from memlite.telemetry.spans import Span

__all__ = ["FORWARDED", "Proxy"]

FORWARDED = Dialect(
    partial(TextParser, keep_requests=True), commands=TEXT.commands, login=TEXT.login, fast=True
)
"""The text protocol, with requests kept as they arrive."""


class Proxy:
    """A proxy that speaks memcached's text, meta and binary protocols.

    Args:
        config: the settings about connections and the process.
        topology: the nodes; None if `store` lists them.
        listeners: bound sockets for connections; the proxy closes them.
        access: how nodes are reached.
        unread_limit: maximum bytes of replies that all clients together may leave unread; see
            `UnreadReplies`.
        strict: whether a retrieval fails if one of its nodes fails.
        in_flight: the most requests with the nodes at a time; None for no limit.
        tracing: which requests are traced, and where; None for none.
        spans: the requests whose spans are exported, with ``--otlp``; None for none.
        file: the topology file, which is read again when it changes; None if there is none.
        store: where a cluster's members register; None if there are none.
        promote: the share of an average node's requests, in percent, at which a key is promoted;
            None for no automatic promotion.
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
        unread_limit: int = MAX_UNREAD,
        strict: bool = False,
        in_flight: int | None = None,
        tracing: "Tracing | None" = None,
        spans: "Sample | None" = None,
        file: Path | None = None,
        store: Store | None = None,
        promote: float | None = None,
        tls: "Tls | None" = None,
        owns_process: bool = True,
    ) -> None:
        clock, counters = Clock(), Counters()
        if config.http is None:
            refuse_http_settings(config)
        self.scheduler = Scheduler()
        self.cluster = Cluster(
            topology,
            self.scheduler,
            access,
            strict=strict,
            follows_within=0.0 if store is None else FOLLOWS_WITHIN,
        )
        self._file = None if file is None else TopologyFile(file, self.cluster.change)
        self._store = store
        self._follower = (
            None
            if store is None
            else Follower(
                store,
                lambda topology, _: self.cluster.change(topology),
                self.cluster.suspend,
                lease=access.lease,
            )
        )
        self._trace: Trace | None = None
        self._export: OtlpService | None = None
        tracers: list[Tracer] = []
        slow = _slow_log(config, clock)
        if slow is not None:
            from memlite.proxy.slow_log import SlowRequests

            tracers.append(SlowRequests(slow))
        # Whether only traced requests pass through the queue.
        few = in_flight is None and slow is None
        if tracing is not None:
            every = 1 if few else tracing.sample.every
            self._trace = _trace(tracing, self.cluster, self.scheduler, every)
            tracers.append(self._trace)
        if config.otlp is not None:
            self._export, take = _export(config, listeners, self._exported)
            if spans is not None:
                from memlite.proxy.spans import SpanTrace

                tracers.append(SpanTrace(take, spans, 1 if few else spans.every))
        sample = spans if tracing is None else tracing.sample
        self._queue = None
        if in_flight is not None or tracers:
            from memlite.proxy.queue import RequestQueue

            self._queue = RequestQueue(
                self.cluster,
                self.scheduler,
                in_flight=in_flight,
                deadline=access.deadline,
                tracer=_together(tracers),
                every=sample.every if few and sample is not None else 1,
            )
            if few and self._trace is not None and len(tracers) == 1:
                self._trace.trace_in_c(self._queue.turns)
        self._auth = _authenticator(config, counters)
        sampler = Sampler()
        hot_keys = HotKeys(clock, sampler.interval)
        if promote is not None or config.http is not None:
            sampler = Sampler(
                hot_keys.record, sampler.interval, record_changes=hot_keys.record_changes
            )
        self._promoter = None
        if store is not None or promote is not None:
            from memlite.proxy.promoter import Promoter

            self._promoter = Promoter(self.cluster, access, store, promote, hot_keys)
        instrumentation = Instrumentation(counters, sampler, config.verbose)
        self._register = Register(config.conn_limit, counters, clock, instrumentation, self._auth)
        # Twice the largest item: a reply has a header as well, and TLS adds its own.
        self._unread_replies = UnreadReplies(unread_limit, spared=2 * config.max_item_size)
        watchers = ProxyWatchers(clock, self._register, slow, config.extended.watcher_logbuf_size)
        admin = ProxyAdmin(
            self.cluster,
            counters,
            self._register,
            self._unread_replies,
            clock,
            instrumentation.set_verbosity,
            authenticates=self._auth is not None,
            queue=self._queue,
            trace=self._trace,
            slow=slow,
            watchers=watchers,
        )
        counts: Counts | None = None
        if config.http is not None or config.otlp is not None:
            from memlite.proxy.tally import new_counts

            counts = new_counts()
        intake = Intake()
        limits = Limits(item_size=config.max_item_size, commands_per_read=config.max_reqs_per_event)
        self._services = ConnectionServices(
            counters=counters,
            clock=clock,
            limits=limits,
            dialect=BINARY if config.protocol == "binary" else FORWARDED,
            negotiates=config.protocol == "auto",
            execution=ForwardingExecution(self.cluster, admin, limits, self._queue, counts),
            instrumentation=instrumentation,
            register=self._register,
            scheduler=self.scheduler,
            large_values=LargeValues(counters, clock, lambda continued: continued(), intake.buffer),
            intake=intake,
            auth=self._auth,
        )
        self._tls, self._clock = tls, clock
        self._certificates_read = clock.now()
        self._http: Http | None = None
        self._move_watch: MoveWatch | None = None
        self._stats: ProxyStatsCollector | None = None
        if counts is not None:
            self._stats = self._make_stats_collector(config, sampler, slow, watchers, counts)
            if config.http is not None:
                http = [one for one in listeners if one.http]
                self._http = self._make_http(config, http, self._stats, hot_keys, slow)
        self.lifecycle = Lifecycle(
            listeners=[one for one in listeners if not one.udp and not one.http],
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
            reload=Reloader(self._readers()).reload,
            services=self._services_of(self._ticker(clock, config)),
            backlog=config.listen_backlog,
            unfinished=(lambda: False) if self._http is None else self._http.service.unfinished,
            owns_process=owns_process,
        )
        self.request_stop = self.lifecycle.request_stop

    def _make_stats_collector(
        self,
        config: Config,
        sampler: Sampler,
        slow: "SlowLog | None",
        watchers: ProxyWatchers,
        counts: "Counts",
    ) -> "ProxyStatsCollector":
        from memlite.proxy.move_watch import MoveWatch
        from memlite.proxy.stats_collector import ProxyStatsCollector

        follower, cluster = self._follower, self.cluster
        if self._store is not None:
            self._move_watch = MoveWatch(self._store, lambda: cluster.moving is not None)
        return ProxyStatsCollector(
            config,
            self._clock,
            cluster,
            counters=self._services.counters,
            counts=counts,
            sampler=sampler,
            register=self._register,
            intake=self._services.intake,
            unread_replies=self._unread_replies,
            queue=self._queue,
            slow=slow,
            event_loop=lambda: self.scheduler.loop,
            epoch=lambda: None if follower is None else follower.epoch,
            move_watch=self._move_watch,
            certificates_read=None if self._tls is None else lambda: self._certificates_read,
            watchers=watchers,
            draining=lambda: self.lifecycle.draining,
        )

    def _make_http(
        self,
        config: Config,
        listeners: Sequence[Listener],
        stats: "ProxyStatsCollector",
        hot_keys: HotKeys,
        slow: "SlowLog | None",
    ) -> "Http":
        try:
            from memlite.proxy.http import assemble
        except ImportError as error:
            raise not_installed(error) from None
        return assemble(config, listeners, tls=self._tls, stats=stats, hot_keys=hot_keys, slow=slow)

    def _exported(self) -> "Snapshot":
        """Return the proxy's statistics, for ``--otlp``."""
        if self._http is not None:
            return self._http.service.snapshot()
        assert self._stats is not None  # noqa: S101 - with --otlp there are some
        return self._stats.snapshot()

    async def run(self, ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Serve until asked to stop; see `Lifecycle`.

        Raises:
            StartError: the store of the cluster cannot be used.
        """
        if self._store is None:
            await self.lifecycle.run(ready, stopping)
            return
        if self._http is not None:
            self._http.service.listen()  # reports that the proxy starts; the store may take long
        try:
            await self._store.open()
        except StartError as error:
            self._stop_http()
            raise StartError(f"--cluster: {error}") from None
        try:
            if self._follower is not None:
                await self._follower.step()  # before clients are served
            await self.lifecycle.run(ready, stopping)
        finally:
            self._stop_http()
            await self._store.close()

    def _stop_http(self) -> None:
        if self._http is not None:
            self._http.service.stop()

    def _services_of(self, ticker: Ticker) -> list[Service]:
        held = HeldReplies(
            self.cluster, self._unread_replies, self._register.connections, self.scheduler
        )
        services: list[Service] = [_Ticking(ticker), self.cluster, held]
        if self._follower is not None:
            services.append(self._follower)
        if self._promoter is not None:
            services.append(self._promoter)
        if self._move_watch is not None:
            services.append(self._move_watch)
        if self._http is not None:
            services.append(self._http.service)
        if self._trace is not None:
            services.append(self._trace)  # last, to trace the shutdown of the others
        if self._export is not None:
            services.append(self._export)  # likewise
        return services

    def connect(self) -> Connection:
        """Return the protocol for a new connection."""
        return NativeConnection(self._services, self._unread_replies)

    def _readers(self) -> list[tuple[str, Callable[[], None]]]:
        """Return the names and functions of the reloads on SIGHUP."""
        readers: list[tuple[str, Callable[[], None]]] = []
        if self._file is not None:
            readers.append(("topology", self._file.read))
        if self._auth is not None:
            readers.append(("users", self._auth.reload))
        if self._trace is not None:
            readers.append(("trace", self._trace.reopen))
        if self._tls is not None:
            readers.append(("certificates", partial(self._read_certificates, self._tls)))
        if self._http is not None and self._http.token is not None:
            readers.append(("HTTP token", self._http.token.load))
        return readers

    def _read_certificates(self, tls: "Tls") -> None:
        tls.reload()
        self._certificates_read = self._clock.now()

    def _ticker(self, clock: Clock, config: Config) -> Ticker:
        duties: list[Callable[[int], None]] = [
            lambda _second: report_repeated(),
            lambda _second: self.cluster.tick(),
        ]
        if self._file is not None:
            duties.append(self._file.read_if_changed)
        if self._auth is not None:
            duties.append(self._auth.close_overdue)
        timeout = config.extended.idle_timeout
        if timeout:
            duties.append(lambda second: self._register.close_idle(second - timeout))
        return Ticker(clock, self.scheduler, self._register.excuse_pause, duties)


def _slow_log(config: Config, clock: Clock) -> "SlowLog | None":
    if not config.slow_nanoseconds:
        return None
    from memlite.telemetry.slow import SlowLog

    return SlowLog(config.slow_nanoseconds, clock)


def _trace(tracing: "Tracing", cluster: Cluster, scheduler: Scheduler, every: int) -> "Trace":
    from memlite.proxy.trace import Trace

    return Trace(tracing, cluster, scheduler, every)


def _export(
    config: Config, listeners: Sequence[Listener], snapshot: "Callable[[], Snapshot]"
) -> "tuple[OtlpService, Callable[[Span], None]]":
    """Return the service that exports metrics and spans, and the function that takes spans."""
    try:
        from memlite.server.otlp.assembly import assemble
        from memlite.telemetry.metrics.proxy_metrics import PROXY_METRICS
    except ImportError as error:
        raise StartError(
            f"--otlp: {error.name} is not installed: pip install 'memlite-cache[otel]'"
        ) from None
    address = next((str(one.port or one.file) for one in listeners), "")
    service, worker = assemble(str(config.otlp), address, PROXY_METRICS, snapshot)
    return service, worker.put_span


def _together(tracers: "Sequence[Tracer]") -> "Tracer | None":
    if len(tracers) < 2:
        return tracers[0] if tracers else None
    from memlite.proxy.queue import Tracers

    return Tracers(tracers)


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
