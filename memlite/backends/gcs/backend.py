"""A bucket as a store that several servers can share: one object per record."""

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from memlite.backends.base import ANY, Anything, Backend
from memlite.backends.gcs import startup
from memlite.backends.gcs.breaker import Breaker
from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.codec import (
    DamagedError,
    Origin,
    Trail,
    decode,
    encode,
    key_of,
    name_of,
)
from memlite.backends.gcs.credentials import Authorization
from memlite.backends.gcs.epoch import Epoch
from memlite.backends.gcs.options import Options, parse_options
from memlite.backends.gcs.requests import Call
from memlite.backends.record import Record, Versioned
from memlite.backends.registry import BackendUrl, Context
from memlite.core.errors import StartError, StorageError, VersionConflict

__all__ = ["GcsBackend", "make"]

_log = logging.getLogger("memlite")

_LONG_AGO = 1.0
# Generations are signed 64-bit numbers. A state that no longer has one gets a number above them.
_NO_GENERATION = 1 << 63
_SCANNED_AT_ONCE = 16


class _DamagedObjectError(StorageError):
    def __init__(self, name: str) -> None:
        super().__init__(f"bucket: the object {name} is damaged, or not memlite's")
        self.name = name


class _Read(NamedTuple):
    """A state of an object that a write depends on."""

    version: int
    origin: Origin


class GcsBackend(Backend):
    """Stores records in a bucket of Google Cloud Storage, under a prefix.

    Versions are generations, and conditions are preconditions of the bucket. Whatever several
    servers do at once, none of them undoes a write that another has acknowledged. If the
    acknowledgement of a write is lost, the backend looks for the write's nonce in the object.

    Args:
        options: the bucket, and how to access it.
        context: the server's settings.
    """

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._breaker = Breaker(options.shown)
        self._client = BucketClient(options, self._breaker)
        self._epoch = Epoch(self._client, context.clock)
        self._refresh: asyncio.Task[None] | None = None
        self._writer = secrets.token_bytes(4)
        self._numbers = itertools.count(1)
        # Nonces of writes in progress.
        self._unsettled: set[bytes] = set()

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
        await self._client.close()

    def tick(self) -> None:
        """Refresh the epoch."""
        if self._refresh is None or self._refresh.done():
            self._refresh = self._loop.create_task(self._refresh_epoch())

    async def _refresh_epoch(self) -> None:
        # The known epoch remains valid until the next successful refresh.
        with contextlib.suppress(StorageError):
            await self._epoch.refresh()

    # Reading

    async def get(self, key: bytes, call: Call | None = None) -> Record | None:
        """Return the record of `key`.

        Args:
            key: the key.
            call: the operation of which this is a part; None if it is one itself.

        Raises:
            StorageError: also if the object is damaged, or was not written by memlite.
        """
        name = name_of(key)
        reply = await self._client.read(call or Call(self._client.deadline), name)
        if reply.status == 404:
            return None
        try:
            record, origin = decode(key, reply.body, reply.generation)
        except DamagedError:
            raise _DamagedObjectError(self._options.prefix + name) from None
        as_of = self._epoch.now(origin.epoch)
        expires = _LONG_AGO if origin.epoch < as_of else record.expires
        return record._replace(expires=expires, token=origin._replace(as_of=as_of))

    get_cached = get

    async def get_many(self, keys: Sequence[bytes]) -> list[Record | None]:
        """Return the records of `keys`, with bounded concurrency."""
        return await self._get_each(keys, self.get, self._options.concurrency)

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
            names, page = await self._client.names(Call(self._client.deadline), page)
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
        except _DamagedObjectError as error:
            _log.warning("passed over the object %s: it is damaged, or not memlite's", error.name)
            return None

    # Writing

    async def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> int:
        """Store a record; see `Backend.put`. `ANY` also replaces objects that are not memlite's."""
        call = Call(self._client.deadline)
        key, name = record.key, name_of(record.key)
        nonce = self._writer + (next(self._numbers) & 0xFFFFFFFF).to_bytes(4)
        self._unsettled.add(nonce)
        try:
            before: Trail | None = None
            expect: int | None = None
            epoch = self._epoch.now()
            if replacing is None:
                expect = 0
            elif replacing is not ANY:
                # The record belongs to the epoch in which the state that it depends on was read: a
                # flush since then applies to both.
                expect, origin = await self._as_read(call, key, replacing)
                before, epoch = origin.trail, origin.as_of
            while True:
                trail = Trail(nonce, (nonce,))
                if before is not None:
                    trail = before.followed_by(nonce, self._unsettled)
                body = encode(record, epoch, trail)
                reply = await self._client.write(call, name, body, expect, record.expires)
                if reply.status == 200:
                    return reply.generation
                if not call.uncertain:
                    raise VersionConflict
                # An earlier attempt may have succeeded; then the object contains our nonce.
                generation, found = await self._look(call, key)
                if found is not None and nonce in found.nonces:
                    return self._acknowledge(nonce, generation, found)
                if replacing is not ANY:
                    raise _conflict(call, before, found)
                # Another write may depend on ours: replace the state that is current now, but none
                # that follows it.
                before, expect = found, generation
        finally:
            self._unsettled.discard(nonce)

    async def _as_read(self, call: Call, key: bytes, state: Versioned) -> _Read:
        """Return the version and origin of a state; one that was not read by `get` is read again.

        Raises:
            VersionConflict: the state is no longer current.
        """
        record = state if isinstance(state, Record) else None
        if record is None or not isinstance(record.token, Origin):
            record = await self.get(key, call)
            if record is None or record.version != state.version:
                raise VersionConflict
        assert isinstance(record.token, Origin)  # noqa: S101 - as `get` made it
        return _Read(record.version, record.token)

    async def _look(self, call: Call, key: bytes) -> tuple[int, Trail | None]:
        """Return the generation and trail of a key's object; 0 and None if there is no object."""
        reply = await self._client.read(call, name_of(key))
        if reply.status == 404:
            return 0, None
        try:
            _, origin = decode(key, reply.body, reply.generation)
            return reply.generation, origin.trail
        except DamagedError:
            return reply.generation, None

    def _acknowledge(self, nonce: bytes, generation: int, found: Trail) -> int:
        """Return the version of a write whose nonce was found in an object, in this trail."""
        self._client.requests.counts["lost_acknowledgements"] += 1
        if found.nonces[0] == nonce:
            return generation
        # Another writer has replaced that state since. Its generation is unknown, and any number
        # will do that no state ever has.
        return _NO_GENERATION | int.from_bytes(nonce)

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Remove the record of `key`; see `Backend.delete`."""
        name, call = name_of(key), Call(self._client.deadline)
        if replacing is ANY:
            await self._client.remove(call, name, None)
            return
        read = await self._as_read(call, key, replacing)
        reply = await self._client.remove(call, name, read.version)
        if reply.status in (200, 204):
            return
        if not call.uncertain:
            raise VersionConflict
        if reply.status == 412:
            # An earlier attempt may have succeeded. Then the object that is there now has another
            # birth, and must stay. If the birth is the same, the object was replaced by a write
            # that depends on it, and nothing was removed.
            _, found = await self._look(call, key)
            if found is not None and found.birth == read.origin.trail.birth:
                raise VersionConflict

    async def flush(self, at: float = 0.0) -> None:
        """Make all records absent for all servers, now or at the unix time `at`; see `Epoch`."""
        await self._epoch.flush(at)

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the requests made to the bucket, and whether it is available."""
        counts = self._client.requests.counts
        return {
            "bucket": self._options.shown,
            "state": "unavailable" if self._breaker.is_open else "available",
            "times_unavailable": self._breaker.times_opened,
            "in_flight": self._client.requests.in_flight,
            **{name: counts[name] for name in _COUNTS},
            "epoch": self._epoch.now(),
            "epoch_age": round(self._epoch.age, 1),
        }


def _conflict(call: Call, before: Trail | None, found: Trail | None) -> Exception:
    """Return the error of a write that depends on `before`, and is not in the trail `found`."""
    if found and before and found.birth == before.birth and found.may_have_lost(before):
        return call.error("too many writers of one key")
    return VersionConflict()


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
