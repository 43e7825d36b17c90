"""The steps of moving one key, for the mover and for proxies that need it to be moved.

See docs/decisions/0041-a-moving-key-is-frozen.md for why this is safe despite concurrent changes,
and wherever it is interrupted.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from memlite.cluster.moving import marks
from memlite.cluster.moving.answers import Ask, NodeRefusedError, Place, Steps
from memlite.cluster.moving.marks import Found, Kind, Marks
from memlite.core.errors import MemliteError

__all__ = ["BusyKeyError", "Moved", "MovingKey", "Outcome"]

_MAX_ROUNDS: Final = 20
_SOURCE: Final = Place.SOURCE
_DESTINATION: Final = Place.DESTINATION


class BusyKeyError(MemliteError):
    """A key kept changing while it was being moved; the move can be retried."""


class Outcome(Enum):
    """The outcome of moving a key."""

    MOVED = auto()
    """It is at the destination."""
    NOTHING = auto()
    """The source had nothing to move, or no longer had it."""
    DROPPED = auto()
    """It is lost because a node rejected it: with its trailer, or altogether."""


class Moved(NamedTuple):
    """The result of moving a key.

    Attributes:
        outcome: the outcome.
        size: bytes of the value that was sent to the destination; 0 if none was.
        reason: why it was dropped.
    """

    outcome: Outcome
    size: int = 0
    reason: str = ""


class _Seen(NamedTuple):
    """The state found at the source, and when it was requested."""

    found: Found
    at: float


@dataclass(frozen=True, slots=True)
class MovingKey:
    """Moves a key from its source to its destination.

    Args:
        key: the key.
        marks: the marks of the move.
        assigns: whether both nodes accept assigned cas uniques, so that items keep theirs.
        clock: returns seconds that never decrease.
        now: returns the unix time.
        choose: returns a cas unique for a stub, at random.
    """

    key: bytes
    marks: Marks
    assigns: bool = True
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    choose: Callable[[], int] = lambda: random.getrandbits(62) + 1

    def move(self) -> Steps[Moved]:
        """Move the key if the source has an item, which may be frozen.

        Raises:
            NodeRefusedError: a node answers with an error.
            BusyKeyError: the key keeps changing.
        """
        look = marks.look(self.key, value=False)
        looked, stubbed = yield Ask(_SOURCE, look), Ask(_DESTINATION, self._stub())
        found, stub = self.marks.found(looked), stubbed.unique
        if found.may_be_mark:
            found = (yield from self._look()).found
        for _ in range(_MAX_ROUNDS):
            if found.kind is not Kind.REAL:
                break
            if not stub:
                stub, stray = yield from self.stub_or_item()
                found = (yield from self._look()).found
                if stray and found.kind is Kind.REAL:
                    # It predates the move: nothing is stored there while the source has this.
                    yield (Ask(_DESTINATION, marks.drop(self.key, stray)),)
                continue
            at = self.clock()
            freeze = self.marks.freeze(self.key, found)
            frozen, looked = yield Ask(_SOURCE, freeze), Ask(_SOURCE, marks.look(self.key))
            before, found = found, self.marks.found(looked)
            if found.kind is Kind.FROZEN:
                return (yield from self._complete(stub, _Seen(found, at)))
            if found.unique == before.unique and not frozen.done:
                return (yield from self._give_up(found, stub, "too large to be moved"))
        else:
            raise BusyKeyError("the key keeps changing")
        return (yield from self._complete(stub, None))

    def complete(self) -> Steps[Moved]:
        """Move the key if the source has frozen it; otherwise do nothing.

        Raises:
            NodeRefusedError: a node answers with an error.
            BusyKeyError: the key keeps changing.
        """
        (stubbed,) = yield (Ask(_DESTINATION, self._stub()),)
        return (yield from self._complete(stubbed.unique, None))

    def _complete(self, stub: int, seen: _Seen | None) -> Steps[Moved]:
        """Move the key if it is frozen.

        Args:
            stub: the cas unique of a stub; 0 if there is none.
            seen: the source's state after the stub was set; None if it must be requested.
        """
        item = 0  # the unique of the item at the destination
        size = 0
        for _ in range(_MAX_ROUNDS):
            if not stub and not item:
                stub, item = yield from self.stub_or_item()
                seen = None
            if seen is None:
                seen = yield from self._look()
            found = seen.found
            if found.kind is not Kind.FROZEN:
                if stub:
                    yield (Ask(_DESTINATION, marks.drop(self.key, stub)),)
                return Moved(Outcome.MOVED if size else Outcome.NOTHING, size)
            if not item:
                exptime = marks.exptime_of(found.ttl, self.clock() - seen.at, self.now())
                if exptime < 0:
                    return (yield from self._give_up(found, stub, ""))
                try:
                    item = yield from self._copy(found, exptime, stub)
                except NodeRefusedError as error:
                    return (yield from self._give_up(found, stub, str(error)))
                stub = 0
                if not item:
                    continue
                size = len(found.value)
            yield from self._restore(found, item)
            (dropped,) = yield (Ask(_SOURCE, marks.drop(self.key, found.unique)),)
            if dropped.done:
                return Moved(Outcome.MOVED, size)
            seen, item = None, 0  # another process was faster
        raise BusyKeyError("the key keeps changing")

    # The parts

    def _stub(self) -> bytes:
        return marks.stub(self.key, self.choose() if self.assigns else None)

    def _look(self) -> Steps[_Seen]:
        at = self.clock()
        (looked,) = yield (Ask(_SOURCE, marks.look(self.key)),)
        return _Seen(self.marks.found(looked), at)

    def stub_or_item(self) -> Steps[tuple[int, int]]:
        """Return the cas unique of a stub, or else that of the item at the destination."""
        for _ in range(_MAX_ROUNDS):
            (stubbed,) = yield (Ask(_DESTINATION, self._stub()),)
            if stubbed.unique:
                return stubbed.unique, 0
            (looked,) = yield (Ask(_DESTINATION, marks.look(self.key)),)
            there = self.marks.found(looked)
            if there.marks:
                return there.unique, 0
            if there.kind is not Kind.ABSENT:
                return 0, there.unique
        raise BusyKeyError("the key keeps changing")

    def _copy(self, found: Found, exptime: int, stub: int) -> Steps[int]:
        """Store the item in place of a stub; return its cas unique, or 0 if the stub is gone."""
        unique = found.shown if self.assigns else None
        store = marks.store(self.key, found, exptime, replacing=stub, unique=unique)
        (stored,) = yield (Ask(_DESTINATION, store),)
        return stored.unique

    def _restore(self, found: Found, unique: int) -> Steps[None]:
        """Mark the item at the destination as stale and won, if it was so at the source.

        Every process that finds an item at the destination while the source's is frozen does this:
        the process that stored it may have died.
        """
        asks: list[Ask] = []
        if found.stale:
            request = marks.invalidate(self.key, unique, keeps=self.assigns)
            asks.append(Ask(_DESTINATION, request))
        if found.won:
            asks.append(Ask(_DESTINATION, marks.take(self.key)))
        if asks:
            yield tuple(asks)

    def _give_up(self, found: Found, stub: int, reason: str) -> Steps[Moved]:
        """Remove an item that cannot be moved or, without a reason, has expired."""
        asks = [Ask(_SOURCE, marks.drop(self.key, found.unique))]
        if stub:
            asks.append(Ask(_DESTINATION, marks.drop(self.key, stub)))
        dropped, *_ = yield tuple(asks)
        if not dropped.done and dropped.status != b"NF":
            raise BusyKeyError(dropped.error or "the key has changed")
        return Moved(Outcome.DROPPED if reason else Outcome.NOTHING, reason=reason)
