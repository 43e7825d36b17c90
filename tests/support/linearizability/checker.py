"""Search for an order of the operations on one item that explains their results.

The algorithm is that of Wing and Gong with the cache of visited configurations that Lowe added
(https://www.cs.ox.ac.uk/people/gavin.lowe/LinearizabiltyTesting/), changed to decide as
operations return: when one returns, it must have been carried out in every configuration that is
kept. So the cost depends on how many operations overlap, not on how many there are.

An operation with an unknown outcome is optional. Most never return, and overlap with everything
after them. Three things keep them cheap. Of two configurations that differ only in such operations,
the one that has used fewer can reach every state that the other can, so the other is dropped.
Values that no client was shown count as one value. And of operations with the same effect, the
first is used first.

A read is used as soon as its result is right: any later change may as well happen after it.
"""

import bisect
from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.support.linearizability.history import EVERY_KEY, NEVER, Operation
from tests.support.linearizability.register import ABSENT, State, apply

__all__ = ["Violation", "check", "check_each"]

# The maximum number of last operations in an explanation, before irrelevant ones are left out.
_SHOWN = 60


class Violation(NamedTuple):
    """A history that no order of its operations explains.

    Attributes:
        operation: the first whose result is impossible, given all that returned before it.
        states: the possible states of the item before `operations`.
        operations: a part of the history, with that operation at its end, that is impossible after
            any of these states.
    """

    operation: Operation
    states: Sequence[State]
    operations: Sequence[Operation]

    def __str__(self) -> str:
        key = self.operation.key.decode(errors="backslashreplace")
        states = " | ".join(map(str, self.states))
        lines = "\n".join(f"  {operation}" for operation in self.operations)
        return f"{key}: impossible result of\n  {self.operation}\nafter {states}, with\n{lines}"


def check_each(history: Iterable[Operation]) -> list[Violation]:
    """Check the operations of each key, and return a violation for every key that has one.

    A history is linearizable if those of its objects are. ``flush_all`` is an operation on each
    key; that all keys see it at the same moment is not checked.
    """
    by_key: dict[bytes, list[Operation]] = {}
    flushes = []
    for operation in history:
        if operation.key == EVERY_KEY:
            flushes.append(operation)
        else:
            by_key.setdefault(operation.key, []).append(operation)
    found = (check([*operations, *flushes]) for operations in by_key.values())
    return [violation for violation in found if violation is not None]


def check(history: Sequence[Operation]) -> Violation | None:
    """Check the operations of one key; return None if an order explains them.

    Operations that begin at the moment at which others return overlap with them.
    """
    events = list(_events(history))
    seen = _Seen(history)
    search = _Search(seen)
    for at, event in enumerate(events):
        if not search.advance(event):
            return _explain(events[: at + 1], seen)
    return None


class _Event(NamedTuple):
    time: float
    ends: bool
    operation: Operation


def _events(history: Iterable[Operation]) -> Iterator[_Event]:
    events = []
    for operation in history:
        events.append(_Event(operation.invoked, False, operation))
        if operation.returned != NEVER:
            events.append(_Event(operation.returned, True, operation))
    yield from sorted(events, key=lambda event: event[:2])


class _Seen:
    """Tells values that a client was shown, or that can become one, from unseen values."""

    def __init__(self, history: Iterable[Operation]) -> None:
        results = [operation.result for operation in history]
        values = {result.value for result in results if result is not None} - {None}
        self._values = b"\n".join(value for value in values if value is not None)
        self._numbers = sorted(int(value) for value in values if value and value.isdigit())
        self._more = sum(int(one.value) for one in history if one.name == "incr")
        # Appending digits turns a number into many others.
        self._mixed = any(
            one.name in ("append", "prepend") and one.value.isdigit() for one in history
        )
        self._known: dict[bytes | None, bytes | None] = {None: None}

    def __call__(self, state: State) -> State:
        """Return the state, with all unseen values replaced by a single one."""
        value = state.value
        if value not in self._known:
            self._known[value] = self._find(value)
        return state._replace(value=self._known[value])

    def _find(self, value: bytes) -> bytes:
        if value in self._values or (self._mixed and value.isdigit()):
            return value
        if not value.isdigit():
            return _UNSEEN
        number = int(value)
        at = bisect.bisect_left(self._numbers, number)
        near = at < len(self._numbers) and self._numbers[at] <= number + self._more
        return value if near else _UNSEEN_NUMBER


_UNSEEN = b"(a value that no client has seen)"
_UNSEEN_NUMBER = b"9" * 30
_UNTRIED: Final = State(b"(no state)", -1)


class _Configurations:
    """States the item may be in, each with the pending operations that led to it.

    Pending operations are represented as the bits of a number.

    Args:
        optional: the bits of operations whose outcomes are unknown.
    """

    def __init__(self, optional: int) -> None:
        self._optional = optional
        self._used: dict[tuple[State, int], list[int]] = {}

    def add(self, state: State, done: int) -> bool:
        """Add a configuration; return False if it offers nothing new."""
        optional = done & self._optional
        others = self._used.setdefault((state, done ^ optional), [])
        if any(other & optional == other for other in others):
            return False
        others[:] = [other for other in others if other & optional != optional]
        others.append(optional)
        return True

    def __iter__(self) -> Iterator[tuple[State, int]]:
        for (state, required), others in self._used.items():
            for optional in others:
                yield state, required | optional

    def __bool__(self) -> bool:
        return bool(self._used)


class _Group(NamedTuple):
    """Pending operations with the same effect.

    Attributes:
        bits: one for each operation.
        operation: one of them.
        optional: whether their outcomes are unknown.
        reads: whether they change nothing.
        known: the state after the operation by the state before it; None if impossible.
    """

    bits: int
    operation: Operation
    optional: bool
    reads: bool
    known: dict[State, State | None]


class _Search:
    """All configurations that explain the events so far."""

    def __init__(self, seen: _Seen) -> None:
        self._seen = seen
        self._groups: dict[Hashable, _Group] = {}
        self._pending: dict[int, Operation] = {}  # by bit
        self._optional = 0
        self._configurations = _Configurations(0)
        self._configurations.add(ABSENT, 0)

    @property
    def states(self) -> list[State]:
        return sorted({state for state, _ in self._configurations}, key=str)

    @property
    def pending(self) -> list[Operation]:
        return list(self._pending.values())

    def copy(self) -> "_Search":
        copy = _Search(self._seen)
        copy._groups = dict(self._groups)
        copy._pending = dict(self._pending)
        copy._optional = self._optional
        copy._configurations = self._configurations  # replaced, never modified
        return copy

    def advance(self, event: _Event) -> bool:
        """Take the next event; return False if nothing explains it."""
        if event.ends:
            return self._end(event.operation)
        bit = 1
        while bit in self._pending:
            bit <<= 1
        operation = event.operation
        self._pending[bit] = operation
        optional = operation.result is None
        kind = self._kind(operation)
        group = self._groups.get(kind) or _Group(
            0, operation, optional, _changes_nothing(operation), {}
        )
        self._groups[kind] = group._replace(bits=group.bits | bit)
        if optional:
            self._optional |= bit
            # No configuration contains it yet, but later ones must know that it is optional.
            before = self._configurations
            self._configurations = _Configurations(self._optional)
            for state, done in before:
                self._configurations.add(state, done)
        return True

    def _kind(self, operation: Operation) -> Hashable:
        """Return a key that is equal for optional operations with the same effect."""
        if operation.result is not None:
            return operation
        stored = self._seen(State(operation.value))
        return operation.name, stored, operation.unique, operation.returned

    def _end(self, operation: Operation) -> bool:
        ending = next(bit for bit, one in self._pending.items() if one is operation)
        after = _Configurations(self._optional & ~ending)
        visited = _Configurations(self._optional)
        todo: deque[tuple[State, int]] = deque()
        for state, done in self._configurations:
            if done & ending:
                after.add(state, done ^ ending)
                continue
            if ending & self._optional:  # otherwise it has not been carried out
                after.add(state, done)
            if visited.add(state, done):
                todo.append((state, done))
        while todo:
            state, done = todo.popleft()
            done, changes = self._changes(state, done, ending)
            for new, bit in changes:
                if bit == ending:
                    after.add(new, done)
                elif visited.add(new, done | bit):
                    todo.append((new, done | bit))
        if not after:
            return False
        self._forget(ending)
        self._configurations = after
        return True

    def _changes(
        self, state: State, done: int, ending: int
    ) -> tuple[int, Iterable[tuple[State, int]]]:
        """Use reads; return the operations used by then, and those that may be used next.

        Args:
            state: the state of the item.
            done: the operations used so far.
            ending: the operation that must be used; if it is a read, others may as well follow.
        """
        changes = []
        for group in self._groups.values():
            bit = group.bits & ~done
            if not bit:
                continue
            bit &= -bit
            new = group.known.get(state, _UNTRIED)
            if new is _UNTRIED:
                new = group.known[state] = self._after(group, state)
            if new is None:
                continue
            if not group.reads:
                changes.append((new, bit))
            elif bit == ending:
                changes = [(state, bit)]
                break
            else:
                done |= bit
        return done, changes

    def _after(self, group: _Group, state: State) -> State | None:
        new = apply(state, group.operation)
        if new is None:
            return None
        new = self._seen(new)
        return None if group.optional and new == state else new

    def _forget(self, bit: int) -> None:
        operation = self._pending.pop(bit)
        self._optional &= ~bit
        kind = self._kind(operation)
        group = self._groups[kind]
        if group.bits == bit:
            del self._groups[kind]
        else:
            self._groups[kind] = group._replace(bits=group.bits & ~bit)


def _explain(events: Sequence[_Event], seen: _Seen) -> Violation:
    """Return the violation at the last of the events, without irrelevant operations."""
    start = max(0, len(events) - 2 * _SHOWN)
    search = _Search(seen)
    for event in events[:start]:
        search.advance(event)
    last = events[-1].operation
    shown = list(events[start:])
    compared = {event.operation.unique for event in events}
    for event in reversed(events[start:]):
        # Leaving out a command that changed nothing keeps a history linearizable. A command
        # that shows a unique binds it to a state.
        operation = event.operation
        if event.ends or operation is last or not _is_read(operation, compared):
            continue
        fewer = [one for one in shown if one.operation is not operation]
        if not _possible(search.copy(), fewer):
            shown = fewer
    operations = {*search.pending, *(event.operation for event in shown)}
    in_order = sorted(operations, key=lambda operation: operation.invoked)
    return Violation(last, search.states, in_order)


def _possible(search: _Search, events: Iterable[_Event]) -> bool:
    return all(search.advance(event) for event in events)


_CHANGES = frozenset(("DELETED", "NUMBER", "OK", "STORED", "TOUCHED"))


def _is_read(operation: Operation, compared: Container[int]) -> bool:
    result = operation.result
    return (
        result is not None
        and result.word not in _CHANGES
        and operation.name != "gat"
        and result.unique not in compared
    )


def _changes_nothing(operation: Operation) -> bool:
    """Return whether an operation is a read; one that shows a unique binds a state to it."""
    result = operation.result
    return result is not None and result.unique is None and _is_read(operation, ())
