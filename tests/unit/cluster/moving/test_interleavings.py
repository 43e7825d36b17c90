"""Moves of a key, in all interleavings of steps of proxies and movers, each of which may be killed.

In every reachable state, reads and the replies that clients got must be linearizable. The search
must also find the errors in deliberately wrong variants of the protocol.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memlite.backends import ANY
from memlite.cluster.moving import access, marks, steps
from memlite.cluster.moving.access import KeyAccess, Reading
from memlite.cluster.moving.answers import Ask, Place, Steps, answer_of
from memlite.cluster.moving.marks import Found, Kind, Marks
from memlite.cluster.moving.rewriting import Wish
from memlite.cluster.moving.steps import BusyKeyError, MovingKey
from memlite.cluster.topology import Phase
from memlite.core.errors import VersionConflict
from tests.support.interleavings import Operation, Search, Value, ViolationError
from tests.support.model_node import ModelNode

NONCE = "0123456789abcdef" * 2
KEY = b"k"
PREPARE, MOVE, SETTLE = Phase.PREPARE, Phase.MOVE, Phase.SETTLE
NAMES = ("set", "delete", "add", "get", "append")


class Clients:
    """Makes the operations of one proxy's clients, or of a mover.

    Args:
        phase: the phase that the proxy knows.
        number: distinguishes it from other proxies and movers.
        access: the kind of access.
        moving: the kind of move.
        assigns: whether nodes let clients assign cas uniques.

    Attributes:
        attempts: how often a client tries before it gives up.
    """

    attempts = 1

    def __init__(
        self,
        phase: Phase,
        number: int,
        access: type[KeyAccess] = KeyAccess,
        moving: type[MovingKey] = MovingKey,
        *,
        assigns: bool = True,
    ) -> None:
        self.phase = phase
        self.number = number
        self.kinds = access, moving
        self.assigns = assigns

    def moving(self) -> MovingKey:
        uniques = itertools.count(10_000 * (self.number + 1))
        return self.kinds[1](
            KEY,
            Marks(NONCE),
            self.assigns,
            clock=lambda: 0.0,
            now=lambda: 0.0,
            choose=lambda: next(uniques),
        )

    def access(self) -> KeyAccess:
        return self.kinds[0](self.moving(), self.phase, clock=lambda: 0.0)

    def read(self) -> Steps[Value]:
        reading = yield from self.access().get()
        return None if reading.absent else reading.found.value

    def get(self) -> Operation:
        return Operation("get", self.read, lambda value: (value, value))

    def set(self, new: bytes) -> Operation:
        def steps() -> Steps[bool]:
            yield from self.access().put(Wish(new), ANY)
            return True

        return Operation(f"set {new!r}", steps, lambda value: (new, True))

    def _again(self, attempt: Callable[[KeyAccess, Reading], Steps[Any]]) -> Steps[Any]:
        """Read and change, as the engine does."""
        access = self.access()
        for _ in range(self.attempts):
            reading = yield from access.get()
            try:
                return (yield from attempt(access, reading))
            except VersionConflict:
                continue
        raise VersionConflict

    def delete(self) -> Operation:
        def attempt(access: KeyAccess, reading: Reading) -> Steps[bool]:
            if reading.absent:
                return False
            yield from access.delete(reading)
            return True

        return Operation(
            "delete", lambda: self._again(attempt), lambda value: (None, value is not None)
        )

    def add(self, new: bytes) -> Operation:
        def attempt(access: KeyAccess, reading: Reading) -> Steps[bool]:
            if not reading.absent:
                return False
            yield from access.put(Wish(new), None)
            return True

        return Operation(
            f"add {new!r}",
            lambda: self._again(attempt),
            lambda value: (new, True) if value is None else (value, False),
        )

    def append(self, more: bytes) -> Operation:
        def attempt(access: KeyAccess, reading: Reading) -> Steps[Value]:
            if reading.absent:
                return None
            value = reading.found.value + more
            yield from access.put(Wish(value, exptime=None), reading)
            return value

        return Operation(
            f"append {more!r}",
            lambda: self._again(attempt),
            lambda value: (None, None) if value is None else (value + more, value + more),
        )

    def move(self) -> Operation:
        return Operation("move", lambda: self.moving().move())


class Raw:
    """Makes the operations of clients of a proxy that knows of no move."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def _ask(self, request: bytes) -> Steps[Any]:
        (answer,) = yield (Ask(self.place, request),)
        return answer

    def get(self) -> Operation:
        def steps() -> Steps[Value]:
            answer = yield from self._ask(b"mg k v\r\n")
            return None if answer.status == b"EN" else answer.value

        return Operation("raw get", steps, lambda value: (value, value))

    def set(self, new: bytes) -> Operation:
        def steps() -> Steps[bool]:
            return (yield from self._ask(b"ms k %d\r\n%b\r\n" % (len(new), new))).done

        return Operation(f"raw set {new!r}", steps, lambda value: (new, True))

    def add(self, new: bytes) -> Operation:
        def steps() -> Steps[bool]:
            return (yield from self._ask(b"ms k %d ME\r\n%b\r\n" % (len(new), new))).done

        return Operation(
            f"raw add {new!r}",
            steps,
            lambda value: (new, True) if value is None else (value, False),
        )

    def delete(self) -> Operation:
        def steps() -> Steps[bool]:
            return (yield from self._ask(b"md k\r\n")).done

        return Operation("raw delete", steps, lambda value: (None, value is not None))


def stub_expires() -> Operation:
    """Return an operation that removes a stub, as if it had expired."""

    def steps() -> Steps[None]:
        (looked,) = yield (Ask(Place.DESTINATION, marks.look(KEY)),)
        found = Marks(NONCE).found(looked)
        if found.kind is Kind.STUB:
            yield (Ask(Place.DESTINATION, marks.drop(KEY, found.unique)),)

    return Operation("stub expires", steps)


# Initial states


def at_source(source: ModelNode, _destination: ModelNode) -> None:
    source.handle(b"ms k 1\r\na\r\n")


def frozen(source: ModelNode, destination: ModelNode) -> None:
    at_source(source, destination)
    found = Marks(NONCE).found(answer_of(source.handle(marks.look(KEY))))
    source.handle(Marks(NONCE).freeze(KEY, found))


def copied(source: ModelNode, destination: ModelNode) -> None:
    frozen(source, destination)
    at_destination(source, destination)


def at_destination(_source: ModelNode, destination: ModelNode) -> None:
    destination.handle(b"ms k 1\r\na\r\n")


def nowhere(_source: ModelNode, _destination: ModelNode) -> None:
    pass


def stray(_source: ModelNode, destination: ModelNode) -> None:
    destination.handle(b"ms k 1\r\nz\r\n")


def moved_and_marked(source: ModelNode, destination: ModelNode) -> None:
    marked(source, destination)
    at_destination(source, destination)


def stub_left(_source: ModelNode, destination: ModelNode) -> None:
    destination.handle(marks.stub(KEY, None))


def marked(source: ModelNode, _destination: ModelNode) -> None:
    source.handle(marks.mark(KEY, None))


Prepare = Callable[[ModelNode, ModelNode], None]
STARTS: dict[str, tuple[Prepare, Value]] = {
    "at the source": (at_source, b"a"),
    "frozen": (frozen, b"a"),
    "copied": (copied, b"a"),
    "at the destination": (at_destination, b"a"),
    "nowhere": (nowhere, None),
    "stub left": (stub_left, None),
    "marked": (marked, None),
}


OTHER_STARTS: dict[str, tuple[Prepare, Value]] = {
    "stray": (stray, None),
    "at the destination, marked": (moved_and_marked, b"a"),
}


def search(
    scripts: Sequence[Sequence[Operation]],
    start: str,
    readers: Sequence[Phase | Place],
    *,
    assigns: bool = True,
) -> Search:
    prepare, initial = (STARTS | OTHER_STARTS)[start]
    steps = [
        Clients(one, 9, assigns=assigns).read if isinstance(one, Phase) else Raw(one).get().steps
        for one in readers
    ]
    found = Search(scripts, prepare, initial, steps, assigns=assigns)
    found.run()
    return found


def operations(clients: Clients | Raw, letter: bytes) -> dict[str, Operation]:
    found = {
        "set": clients.set(letter),
        "delete": clients.delete(),
        "add": clients.add(letter),
        "get": clients.get(),
    }
    if isinstance(clients, Clients):
        found["append"] = clients.append(letter)
    return found


def pairs(first: Clients | Raw, second: Clients | Raw) -> list[tuple[Operation, Operation]]:
    return list(
        itertools.product(operations(first, b"x").values(), operations(second, b"y").values())
    )


def give_up_after(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make clients give up after this many attempts."""
    monkeypatch.setattr(access, "_MAX_ROUNDS", rounds)
    monkeypatch.setattr(Clients, "attempts", rounds)


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make clients and movers give up soon; a client that completed a move tries again."""
    give_up_after(2, monkeypatch)
    monkeypatch.setattr(steps, "_MAX_ROUNDS", 4)


SOME = [("set", "append"), ("append", "delete")]
ALL = [*itertools.product(NAMES, NAMES)]
BEGUN = ["frozen", "copied"]
"""States left by a killed mover. Clients complete the move, which makes them movers, too."""
OTHERS = [name for name in STARTS if name not in BEGUN]


def three(names: tuple[str, str], *, mover: bool) -> list[list[Operation]]:
    one, two = operations(Clients(MOVE, 1), b"x"), operations(Clients(MOVE, 2), b"y")
    scripts = [[one[names[0]]], [two[names[1]]]]
    return [[Clients(MOVE, 0).move()], *scripts] if mover else scripts


@pytest.mark.parametrize("names", SOME, ids=" and ".join)
@pytest.mark.parametrize("start", OTHERS)
def test_a_mover_and_two_proxies(
    start: str, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_after(1, monkeypatch)
    assert search(three(names, mover=True), start, [MOVE]).ended


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("names", ALL, ids=" and ".join)
def test_a_mover_and_two_proxies_that_try_twice(names: tuple[str, str]) -> None:
    for start in OTHERS:
        assert search(three(names, mover=True), start, [MOVE]).ended


@pytest.mark.parametrize("names", ALL, ids=" and ".join)
@pytest.mark.parametrize("start", BEGUN)
def test_two_proxies_after_a_mover(start: str, names: tuple[str, str]) -> None:
    assert search(three(names, mover=False), start, [MOVE]).ended


@pytest.mark.parametrize("name", ["set", "append", "delete", "add"])
@pytest.mark.parametrize("start", BEGUN)
def test_a_mover_and_a_proxy_after_a_mover(start: str, name: str) -> None:
    client = operations(Clients(MOVE, 1), b"x")[name]
    assert search([[Clients(MOVE, 0).move()], [client]], start, [MOVE]).ended


@pytest.mark.parametrize("assigns", [True, False])
@pytest.mark.parametrize("start", STARTS)
def test_two_movers(start: str, assigns: bool) -> None:
    movers = [[Clients(MOVE, number, assigns=assigns).move()] for number in (0, 1)]
    assert search(movers, start, [MOVE], assigns=assigns).ended


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("assigns", [True, False])
@pytest.mark.parametrize("name", ["set", "delete", "append"])
def test_two_movers_and_a_proxy(name: str, assigns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up_after(1, monkeypatch)
    movers = [[Clients(MOVE, number, assigns=assigns).move()] for number in (0, 1)]
    client = operations(Clients(MOVE, 2, assigns=assigns), b"x")[name]
    for start in OTHERS:
        assert search([*movers, [client]], start, [MOVE], assigns=assigns).ended


@pytest.mark.parametrize("start", STARTS)
def test_a_proxy_carries_out_operations_in_a_row(start: str) -> None:
    proxy = Clients(MOVE, 1)
    done = operations(proxy, b"x")
    for one, two in [("set", "delete"), ("delete", "add"), ("append", "set")]:
        scripts = [[Clients(MOVE, 0).move()], [done[one], done[two], proxy.get()]]
        assert search(scripts, start, [MOVE]).ended


@pytest.mark.parametrize("start", ["at the source", "frozen", "stub left"])
def test_a_stub_may_expire_at_any_time(start: str) -> None:
    for name in ("set", "delete"):
        client = operations(Clients(MOVE, 2), b"x")[name]
        scripts = [[Clients(MOVE, 0).move()], [client], [stub_expires()]]
        assert search(scripts, start, [MOVE]).ended


def neighbours(
    first: Clients | Raw, second: Clients | Raw, start: str, readers: Sequence[Phase | Place]
) -> None:
    """Try all pairs of operations of proxies that know of different phases."""
    for one, two in pairs(first, second):
        assert search([[one, first.get()], [two, second.get()]], start, readers).ended


@pytest.mark.parametrize("start", ["at the source", "nowhere", "stray"])
def test_a_proxy_that_prepares_and_one_that_knows_nothing_yet(start: str) -> None:
    readers = [Place.SOURCE, PREPARE]
    neighbours(Raw(Place.SOURCE), Clients(PREPARE, 1), start, readers)


@pytest.mark.parametrize(
    "start", ["at the source", "nowhere", "marked", "at the destination, marked"]
)
def test_a_proxy_that_moves_and_one_that_prepares(start: str) -> None:
    neighbours(Clients(PREPARE, 0), Clients(MOVE, 1), start, [PREPARE, MOVE])


@pytest.mark.parametrize("start", ["at the destination", "nowhere", "stub left", "marked"])
def test_a_proxy_that_settles_and_one_that_moves(start: str) -> None:
    neighbours(Clients(MOVE, 0), Clients(SETTLE, 1), start, [MOVE, SETTLE])


@pytest.mark.parametrize("start", ["at the destination", "nowhere"])
def test_a_proxy_that_knows_of_the_end_and_one_that_settles(start: str) -> None:
    readers = [SETTLE, Place.DESTINATION]
    neighbours(Clients(SETTLE, 0), Raw(Place.DESTINATION), start, readers)


# Moves that continue without a node that is gone


def destination_gone(operation: Operation) -> Operation:
    """Return an operation that fails when it asks the destination, which is gone."""

    def steps() -> Steps[Any]:
        inner = operation.steps()
        try:
            asks = next(inner)
            while True:
                there = tuple(ask for ask in asks if ask.place is Place.SOURCE)
                answers = (yield there) if there else ()
                if len(there) < len(asks):
                    raise BusyKeyError("the destination is gone")
                asks = inner.send(answers)
        except StopIteration as stop:
            return stop.value

    return Operation(operation.name, steps, operation.effect)


def try_without_destination(start: str, phase: Phase) -> None:
    """Try proxies that know that a destination is gone, with proxies that do not.

    For the latter the destination does not answer; the former have another destination, or none.
    """
    old, new = Clients(MOVE, 0), Clients(phase, 1)
    for one, two in pairs(old, new):
        script = [destination_gone(one), destination_gone(old.get())]
        assert search([script, [two, new.get()]], start, [phase]).ended
    for two in operations(new, b"y").values():
        scripts = [[destination_gone(old.move())], [two, new.get()]]
        assert search(scripts, start, [phase]).ended


@pytest.mark.parametrize("start", ["at the source", "frozen", "nowhere", "marked"])
@pytest.mark.parametrize("phase", [MOVE, Phase.BACK])
def test_proxies_that_know_the_destination_is_gone_and_others(start: str, phase: Phase) -> None:
    try_without_destination(start, phase)


def test_a_new_destination_must_not_hold_the_key() -> None:
    with pytest.raises(ViolationError):
        try_without_destination("stray", MOVE)


# Wrong variants


class CopiesAnyway(MovingKey):
    """Copies unconditionally: a late copy replaces a value that clients have stored since."""

    def _copy(self, found: Found, exptime: int, stub: int) -> Steps[int]:
        request = b"ms k %d c\r\n%b\r\n" % (len(found.value), found.value)
        (stored,) = yield (Ask(Place.DESTINATION, request),)
        return stored.unique


class LooksFirst(MovingKey):
    """Reads the source before it has a stub: the item may be moved and deleted in between."""

    def complete(self) -> Steps[Any]:
        seen = yield from self._look()
        (stubbed,) = yield (Ask(Place.DESTINATION, self._stub()),)
        return (yield from self._complete(stubbed.unique, seen))

    move = complete


class CopiesReal(MovingKey):
    """Copies an item that is not frozen, and removes it if it is unchanged."""

    def move(self) -> Steps[Any]:
        (stubbed,) = yield (Ask(Place.DESTINATION, self._stub()),)
        found = (yield from self._look()).found
        if found.kind is Kind.REAL and stubbed.unique:
            copied = yield from self._copy(found, 0, stubbed.unique)
            (dropped,) = yield (Ask(Place.SOURCE, marks.drop(KEY, found.unique)),)
            if not dropped.done and copied:
                yield (Ask(Place.DESTINATION, marks.drop(KEY, copied)),)


class ChangesFrozen(KeyAccess):
    """Changes a frozen item in place."""

    def _check(self, reading: Reading) -> Steps[None]:
        yield from ()


class LooksAtDestinationFirst(KeyAccess):
    """Reads the destination first."""

    def _read(self) -> Steps[Reading]:
        reading = yield from self._look(Place.DESTINATION)
        if reading.found.kind is Kind.REAL:
            return reading
        reading = yield from self._look(Place.SOURCE)
        return reading if reading.found.kind in (Kind.REAL, Kind.FROZEN) else Reading()


class AddsWithoutMark(KeyAccess):
    """Adds at the destination without a marker at the source."""

    def _add(self, wish: Wish) -> Steps[int]:
        return (yield from self._add_at(Place.DESTINATION, wish))


class ReadsBothWhilePreparing(KeyAccess):
    """Reads the destination although its item may be long out of date."""

    def _read(self) -> Steps[Reading]:
        reading = yield from self._look(Place.SOURCE)
        if reading.found.kind in (Kind.REAL, Kind.FROZEN):
            return reading
        reading = yield from self._look(Place.DESTINATION)
        return reading if reading.found.kind is Kind.REAL else Reading()


@pytest.mark.parametrize(
    ("kind", "start"),
    [(CopiesAnyway, "frozen"), (LooksFirst, "frozen"), (CopiesReal, "at the source")],
)
def test_a_wrong_move_is_found(kind: type[MovingKey], start: str) -> None:
    mover = Clients(MOVE, 0, moving=kind)
    with pytest.raises(ViolationError):
        search([[mover.move()], [Clients(MOVE, 1).delete()]], start, [MOVE])


@pytest.mark.parametrize("kind", [ChangesFrozen, LooksAtDestinationFirst])
def test_a_wrong_change_is_found(kind: type[KeyAccess]) -> None:
    client = Clients(MOVE, 1, kind)
    script = [client.set(b"x"), client.delete(), client.get()]
    with pytest.raises(ViolationError):
        search([[Clients(MOVE, 0).move()], script], "frozen", [MOVE])


def test_the_marker_is_needed() -> None:
    with pytest.raises(ViolationError):
        neighbours(Clients(PREPARE, 0), Clients(MOVE, 1, AddsWithoutMark), "nowhere", [MOVE])


def test_an_old_item_at_the_destination_must_not_be_read() -> None:
    with pytest.raises(ViolationError):
        client = Clients(PREPARE, 1, ReadsBothWhilePreparing)
        search([[client.get()]], "stray", [PREPARE])
