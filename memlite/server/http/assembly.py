"""Assembly of the HTTP side from the settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memlite.backends import Backend
from memlite.config import Config
from memlite.server.admin.stats_collector import StatsCollector
from memlite.server.connections.listeners import Listener
from memlite.server.http.access import Access, Token
from memlite.server.http.health import Health
from memlite.server.http.service import HttpService, HttpSources
from memlite.server.readiness import Condition
from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.metrics.exporter_names import EXPORTER_METRICS
from memlite.telemetry.metrics.metric import Metric
from memlite.telemetry.snapshot import Snapshot

if TYPE_CHECKING:
    import ssl

    from memlite.server.connections.tls import Tls

__all__ = ["Http", "assemble", "service_of"]

_PROBED_KEY = b"memlite-readyz"
_METRIC_SETS: Final[Mapping[str, Sequence[Metric]]] = {
    "memlite": METRICS,
    "memcached": EXPORTER_METRICS,
    "both": (*METRICS, *EXPORTER_METRICS),
}
"""By the value of ``--http-metric-names``."""


@dataclass(frozen=True, slots=True)
class Http:
    """The HTTP side of a server or proxy.

    Attributes:
        service: starts and stops it.
        token: the token that clients must send; None if none is needed.
        port: the TCP port; 0 if assembled only to check the settings.
    """

    service: HttpService
    token: Token | None
    port: int


def assemble(
    config: Config,
    listeners: Sequence[Listener],
    *,
    tls: "Tls | None",
    backend: Backend | None,
    collector: Callable[[], StatsCollector],
    draining: Callable[[], bool],
) -> Http:
    """Return the HTTP side of a server.

    Args:
        config: the settings.
        listeners: the sockets for HTTP.
        tls: the TLS settings; None without TLS.
        backend: the store; None if items are in memory only.
        collector: returns the statistics collector.
        draining: returns whether the server is about to stop.

    Raises:
        StartError: the token file cannot be used.
    """
    condition = Condition(lambda: collector().storage(), draining)

    async def probe() -> None:
        if backend is not None:
            await backend.get(_PROBED_KEY)

    def snapshot() -> Snapshot:
        return collector().snapshot(condition.troubles())

    sources = HttpSources(
        snapshot,
        Health(condition.troubles, condition.unavailable, probe),
        lambda: collector().hot_keys(),
        lambda: collector().slow(),
        _METRIC_SETS[config.http_metric_names],
    )
    return service_of(config, listeners, tls, sources)


def service_of(
    config: Config, listeners: Sequence[Listener], tls: "Tls | None", sources: HttpSources
) -> Http:
    """Return the HTTP side of a server or proxy.

    Args:
        config: the settings.
        listeners: the sockets for HTTP.
        tls: the TLS settings; None without TLS.
        sources: the data to show.

    Raises:
        StartError: the token file cannot be used.
    """
    token = None
    if config.http_token_file is not None:
        # Without listeners this only checks the settings.
        token = Token(config.http_token_file, warns=bool(listeners))

    def context(mode: str) -> "ssl.SSLContext":
        assert tls is not None  # noqa: S101 - no listener has TLS otherwise
        return tls.context(mode)

    service = HttpService(
        listeners,
        context,
        Access(token, config.http_hosts),
        sources,
        shows_keys=config.http_keys,
        debug=config.http_debug,
    )
    return Http(service, token, listeners[0].port if listeners else 0)
