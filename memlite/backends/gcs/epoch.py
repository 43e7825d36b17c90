"""The epoch: what flush_all counts up, for all servers on one prefix.

It is an object, ``epoch``, a name that no key's object has, with the content
``{"epoch": 3, "at": null, "then": 3}``. Each item's object has the epoch in which it was stored;
one of an earlier epoch counts as absent. A delayed flush leaves the epoch as it is, and says that
from the unix time ``at`` it is ``then``.
No flush takes a number that an earlier one took, also not one whose time had not come: for a
server whose clock is ahead it had.

Every server asks for it once a second. So a flush by one server is known to the others about a
second later; until then they show what was flushed, and what they store may count as flushed too.
Whoever meets an item of a later epoch knows at once. A server that cannot ask goes on with what it
knows, and the epoch never goes back, also when its object is lost.
"""

import asyncio
from time import monotonic
from typing import NamedTuple, Self

import orjson

from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.requests import Call, Reply
from memlite.clock import Clock
from memlite.errors import StorageError

__all__ = ["Epoch"]

_NAME = "epoch"


class Schedule(NamedTuple):
    """What the object says.

    Attributes:
        epoch: the number, up to `at`.
        at: unix time in seconds of a delayed flush, 0 for none.
        then: the number from `at` on, and the largest there has been.
    """

    epoch: int = 0
    at: float = 0.0
    then: int = 0

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return what the object's content says.

        Raises:
            ValueError: it does not make sense.
        """
        try:
            value = orjson.loads(text)
            return cls(int(value["epoch"]), float(value["at"] or 0.0), int(value["then"]))
        except (KeyError, TypeError) as error:
            raise ValueError from error

    def content(self) -> bytes:
        """Return the object's content that says so."""
        return orjson.dumps({"epoch": self.epoch, "at": self.at or None, "then": self.then})

    def epoch_at(self, now: float) -> int:
        """Return the epoch at a unix time in seconds."""
        return self.then if 0 < self.at <= now else self.epoch

    def flushed(self, at: float, now: float) -> "Schedule":
        """Return what it is after a flush, at once or, with `at`, then."""
        number = max(self.epoch, self.then) + 1
        return Schedule(self.epoch_at(now) if at else number, at, number)


class Epoch:
    """What is known of the epoch.

    Args:
        client: where the object is.
        clock: tells when a delayed flush is due.
    """

    def __init__(self, client: BucketClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._number = 0
        self._schedule = Schedule()
        self._generation = 0
        self._asked = monotonic()
        # An answer to an earlier question must not be learnt after a later one's.
        self._turn = asyncio.Lock()

    def now(self) -> int:
        """Return the epoch."""
        if self._schedule.at:
            self.saw(self._schedule.epoch_at(self._clock.now()))
        return self._number

    @property
    def age(self) -> float:
        """Seconds since the question that was answered last."""
        return monotonic() - self._asked

    def saw(self, number: int) -> None:
        """Learn that the epoch is `number` at least."""
        if number > self._number:
            self._number = number

    async def refresh(self) -> None:
        """Ask for it, unless that is being done.

        Raises:
            StorageError: there is no answer, or none that makes sense.
        """
        if self._turn.locked():
            return
        asked = monotonic()
        async with self._turn:
            call = self._client.call()
            self._learn(await self._client.read(call, _NAME, self._generation or None))
        self._asked = asked

    async def flush(self, at: float) -> None:
        """Count it up, now or, with `at`, from then on.

        Raises:
            StorageError: it could not be done, or that is not known for certain.
        """
        async with self._turn:
            call = self._client.call()
            while not await self._count_up(call, at):
                pass

    async def _count_up(self, call: Call, at: float) -> bool:
        # The one to build on is the bucket's, not the one known here.
        self._learn(await self._client.read(call, _NAME))
        number = self.now()
        before = self._schedule
        if number > max(before.epoch, before.then):  # the object was lost
            before = Schedule(number, 0.0, number)
        after = before.flushed(at, self._clock.now())
        reply = await self._client.write(call, _NAME, after.content(), expect=self._generation)
        if reply.status != 200:
            # Somebody else was quicker; or it was this one, whose acknowledgement was lost, and
            # flushing twice does no harm: nobody has been told yet of the first time.
            return False
        self._set(after, reply.generation)
        return True

    def _learn(self, reply: Reply) -> None:
        if reply.status == 404:
            self._set(Schedule(), 0)
        elif reply.status == 200:
            try:
                self._set(Schedule.parse(reply.body), reply.generation)
            except ValueError:
                raise StorageError(
                    f"bucket: the object {_NAME!r} under the prefix is not memlite's"
                ) from None

    def _set(self, schedule: Schedule, generation: int) -> None:
        self._schedule, self._generation = schedule, generation
        self.saw(schedule.epoch_at(self._clock.now()))
