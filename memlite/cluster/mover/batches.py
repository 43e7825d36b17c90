"""Runs the steps of many keys at a time, and counts the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.cluster.mover.nodes import Nodes
from memlite.cluster.mover.routes import Routes
from memlite.cluster.moving import marks
from memlite.cluster.moving.answers import Answer, Ask, NodeRefusedError, Place, Steps
from memlite.cluster.moving.copies import copied, restored, stranded
from memlite.cluster.moving.marks import Kind, Marks
from memlite.cluster.moving.steps import BusyKeyError, Moved, MovingKey, Outcome

__all__ = ["Batches", "Count", "stray_removed", "thawed"]


@dataclass
class Count:
    """The results for a number of keys.

    Attributes:
        seen: number of keys examined.
        moved: number of items moved.
        bytes: total size of their values.
        failed: number of keys that must be retried.
        dropped: number of items lost because a node rejected them.
        reason: why the last one failed or was dropped.
    """

    seen: int = 0
    moved: int = 0
    bytes: int = 0
    failed: int = 0
    dropped: int = 0
    reason: str = ""

    def merge(self, other: "Count") -> None:
        """Count other keys too."""
        self.seen += other.seen
        self.moved += other.moved
        self.bytes += other.bytes
        self.failed += other.failed
        self.dropped += other.dropped
        self.reason = other.reason or self.reason


def stray_removed(key: bytes) -> Steps[Moved]:
    """Remove the item of a key that belongs to another node.

    Only the state that was seen is removed: the node may own the key when the request arrives.
    """
    (answer,) = yield (Ask(Place.SOURCE, marks.look(key, value=False)),)
    unique = answer.number(b"c")
    if answer.status != b"EN" and unique is not None:
        yield (Ask(Place.SOURCE, marks.drop(key, unique)),)
        return Moved(Outcome.MOVED)
    return Moved(Outcome.NOTHING)


def thawed(key: bytes, its: MovingKey) -> Steps[Moved]:
    """Unfreeze an item, and remove marks.

    A stale item is removed: it was due to be replaced anyway.
    """
    at = its.clock()
    (answer,) = yield (Ask(Place.SOURCE, marks.look(key)),)
    found = its.marks.found(answer)
    if found.kind in (Kind.ABSENT, Kind.REAL):
        return Moved(Outcome.NOTHING)
    exptime = marks.exptime_of(found.ttl, its.clock() - at, its.now())
    if found.marks or found.stale or exptime < 0:
        yield (Ask(Place.SOURCE, marks.drop(key, found.unique)),)
        return Moved(Outcome.NOTHING)
    unique = found.shown if its.assigns else None
    store = marks.store(key, found, exptime, replacing=found.unique, unique=unique)
    (stored,) = yield (Ask(Place.SOURCE, store),)
    return Moved(Outcome.MOVED if stored.unique else Outcome.NOTHING, len(found.value))


@dataclass
class _Key:
    """A key, its steps, and its next requests."""

    destination: str
    steps: Steps[Moved]
    asks: tuple[Ask, ...] = ()


class Batches:
    """Runs steps for many keys at a time, sending the requests of a batch together.

    Args:
        nodes: the nodes.
        routes: says where keys are and where they move.
        its_marks: the marks of the move.
    """

    def __init__(self, nodes: Nodes, routes: Routes, its_marks: Marks) -> None:
        self._nodes: Final = nodes
        self._routes: Final = routes
        self._marks: Final = its_marks

    async def move(self, source: str, keys: Sequence[bytes]) -> Count:
        """Move keys away from a node.

        Raises:
            NodeTroubleError: a node does not answer.
        """
        destinations = [self._routes.destination(key) for key in keys]
        await self._nodes.connect([source, *sorted(set(destinations))])
        batch = [
            _Key(name, self._key(key, source, name).move())
            for key, name in zip(keys, destinations, strict=True)
        ]
        return await self._run(source, batch)

    async def copy(self, source: str, keys: Sequence[bytes]) -> Count:
        """Copy items from the deciding node to the nodes that hold copies.

        Raises:
            NodeTroubleError: a node does not answer.
        """
        return await self._copy(source, keys, copied)

    async def _copy(
        self,
        source: str,
        keys: Sequence[bytes],
        steps: Callable[[bytes, MovingKey], Steps[Moved]],
    ) -> Count:
        pairs = [(key, name) for key in keys for name in self._routes.copies(key)]
        await self._nodes.connect([source, *sorted({name for _, name in pairs})])
        batch = [_Key(name, steps(key, self._key(key, source, name))) for key, name in pairs]
        return await self._run(source, batch)

    async def strand(self, source: str, keys: Sequence[bytes]) -> Count:
        """Copy items that cannot move because their new node has failed; they stay frozen.

        Raises:
            NodeTroubleError: a node does not answer.
        """
        return await self._copy(source, keys, stranded)

    async def restore(self, source: str, keys: Sequence[bytes]) -> Count:
        """Copy items from a node with copies to the deciding nodes, which have none.

        Raises:
            NodeTroubleError: a node does not answer.
        """
        pairs = [(key, self._routes.restored_to(key)) for key in keys]
        pairs = [(key, name) for key, name in pairs if name not in self._routes.gone]
        await self._nodes.connect([source, *sorted({name for _, name in pairs})])
        batch = [_Key(name, restored(key, self._key(key, source, name))) for key, name in pairs]
        return await self._run(source, batch)

    async def thaw(self, source: str, keys: Sequence[bytes]) -> Count:
        """Unfreeze the frozen items of a node.

        Raises:
            NodeTroubleError: the node does not answer.
        """
        await self._nodes.connect([source])
        batch = [_Key(source, thawed(key, self._key(key, source, source))) for key in keys]
        return await self._run(source, batch)

    async def remove(self, node: str, keys: Sequence[bytes]) -> Count:
        """Remove a node's items whose keys belong to other nodes.

        Raises:
            NodeTroubleError: the node does not answer.
        """
        await self._nodes.connect([node])
        return await self._run(node, [_Key(node, stray_removed(key)) for key in keys])

    def _key(self, key: bytes, source: str, destination: str) -> MovingKey:
        assigns = self._nodes.assigns(source) and self._nodes.assigns(destination)
        return MovingKey(key, self._marks, assigns)

    async def _run(self, source: str, batch: Sequence[_Key]) -> Count:
        """Run the next steps of all keys together until every key is done."""
        total = Count()
        for one in batch:
            one.asks = next(one.steps)
        left = list(batch)
        while left:
            answers = await self._nodes.ask(
                [
                    (source if ask.place is Place.SOURCE else one.destination, ask.request)
                    for one in left
                    for ask in one.asks
                ]
            )
            going, left, at = left, [], 0
            for one in going:
                its = tuple(answers[at : at + len(one.asks)])
                at += len(one.asks)
                if _advance(one, its, total):
                    left.append(one)
        return total


def _advance(one: _Key, answers: tuple[Answer, ...], total: Count) -> bool:
    """Advance a key by one step; after its last step, count it and return False."""
    try:
        one.asks = one.steps.send(answers)
    except StopIteration as stop:
        moved: Moved = stop.value
        total.seen += 1
        match moved.outcome:
            case Outcome.MOVED:
                total.moved += 1
                total.bytes += moved.size
            case Outcome.DROPPED:
                total.dropped += 1
                total.reason = moved.reason
        return False
    except (BusyKeyError, NodeRefusedError) as error:
        total.seen += 1
        total.failed += 1
        total.reason = str(error)
        return False
    return True
