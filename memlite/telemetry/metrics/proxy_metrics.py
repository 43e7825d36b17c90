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
    """Return a reader of a proxy's figures."""
    return lambda snapshot: read(snapshot.proxy) if isinstance(snapshot, ProxySnapshot) else ()


def _single(value: Callable[[ProxyStats], float | None]) -> Read:
    """Return a reader of one of a proxy's figures, with no sample if it is None."""

    def read(snapshot: Snapshot) -> tuple[Sample, ...]:
        if not isinstance(snapshot, ProxySnapshot):
            return ()
        found = value(snapshot.proxy)
        return () if found is None else (Sample(found),)

    return read


def _by_node(value: Callable[[NodeStats], Value | None]) -> Read:
    """Return a reader of a figure of each node, without the nodes for which it is None."""
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
        "Commands of clients on keys, and flushes, by class and result; a get of several keys "
        "counts once for each. noreply: the client wants no reply; error: a node's or the proxy's.",
        _several(lambda proxy: [Sample(count, key) for key, count in proxy.commands.items()]),
        labels=("class", "result"),
    ),
    Metric(
        "memlite_proxy_multigets_total",
        "counter",
        "Retrievals that several nodes were asked for.",
        _single(lambda proxy: proxy.multigets),
    ),
    Metric(
        "memlite_proxy_failed_requests_total",
        "counter",
        "Requests, or parts of one, that were answered with an error of the proxy.",
        _single(lambda proxy: proxy.failed_requests),
    ),
    Metric(
        "memlite_proxy_failed_shards_total",
        "counter",
        "Parts of retrievals whose keys were misses, as a node failed.",
        _single(lambda proxy: proxy.failed_shards),
    ),
    Metric(
        "memlite_proxy_unread_bytes",
        "gauge",
        "Replies held for clients that do not read them (--unread-limit).",
        _single(lambda proxy: proxy.unread_bytes),
        "bytes",
    ),
    Metric(
        "memlite_proxy_unread_disconnects_total",
        "counter",
        "Clients disconnected as they did not read.",
        _single(lambda proxy: proxy.unread_disconnects),
    ),
)

_QUEUE: Final = (
    Metric(
        "memlite_proxy_queue_length",
        "gauge",
        "Requests that wait to be sent: with --in-flight for a worker, else for the next write.",
        _of_queue(lambda queue: (Sample(queue.length),)),
    ),
    Metric(
        "memlite_proxy_queue_in_flight",
        "gauge",
        "Requests with the nodes.",
        _of_queue(lambda queue: (Sample(queue.in_flight),)),
    ),
    Metric(
        "memlite_proxy_queue_in_flight_limit",
        "gauge",
        "How many there may be (--in-flight).",
        _of_queue(
            lambda queue: () if queue.in_flight_limit is None else (Sample(queue.in_flight_limit),)
        ),
    ),
    Metric(
        "memlite_proxy_queue_arrivals_total",
        "counter",
        "Requests that have passed the queue, or were to; without --in-flight, those that "
        "nodes were given.",
        _of_queue(lambda queue: (Sample(queue.arrivals),)),
    ),
    Metric(
        "memlite_proxy_queue_discarded_total",
        "counter",
        "Requests that were not sent: refused, as too many were waiting; expired, after "
        "--deadline; dropped, reads whose client had disconnected. Only with --in-flight.",
        _of_queue(_discarded),
        labels=("reason",),
    ),
    Metric(
        "memlite_proxy_queue_wait_duration_seconds",
        "histogram",
        "How long requests have waited to be sent. Without --in-flight, of one write in a "
        "millisecond the wait of its first request, in the event loop, or while the node takes "
        "nothing.",
        _of_queue(lambda queue: (Sample(queue.waiting),)),
        "seconds",
    ),
    Metric(
        "memlite_proxy_queue_service_duration_seconds",
        "histogram",
        "From then to the last node's reply; without --in-flight, of one write in a millisecond.",
        _of_queue(lambda queue: (Sample(queue.service),)),
        "seconds",
    ),
    Metric(
        "memlite_proxy_think_duration_seconds",
        "histogram",
        "From a client's last reply to its next request; without --in-flight, of one client in a "
        "millisecond.",
        _of_queue(lambda queue: (Sample(queue.thinking),)),
        "seconds",
    ),
)

_NODES: Final = (
    Metric(
        "memlite_proxy_nodes",
        "gauge",
        "Nodes by their state, without those of the gutter.",
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
        "A node's share of the hashes of keys, from 0 to 1, as the keys' own node.",
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
        "Requests for a node that failed, as it was down, or went down, or had too many waiting.",
        _by_node(lambda node: node.failed),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_refused_total",
        "counter",
        "Requests for a node that were not sent, as too many were waiting for it; they are among "
        "the failures.",
        _by_node(lambda node: node.refused),
        labels=("node", "role"),
    ),
    Metric(
        "memlite_proxy_node_timeouts_total",
        "counter",
        "Times a node has not answered within --deadline.",
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
        "Times a node was emptied, as it had missed changes (--on-return).",
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
        "From a write to a node until the reply to its last request is there; of one write to each "
        "at a time, one in a millisecond to all nodes together, or one in a tenth of a second.",
        _by_node(lambda node: node.service),
        "seconds",
        ("node", "role"),
    ),
    Metric(
        "memlite_proxy_replica_reads_total",
        "counter",
        "Reads that a replica was asked for.",
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
        "A number that rises with each change of the nodes.",
        _single(lambda proxy: proxy.version),
    ),
    Metric(
        "memlite_proxy_cluster_epoch",
        "gauge",
        "The epoch of the cluster whose nodes register themselves (--cluster), as far as known.",
        _single(lambda proxy: proxy.epoch),
    ),
    Metric(
        "memlite_proxy_move_phase",
        "gauge",
        "1 for the phase in which a move of keys between nodes is; all are 0 without a move.",
        _several(_phases),
        labels=("phase",),
    ),
    Metric(
        "memlite_proxy_move_items",
        "gauge",
        "Items to move, as far as the process that moves them knows; absent without one.",
        _of_move(lambda move: move.total),
    ),
    Metric(
        "memlite_proxy_move_items_moved",
        "gauge",
        "Items that have moved, as that process said last.",
        _of_move(lambda move: move.items),
    ),
    Metric(
        "memlite_proxy_moving_requests_total",
        "counter",
        "Requests for keys that were moving at that time.",
        _single(lambda proxy: proxy.moving_requests),
    ),
)

PROXY_ONLY: Final[tuple[Metric, ...]] = (*_COMMANDS, *_QUEUE, *_NODES, *_TOPOLOGY)
"""The metrics that servers do not have."""

PROXY_METRICS: Final[tuple[Metric, ...]] = (*COMMON, *PROXY_ONLY)
"""All metrics of a proxy, in the order in which they are written."""
