"""Reads and writes records by key, and remembers their last known states."""

import contextlib
import itertools
from typing import NamedTuple

from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.codec import (
    TOMBSTONE_EXPIRES,
    DamagedError,
    Origin,
    Trail,
    decode,
    encode,
    name_of,
)
from memlite.backends.gcs.requests import Reply
from memlite.backends.record import Record
from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Epoch
from memlite.core.errors import StorageError

__all__ = ["DamagedObjectError", "Objects", "State"]

# States that are kept from one tick to the next; each takes about 250 bytes.
_STATES = 16_384
_LONG_AGO = 1.0


class DamagedObjectError(StorageError):
    """The content of an object is not that of a record."""

    def __init__(self, name: str) -> None:
        super().__init__(f"bucket: object {name} is damaged, or was not written by memlite")
        self.name = name


class State(NamedTuple):
    """A state of a key's object.

    Attributes:
        generation: the object's generation; 0 if there is no object.
        trail_data: see `Origin`; empty if there is no object, or if it is not memlite's.
        absent: whether there is no object, or only a tombstone.
    """

    generation: int
    trail_data: bytes
    absent: bool = False

    @property
    def trail(self) -> Trail | None:
        """The writes that led to this state; None if they are unknown."""
        return Trail.parse(self.trail_data) if self.trail_data else None


class Objects:
    """The objects of keys.

    Args:
        client: the objects of the bucket.
        epoch: determines which records were flushed.
        prefix: the prefix of their names, for messages.
    """

    def __init__(self, client: BucketClient, epoch: Epoch, prefix: str) -> None:
        self._client = client
        self._epoch = epoch
        self._prefix = prefix
        # The fields of the last known states of the most recently read or written keys.
        self._states: dict[bytes, tuple[int, bytes, bool]] = {}

    async def get(self, key: bytes, call: Call | None = None) -> Record | None:
        """Return the record of `key`, whose token is its `Origin`; None if it has none.

        A record that was flushed has an `expires` in the past.

        Args:
            key: the key.
            call: the operation that this is part of; None for an operation of its own.

        Raises:
            DamagedObjectError: the object is damaged, or was not written by memlite.
            StorageError: the bucket cannot be read.
        """
        name = name_of(key)
        reply = await self._client.read(call or self._client.call(), name)
        states = self._states
        states.pop(key, None)
        if reply.status == 404:
            states[key] = 0, b"", True
            return None
        try:
            record, (epoch, trail, _) = decode(key, reply.body, reply.generation)
        except DamagedError:
            states[key] = reply.generation, b"", False
            raise DamagedObjectError(self._prefix + name) from None
        deleted = record.expires == TOMBSTONE_EXPIRES
        states[key] = reply.generation, trail, deleted
        if deleted:
            return None
        as_of = epoch if epoch == self._epoch.known else self._epoch.now(epoch)
        expires = _LONG_AGO if epoch < as_of else record.expires
        return record._replace(expires=expires, token=Origin(epoch, trail, as_of))

    async def look(self, call: Call, key: bytes) -> State:
        """Return the current state of a key, even if the object is damaged.

        Raises:
            StorageError: the bucket cannot be read.
        """
        with contextlib.suppress(DamagedObjectError):
            await self.get(key, call)
        return State(*self._states[key])

    def known(self, key: bytes) -> State | None:
        """Return the last known state of a key, which may be outdated."""
        state = self._states.get(key)
        return State(*state) if state else None

    async def write(
        self, call: Call, record: Record, epoch: int, trail: Trail, expect: int | None
    ) -> Reply:
        """Write a record; see `BucketClient.write` for `expect` and the result."""
        key = record.key
        body = encode(record, epoch, trail)
        deleted = record.expires == TOMBSTONE_EXPIRES
        # A lifecycle rule must not remove a tombstone at once.
        custom_time = float(record.accessed) if deleted else record.expires
        reply = await self._client.write(call, name_of(key), body, expect, custom_time)
        if reply.status == 200:
            self._states.pop(key, None)
            self._states[key] = reply.generation, trail.data, deleted
        return reply

    def tick(self) -> None:
        """Forget the states of the least recently used keys, if there are too many."""
        for key in list(itertools.islice(self._states, max(0, len(self._states) - _STATES))):
            del self._states[key]
