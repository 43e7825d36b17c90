"""Reads and changes a key while it moves, as proxies do in each phase."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from memlite.backends import ANY, Anything
from memlite.cluster.moving import marks
from memlite.cluster.moving.answers import Ask, Place, Steps
from memlite.cluster.moving.marks import ABSENT, Found, Kind, Marks
from memlite.cluster.moving.rewriting import Wish, in_place
from memlite.cluster.moving.steps import BusyKeyError, MovingKey
from memlite.cluster.topology import Phase
from memlite.core.errors import VersionConflict

__all__ = ["KeyAccess", "Reading"]

_MAX_ROUNDS: Final = 20
_SOURCE: Final = Place.SOURCE
_DESTINATION: Final = Place.DESTINATION


class Reading(NamedTuple):
    """A key as it was read.

    Attributes:
        found: the state found: an item, which may be frozen, or nothing.
        place: the node where it was found.
        at: when the request was sent.
    """

    found: Found = ABSENT
    place: Place = _SOURCE
    at: float = 0.0

    @property
    def absent(self) -> bool:
        """Whether there is no item."""
        return self.found.kind is Kind.ABSENT


@dataclass(frozen=True, slots=True)
class KeyAccess:
    """Reads and changes a key, as a versioned store does.

    Args:
        moving: the key.
        phase: the phase of the move.
        clock: returns seconds that never decrease.
    """

    moving: MovingKey
    phase: Phase
    clock: Callable[[], float] = time.monotonic

    @property
    def _key(self) -> bytes:
        return self.moving.key

    @property
    def _marks(self) -> Marks:
        return self.moving.marks

    # Reading

    def get(self) -> Steps[Reading]:
        """Read the key.

        Raises:
            NodeRefusedError: a node answers with an error.
        """
        reading = yield from self._read()
        found = reading.found
        if found.took and found.kind is Kind.REAL and self.moving.assigns:
            # The right to recache belongs to a client, and whether one claims it is unknown here.
            request = marks.invalidate(self._key, found.unique, keeps=True)
            yield (Ask(reading.place, request),)
        return reading

    def _read(self) -> Steps[Reading]:
        phase = self.phase
        if phase is not Phase.SETTLE:
            reading = yield from self._look(_SOURCE)
            kind = reading.found.kind
            if kind in (Kind.REAL, Kind.FROZEN):
                return reading
            # While other proxies may still add items at the source, an item at the destination
            # counts only if the source has a marker.
            elsewhere = kind is Kind.MARKER or phase is Phase.MOVE
            if phase is Phase.BACK or not elsewhere:
                return Reading()
        reading = yield from self._look(_DESTINATION)
        return reading if reading.found.kind is Kind.REAL else Reading()

    def _look(self, place: Place) -> Steps[Reading]:
        at = self.clock()
        (looked,) = yield (Ask(place, marks.look(self._key)),)
        return Reading(self._marks.found(looked), place, at)

    # Changing

    def put(self, wish: Wish, replacing: Reading | Anything | None) -> Steps[int]:
        """Store an item.

        Args:
            wish: the item.
            replacing: the state that must be current, as it was read; None if there must be no
                item; `ANY` for no condition.

        Returns:
            Its cas unique.

        Raises:
            VersionConflict: the current state is not `replacing`.
            NodeRefusedError: a node answers with an error.
            BusyKeyError: the key keeps changing.
        """
        if replacing is not ANY:
            return (yield from self._put(wish, replacing))
        for _ in range(_MAX_ROUNDS):
            reading = yield from self._read()
            try:
                return (yield from self._put(wish, None if reading.absent else reading))
            except VersionConflict:
                continue
        raise BusyKeyError("too many changes of this key at once")

    def delete(self, replacing: Reading | Anything) -> Steps[None]:
        """Remove the item, if there is one; see `put`."""
        if replacing is not ANY:
            yield from self._delete(replacing)
            return
        for _ in range(_MAX_ROUNDS):
            reading = yield from self._read()
            if reading.absent:
                return
            try:
                yield from self._delete(reading)
            except VersionConflict:
                continue
            return
        raise BusyKeyError("too many changes of this key at once")

    def _put(self, wish: Wish, replacing: Reading | None) -> Steps[int]:
        if replacing is None:
            return (yield from self._add(wish))
        yield from self._check(replacing)
        return (yield from self._replace(wish, replacing))

    def _delete(self, reading: Reading) -> Steps[None]:
        yield from self._check(reading)
        request = marks.drop(self._key, reading.found.unique)
        (dropped,) = yield (Ask(reading.place, request),)
        if not dropped.done:
            raise VersionConflict

    def _check(self, reading: Reading) -> Steps[None]:
        """Check that an item may be changed at its present node.

        Raises:
            VersionConflict: the item is being or was moved, and must be read again.
        """
        phase, found = self.phase, reading.found
        if phase is Phase.BACK:
            if reading.place is _DESTINATION:
                raise VersionConflict
        elif found.kind is Kind.FROZEN:
            yield from self.moving.complete()
            raise VersionConflict
        elif phase is Phase.SETTLE and reading.place is _SOURCE:
            raise VersionConflict

    # Where there is an item

    def _replace(self, wish: Wish, reading: Reading) -> Steps[int]:
        key, old, place = self._key, reading.found, reading.place
        same = (wish.value, wish.flags) == (old.value, old.flags) and old.kind is Kind.REAL
        if same and wish.won and wish.exptime is None and wish.stale == old.stale:
            return (yield from self._win(reading))
        if same and wish.stale:
            request = marks.invalidate(
                key, old.unique, keeps=False, unique=wish.unique, exptime=wish.exptime
            )
            (made,) = yield (Ask(place, request),)
            if not made.done:
                raise VersionConflict
            if wish.won:
                yield (Ask(place, marks.take(key)),)
            return wish.unique or old.unique
        native = None if wish.stale or old.kind is not Kind.REAL else in_place(key, old, wish)
        request = native or self._stored(wish, reading)
        (stored,) = yield (Ask(place, request),)
        unique = stored.unique
        if not unique:
            raise VersionConflict
        yield from self._set_state(wish, place, unique)
        return unique

    def _stored(self, wish: Wish, reading: Reading) -> bytes:
        exptime = wish.exptime
        if exptime is None:
            elapsed = self.clock() - reading.at
            exptime = marks.exptime_of(reading.found.ttl, elapsed, self.moving.now())
        return marks.store(
            self._key,
            wish.content(),
            exptime,
            replacing=reading.found.unique,
            unique=self._unique(wish),
        )

    def _win(self, reading: Reading) -> Steps[int]:
        """Record at the node that a client was told to recache the item."""
        unique = reading.found.unique
        if reading.found.took and not self.moving.assigns:
            return unique  # the node recorded it when the item was read
        (taken,) = yield (Ask(reading.place, marks.take(self._key)),)
        if taken.number(b"c") != unique or b"W" not in taken.words:
            raise VersionConflict
        return unique

    def _set_state(self, wish: Wish, place: Place, unique: int) -> Steps[None]:
        """Mark a stored item as stale and won, if requested."""
        asks: list[Ask] = []
        if wish.stale:
            keeps = self.moving.assigns
            asks.append(Ask(place, marks.invalidate(self._key, unique, keeps=keeps)))
        if wish.won:
            asks.append(Ask(place, marks.take(self._key)))
        if asks:
            yield tuple(asks)

    # Where there is nothing

    def _add(self, wish: Wish) -> Steps[int]:
        phase = self.phase
        if phase is Phase.MOVE:
            # A proxy that does not know of the move yet must not add an item at the source.
            mark, look = marks.mark(self._key, None), marks.look(self._key)
            marked, looked = yield Ask(_SOURCE, mark), Ask(_SOURCE, look)
            if not marked.unique and self._marks.found(looked).kind is not Kind.MARKER:
                raise VersionConflict
            return (yield from self._add_at(_DESTINATION, wish))
        if phase is Phase.SETTLE:
            return (yield from self._add_at(_DESTINATION, wish))
        unique, found = yield from self._added(_SOURCE, wish, None)
        if unique:
            return unique
        if phase is Phase.PREPARE and found.kind is Kind.MARKER:
            return (yield from self._add_at(_DESTINATION, wish))
        return (yield from self._over_mark(_SOURCE, wish, found))

    def _add_at(self, place: Place, wish: Wish) -> Steps[int]:
        unique, found = yield from self._added(place, wish, None)
        return unique or (yield from self._over_mark(place, wish, found))

    def _over_mark(self, place: Place, wish: Wish, found: Found) -> Steps[int]:
        """Store an item in place of a mark, which counts as no item."""
        if not found.marks:
            raise VersionConflict
        unique, _ = yield from self._added(place, wish, found.unique)
        if not unique:
            raise VersionConflict
        return unique

    def _added(self, place: Place, wish: Wish, mark: int | None) -> Steps[tuple[int, Found]]:
        """Store an item if there is none, or only a mark with this cas unique.

        Returns:
            Its cas unique; or 0, and the state found.
        """
        unique = self._unique(wish)
        exptime = wish.exptime or 0
        if wish.won and not (wish.stale or wish.value or wish.flags):
            added = yield from self._vivified(place, wish, mark)
            if added:
                return added, ABSENT
        else:
            request = marks.store(self._key, wish.content(), exptime, replacing=mark, unique=unique)
            (stored,) = yield (Ask(place, request),)
            added = stored.unique
            if added:
                yield from self._set_state(wish, place, added)
                return added, ABSENT
        (looked,) = yield (Ask(place, marks.look(self._key)),)
        return 0, self._marks.found(looked)

    def _vivified(self, place: Place, wish: Wish, mark: int | None) -> Steps[int]:
        """Create an item that a client was told to recache; return its cas unique, or 0."""
        asks = [] if mark is None else [Ask(place, marks.drop(self._key, mark))]
        request = marks.vivify(self._key, wish.exptime or 0, self._unique(wish), binary=wish.binary)
        asks.append(Ask(place, request))
        *_, made = yield tuple(asks)
        created = b"W" in made.words and b"X" not in made.words
        return (made.number(b"c") or 0) if created else 0

    def _unique(self, wish: Wish) -> int | None:
        return wish.unique if self.moving.assigns else None
