"""The HTTP side of a proxy (``--http``)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memlite.config import Config
from memlite.proxy.stats_collector import ProxyStatsCollector
from memlite.server.connections.listeners import Listener
from memlite.server.http.assembly import Http, service_of
from memlite.server.http.health import Health
from memlite.server.http.service import HttpSources
from memlite.telemetry.hotkeys import HotKeys
from memlite.telemetry.metrics.proxy_metrics import PROXY_METRICS
from memlite.telemetry.slow import SlowLog

if TYPE_CHECKING:
    from memlite.server.connections.tls import Tls

__all__ = ["assemble"]


def assemble(
    config: Config,
    listeners: Sequence[Listener],
    *,
    tls: "Tls | None",
    stats: ProxyStatsCollector,
    hot_keys: HotKeys,
    slow: SlowLog | None,
) -> Http:
    """Return the HTTP side of a proxy.

    Args:
        config: the settings.
        listeners: the sockets for HTTP.
        tls: the TLS settings; None without TLS.
        stats: collects the figures shown.
        hot_keys: the keys of requests that were sampled.
        slow: the slow log; None without one.

    Raises:
        StartError: the token file cannot be used.
    """
    sources = HttpSources(
        stats.snapshot,
        Health(stats.troubles),
        hot_keys.snapshot,
        lambda: None if slow is None else slow.stats(),
        PROXY_METRICS,
    )
    return service_of(config, listeners, tls, sources)
