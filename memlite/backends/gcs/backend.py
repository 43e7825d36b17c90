"""A bucket as a store that several servers can share: one object per record."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from memlite.backends.base import ANY, Anything, Backend
from memlite.backends.gcs import startup
from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.codec import TOMBSTONE_EXPIRES, Origin, key_of, name_of
from memlite.backends.gcs.credentials import Authorization
from memlite.backends.gcs.epoch_object import EpochObject
from memlite.backends.gcs.objects import DamagedObjectError, Objects, State
from memlite.backends.gcs.options import Options, parse_options
from memlite.backends.gcs.overwrites import Overwrites
from memlite.backends.gcs.tombstones import Tombstones
from memlite.backends.gcs.writer import UNKNOWN_OUTCOME, Writer, is_generation
from memlite.backends.record import Record, Versioned
from memlite.backends.registry import BackendUrl, Context
from memlite.backends.remote.breaker import Breaker
from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Epoch
from memlite.core.errors import StartError, StorageError, VersionConflict
from memlite.core.logs import failure

__all__ = ["GcsBackend", "make"]

_log = logging.getLogger("memlite")

_SCANNED_AT_ONCE = 16


class _Get(Protocol):
    def __call__(self, key: bytes) -> Coroutine[Any, Any, Record | None]: ...


class GcsBackend(Backend):
    """Stores records in a bucket of Google Cloud Storage, under a prefix.

    Versions are generations, and conditions are preconditions of the bucket. Even when several
    servers write at once, none of them undoes a write that another has acknowledged; see
    `memlite.backends.gcs.writer`.

    Args:
        options: the bucket, and how to access it.
        context: the server's settings.
    """

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._breaker = Breaker(options.shown)
        self._client = BucketClient(options, self._breaker)
        self._epoch = Epoch(EpochObject(self._client), context.clock, context.epoch)
        self._clock = context.clock
        self._objects = Objects(self._client, self._epoch, options.prefix)
        self.get_cached = self._objects.get  # the same method, as there is nothing to add
        self._writer = Writer(self._objects, self._client, self._epoch, strict=options.strict)
        self._overwrites = Overwrites()
        self._tombstones = Tombstones(self._client, self._objects)
        self._refresh: asyncio.Task[None] | None = None

    peeks = False  # every read is a request

    # Life

    _loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        """Check that the bucket can be used, and read the epoch."""
        self._loop = asyncio.get_running_loop()
        credentials = await startup.check(self._options)
        self._client.open(Authorization(credentials, patience=self._options.timeout))
        try:
            await self._epoch.refresh()
        except StorageError as error:
            await self._client.close()
            raise StartError(f"--backend: {self._options.shown}: {error}") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait([self._refresh])
        await self._tombstones.close()
        await self._overwrites.close()
        await self._client.close()

    def tick(self) -> None:
        """Refresh the epoch, remove old tombstones, and forget old states."""
        self._objects.tick()
        self._tombstones.tick()
        if self._refresh is None or self._refresh.done():
            self._refresh = self._loop.create_task(self._refresh_epoch())

    async def _refresh_epoch(self) -> None:
        # The known epoch remains valid until the next successful refresh.
        with contextlib.suppress(StorageError):
            await self._epoch.refresh()

    # Reading

    get_cached: _Get  # assigned in `__init__`

    async def get(self, key: bytes) -> Record | None:
        """Return the record of `key`.

        Raises:
            StorageError: the bucket cannot be read, or the object is damaged or not memlite's.
        """
        return await self._objects.get(key)

    async def get_many(self, keys: Sequence[bytes]) -> list[Record | None]:
        """Return the records of `keys`, with bounded concurrency."""
        return await self._get_each(keys, self._objects.get, self._options.concurrency)

    async def _get_each(
        self,
        keys: Sequence[bytes],
        get: Callable[[bytes], Awaitable[Record | None]],
        at_once: int,
    ) -> list[Record | None]:
        found: list[Record | None] = [None] * len(keys)
        todo = iter(enumerate(keys))

        async def work() -> None:
            for index, key in todo:
                found[index] = await get(key)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(keys), at_once)):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return found

    async def scan(self) -> AsyncIterator[Record]:
        """Yield every record; objects that are damaged, or not memlite's, are skipped."""
        page = ""
        while True:
            names, page = await self._client.names(self._client.call(), page)
            keys = [key for key in map(key_of, names) if key is not None]
            for start in range(0, len(keys), _SCANNED_AT_ONCE):
                some = keys[start : start + _SCANNED_AT_ONCE]
                for record in await self._get_each(some, self._get_undamaged, _SCANNED_AT_ONCE):
                    if record is not None:
                        yield record
            if not page:
                return

    async def _get_undamaged(self, key: bytes) -> Record | None:
        try:
            return await self.get(key)
        except DamagedObjectError as error:
            _log.warning(
                "skipped object %s: damaged, or not written by memlite",
                error.name,
                extra=failure("object_damaged", object=error.name),
            )
            return None

    # Writing

    async def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> int:
        """Store a record; see `Backend.put`. `ANY` also replaces objects that are not memlite's."""
        call, key = self._client.call(), record.key
        if replacing is ANY:
            if not self._options.strict:
                return await self._writer.set_blindly(call, record)
            return await self._overwrites.run(key, partial(self._writer.overwrite, call, record))
        if replacing is None:
            before, epoch = await self._absent(call, key), self._epoch.now()
        else:
            before, epoch = await self._as_read(call, key, replacing)
        return await self._replace(call, record, before, epoch)

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Remove the record of `key`; see `Backend.delete`."""
        call = self._client.call()
        if not self._options.strict:
            await self._remove(call, key, replacing)
            return
        tombstone = Record(key, b"", expires=TOMBSTONE_EXPIRES, accessed=self._clock.second)
        if replacing is not ANY:
            before, epoch = await self._as_read(call, key, replacing)
            version = await self._replace(call, tombstone, before, epoch)
        elif (await self._objects.look(call, key)).absent:
            return
        else:
            version = await self._writer.overwrite(call, tombstone)
        if is_generation(version):
            self._tombstones.add(key, version)

    async def _replace(self, call: Call, record: Record, before: State, epoch: int) -> int:
        version = await self._writer.replace(call, record, before, epoch)
        if not version:
            raise VersionConflict
        return version

    async def _absent(self, call: Call, key: bytes) -> State:
        """Return the state of a key that has no record.

        Raises:
            VersionConflict: it has one.
        """
        state = self._objects.known(key)
        if state is None or not state.absent:
            state = await self._objects.look(call, key)
        if not state.absent:
            raise VersionConflict
        return state

    async def _as_read(self, call: Call, key: bytes, read: Versioned) -> tuple[State, int]:
        """Return a state that was read, and its epoch of reading, reading it again if necessary.

        A record derived from a state belongs to the epoch in which that state was read: a flush
        since then applies to both.

        Raises:
            VersionConflict: the state is no longer current.
        """
        record = read if isinstance(read, Record) else None
        if record is None or not isinstance(record.token, Origin):
            record = await self._objects.get(key, call)
            if record is None or record.version != read.version:
                raise VersionConflict
        origin = record.token
        assert isinstance(origin, Origin)  # noqa: S101 - as `get` made it
        return State(record.version, origin.trail_data), origin.as_of

    async def _remove(self, call: Call, key: bytes, replacing: Versioned | Anything) -> None:
        """Remove a key's object, without a tombstone."""
        name = name_of(key)
        if replacing is ANY:
            await self._client.remove(call, name, None)
            return
        before, _ = await self._as_read(call, key, replacing)
        reply = await self._client.remove(call, name, before.generation)
        if reply.status in (200, 204):
            return
        if call.uncertain:
            found = await self._objects.look(call, key)
            if not self._writer.would_show(found, before):
                raise call.error(UNKNOWN_OUTCOME)
        raise VersionConflict

    async def flush(self, at: float = 0.0) -> None:
        """Make all records absent for all servers, now or at the unix time `at`; see `Epoch`."""
        await self._epoch.flush(at)

    def measure(self, record: Callable[[str, str, int], None]) -> None:
        """Report how long requests to the bucket take, by their method."""
        self._client.requests.record = record

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the requests made to the bucket, and whether it is available."""
        counts = self._client.requests.counts
        return {
            "bucket": self._options.shown,
            "state": "unavailable" if self._breaker.is_open else "available",
            "times_unavailable": self._breaker.times_opened,
            "in_flight": self._client.requests.turns.taken,
            **{name: counts[name] for name in _COUNTS},
            "tombstones": len(self._tombstones),
            "epoch": self._epoch.now(),
            "epoch_age": round(self._epoch.age, 1),
        }


_COUNTS = (
    "class_a_operations",
    "class_b_operations",
    "deletions",
    "retries",
    "failures",
    "throttled",
    "refusals",
    "lost_acknowledgements",
)


def make(url: BackendUrl, context: Context) -> Backend:
    """Make a backend from a ``gs://bucket/prefix`` URL."""
    return GcsBackend(parse_options(url), context)
