"""Copies of items on nodes other than the deciding one; see docs/decisions/0051.

A *hold* stands in a copy's place while the key changes, a *lease* while the copy is being made.
"""

from typing import Final

from memlite.cluster.moving import marks
from memlite.cluster.moving.answers import Ask, Place, Steps
from memlite.cluster.moving.marks import Found, Kind
from memlite.cluster.moving.steps import BusyKeyError, Moved, MovingKey, Outcome
from memlite.cluster.topology import Node, Phase, Topology

__all__ = [
    "HELD",
    "LEASED",
    "LEASE_SECONDS",
    "STANDS_IN",
    "Copies",
    "copied",
    "restored",
    "stands_in",
    "stranded",
]

HELD: Final = 3_735_927_486
"""The flags of a hold."""
LEASED: Final = 3_735_927_487
"""The flags of a lease."""
STANDS_IN: Final = b"memlite: a copy is being changed"
"""The value of holds and leases."""
LEASE_SECONDS: Final = 10
"""Seconds after which a lease expires."""

_NOTHING: Final = Moved(Outcome.NOTHING)
_REPLICA: Final = Place.DESTINATION


class Copies:
    """Determines which nodes have copies while keys move between deciding nodes.

    Args:
        topology: the nodes, and the move between them.
    """

    def __init__(self, topology: Topology) -> None:
        assert topology.move is not None  # noqa: S101 - the caller has asked
        self._count = topology.replicas
        self._before, self._after = topology.nodes, topology.move.nodes
        self._old = topology.router().replicas
        self._new = topology.next_router().replicas

    def before(self, key: bytes) -> list[Node]:
        """Return the nodes of a key before the move, the deciding node first."""
        return [self._before[one] for one in self._old(key, self._count)]

    def after(self, key: bytes) -> list[Node]:
        """Return the nodes of a key after the move, in the same order."""
        return [self._after[one] for one in self._new(key, self._count)]

    def during(self, key: bytes, phase: Phase) -> tuple[Node, ...]:
        """Return the nodes that have copies in a phase; none of them decides then.

        They are the nodes from before and after the move. The key's destination is left out as soon
        as it may receive the item itself.
        """
        before, after = self.before(key), self.after(key)
        both = dict.fromkeys((*before[1:], *after))
        both.pop(before[0], None)
        if phase is not Phase.GATHER or after[0] not in before:
            both.pop(after[0], None)
        return tuple(both)


def stands_in(found: Found) -> bool:
    """Return whether a node's item is a hold or a lease."""
    return found.flags in (HELD, LEASED) and found.value == STANDS_IN


_MAX_ROUNDS: Final = 20


def copied(key: bytes, its: MovingKey) -> Steps[Moved]:
    """Copy an item from the deciding node (the source) to another node.

    An existing item there is replaced, unless it is a hold: then the key is being changed, and a
    read will copy it later. Any change of the key meanwhile replaces the lease.
    """
    leased, looked = yield Ask(_REPLICA, _lease(its, None)), Ask(_REPLICA, marks.look(key))
    unique = leased.unique
    if not unique:
        there = its.marks.found(looked)
        held = there.flags == HELD and stands_in(there)
        if there.kind is Kind.ABSENT or held:
            return _NOTHING
        (leased,) = yield (Ask(_REPLICA, _lease(its, there.unique)),)
        unique = leased.unique
        if not unique:
            return _NOTHING
    at = its.clock()
    (looked,) = yield (Ask(Place.SOURCE, marks.look(key)),)
    found = its.marks.found(looked)
    if found.took:
        # The right to recache it belongs to a client.
        again = marks.invalidate(key, found.unique, keeps=its.assigns)
        yield (Ask(Place.SOURCE, again),)
    exptime = marks.exptime_of(found.ttl, its.clock() - at, its.now())
    odd = found.stale or found.won or stands_in(found)
    if found.kind is not Kind.REAL or odd or exptime < 0:
        yield (Ask(_REPLICA, marks.drop(key, unique)),)
        return _NOTHING
    (stored,) = yield (Ask(_REPLICA, marks.store(key, found, exptime, replacing=unique)),)
    return Moved(Outcome.MOVED, len(found.value)) if stored.unique else _NOTHING


def stranded(key: bytes, its: MovingKey) -> Steps[Moved]:
    """Copy an item from its old node (the source) to another node, as its new node has failed.

    The item is frozen first, so that no client can change it, and removed from the source
    afterwards. The copy therefore replaces any existing item, even a hold: the proxy that set the
    hold can no longer change the key, or did so before.

    Raises:
        BusyKeyError: the item keeps changing.
    """
    at = its.clock()
    (looked,) = yield (Ask(Place.SOURCE, marks.look(key)),)
    found = its.marks.found(looked)
    for _ in range(_MAX_ROUNDS):
        if found.kind is not Kind.REAL:
            break
        at, freeze = its.clock(), its.marks.freeze(key, found)
        frozen, looked = yield Ask(Place.SOURCE, freeze), Ask(Place.SOURCE, marks.look(key))
        before, found = found, its.marks.found(looked)
        if found.unique == before.unique and not frozen.done:
            # There may still be a copy of it.
            (dropped,) = yield (Ask(Place.SOURCE, marks.drop(key, found.unique)),)
            if dropped.done:
                return Moved(Outcome.DROPPED, reason="too large to be frozen")
            (looked,) = yield (Ask(Place.SOURCE, marks.look(key)),)
            found = its.marks.found(looked)
    if found.kind is Kind.REAL:
        raise BusyKeyError("the key keeps changing")
    if found.kind is not Kind.FROZEN:
        return _NOTHING  # it has moved or was removed: the other nodes are up to date
    for _ in range(_MAX_ROUNDS):
        (looked,) = yield (Ask(_REPLICA, marks.look(key)),)
        there = its.marks.found(looked)
        unique = None if there.kind is Kind.ABSENT else there.unique
        exptime = marks.exptime_of(found.ttl, its.clock() - at, its.now())
        if found.stale or found.won or stands_in(found) or exptime < 0:
            if unique is None:
                return _NOTHING
            (dropped,) = yield (Ask(_REPLICA, marks.drop(key, unique)),)
            if dropped.done:
                return _NOTHING
            continue
        (stored,) = yield (Ask(_REPLICA, marks.store(key, found, exptime, replacing=unique)),)
        if stored.unique:
            return Moved(Outcome.MOVED, len(found.value))
    raise BusyKeyError("the copy of the key keeps changing")


def restored(key: bytes, its: MovingKey) -> Steps[Moved]:
    """Restore an item from a copy (the source) to the deciding node, which lacks it.

    The stub is set before the copy is read, so that the copy cannot belong to an item that was
    already restored from another copy and has been removed since.

    Raises:
        BusyKeyError: another process restores it at the same time.
    """
    stub, item = yield from its.stub_or_item()
    if item:
        return _NOTHING
    at = its.clock()
    (looked,) = yield (Ask(Place.SOURCE, marks.look(key)),)
    found = its.marks.found(looked)
    exptime = marks.exptime_of(found.ttl, its.clock() - at, its.now())
    if found.kind is not Kind.REAL or stands_in(found) or exptime < 0:
        yield (Ask(_REPLICA, marks.drop(key, stub)),)
        return _NOTHING
    (stored,) = yield (Ask(_REPLICA, marks.store(key, found, exptime, replacing=stub)),)
    if not stored.unique:
        raise BusyKeyError("the key changed while it was being restored")
    return Moved(Outcome.MOVED, len(found.value))


def _lease(its: MovingKey, replacing: int | None) -> bytes:
    stand_in = Found(Kind.REAL, value=STANDS_IN, flags=LEASED)
    return marks.store(its.key, stand_in, LEASE_SECONDS, replacing=replacing)
