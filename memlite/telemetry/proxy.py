"""The figures of a proxy as typed values, beside those that it has like a server."""

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
"""How many nodes have figures of their own; those of further ones are added up."""

OTHERS: Final = "others"
"""The name under which they are."""


@dataclass(frozen=True, slots=True)
class NodeStats:
    """A node, as a proxy sees it.

    Attributes:
        name: its name; `OTHERS` for several.
        address: where it listens; empty for several.
        role: whether it is one of the nodes that have keys, or of the gutter.
        up: how many it stands for are up: 1 or 0 for one.
        count: how many it stands for.
        state: ``up``, ``down`` or ``connecting``; empty for several.
        error: why it is down; empty while it is not.
        requests: requests it was sent.
        failed: those that failed.
        refused: those that were not sent, as too many were waiting for it.
        timeouts: how often its deadline has passed.
        connects: how often a connection was opened.
        emptied: how often it was emptied, as it had missed changes.
        pending: requests that have no reply yet.
        share: its share of the hashes of keys, from 0 to 1; those of replicas and of the gutter are
            not counted.
        next_share: the same after the move of keys that is going on; None without one.
        service: the time from a write to the reply to its last request, of one write at a time;
            None for several, as it would take long to add up.
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
    """Requests that wait: for a worker, or without a limit for the next write to their nodes.

    Attributes:
        in_flight_limit: how many requests may be with the nodes at a time; None for no limit, where
            times are sampled, and nothing is refused, expires or is dropped.
        in_flight: how many are.
        length: how many wait.
        arrivals: requests that came; without a limit those that nodes were given.
        refused: those that were refused, as too many were waiting.
        expired: those that have waited for too long.
        dropped: reads that were not sent, as the client had disconnected.
        waiting: how long requests have waited.
        service: from there to the last node's reply.
        thinking: from a client's last reply to its next request.
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
        phase: how far it is; a value of `memlite.cluster.topology.Phase`.
        items: how many items have moved, as the process that moves them said last; None if none
            does, or if that is not known.
        total: how many there are to move, as far as it knows.
    """

    phase: str
    items: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class ProxyStats:
    """What a proxy does, and knows of its nodes.

    Attributes:
        commands: clients' commands on keys, by class and result.
        nodes: the nodes, `MAX_NODES` of them at most, and what stands for further ones.
        version: of the topology, for clients; it rises with each change.
        epoch: that of the cluster; None without one.
        hash: how keys are spread.
        replicas: on how many nodes an item is.
        multigets: retrievals that several nodes were asked for.
        failed_requests: requests, or parts of one, that were answered with an error of the proxy.
        failed_shards: parts of retrievals whose keys were misses, as a node failed.
        replica_reads: reads that a replica was asked for.
        gutter_requests: requests that the gutter was sent; None without one.
        hot_keys: keys that have copies on all nodes.
        moving_requests: requests for keys that were moving.
        move: the move of keys that is going on; None for none.
        queue: what waits to be sent; None if that is not known.
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
        proxy: those that a server does not have.
    """

    proxy: ProxyStats = field(kw_only=True)
