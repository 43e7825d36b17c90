"""The figures of a proxy as typed values, in addition to those of a server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from memlite.telemetry.snapshot import Durations, Snapshot

__all__ = [
    "MAX_NODES",
    "OTHERS",
    "MoveStats",
    "NodeStats",
    "ProxySnapshot",
    "ProxyStats",
    "QueueStats",
]

MAX_NODES: Final = 64
"""How many nodes have figures of their own; the figures of the remaining nodes are added up."""

OTHERS: Final = "others"
"""The name that stands for the remaining nodes."""


@dataclass(frozen=True, slots=True)
class NodeStats:
    """A node, as a proxy sees it.

    Attributes:
        name: its name; `OTHERS` for several.
        address: where it listens; empty for several.
        role: whether it belongs to the nodes that have keys, or to the gutter.
        up: how many of the nodes that it stands for are up: 1 or 0 for a single node.
        count: how many nodes it stands for.
        state: ``up``, ``down`` or ``connecting``; empty for several.
        error: why it is down; empty while it is not.
        requests: requests sent to it.
        failed: requests that failed.
        refused: requests not sent, as too many were waiting for it.
        timeouts: how often its deadline has passed.
        connects: how often a connection was opened.
        emptied: how often it was emptied, as it had missed changes.
        pending: requests that have no reply yet.
        share: its share of the hashes of keys, from 0 to 1, not counting replicas and the gutter.
        next_share: its share after the current move of keys; None without a move.
        service: the time from a write to the reply to its last request, measured for one write at a
            time; None for several nodes, as the sum would take long.
    """

    name: str
    address: str
    role: Literal["node", "gutter"]
    up: int
    count: int
    state: str
    error: str
    requests: int
    failed: int
    refused: int
    timeouts: int
    connects: int
    emptied: int
    pending: int
    share: float
    next_share: float | None
    service: Durations | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Waiting requests: for a worker or, without a limit, for the next write to their nodes.

    Attributes:
        in_flight_limit: how many requests may be in flight to nodes at a time; None for no limit.
            Then times are sampled, and no request is refused, expires or is dropped.
        in_flight: how many requests are in flight to nodes.
        length: how many requests wait.
        arrivals: requests received; without a limit, requests passed to nodes.
        refused: requests refused, as too many were waiting.
        expired: requests that have waited for too long.
        dropped: reads that were not sent, as the client had disconnected.
        waiting: how long requests have waited.
        service: the time from the end of the wait to the last node's reply.
        thinking: the time from a client's last reply to its next request.
    """

    in_flight_limit: int | None
    in_flight: int
    length: int
    arrivals: int
    refused: int
    expired: int
    dropped: int
    waiting: Durations
    service: Durations
    thinking: Durations


@dataclass(frozen=True, slots=True)
class MoveStats:
    """A move of keys between nodes.

    Attributes:
        phase: its phase; a value of `memlite.cluster.topology.Phase`.
        items: how many items have moved, as last reported by the process that moves them; None if
            there is no such process, or if the number is unknown.
        total: how many items there are to move, as far as that process knows.
    """

    phase: str
    items: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class ProxyStats:
    """The activity of a proxy, and the state of its nodes.

    Attributes:
        commands: clients' commands on keys, by class and result.
        nodes: at most `MAX_NODES` nodes, and an entry for the remaining ones.
        version: the version of the topology, for clients; it rises with each change.
        epoch: the epoch of the cluster; None without one.
        hash: how keys are distributed.
        replicas: how many nodes store each item.
        multigets: retrievals that were sent to several nodes.
        failed_requests: requests, or parts of one, that were answered with an error of the proxy.
        failed_shards: parts of retrievals whose keys were reported as misses, as a node failed.
        replica_reads: reads that were sent to a replica.
        gutter_requests: requests sent to the gutter; None without a gutter.
        hot_keys: keys that have copies on all nodes.
        moving_requests: requests for keys that were moving.
        move: the current move of keys; None for none.
        queue: the requests waiting to be sent; None if unknown.
        unread_bytes: replies held for clients that do not read.
        unread_disconnects: clients that were disconnected for that.
    """

    commands: Mapping[tuple[str, str], int]
    nodes: tuple[NodeStats, ...]
    version: int
    epoch: int | None
    hash: str
    replicas: int
    multigets: int
    failed_requests: int
    failed_shards: int
    replica_reads: int
    gutter_requests: int | None
    hot_keys: int
    moving_requests: int
    move: MoveStats | None
    queue: QueueStats | None
    unread_bytes: int
    unread_disconnects: int


@dataclass(frozen=True, slots=True)
class ProxySnapshot(Snapshot):
    """All of a proxy's figures.

    Attributes:
        proxy: the figures that only a proxy has.
    """

    proxy: ProxyStats = field(kw_only=True)
