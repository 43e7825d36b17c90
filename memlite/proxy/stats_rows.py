"""The statistics group `stats proxy`: where requests spend their time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from memlite.proxy.cluster import Cluster
from memlite.telemetry.counters import LatencyHistogram

if TYPE_CHECKING:
    from memlite.proxy.queue import RequestQueue
    from memlite.proxy.trace import Trace

__all__ = ["times"]

_PERCENTS: Final = (50, 90, 99, 99.9)


def times(
    cluster: Cluster, queue: "RequestQueue | None", trace: "Trace | None"
) -> Iterator[tuple[str, object]]:
    """Yield the names and values of the group; times are in microseconds.

    Args:
        cluster: the nodes.
        queue: the queue that requests pass through; None if they go to the nodes at once.
        trace: the trace; None if there is none.
    """
    if trace is not None:
        yield "trace_written", trace.written
        yield "trace_dropped", trace.dropped
    if queue is not None and queue.in_flight is not None:
        yield from _of_queue(queue)
    else:
        yield from _of_nodes(cluster)
    for node in cluster.nodes:
        yield f"node:{node.name}:arrivals", node.requests
        yield from _of(f"node:{node.name}:service", node.service)


def _of_queue(queue: "RequestQueue") -> Iterator[tuple[str, object]]:
    yield "in_flight_limit", queue.in_flight
    yield "in_flight", queue.busy
    yield "arrivals", queue.arrivals
    yield "queue_length", queue.length
    yield "queue_length_max", queue.longest
    yield "queue_length_mean", f"{queue.lengths / max(queue.arrivals, 1):.3f}"
    yield "queue_refused", queue.refused
    yield "queue_expired", queue.expired
    yield "queue_dropped", queue.dropped
    yield from _of("queue", queue.queueing)
    yield from _of("service", queue.service)
    yield from _of("think", queue.thinking)


def _of_nodes(cluster: Cluster) -> Iterator[tuple[str, object]]:
    timing = cluster.timing
    waiting = sum(node.waiting for node in cluster.every_node)
    yield "in_flight_limit", "none"
    yield "in_flight", sum(node.pending for node in cluster.every_node) - waiting
    yield "arrivals", cluster.node_requests
    yield "queue_length", waiting
    yield "queue_length_max", timing.longest
    yield "queue_length_mean", f"{timing.lengths / max(timing.queueing.count, 1):.3f}"
    yield from _of("queue", timing.queueing)
    yield from _of("service", timing.service)
    yield from _of("think", timing.thinking)


def _of(name: str, found: LatencyHistogram) -> Iterator[tuple[str, object]]:
    yield f"{name}_count", found.count
    yield f"{name}_us_mean", _microseconds(found.total / max(found.count, 1))
    for percent, value in zip(_PERCENTS, found.percentiles(*_PERCENTS), strict=True):
        yield f"{name}_us_p{percent:g}", _microseconds(value)
    yield f"{name}_us_max", _microseconds(found.maximum)


def _microseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.1f}"
