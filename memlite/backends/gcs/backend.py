"""A bucket as a store that several servers share: one object for each item."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from memlite.backends.base import ANY, Anything, Backend
from memlite.backends.gcs import startup
from memlite.backends.gcs.breaker import Breaker
from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.codec import (
    BucketItem,
    DamagedError,
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
from memlite.backends.item import FullItem, Item
from memlite.backends.registry import BackendUrl, Context
from memlite.errors import StartError, StorageError, VersionConflict

__all__ = ["GcsBackend", "make"]

_log = logging.getLogger("memlite")

_LONG_AGO = 1.0
# Generations are signed 64-bit numbers; what has no generation any more gets one above them.
_NO_GENERATION = 1 << 63
_SCANNED_AT_ONCE = 16


class _DamagedObjectError(StorageError):
    def __init__(self, name: str) -> None:
        super().__init__(f"bucket: the object {name} is damaged, or not memlite's")
        self.name = name


class GcsBackend(Backend):
    """Items in a bucket of Google Cloud Storage, under a prefix.

    A version is a generation, and what must be replaced is a precondition, so that whatever
    several servers do at once, none undoes what another has acknowledged. A write whose
    acknowledgement is lost is looked for in the object, where each write leaves its nonce.

    Args:
        options: the bucket, and how to ask it.
        context: the server's settings.
    """

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._breaker = Breaker(options.shown)
        self._client = BucketClient(options, self._breaker)
        self._epoch = Epoch(self._client, context.clock)
        self._refresh: asyncio.Task[None] | None = None
        self._writer = secrets.token_bytes(4)
        self._written = 0
        # Nonces of writes under way.
        self._unsettled: set[bytes] = set()

    # Life

    _loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        """Check that the bucket can be used, and ask for the epoch."""
        self._loop = asyncio.get_running_loop()
        credentials = await startup.check(self._options)
        self._client.open(Authorization(credentials, patience=self._options.timeout))
        try:
            await self._epoch.refresh()
        except StorageError as error:
            await self._client.close()
            text = str(error).removeprefix("SERVER_ERROR ")
            raise StartError(f"--backend: {self._options.shown}: {text}") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait([self._refresh])
        await self._client.close()

    def tick(self) -> None:
        """Ask for the epoch."""
        if self._refresh is None or self._refresh.done():
            self._refresh = self._loop.create_task(self._refresh_epoch())

    async def _refresh_epoch(self) -> None:
        # What is known holds until it can be asked again.
        with contextlib.suppress(StorageError):
            await self._epoch.refresh()

    # Reading

    async def get(self, key: bytes) -> BucketItem | None:
        """Return what the bucket has.

        Raises:
            StorageError: also if the object under the key's name is not memlite's, or damaged.
        """
        return await self._get(self._client.call(), key)

    async def _get(self, call: Call, key: bytes) -> BucketItem | None:
        reply = await self._client.read(call, name_of(key))
        if reply.status == 404:
            return None
        try:
            item = decode(key, reply.body, reply.generation)
        except DamagedError:
            raise _DamagedObjectError(self._options.prefix + name_of(key)) from None
        self._epoch.saw(item.epoch)
        item.as_of = self._epoch.now()
        if item.epoch < item.as_of:
            item.expires = _LONG_AGO
        return item

    async def get_many(self, keys: Sequence[bytes]) -> list[Item | None]:
        """Return what the bucket has, asking for as many at once as may be."""
        return await self._get_each(keys, self.get, self._options.concurrency)

    async def _get_each(
        self,
        keys: Sequence[bytes],
        get: Callable[[bytes], Awaitable[Item | None]],
        at_once: int,
    ) -> list[Item | None]:
        found: list[Item | None] = [None] * len(keys)
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

    async def scan(self) -> AsyncIterator[tuple[bytes, Item]]:
        """Yield every key and item; what is not memlite's, or damaged, is passed over."""
        page = ""
        while True:
            names, page = await self._client.names(self._client.call(), page)
            keys = [key for key in map(key_of, names) if key is not None]
            for start in range(0, len(keys), _SCANNED_AT_ONCE):
                some = keys[start : start + _SCANNED_AT_ONCE]
                items = await self._get_each(some, self._get_undamaged, _SCANNED_AT_ONCE)
                for key, item in zip(some, items, strict=True):
                    if item is not None:
                        yield key, item
            if not page:
                return

    async def _get_undamaged(self, key: bytes) -> Item | None:
        try:
            return await self.get(key)
        except _DamagedObjectError as error:
            _log.warning("passed over the object %s: it is damaged, or not memlite's", error.name)
            return None

    # Writing

    async def put(
        self, key: bytes, item: FullItem, replacing: Item | Anything | None = ANY
    ) -> None:
        """Store; see `Backend.put`. With `ANY` an object that is not memlite's is replaced."""
        nonce = self._next_nonce()
        self._unsettled.add(nonce)
        try:
            call = self._client.call()
            if isinstance(replacing, Item):
                replacing = await self._as_read(call, key, replacing)
            item.version = await self._write(call, key, item, nonce, replacing)
        finally:
            self._unsettled.discard(nonce)

    def _next_nonce(self) -> bytes:
        self._written += 1
        return self._writer + (self._written & 0xFFFFFFFF).to_bytes(4)

    async def _as_read(self, call: Call, key: bytes, item: Item) -> BucketItem:
        """Return an item as it was read, if it was not by `get`.

        Raises:
            VersionConflict: it is not what is there.
        """
        if isinstance(item, BucketItem):
            return item
        current = await self._get(call, key)
        if current is None or current.version != item.version:
            raise VersionConflict
        return current

    async def _write(
        self,
        call: Call,
        key: bytes,
        item: Item,
        nonce: bytes,
        replacing: BucketItem | Anything | None,
    ) -> int:
        """Write until it is known whether that was done; return the version."""
        name = name_of(key)
        before: Trail | None = None
        expect: int | None = None
        # What builds on something that was read belongs to the epoch it was read in: if that was
        # flushed meanwhile, so is this.
        epoch = self._epoch.now()
        if replacing is None:
            expect = 0
        elif replacing is not ANY:
            before, expect, epoch = replacing.trail, replacing.version, replacing.as_of
        while True:
            trail = before.followed_by(nonce, self._unsettled) if before else Trail.begin(nonce)
            body = encode(item, epoch, trail)
            reply = await self._client.write(call, name, body, expect, item.expires)
            if reply.status == 200:
                return reply.generation
            if not call.uncertain:
                raise VersionConflict
            # An earlier try may have come through: then the object has our nonce.
            generation, found = await self._look(call, key)
            if found is not None and nonce in found.nonces:
                self._client.requests.counts["lost_acknowledgements"] += 1
                if found.nonces[0] == nonce:
                    return generation
                # Somebody has built on it since. Its generation is not known, and matters to
                # nobody: no state will ever have it.
                return _NO_GENERATION | int.from_bytes(nonce)
            if replacing is not ANY:
                if found and before and found.birth == before.birth and found.may_have_lost(before):
                    raise call.error("too many writers of one key")
                raise VersionConflict
            # Whoever wrote meanwhile may have built on ours: take the place of what is there now,
            # and of nothing that comes later.
            before, expect = found, generation

    async def _look(self, call: Call, key: bytes) -> tuple[int, Trail | None]:
        """Return the generation and trail of a key's object; 0 when it is not there."""
        reply = await self._client.read(call, name_of(key))
        if reply.status == 404:
            return 0, None
        try:
            return reply.generation, decode(key, reply.body, reply.generation).trail
        except DamagedError:
            return reply.generation, None

    async def delete(self, key: bytes, replacing: Item | Anything = ANY) -> None:
        """Remove; see `Backend.delete`."""
        name, call = name_of(key), self._client.call()
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
            # An earlier try may have come through. Then what is there now has another birth, and
            # must stay; or it was replaced by what builds on it, and nothing was removed.
            _, found = await self._look(call, key)
            if found is not None and found.birth == read.trail.birth:
                raise VersionConflict

    async def flush(self, at: float = 0.0) -> None:
        """Make everything absent for all servers, now or at the unix time `at`; see `Epoch`."""
        await self._epoch.flush(at)

    def stats(self) -> Mapping[str, int | float | str]:
        """Return what was asked of the bucket, and how it is."""
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
    """Make a backend of a ``gs://bucket/prefix`` URL."""
    return GcsBackend(parse_options(url), context)
