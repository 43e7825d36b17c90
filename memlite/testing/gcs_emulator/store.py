"""The store: buckets, objects and their operations. Pure: no I/O, and an injected clock."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.generations import Generations
from memlite.testing.gcs_emulator.model import (
    Attributes,
    Bucket,
    StoredObject,
    crc32c_of,
    md5_of,
)
from memlite.testing.gcs_emulator.preconditions import NO_PRECONDITIONS, Preconditions

__all__ = ["Persistence", "Source", "Store", "check_object_name"]

# https://cloud.google.com/storage/docs/buckets#naming
_BUCKET_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII)
_BUCKET_NAME_LENGTHS = range(3, 223)
# https://cloud.google.com/storage/docs/objects#naming
OBJECT_NAME_BYTES = 1024
MAX_COMPONENTS = 32
# The rate limit tracks the last write of this many names; beyond that, the oldest are forgotten.
_MAX_TRACKED_WRITES = 10_000


class Persistence(Protocol):
    """Persists a store. Each change is saved before it takes effect."""

    def load(self) -> Iterable[Bucket]:
        """Return the saved buckets; called once at the start."""

    def put_bucket(self, bucket: Bucket) -> None:
        """Save a bucket's properties."""

    def delete_bucket(self, name: str) -> None:
        """Delete an empty bucket."""

    def put_object(self, stored: StoredObject) -> None:
        """Save an object, replacing the one with its name."""

    def delete_object(self, stored: StoredObject) -> None:
        """Delete an object."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a copy or compose operation.

    Attributes:
        bucket: the bucket's name.
        name: the object's name.
        generation: the required generation; None for the live one.
        preconditions: further conditions on the object.
    """

    bucket: str
    name: str
    generation: int | None = None
    preconditions: Preconditions = NO_PRECONDITIONS


def check_object_name(name: str) -> None:
    """Validate an object name (https://cloud.google.com/storage/docs/objects#naming).

    Raises:
        GcsError: 400 for an invalid name.
    """
    size = len(name.encode())
    if not 1 <= size <= OBJECT_NAME_BYTES:
        raise GcsError.invalid(f"The object name must have 1 to 1024 bytes, not {size}.", "name")
    if "\r" in name or "\n" in name or name in (".", ".."):
        raise GcsError.invalid(f"Disallowed object name: {name!r}", "name")
    if name.startswith(".well-known/acme-challenge/"):
        raise GcsError.invalid(f"Disallowed prefix of the object name: {name!r}", "name")


def _check_bucket_name(name: str) -> None:
    parts = name.split(".")
    if (
        len(name) not in _BUCKET_NAME_LENGTHS
        or not all(_BUCKET_NAME.fullmatch(part) for part in parts)
        or name.startswith("goog")
    ):
        raise GcsError.invalid(f"Invalid bucket name: '{name}'", "name")


class Store:
    """The contents of an emulator.

    Args:
        clock: returns unix time in seconds.
        ordered_generations: whether later generations are larger, which GCS does not guarantee.
        object_write_rate: the allowed writes per second to each object name; None for no limit.
            GCS allows one (https://cloud.google.com/storage/quotas).
        persistence: saves every change, and supplies the contents saved by an earlier run.

    Attributes:
        buckets: the buckets by name.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        ordered_generations: bool = False,
        object_write_rate: float | None = None,
        persistence: Persistence | None = None,
    ) -> None:
        self.buckets: dict[str, Bucket] = {}
        self._clock = clock
        self._generations = Generations(clock, ordered=ordered_generations)
        self._interval = 1 / object_write_rate if object_write_rate else 0.0
        self._last_writes: dict[tuple[str, str], float] = {}
        self._persistence = persistence
        for bucket in persistence.load() if persistence else ():
            self.buckets[bucket.name] = bucket
            for stored in bucket.objects.values():
                self._generations.avoid(stored.generation)

    # Buckets

    def bucket(self, name: str) -> Bucket:
        """Return a bucket.

        Raises:
            GcsError: 404.
        """
        bucket = self.buckets.get(name)
        if bucket is None:
            raise GcsError.no_bucket()
        return bucket

    def insert_bucket(self, name: str, properties: dict[str, Any] | None = None) -> Bucket:
        """Create a bucket.

        Raises:
            GcsError: 400 for an invalid name, 409 if the bucket exists.
        """
        _check_bucket_name(name)
        if name in self.buckets:
            raise GcsError(
                409,
                "conflict",
                "Your previous request to create the named bucket succeeded and you already own "
                "it.",
            )
        bucket = Bucket(name, properties or {}, self._clock())
        if self._persistence:
            self._persistence.put_bucket(bucket)
        self.buckets[name] = bucket
        return bucket

    def update_bucket(self, bucket: Bucket, properties: dict[str, Any]) -> None:
        """Replace the bucket's properties."""
        bucket.properties = properties
        bucket.metageneration += 1
        bucket.updated = self._clock()
        if self._persistence:
            self._persistence.put_bucket(bucket)

    def delete_bucket(self, bucket: Bucket) -> None:
        """Delete the bucket.

        Raises:
            GcsError: 409 if the bucket is not empty.
        """
        if bucket.objects:
            raise GcsError(409, "conflict", "The bucket you tried to delete is not empty.")
        if self._persistence:
            self._persistence.delete_bucket(bucket.name)
        del self.buckets[bucket.name]

    # Objects

    def get(
        self,
        bucket: str,
        name: str,
        generation: int | None = None,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> StoredObject:
        """Return an object for reading.

        Args:
            bucket: the bucket's name.
            name: the object's name.
            generation: the required generation; None for the live one.
            preconditions: conditions on the object.

        Raises:
            GcsError: 404, 412 or 304.
        """
        stored = self._find(bucket, name, generation)
        if preconditions is not NO_PRECONDITIONS:
            preconditions.check(stored, reading=True)
        return stored

    def insert(
        self,
        bucket: str,
        name: str,
        content: bytes,
        attributes: Attributes,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> StoredObject:
        """Create an object, or replace it with a new generation.

        Raises:
            GcsError: 400 for the name, 404 for the bucket, 412 or 429.
        """
        return self._insert(bucket, name, content, attributes, preconditions, md5_of(content))

    def check_insert(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        """Check whether the name or the preconditions would make `insert` fail now.

        Raises:
            GcsError: 400 for the name, 404 for the bucket, or 412.
        """
        check_object_name(name)
        current = self.bucket(bucket).objects.get(name)
        preconditions.check(current, reading=False)

    def _insert(
        self,
        bucket: str,
        name: str,
        content: bytes,
        attributes: Attributes,
        preconditions: Preconditions,
        md5: str | None,
        component_count: int | None = None,
    ) -> StoredObject:
        self.check_insert(bucket, name, preconditions)
        now = self._clock()
        self._limit_rate(bucket, name, now)
        stored = StoredObject(
            bucket=bucket,
            name=name,
            content=content,
            attributes=attributes,
            generation=self._generations.next(),
            metageneration=1,
            crc32c=crc32c_of(content),
            md5=md5,
            created=now,
            updated=now,
            component_count=component_count,
        )
        self._put(stored)
        return stored

    def update(
        self,
        bucket: str,
        name: str,
        change: Callable[[Attributes], Attributes],
        generation: int | None = None,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> StoredObject:
        """Change an object's attributes, which increments its metageneration.

        A custom time can neither be removed nor moved backwards
        (https://cloud.google.com/storage/docs/metadata#custom-time).

        Args:
            bucket: the bucket's name.
            name: the object's name.
            change: maps the current attributes to the new ones.
            generation: the required generation; None for the live one.
            preconditions: conditions on the object.

        Raises:
            GcsError: 400, 404, 412 or 429.
        """
        current = self._find(bucket, name, generation)
        preconditions.check(current, reading=False)
        attributes = change(current.attributes)
        before, after = current.attributes.custom_time, attributes.custom_time
        if before is not None and (after is None or after < before):
            raise GcsError.invalid(
                "Custom time can be neither removed nor set to an earlier time.", "customTime"
            )
        now = self._clock()
        self._limit_rate(bucket, name, now)
        changed = replace(
            current,
            attributes=attributes,
            metageneration=current.metageneration + 1,
            updated=now,
        )
        self._put(changed)
        return changed

    def delete(
        self,
        bucket: str,
        name: str,
        generation: int | None = None,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> None:
        """Delete an object permanently; soft deletion is not emulated.

        Raises:
            GcsError: 404, 412 or 429.
        """
        stored = self._find(bucket, name, generation)
        preconditions.check(stored, reading=False)
        self._limit_rate(bucket, name, self._clock())
        if self._persistence:
            self._persistence.delete_object(stored)
        self.buckets[bucket].remove(name)

    def copy(
        self,
        source: Source,
        bucket: str,
        name: str,
        attributes: Attributes | None,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> StoredObject:
        """Copy an object.

        Args:
            source: the object to copy.
            bucket: the destination bucket.
            name: the destination name.
            attributes: the attributes of the copy; None for those of the source.
            preconditions: conditions on the object at the destination.

        Raises:
            GcsError: 400, 404, 412 or 429.
        """
        original = self._read_source(source)
        return self._insert(
            bucket,
            name,
            original.content,
            original.attributes if attributes is None else attributes,
            preconditions,
            original.md5,
            original.component_count,
        )

    def compose(
        self,
        sources: Sequence[Source],
        bucket: str,
        name: str,
        attributes: Attributes | None,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> StoredObject:
        """Concatenate objects into one, in order.

        Args:
            sources: 1 to 32 objects.
            bucket: the bucket of the sources and of the new object.
            name: the name of the new object.
            attributes: its attributes; None for only the content type of the first source.
            preconditions: conditions on the object at the destination.

        Raises:
            GcsError: 400, 404, 412 or 429.
        """
        if not 1 <= len(sources) <= MAX_COMPONENTS:
            raise GcsError.invalid(
                f"The number of source components must be 1 to {MAX_COMPONENTS}.", "sourceObjects"
            )
        parts = [self._read_source(source) for source in sources]
        if attributes is None:
            attributes = Attributes(content_type=parts[0].attributes.content_type)
        return self._insert(
            bucket,
            name,
            b"".join(part.content for part in parts),
            attributes,
            preconditions,
            None,
            sum(part.component_count or 1 for part in parts),
        )

    def _find(self, bucket: str, name: str, generation: int | None) -> StoredObject:
        stored = self.bucket(bucket).objects.get(name)
        # Overwritten generations no longer exist, because object versioning is not emulated.
        if stored is None or generation not in (None, stored.generation):
            raise GcsError.no_object(bucket, name)
        return stored

    def _read_source(self, source: Source) -> StoredObject:
        stored = self._find(source.bucket, source.name, source.generation)
        # This is part of a write, so every failed precondition is a 412.
        source.preconditions.check(stored, reading=False)
        return stored

    def _put(self, stored: StoredObject) -> None:
        if self._persistence:
            self._persistence.put_object(stored)
        self.buckets[stored.bucket].put(stored)

    def _limit_rate(self, bucket: str, name: str, now: float) -> None:
        """Reject a write that comes too soon after the previous one to that name."""
        if not self._interval:
            return
        last = self._last_writes.get((bucket, name))
        if last is not None and 0 <= now - last < self._interval:
            raise GcsError.rate_limited(bucket, name)
        # Remove the entry first, so that the dict stays ordered by time.
        self._last_writes.pop((bucket, name), None)
        self._last_writes[bucket, name] = now
        while len(self._last_writes) > _MAX_TRACKED_WRITES:
            oldest = next(iter(self._last_writes))
            if now - self._last_writes[oldest] < self._interval:
                break
            del self._last_writes[oldest]
