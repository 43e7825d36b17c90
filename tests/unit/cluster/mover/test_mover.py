"""The mover: which items it handles on each node, including when nodes have failed."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import AsyncMock, Mock, patch

import pytest

from memlite.cluster.membership.document import Document, Entry
from memlite.cluster.membership.lease import LEASE
from memlite.cluster.mover.absence import Absence
from memlite.cluster.mover.batches import Batches, Count
from memlite.cluster.mover.mover import Mover, MoverError
from memlite.cluster.mover.permit import MoverNote
from memlite.cluster.mover.progress import Progress
from memlite.cluster.mover.routes import Routes
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.topology import Phase, Topology
from tests.support.simulation import SimulatedStore, World

NONCE = "00112233445566778899aabbccddeeff"
KEYS = [b"key%d" % number for number in range(300)]
EQUAL = dict.fromkeys("abcd", 1)
Action = Callable[[Batches, str, Sequence[bytes]], Awaitable[Count]]


class SweepingMover(Mover):
    """A mover that records its actions instead of carrying them out on `KEYS`.

    Attributes:
        swept: the node, the action and the keys of each sweep.
        counts: the results of successive sweeps; further sweeps return an empty count.
    """

    def __init__(self, phase: Phase, *, lost: str = "", weights: Mapping[str, int] = EQUAL) -> None:
        store = SimulatedStore(World(random.Random(1)))
        super().__init__(store, Progress(), rate=0, absence=Absence(store), access=NodeAccess())
        self.swept: list[tuple[str, object, list[bytes]]] = []
        self.counts: list[Count | None] = []
        members = tuple(Entry(name, f"{name}:1", 5, 0, its) for name, its in weights.items())
        document = Document(members=members, replicas=2).moving_to(["b", "c", "d"], NONCE, 5)
        self._document = document.in_phase(phase, 5)
        for name in lost:
            self._lose(name)

    async def _sweep(
        self, name: str, wanted: Callable[[bytes], bool], action: Action
    ) -> Count | None:
        self.swept.append((name, action, [key for key in KEYS if wanted(key)]))
        return self.counts.pop(0) if self.counts else Count()

    def raise_replicas(self, former: int, replicas: int) -> None:
        """Carry out the phase that makes the copies."""
        document = replace(self._document, replicas=former, move=None)
        self._document = document.with_replicas(replicas, NONCE, 5)
        assert self._document.move is not None
        with patch("asyncio.sleep"), patch.object(self, "_read"), patch.object(self, "_finish"):
            asyncio.run(self._phase(self._document.move))

    @property
    def routes(self) -> Routes:
        return self._routes()

    @property
    def topology(self) -> Topology:
        topology = self._document.topology()
        assert topology is not None
        return topology

    async def move_all(self, name: str, *, first: bool) -> Count:
        return await self._pass(name, first=first)()

    def strand(self) -> None:
        asyncio.run(self._strand(self._routes()))

    def clear(self) -> None:
        asyncio.run(self._clear(self._routes()))


def test_items_that_cannot_move_are_tried_again_until_none_fails() -> None:
    mover = SweepingMover(Phase.MOVE, lost="d")
    mover.counts = [Count(failed=2, reason="busy"), Count(failed=1, reason="busy"), Count()]
    mover.strand()
    assert [(name, action) for name, action, _ in mover.swept] == [
        *[("a", Batches.strand)] * 3,
        *[(name, Batches.strand) for name in "bcd"],
    ]
    going = [key for key in KEYS if mover.routes.source(key) == "a"]
    assert mover.swept[0][2] == [key for key in going if mover.routes.destination(key) == "d"]
    assert mover.swept[0][2]


def test_items_that_cannot_move_are_copied_again_when_changes_in_progress_are_over() -> None:
    """Such a change finds its hold missing and sets another, which the second copy replaces."""
    mover = SweepingMover(Phase.MOVE, lost="d")
    mover.counts = [Count(seen=1, moved=1)]
    with patch("asyncio.sleep") as slept:
        mover.strand()
    slept.assert_awaited_once_with(LEASE * 2 / 3)
    assert [name for name, _, _ in mover.swept] == [*"abcd", *"abcd"]


def test_items_that_clients_have_moved_count_as_progress_once() -> None:
    listed = Mock(items=3, batches=lambda *_: [[Mock(key=key) for key in KEYS[:3]]])
    counts = [Count(seen=3, moved=1, failed=1), Count(seen=3, moved=1)]
    mover = SweepingMover(Phase.MOVE)
    progress: Progress = mover._progress
    progress.begin("moving", 4)
    with (
        patch("memlite.cluster.mover.mover.listing", lambda *_: nullcontext(listed)),
        patch.object(Batches, "move", AsyncMock(side_effect=counts)),
    ):
        asyncio.run(mover.move_all("a", first=True))
        assert (progress.items, progress.total) == (2, 3)
        asyncio.run(mover.move_all("a", first=False))
    assert (progress.items, progress.total) == (3, 3)
    assert mover._result.items == 2


def test_the_move_does_not_go_on_while_items_are_stranded() -> None:
    mover = SweepingMover(Phase.MOVE, lost="d")
    mover.counts = [Count(failed=1, reason="busy")] * 20
    with pytest.raises(MoverError, match="1 item of node a cannot be copied: busy"):
        mover.strand()


def test_items_that_could_not_move_are_removed_like_those_that_moved() -> None:
    """Some are frozen on remaining nodes: with weights, keys also move between these."""
    weights = {"a": 1, "b": 2, "c": 3, "d": 4}
    mover = SweepingMover(Phase.SETTLE, lost="d", weights=weights)
    mover.clear()
    routes = mover.routes
    stay = {name: keys for name, _, keys in mover.swept if name in "bc"}
    for name, keys in stay.items():
        assert keys == [
            key for key in KEYS if routes.source(key) == name != routes.destination(key)
        ]
    assert any(routes.destination(key) == "d" for keys in stay.values() for key in keys)


@pytest.mark.parametrize("former", [1, 2])
def test_existing_copies_stay_when_replicas_are_added(former: int) -> None:
    mover = SweepingMover(Phase.GATHER)
    mover.raise_replicas(former, 3)
    topology = mover.topology
    removed = {name: keys for name, action, keys in mover.swept if action is Batches.remove}
    assert set(removed) == set("abcd")
    for at, node in enumerate(topology.nodes):
        had = [key for key in KEYS if at in topology.router().replicas(key, former)]
        assert had
        assert removed[node.name] == [key for key in KEYS if key not in had]


@pytest.mark.parametrize(
    ("phase", "nonce", "counts"),
    [
        (Phase.MOVE, NONCE, (70, 70, 4900, 100, True)),
        (Phase.SETTLE, NONCE, (70, 70, 4900, 100, True)),
        (Phase.MOVE, NONCE[::-1], (0, 0, 0, 0, False)),
        (Phase.BACK, NONCE, (0, 0, 0, 0, False)),
    ],
)
def test_what_a_killed_process_has_moved_is_counted(
    phase: Phase, nonce: str, counts: tuple[int, ...]
) -> None:
    mover = SweepingMover(phase)
    note = MoverNote("x", "process 1 on a", move=nonce, planned=100, moved=70, size=4900)
    mover.go_on_from(note, mover._document)
    its = mover._result
    assert (its.items, its.earlier, its.bytes, mover._planned, its.killed) == counts
    its.items += 20
    its.dropped += 3
    mover._count_others()
    assert its.others == max(counts[3] - counts[0] - 23, 0)
    assert mover.noted()["moved"] == counts[0] + 20


def test_the_progress_bar_continues_where_it_was() -> None:
    mover = SweepingMover(Phase.MOVE)
    note = MoverNote("x", "process 1 on a", ended=True, move=NONCE, planned=100, moved=70)
    mover.go_on_from(note, mover._document)
    with patch.object(mover, "_patiently", AsyncMock(return_value=Count())):
        asyncio.run(mover._move(mover.routes))
    assert (mover._progress.items, mover._progress.total) == (70, 100)
    assert not mover._result.killed


@pytest.mark.parametrize("phase", [Phase.GATHER, Phase.SPREAD])
def test_copies_count_as_progress(phase: Phase) -> None:
    listed = Mock(items=3, batches=lambda *_: [[Mock(key=key) for key in KEYS[:3]]])
    mover = SweepingMover(phase)
    shares: list[float] = []

    async def copy(_batches: Batches, _name: str, keys: Sequence[bytes]) -> Count:
        shares.append(mover._progress.share())
        return Count(seen=len(keys), moved=2 * len(keys), bytes=10)

    async def sweep(name: str, wanted: Callable[[bytes], bool], action: Action) -> Count:
        return await mover._work(name, wanted, action, mover.routes)

    with (
        patch("memlite.cluster.mover.mover.listing", lambda *_: nullcontext(listed)),
        patch.object(mover, "_sweep", sweep),
        patch.object(Batches, "remove", AsyncMock(return_value=Count(seen=3))),
        patch.object(Batches, "copy", copy),
    ):
        asyncio.run(mover._gather(mover.routes))
    assert len(shares) == len(mover.routes.before)
    assert shares == [number / len(shares) for number in range(len(shares))]
    assert mover._progress.share() == 1
