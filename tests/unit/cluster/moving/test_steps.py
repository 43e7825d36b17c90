"""The steps of moving a key, on models of two nodes."""

from dataclasses import replace
from typing import TypeVar

import pytest

from memlite.cluster.moving import marks
from memlite.cluster.moving.answers import NodeRefusedError, Place, Steps, answer_of
from memlite.cluster.moving.marks import Found, Kind, Marks
from memlite.cluster.moving.steps import BusyKeyError, Moved, MovingKey, Outcome
from tests.support.model_node import ModelItem, ModelNode

T = TypeVar("T")

NONCE = "0123456789abcdef" * 2
KEY = b"key"


class Pair:
    """Two nodes, and the moves between them."""

    def __init__(self, *, assigns: bool = True) -> None:
        self.source = ModelNode(assigns=assigns, first=500)
        self.destination = ModelNode(assigns=assigns)
        self.assigns = assigns
        self.clock = 0.0

    def moving(self, key: bytes = KEY) -> MovingKey:
        return MovingKey(key, Marks(NONCE), self.assigns, lambda: self.clock, lambda: 1e9)

    def run(self, steps: Steps[T]) -> T:
        """Carry out all steps at once."""
        try:
            asks = next(steps)
            while True:
                asks = steps.send(tuple(answer_of(self.ask(*ask)) for ask in asks))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def ask(self, place: Place, request: bytes) -> bytes:
        return (self.source if place is Place.SOURCE else self.destination).handle(request)

    def set(self, node: ModelNode, value: bytes = b"value", more: bytes = b"") -> None:
        node.handle(b"ms %b %d%b\r\n%b\r\n" % (KEY, len(value), more, value))

    def freeze(self) -> None:
        found = Marks(NONCE).found(answer_of(self.source.handle(marks.look(KEY))))
        assert self.source.handle(Marks(NONCE).freeze(KEY, found)).startswith(b"HD")


@pytest.fixture(params=[True, False], ids=["assigned uniques", "own uniques"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(assigns=request.param)


def test_an_item_moves_as_it_is(pair: Pair) -> None:
    pair.set(pair.source, b"value", b" F7 T100")
    before = pair.source.items[KEY]
    assert pair.run(pair.moving().move()) == Moved(Outcome.MOVED, 5)
    assert not pair.source.items
    after = pair.destination.items[KEY]
    assert replace(after, unique=0) == replace(before, unique=0)
    if pair.assigns:
        assert after.unique == before.unique


def test_it_takes_four_round_trips(pair: Pair) -> None:
    pair.set(pair.source)
    steps, rounds = pair.moving().move(), 1
    asks = next(steps)
    with pytest.raises(StopIteration):
        while True:
            asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
            rounds += 1
    assert rounds == 4


@pytest.mark.parametrize("won", [False, True])
def test_a_stale_item_stays_stale(pair: Pair, won: bool) -> None:
    pair.set(pair.source, b"value", b" T100")
    pair.source.handle(b"md key I\r\n")
    if won:
        assert b" W" in pair.source.handle(b"mg key\r\n")
    pair.run(pair.moving().move())
    reply = pair.destination.handle(b"mg key v\r\n")
    assert reply == (b"VA 5 X Z" if won else b"VA 5 W X") + b"\r\nvalue\r\n"


def test_an_item_that_is_being_recached_stays_so(pair: Pair) -> None:
    pair.set(pair.source, b"value", b" T20")
    assert b" W" in pair.source.handle(b"mg key R30\r\n")
    pair.run(pair.moving().move())
    assert pair.destination.handle(b"mg key R30\r\n") == b"HD Z\r\n"


def test_keys_may_be_binary(pair: Pair) -> None:
    pair.source.handle(b"ms YSBi 5 b\r\nvalue\r\n")
    assert pair.run(pair.moving(b"a b").move()).outcome is Outcome.MOVED
    assert pair.destination.items[b"a b"].binary


@pytest.mark.parametrize("marker", [False, True])
def test_there_may_be_no_item(pair: Pair, marker: bool) -> None:
    if marker:
        pair.source.handle(marks.mark(KEY, None))
    before = dict(pair.source.items)
    assert pair.run(pair.moving().move()) == Moved(Outcome.NOTHING)
    assert pair.source.items == before
    assert not pair.destination.items


def test_an_item_with_the_flags_of_a_marker_moves(pair: Pair) -> None:
    pair.source.handle(marks.mark(KEY, None))
    pair.set(pair.source, b"other", b" F%d" % pair.source.items[KEY].flags)
    assert pair.run(pair.moving().move()).outcome is Outcome.MOVED


def test_a_frozen_item_moves(pair: Pair) -> None:
    pair.set(pair.source, b"value", b" F7")
    pair.freeze()
    assert pair.run(pair.moving().move()) == Moved(Outcome.MOVED, 5)
    assert pair.destination.items[KEY].value == b"value"
    assert not pair.source.items


def test_a_move_that_froze_a_stale_item_is_continued(pair: Pair) -> None:
    pair.set(pair.source)
    pair.source.handle(b"md key I\r\n")
    pair.freeze()
    assert pair.run(pair.moving().complete()).outcome is Outcome.MOVED
    assert b" W X" in pair.destination.handle(b"mg key\r\n")


def test_a_copy_is_completed(pair: Pair) -> None:
    """A mover was killed before it removed the frozen item."""
    pair.set(pair.source)
    pair.source.handle(b"md key I\r\n")
    pair.freeze()
    pair.set(pair.destination, b"value")
    unique = pair.destination.items[KEY].unique
    assert pair.run(pair.moving().complete()) == Moved(Outcome.MOVED)
    assert not pair.source.items
    there = pair.destination.items[KEY]
    assert there.stale
    assert (there.unique == unique) is pair.assigns


@pytest.mark.parametrize("request_", [marks.stub(KEY, None), marks.mark(KEY, None)])
def test_marks_at_the_destination_are_replaced(pair: Pair, request_: bytes) -> None:
    pair.set(pair.source)
    pair.destination.handle(request_)
    assert pair.run(pair.moving().move()) == Moved(Outcome.MOVED, 5)
    assert pair.destination.items[KEY].value == b"value"


def test_an_older_item_at_the_destination_is_replaced(pair: Pair) -> None:
    pair.set(pair.source)
    pair.set(pair.destination, b"of last year")
    assert pair.run(pair.moving().move()) == Moved(Outcome.MOVED, 5)
    assert pair.destination.items[KEY].value == b"value"


def test_an_item_that_is_too_large_with_its_trailer_is_dropped(pair: Pair) -> None:
    pair.source.largest = 1000
    pair.set(pair.source, bytes(990))
    moved = pair.run(pair.moving().move())
    assert moved == Moved(Outcome.DROPPED, reason="too large to be moved")
    assert not pair.source.items
    assert not pair.destination.items


def test_an_item_that_the_destination_refuses_is_dropped(pair: Pair) -> None:
    pair.destination.largest = 100
    pair.set(pair.source, bytes(990))
    moved = pair.run(pair.moving().move())
    assert moved == Moved(Outcome.DROPPED, reason="SERVER_ERROR object too large for cache")
    assert not pair.source.items
    assert not pair.destination.items


def test_a_node_may_refuse_a_stub(pair: Pair) -> None:
    pair.destination.largest = 1
    pair.set(pair.source)
    with pytest.raises(NodeRefusedError, match="too large"):
        pair.run(pair.moving().move())
    assert pair.source.items


def test_the_time_to_live_keeps_running(pair: Pair) -> None:
    pair.set(pair.source, b"value", b" T100")
    steps = pair.moving().move()
    asks = next(steps)
    while not asks[0].request.startswith(b"ms key 5 "):
        pair.clock += 37.5
        asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
    assert b" T63 " in asks[0].request


def test_an_item_that_expires_meanwhile_is_not_moved(pair: Pair) -> None:
    pair.set(pair.source, b"value", b" T2")
    steps = pair.moving().move()
    asks = next(steps)
    with pytest.raises(StopIteration) as stop:
        while True:
            asks = steps.send(tuple(answer_of(pair.ask(*ask)) for ask in asks))
            pair.clock += 2
    assert stop.value.value == Moved(Outcome.NOTHING)
    assert not pair.destination.items


def test_a_key_that_changes_all_the_time_can_be_tried_again(pair: Pair) -> None:
    pair.set(pair.source)
    steps = pair.moving().move()
    asks = next(steps)
    with pytest.raises(BusyKeyError):
        while True:
            answers = tuple(answer_of(pair.ask(*ask)) for ask in asks)
            pair.set(pair.source)
            asks = steps.send(answers)


def test_an_item_that_looks_frozen_by_another_move_is_an_item() -> None:
    found = Found(Kind.REAL, unique=7)
    trailer = Marks("f" * 32).freeze(KEY, found).partition(b"\r\n")[2][:-2]
    answer = answer_of(b"VA %d f1 t-1 c9\r\n%b\r\n" % (len(trailer), trailer))
    assert Marks(NONCE).found(answer).kind is Kind.REAL
    assert Marks("f" * 32).found(answer) == Found(Kind.FROZEN, 9, b"", 1, None, 7)


def test_an_item_may_be_frozen_twice() -> None:
    node = ModelNode()
    node.handle(b"ms key 1\r\nx\r\n")
    for _ in range(2):
        found = Found(Kind.REAL, unique=node.items[KEY].unique)
        node.handle(Marks(NONCE).freeze(KEY, found))
    found = Marks(NONCE).found(answer_of(node.handle(marks.look(KEY))))
    assert (found.kind, found.value, found.shown, found.unique) == (Kind.FROZEN, b"x", 1, 3)


def test_a_nonce_is_checked() -> None:
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        Marks("x")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [(b"CLIENT_ERROR invalid flag\r\n", False), (b"EN\r\n", True), (b"HD\r\n", True)],
)
def test_a_probe_shows_whether_uniques_can_be_assigned(reply: bytes, expected: bool) -> None:
    assert marks.assigns(reply) is expected


@pytest.mark.parametrize(
    ("ttl", "elapsed", "exptime"),
    [
        (None, 100.0, 0),
        (10, 0.9, 10),
        (10, 9.5, 1),
        (10, 10.0, -1),
        (0, 0.0, -1),
        (2_592_000, 0.0, 2_592_000),
        (2_592_001, 0.0, 1_002_592_001),
    ],
)
def test_exptimes(ttl: int | None, elapsed: float, exptime: int) -> None:
    assert marks.exptime_of(ttl, elapsed, 1e9) == exptime


def test_the_model_node_answers_like_a_server() -> None:
    node = ModelNode()
    assert node.handle(b"ms k 1 F3 T9 c\r\nx\r\n") == b"HD c1\r\n"
    assert node.items[b"k"] == ModelItem(b"x", 1, 3, 1009)
    assert node.handle(b"mg k v f t c s\r\n") == b"VA 1 f3 t9 c1 s1\r\nx\r\n"
