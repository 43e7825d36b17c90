"""The metrics of a proxy, each defined once.

Nodes have labels with their names, which are their addresses unless they were given others. There
are at most `MAX_NODES` of them; further nodes are added up.
"""

from collections.abc import Callable, Iterable
from typing import Final

from memlite.telemetry.metrics.definitions import COMMON
from memlite.telemetry.metrics.metric import Metric, Sample, Value
from memlite.telemetry.metrics.readers import Read
from memlite.telemetry.proxy import MoveStats, NodeStats, ProxySnapshot, ProxyStats, QueueStats
from memlite.telemetry.snapshot import Snapshot

__all__ = ["PROXY_METRICS", "PROXY_ONLY"]

_STATES: Final = ("up", "down", "connecting")
_PHASES: Final = ("gather", "prepare", "move", "settle", "back", "spread")


def _several(read: Callable[[ProxyStats], Iterable[Sample]]) -> Read:
    """Return a reader of several samples, which are taken from a proxy's statistics."""
    return lambda snapshot: read(snapshot.proxy) if isinstance(snapshot, ProxySnapshot) else ()


def _single(value: Callable[[ProxyStats], float | None]) -> Read:
    """Return a reader of one figure of a proxy; it yields no sample if the figure is None."""

    def read(snapshot: Snapshot) -> tuple[Sample, ...]:
        if not isinstance(snapshot, ProxySnapshot):
            return ()
        found = value(snapshot.proxy)
        return () if found is None else (Sample(found),)

    return read


def _by_node(value: Callable[[NodeStats], Value | None]) -> Read:
    """Return a reader of a figure of each node; nodes for which it is None are left out."""
    return _several(
        lambda proxy: [
            Sample(found, (node.name, node.role))
            for node in proxy.nodes
            if (found := value(node)) is not None
        ]
    )


def _of_queue(read: Callable[[QueueStats], Iterable[Sample]]) -> Read:
    return _several(lambda proxy: () if proxy.queue is None else read(proxy.queue))


def _of_move(value: Callable[[MoveStats], int | None]) -> Read:
    return _single(lambda proxy: None if proxy.move is None else value(proxy.move))


def _discarded(queue: QueueStats) -> tuple[Sample, ...]:
    if queue.in_flight_limit is None:
        return ()
    return (
        Sample(queue.refused, ("refused",)),
        Sample(queue.expired, ("expired",)),
        Sample(queue.dropped, ("dropped",)),
    )


def _states(proxy: ProxyStats) -> list[Sample]:
    nodes = [node for node in proxy.nodes if node.role == "node"]
    up, count = sum(node.up for node in nodes), sum(node.count for node in nodes)
    connecting = sum(node.state == "connecting" for node in nodes)
    numbers = (up, count - up - connecting, connecting)
    return [Sample(number, (state,)) for state, number in zip(_STATES, numbers, strict=True)]


def _phases(proxy: ProxyStats) -> list[Sample]:
    present = None if proxy.move is None else proxy.move.phase
    return [Sample(int(phase == present), (phase,)) for phase in _PHASES]


_COMMANDS: Final = (
    Metric(
        "memlite_proxy_commands_total",
        "counter",
        "Client commands on keys, and flushes, by class and result (noreply: no reply requested; "
        "error: of a node or the proxy); a get of several keys counts once per key.",
        _several(lambda proxy: [Sample(count, key) for key, count in proxy.commands.items()]),
        labels=("class", "result"),
    ),
    Metric(
        "memlite_proxy_multigets_total",
        "counter",
        "Retrievals of keys from several nodes.",
        _single(lambda proxy: proxy.multigets),
    ),
    Metric(
        "memlite_proxy_failed_requests_total",
        "counter",
        "Requests, or parts of requests, answered with an error of the proxy.",
        _single(lambda proxy: proxy.failed_requests),
    ),
    Metric(
        "memlite_proxy_failed_shards_total",
        "counter",
        "Parts of retrievals whose keys were returned as misses because a node failed.",
        _single(lambda proxy: proxy.failed_shards),
    ),
    Metric(
        "memlite_proxy_unread_bytes",
        "gauge",
        "Bytes of replies held for clients that do not read them (--unread-limit).",
        _single(lambda proxy: proxy.unread_bytes),
        "bytes",
    ),
    Metric(
        "memlite_proxy_unread_disconnects_total",
        "counter",
        "Clients disconnected because they did not read their replies.",
        _single(lambda proxy: proxy.unread_disconnects),
    ),
)

_QUEUE: Final = (
    Metric(
        "memlite_proxy_queue_length",
        "gauge",
        "Requests waiting to be sent: with --in-flight for a worker, otherwise for the next write.",
        _of_queue(lambda queue: (Sample(queue.length),)),
    ),
    Metric(
        "memlite_proxy_queue_in_flight",
        "gauge",
        "Requests sent to nodes and not answered yet.",
        _of_queue(lambda queue: (Sample(queue.in_flight),)),
    ),
    Metric(
        "memlite_proxy_queue_in_flight_limit",
        "gauge",
        "Maximum number of requests in flight (--in-flight).",
        _of_queue(
            lambda queue: () if queue.in_flight_limit is None else (Sample(queue.in_flight_limit),)
        ),
    ),
    Metric(
        "memlite_proxy_queue_arrivals_total",
        "counter",
        "Requests that arrived, including those discarded; without --in-flight, requests passed "
        "to nodes.",
        _of_queue(lambda queue: (Sample(queue.arrivals),)),
    ),
    Metric(
        "memlite_proxy_queue_discarded_total",
        "counter",
        "Requests that were not sent, only with --in-flight: refused because too many were "
        "waiting, expired after --deadline, or dropped (reads whose client had disconnected).",
        _of_queue(_discarded),
        labels=("reason",),
    ),
    Metric(
        "memlite_proxy_queue_wait_duration_seconds",
        "histogram",
        "Time requests waited to be sent; without --in-flight, in the event loop or while the node "
        "accepts no data, sampled from the first request of one write per millisecond.",
        _of_queue(lambda queue: (Sample(queue.waiting),)),
        "seconds",
    ),
    Metric(
        "memlite_proxy_queue_service_duration_seconds",
        "histogram",
        "Time from sending a request to the last node's reply; without --in-flight, sampled from "
        "one write per millisecond.",
        _of_queue(lambda queue: (Sample(queue.service),)),
        "seconds",
    ),
    Metric(
        "memlite_proxy_think_duration_seconds",
        "histogram",
        "Time from a client's last reply to its next request; without --in-flight, sampled from "
        "one client per millisecond.",
        _of_queue(lambda queue: (Sample(queue.thinking),)),
        "seconds",
    ),
)

_NODES: Final = (
    Metric(
        "memlite_proxy_nodes",
        "gauge",
        "Nodes by state, excluding those of the gutter.",
        _several(_states),
        labels=("state",),
    ),
    Metric(
        "memlite_proxy_node_up",
        "gauge",
        "Whether a node can be reached: 1 or 0.",
        _by_node(lambda node: node.up),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_share_ratio",
        "gauge",
        "Share of the key hashes, from 0 to 1, that a node owns.",
        _by_node(lambda node: node.share if node.role == "node" else None),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_requests_total",
        "counter",
        "Requests sent to a node.",
        _by_node(lambda node: node.requests),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_failures_total",
        "counter",
        "Requests for a node that failed because it was down, went down or had too many requests "
        "waiting.",
        _by_node(lambda node: node.failed),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_refused_total",
        "counter",
        "Requests for a node that were not sent because too many were waiting for it; also "
        "counted as failures.",
        _by_node(lambda node: node.refused),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_timeouts_total",
        "counter",
        "Times a node did not answer within --deadline.",
        _by_node(lambda node: node.timeouts),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_connections_total",
        "counter",
        "Connections opened to a node; there is one at a time.",
        _by_node(lambda node: node.connects),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_emptied_total",
        "counter",
        "Times a node was emptied because it had missed changes (--on-return).",
        _by_node(lambda node: node.emptied),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_pending_requests",
        "gauge",
        "Requests for a node that have no reply yet.",
        _by_node(lambda node: node.pending),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_duration_seconds",
        "histogram",
        "Time from a write to a node until the reply to its last request; sampled: one write per "
        "node at a time, and one per millisecond over all nodes, or one per tenth of a second per "
        "node.",
        _by_node(lambda node: node.service),
        "seconds",
        ("node", "role"),
    ),
    Metric(
        "memlite_proxy_replica_reads_total",
        "counter",
        "Reads sent to a replica.",
        _single(lambda proxy: proxy.replica_reads),
    ),
    Metric(
        "memlite_proxy_gutter_requests_total",
        "counter",
        "Requests sent to the gutter in place of a node that was down.",
        _single(lambda proxy: proxy.gutter_requests),
    ),
    Metric(
        "memlite_proxy_hot_keys",
        "gauge",
        "Keys that have copies on all nodes.",
        _single(lambda proxy: proxy.hot_keys),
    ),
)

_TOPOLOGY: Final = (
    Metric(
        "memlite_proxy_topology_version",
        "gauge",
        "Number that increases with each change of the nodes.",
        _single(lambda proxy: proxy.version),
    ),
    Metric(
        "memlite_proxy_cluster_epoch",
        "gauge",
        "Last known epoch of the cluster whose nodes register themselves (--cluster).",
        _single(lambda proxy: proxy.epoch),
    ),
    Metric(
        "memlite_proxy_move_phase",
        "gauge",
        "1 for the current phase of a move of keys between nodes; all are 0 without a move.",
        _several(_phases),
        labels=("phase",),
    ),
    Metric(
        "memlite_proxy_move_items",
        "gauge",
        "Items to move, as last reported by the process that moves them; absent without a move.",
        _of_move(lambda move: move.total),
    ),
    Metric(
        "memlite_proxy_move_items_moved",
        "gauge",
        "Items moved, as last reported by the process that moves them; absent without a move.",
        _of_move(lambda move: move.items),
    ),
    Metric(
        "memlite_proxy_moving_requests_total",
        "counter",
        "Requests for keys that were being moved at the time.",
        _single(lambda proxy: proxy.moving_requests),
    ),
)

PROXY_ONLY: Final[tuple[Metric, ...]] = (*_COMMANDS, *_QUEUE, *_NODES, *_TOPOLOGY)
"""The metrics that servers do not have."""

PROXY_METRICS: Final[tuple[Metric, ...]] = (*COMMON, *PROXY_ONLY)
"""All metrics of a proxy, in the order in which they are written."""
