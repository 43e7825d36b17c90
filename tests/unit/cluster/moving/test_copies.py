"""Where copies are while keys move, and the steps that make them, on models of two nodes."""

from itertools import pairwise

import pytest

from memlite.client import Address
from memlite.cluster.moving import marks
from memlite.cluster.moving.answers import answer_of
from memlite.cluster.moving.copies import (
    HELD,
    LEASED,
    STANDS_IN,
    Copies,
    copied,
    restored,
    stranded,
)
from memlite.cluster.moving.steps import BusyKeyError, Moved, Outcome
from memlite.cluster.topology import Move, Node, Phase, Topology
from tests.unit.cluster.moving.test_steps import KEY, NONCE, Pair

PHASES = (Phase.GATHER, Phase.PREPARE, Phase.MOVE, Phase.SETTLE)
CHANGES = [("abc", "abcd"), ("abcd", "abc"), ("abcd", "bd"), ("ab", "abcde"), ("abcd", "aef")]
NOTHING = Moved(Outcome.NOTHING)


def nodes(names: str) -> tuple[Node, ...]:
    return tuple(Node(name, Address(name, 11211)) for name in names)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("hash_name", ["ketama", "rendezvous"])
def test_all_nodes_with_copies_are_held_in_neighbouring_phases(
    before: str, after: str, replicas: int, hash_name: str
) -> None:
    topology = Topology(
        nodes(before), hash_name, replicas=replicas, move=Move(PHASES[0], nodes(after), NONCE)
    )
    copies = Copies(topology)
    for number in range(300):
        key = b"key:%d" % number
        old, new = copies.before(key), copies.after(key)
        during = {phase: set(copies.during(key, phase)) for phase in (*PHASES, Phase.BACK)}
        # Copies read before or after the move. The old primary gets copies before any is read.
        assert set(old[1:]) <= during[Phase.GATHER]
        assert set(new[1:]) - {old[0]} <= during[Phase.SETTLE]
        # Copies filled by changes: held by all proxies that may change the key at the same time.
        for one, other in pairwise(PHASES[1:]):
            assert during[one] == during[other]
        assert during[Phase.PREPARE] <= during[Phase.GATHER]
        assert during[Phase.BACK] == during[Phase.MOVE]
        # Primaries have no copies.
        assert old[0] not in during[Phase.GATHER]
        for phase in PHASES[1:]:
            assert not during[phase].intersection((old[0], new[0]))


@pytest.fixture(params=[True, False], ids=["assigned uniques", "own uniques"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Return a primary (the source) and a node with copies (the destination)."""
    return Pair(assigns=request.param)


def stand_in(flags: int) -> bytes:
    return b"ms %b %d F%d\r\n%b\r\n" % (KEY, len(STANDS_IN), flags, STANDS_IN)


@pytest.mark.parametrize("there", [b"", b"an older one", stand_in(LEASED)], ids=repr)
def test_a_copy_is_made(pair: Pair, there: bytes) -> None:
    pair.set(pair.source, b"value", b" F7 T100")
    if there.startswith(b"ms"):
        pair.destination.handle(there)
    elif there:
        pair.set(pair.destination, there)
    assert pair.run(copied(KEY, pair.moving())) == Moved(Outcome.MOVED, 5)
    copy, item = pair.destination.items[KEY], pair.source.items[KEY]
    assert (copy.value, copy.flags, copy.expires) == (item.value, item.flags, item.expires)


def test_a_hold_is_left_in_place(pair: Pair) -> None:
    pair.set(pair.source)
    pair.destination.handle(stand_in(HELD))
    before = dict(pair.destination.items)
    assert pair.run(copied(KEY, pair.moving())) == NOTHING
    assert pair.destination.items == before


@pytest.mark.parametrize("state", ["nothing", "stale"])
def test_old_copies_of_missing_and_stale_items_are_removed(pair: Pair, state: str) -> None:
    pair.set(pair.destination, b"an older one")
    if state == "stale":
        pair.set(pair.source)
        pair.source.handle(b"md %b I\r\n" % KEY)
    assert pair.run(copied(KEY, pair.moving())) == NOTHING
    assert not pair.destination.items


@pytest.mark.parametrize("step", range(1, 3))
def test_a_change_meanwhile_is_not_undone(pair: Pair, step: int) -> None:
    pair.set(pair.source)
    changed = False

    def change() -> None:
        pair.destination.handle(b"md %b\r\n" % KEY)
        pair.set(pair.source, b"newer")

    steps = copied(KEY, pair.moving())
    asks = next(steps)
    try:
        for round_ in range(10):
            if round_ == step:
                change()
                changed = True
            asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
    except StopIteration:
        pass
    assert changed
    assert not pair.destination.items


def test_a_missing_item_is_restored_from_a_copy(pair: Pair) -> None:
    pair.set(pair.source, b"value", b" F7")
    assert pair.run(restored(KEY, pair.moving())) == Moved(Outcome.MOVED, 5)
    assert pair.destination.items[KEY].value == b"value"
    assert pair.destination.items[KEY].flags == 7
    pair.set(pair.source, b"older")
    assert pair.run(restored(KEY, pair.moving())) == NOTHING
    assert pair.destination.items[KEY].value == b"value"


@pytest.mark.parametrize("flags", [HELD, LEASED])
def test_holds_and_leases_are_not_restored(pair: Pair, flags: int) -> None:
    pair.source.handle(stand_in(flags))
    assert pair.run(restored(KEY, pair.moving())) == NOTHING
    assert not pair.destination.items


def test_an_item_removed_meanwhile_is_not_restored(pair: Pair) -> None:
    """The item was already restored from another copy; a client deletes it and all copies."""
    pair.set(pair.source, b"value")
    pair.set(pair.destination, b"value")
    steps = restored(KEY, pair.moving())
    asks = next(steps)
    with pytest.raises(StopIteration) as stop:
        for round_ in range(10):
            if round_ == 1:
                pair.source.handle(b"md %b\r\n" % KEY)
                pair.destination.handle(b"md %b\r\n" % KEY)
            asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
    assert stop.value.value == NOTHING
    assert not pair.destination.items


@pytest.mark.parametrize("there", ["nothing", "hold"])
def test_no_stub_is_left_where_nothing_is_restored(pair: Pair, there: str) -> None:
    if there == "hold":
        pair.source.handle(stand_in(HELD))
    steps = restored(KEY, pair.moving())
    asks = next(steps)
    asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
    assert pair.destination.items[KEY].flags not in (HELD, LEASED)  # the stub
    with pytest.raises(StopIteration):
        while True:
            asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
    assert not pair.destination.items


def test_an_item_whose_stub_has_been_removed_is_retried(pair: Pair) -> None:
    pair.set(pair.source, b"value")
    steps = restored(KEY, pair.moving())
    asks = next(steps)
    with pytest.raises(BusyKeyError):
        for round_ in range(10):
            if round_ == 2:
                pair.destination.handle(b"md %b\r\n" % KEY)
            asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
    assert pair.run(restored(KEY, pair.moving())) == Moved(Outcome.MOVED, 5)


@pytest.mark.parametrize(
    "there", [b"", b"an older one", stand_in(LEASED), stand_in(HELD)], ids=repr
)
def test_an_item_that_cannot_move_is_frozen_and_then_copied(pair: Pair, there: bytes) -> None:
    pair.set(pair.source, b"value", b" F7")
    if there.startswith(b"ms"):
        pair.destination.handle(there)
    elif there:
        pair.set(pair.destination, there)
    assert pair.run(stranded(KEY, pair.moving())) == Moved(Outcome.MOVED, 5)
    assert pair.source.items[KEY].value.startswith(b"value\0")
    assert pair.destination.items[KEY].value == b"value"
    assert pair.destination.items[KEY].flags == 7
    assert pair.run(stranded(KEY, pair.moving())) == Moved(Outcome.MOVED, 5)


@pytest.mark.parametrize("step", range(4))
def test_a_hold_that_ends_meanwhile_does_not_undo_a_change(pair: Pair, step: int) -> None:
    """A change is made at the source before the item is frozen, or is refused."""
    pair.set(pair.source, b"1")
    pair.destination.handle(stand_in(HELD))
    held = pair.destination.items[KEY].unique
    steps = stranded(KEY, pair.moving())
    asks = next(steps)
    with pytest.raises(StopIteration) as stop:
        for round_ in range(20):
            if round_ == step:
                if not pair.source.items[KEY].value.startswith(b"1\0"):
                    pair.set(pair.source, b"2")
                pair.destination.handle(b"md %b C%d\r\n" % (KEY, held))
            asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
    assert stop.value.value == Moved(Outcome.MOVED, 1)
    last = b"2" if step < 2 else b"1"
    assert pair.source.items[KEY].value.startswith(last + b"\0")
    assert pair.destination.items[KEY].value == last


def test_a_copy_of_an_item_that_has_moved_already_is_left(pair: Pair) -> None:
    pair.source.handle(marks.mark(KEY, None))
    pair.set(pair.destination, b"copy")
    assert pair.run(stranded(KEY, pair.moving())) == NOTHING
    assert pair.destination.items[KEY].value == b"copy"


def test_a_stale_item_that_cannot_move_leaves_no_copy(pair: Pair) -> None:
    pair.set(pair.source)
    pair.source.handle(b"md %b I\r\n" % KEY)
    pair.destination.handle(stand_in(HELD))
    assert pair.run(stranded(KEY, pair.moving())) == NOTHING
    assert not pair.destination.items


def test_an_item_that_cannot_be_frozen_is_dropped_and_its_copy_is_left(pair: Pair) -> None:
    pair.set(pair.source)
    pair.source.largest = 20
    pair.set(pair.destination)
    assert pair.run(stranded(KEY, pair.moving())).outcome is Outcome.DROPPED
    assert not pair.source.items
    assert pair.destination.items[KEY].value == b"value"
