"""The keys that move between nodes, and the targets of requests for them."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from memlite.cluster.membership.lease import Lease
from memlite.cluster.moving.copies import Copies
from memlite.cluster.topology import Move, Phase, Topology
from memlite.cluster.topology import Node as NodeAddress
from memlite.core.clock import Clock
from memlite.proxy.changes import Changes
from memlite.proxy.moving_flush import AfterFlush, MovingFlush
from memlite.proxy.moving_pair import Pair
from memlite.proxy.node import Node
from memlite.proxy.replicas import ReplicaSet
from memlite.proxy.resend import Target
from memlite.server.scheduler import Scheduler

__all__ = ["Moving"]


class Moving:
    """A proxy's part in a move of keys between nodes.

    Args:
        topology: the nodes before the move, and the move.
        nodes: the nodes before the move.
        following: the nodes after the move.
        changes: the changes in progress of keys that have copies.
        lease: tells until when the phase is known.
        scheduler: runs requests that must wait.
        delivered: called after replies were handed out.
        forget: forgets which nodes keys have, so that `target` is asked.
        current: returns the move in progress.
        find: returns the target of a key when a request has waited.

    Attributes:
        phase: how far the move is.
        flushing: the target of requests for all nodes.
    """

    def __init__(
        self,
        topology: Topology,
        nodes: Sequence[Node],
        following: Sequence[Node],
        changes: Changes,
        *,
        lease: Lease,
        scheduler: Scheduler,
        delivered: Callable[[], None],
        forget: Callable[[], None],
        current: Callable[[], "Moving | None"],
        find: Callable[[bytes], Target],
    ) -> None:
        move = _move_of(topology)
        self._topology = topology
        self.phase = move.phase
        self._before, self._after = topology.router().index, topology.next_router().index
        self._nodes, self._following = nodes, following
        self._begun = topology.begun_router().index
        self._goes_to_lost = [node in move.lost for node in move.begun] if move.lost else ()
        self._make = partial(
            Pair,
            lease=lease,
            clock=Clock(),
            scheduler=scheduler,
            delivered=delivered,
            copies=topology.replicas > 1,
        )
        self._nonce = move.nonce
        self._pairs: dict[tuple[Node, Node], Pair] = {}
        self._changes = changes
        self._find = find
        self._copies = Copies(topology) if topology.replicas > 1 else None
        self._sets: dict[tuple[Node | Pair, bool, tuple[NodeAddress, ...]], ReplicaSet] = {}
        self._known = dict(zip(topology.nodes, nodes, strict=True))
        self._known.update(zip(move.nodes, following, strict=True))
        every = list(dict.fromkeys([*nodes, *following]))
        self.flushing = MovingFlush(
            every,
            scheduler,
            self._in_progress,
            forget,
            delivered,
            lambda: current() is self,
            find,
            None if self._copies is None else changes,
            lambda: changes.absences,
        )

    @property
    def requests(self) -> int:
        """The number of requests for keys that move."""
        return sum(pair.requests for pair in self._pairs.values())

    @property
    def flushes(self) -> bool:
        """Whether requests wait for a flush, and not for a change that came before it."""
        return self.flushing.in_progress and not self._changes.resuming

    def goes_on_as(self, topology: Topology) -> bool:
        """Enter the phase of a topology, if it is of the same move; return whether it is."""
        move = topology.move
        if move is None or topology.nodes != self._topology.nodes:
            return False
        mine = _move_of(self._topology)
        if (move.nodes, move.nonce, move.lost) != (mine.nodes, self._nonce, mine.lost):
            return False
        self.phase = move.phase
        for (source, destination), pair in self._pairs.items():
            if source is not destination:
                pair.enter(move.phase)
        return True

    def _in_progress(self) -> list[asyncio.Future[None]]:
        return [end for pair in self._pairs.values() for end in pair.in_progress()]

    def target(self, key: bytes) -> Pair | AfterFlush | ReplicaSet | None:
        """Return the target of requests for a key; None for its usual node."""
        target = self._with_copies(key, self._target(key))
        if self.flushes:
            return self.flushing.after_flush(target)
        return None if isinstance(target, Node) else target

    def _with_copies(self, key: bytes, primary: Node | Pair) -> Node | Pair | ReplicaSet:
        """Return a target that sends requests to the primary, and holds the copies during changes.

        No copy is read. If a proxy in a neighbouring phase may not hold copies, none is filled.
        """
        if self._copies is None:
            return primary
        copies = self._copies.during(key, self.phase)
        fills = self.phase not in (Phase.GATHER, Phase.SPREAD)
        found = self._sets.get((primary, fills, copies))
        if found is None:
            nodes = [self._known[node] for node in copies]
            found = ReplicaSet(
                primary,
                nodes,
                self._changes,
                "all",
                spreads=False,
                find=self._find,
                fills=fills,
            )
            self._sets[primary, fills, copies] = found
        return found

    def _target(self, key: bytes) -> Node | Pair:
        """Return the primary of a key: its node, or the two between which it moves."""
        source = self._nodes[self._before(key)]
        destination = self._following[self._after(key)]
        phase = self.phase
        if phase is Phase.GATHER:
            return source
        if source is destination:
            if not self._goes_to_lost or not self._goes_to_lost[self._begun(key)]:
                return source
            phase = Phase.BACK  # the key stays, and may be frozen; the destination is not asked
        pair = self._pairs.get((source, destination))
        if pair is None:
            pair = self._make(source, destination, self._nonce, phase)
            self._pairs[source, destination] = pair
        return pair

    def uses(self, key: bytes) -> bool:
        """Return whether a request for a key is in progress."""
        return any(pair.uses(key) for pair in self._pairs.values())

    def ends(self) -> list[asyncio.Future[None]]:
        """Return futures that are done when all requests in progress, and any flush, are over."""
        over = self.flushing.over
        return self._in_progress() + ([] if over is None else [over])


def _move_of(topology: Topology) -> Move:
    assert topology.move is not None  # noqa: S101 - the caller has asked
    return topology.move
