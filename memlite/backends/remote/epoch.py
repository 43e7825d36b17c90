"""The epoch: a number that flush_all increments, for all servers on one prefix.

It is stored under its own name, with the content ``{"epoch": 3, "at": null, "then": 3}``. Each
record contains the epoch in which it was stored; records of earlier epochs count as absent. A
delayed flush leaves the epoch unchanged, and declares that it will be ``then`` from the unix time
``at``. No flush reuses a number, not even that of a delayed flush that was replaced before its
time: on a server whose clock is ahead, it may have taken effect.

Every server reads the epoch once a second, so other servers notice a flush about a second later.
Until then they serve flushed records, and records that they store may count as flushed, too. A
server that reads a record of a later epoch notices at once. A server that cannot read the epoch
continues with the one it knows. The epoch never decreases, even if its content is lost.
"""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import orjson

from memlite.backends.remote.call import Call
from memlite.core.clock import Clock
from memlite.core.errors import StorageError

if TYPE_CHECKING:
    from memlite.backends.agreement import SharedEpoch  # for servers of several processes

__all__ = ["Content", "Epoch", "Register", "Schedule"]


class Schedule(NamedTuple):
    """The content of the register.

    Attributes:
        epoch: the epoch until `at`.
        at: unix time in seconds of a delayed flush, 0 for none.
        then: the epoch from `at` on; also the largest number used so far.
    """

    epoch: int = 0
    at: float = 0.0
    then: int = 0

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parse the content of the register.

        Raises:
            ValueError: it is invalid.
        """
        try:
            value = orjson.loads(text)
            return cls(int(value["epoch"]), float(value["at"] or 0.0), int(value["then"]))
        except (KeyError, TypeError) as error:
            raise ValueError from error

    def content(self) -> bytes:
        """Return the schedule as the content of the register."""
        return orjson.dumps({"epoch": self.epoch, "at": self.at or None, "then": self.then})

    def epoch_at(self, now: float) -> int:
        """Return the epoch at a unix time in seconds."""
        return self.then if 0 < self.at <= now else self.epoch

    def flushed(self, at: float, now: float) -> "Schedule":
        """Return the schedule after a flush, at once or, with `at`, at that time."""
        number = max(self.epoch, self.then) + 1
        return Schedule(self.epoch_at(now) if at else number, at, number)


class Content(NamedTuple):
    """The content of a register, with its version.

    Attributes:
        text: the content; empty if there is none.
        version: identifies it; a false value if there is none.
    """

    text: bytes
    version: object


class Register(Protocol):
    """The place where the epoch of a prefix is stored."""

    def call(self) -> Call:
        """Return a new operation on it."""

    async def read(self, call: Call, known: object) -> Content | None:
        """Return the content; None if it is still the one with the version `known`.

        Raises:
            StorageError: it cannot be read.
        """

    async def write(self, call: Call, text: bytes, expect: object) -> object:
        """Replace the content, on condition that its version is `expect`.

        Returns:
            The new version; a false value if `expect` is not current.

        Raises:
            StorageError: that failed, or the outcome is uncertain.
        """

    def not_ours(self) -> StorageError:
        """Return the error for content that is not memlite's."""


class Epoch:
    """The epoch, as far as this server knows it.

    Args:
        register: the place where it is stored.
        clock: determines when a delayed flush is due.
        shared: the epoch shared with other processes of this server; None if there are none.

    Attributes:
        known: the result of `now` for a record of no later epoch; -1 if it has to be computed
            because there is a delayed flush, or other processes may know a later epoch.
    """

    def __init__(
        self, register: Register, clock: Clock, shared: "SharedEpoch | None" = None
    ) -> None:
        self._register = register
        self._clock = clock
        self._shared = shared
        self._number = 0
        self.known = 0 if shared is None else -1
        self._schedule = Schedule()
        self._version: object = 0
        self._asked = monotonic()
        # Responses must be processed in the order of their requests.
        self._turn = asyncio.Lock()

    def now(self, seen: int = 0) -> int:
        """Return the current epoch; it is at least `seen`, the epoch of a record."""
        if self._schedule.at:
            seen = max(seen, self._schedule.epoch_at(self._clock.now()))
        shared = self._shared
        if shared is not None:
            seen = max(seen, shared.number(self._clock.now()))
            shared.learn(seen)
        if seen > self._number:
            self._number = seen
            self._note_known()
        return self._number

    def _note_known(self) -> None:
        self.known = self._number if self._shared is None and not self._schedule.at else -1

    @property
    def age(self) -> float:
        """Seconds since the start of the last successful refresh."""
        return monotonic() - self._asked

    async def refresh(self) -> None:
        """Read the register, unless a read is already in progress.

        Raises:
            StorageError: there is no response, or the content is invalid.
        """
        if self._turn.locked():
            return
        asked = monotonic()
        async with self._turn:
            call = self._register.call()
            self._learn(await self._register.read(call, self._version))
        self._asked = asked

    async def flush(self, at: float) -> None:
        """Increment the epoch, now or, with `at`, at that time.

        Raises:
            StorageError: that failed, or the outcome is uncertain.
        """
        async with self._turn:
            call = self._register.call()
            before = await self._current(call)
            number = self.now()
            while True:
                after = before.flushed(at, self._clock.now())
                version = await self._register.write(call, after.content(), self._version)
                if version:
                    self._set(after, version)
                    return
                # Another server was faster, or this write succeeded without a response. If any
                # flush took effect since this one began, the two count as simultaneous: a second
                # one could remove items that were stored between the two.
                before = await self._current(call)
                if before == after or (not at and self.now() > number):
                    return

    async def _current(self, call: Call) -> Schedule:
        """Read the schedule; the epoch to increment is the stored one, not the one known here."""
        self._learn(await self._register.read(call, None))
        number = self.now()
        if number > max(self._schedule.epoch, self._schedule.then):  # the content was lost
            return Schedule(number, 0.0, number)
        return self._schedule

    def _learn(self, content: Content | None) -> None:
        if content is None:
            return
        if not content.version:
            self._set(Schedule(), content.version)
            return
        try:
            schedule = Schedule.parse(content.text)
        except ValueError:
            raise self._register.not_ours() from None
        self._set(schedule, content.version)

    def _set(self, schedule: Schedule, version: object) -> None:
        self._schedule, self._version = schedule, version
        self._number = max(self._number, schedule.epoch_at(self._clock.now()))
        self._note_known()
        if self._shared is not None:
            self._shared.learn(self._number)
            if schedule.at:
                self._shared.expect(schedule.at, schedule.then)
