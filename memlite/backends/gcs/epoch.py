"""The epoch: what flush_all counts up, for all servers on one prefix.

It is an object, ``epoch``, a name that no key's object has:
``{"epoch": 3, "at": null}``. Each item's object has the epoch in which it was stored; one of an
earlier epoch counts as absent. With a time at ``at``, it is one more from then on.

Every server asks for it once a second. So a flush by one server is known to the others about a
second later; until then they show what was flushed, and what they store may count as flushed too.
Whoever meets an item of a later epoch knows at once. A server that cannot ask goes on with what it
knows, and the epoch never goes back, also when its object is lost.
"""

import asyncio
from time import monotonic

import orjson

from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.requests import Call, Reply
from memlite.clock import Clock
from memlite.errors import StorageError

__all__ = ["Epoch"]

_NAME = "epoch"


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
        self._at = 0.0
        self._generation = 0
        self._asked = monotonic()
        # An answer to an earlier question must not be learnt after a later one's.
        self._turn = asyncio.Lock()

    def now(self) -> int:
        """Return the epoch."""
        if self._at and self._at <= self._clock.now():
            self._number += 1
            self._at = 0.0
        return self._number

    @property
    def age(self) -> float:
        """Seconds since the question that was answered last."""
        return monotonic() - self._asked

    def saw(self, number: int) -> None:
        """Learn from an item that the epoch is `number` at least."""
        if number > self.now():
            self._number = number
            self._at = 0.0

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
        number = self.now() + (not at)
        body = orjson.dumps({"epoch": number, "at": at or None})
        reply = await self._client.write(call, _NAME, body, expect=self._generation)
        if reply.status != 200:
            # Somebody else was quicker; or it was this one, whose acknowledgement was lost, and
            # flushing twice does no harm: nobody has been told yet of the first time.
            return False
        self._number, self._at = max(number, self._number), at
        self._generation = reply.generation
        return True

    def _learn(self, reply: Reply) -> None:
        if reply.status == 304:
            return
        found, at = 0, 0.0
        if reply.status == 200:
            try:
                value = orjson.loads(reply.body)
                found, at = int(value["epoch"]), float(value["at"] or 0.0)
            except (ValueError, KeyError, TypeError):
                raise StorageError(
                    f"bucket: the object {_NAME!r} under the prefix is not memlite's"
                ) from None
        due = 0 < at <= self._clock.now()
        self._number = max(self.now(), found + due)
        self._at = 0.0 if due else at
        self._generation = reply.generation
