"""The store: buckets, objects and what may be done to them. Pure: no I/O, and a clock passed in."""

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

__all__ = ["Keeper", "Source", "Store", "check_object_name"]

# https://cloud.google.com/storage/docs/buckets#naming
_BUCKET_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII)
_BUCKET_NAME_LENGTHS = range(3, 223)
# https://cloud.google.com/storage/docs/objects#naming
OBJECT_NAME_BYTES = 1024
MAX_COMPONENTS = 32
# Names whose last write is remembered for the rate limit; older ones are forgotten beyond.
_REMEMBERED_WRITES = 10_000


class Keeper(Protocol):
    """What keeps a copy of the store's state, object by object before a change takes effect."""

    def load(self) -> Iterable[Bucket]:
        """Return what was kept, at the start."""

    def put_bucket(self, bucket: Bucket) -> None:
        """Keep the bucket's properties."""

    def delete_bucket(self, name: str) -> None:
        """Forget the bucket, which is empty."""

    def put_object(self, stored: StoredObject) -> None:
        """Keep the object, in the place of the one of its name."""

    def delete_object(self, stored: StoredObject) -> None:
        """Forget the object."""


@dataclass(frozen=True, slots=True)
class Source:
    """An object that is read to make another.

    Attributes:
        generation: the only one that will do, or None for the live one.
    """

    bucket: str
    name: str
    generation: int | None = None
    preconditions: Preconditions = NO_PRECONDITIONS


def check_object_name(name: str) -> None:
    """Check a name by GCS's rules (https://cloud.google.com/storage/docs/objects#naming).

    Raises:
        GcsError: 400.
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
    """Everything an emulator holds.

    Args:
        clock: returns unix time in seconds.
        ordered_generations: whether later generations are larger, which GCS does not promise.
        object_write_rate: writes a second each object name takes; None for any number. GCS
            sustains one (https://cloud.google.com/storage/quotas).
        keeper: is told of every change, and has what there was in an earlier run.

    Attributes:
        buckets: by name.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        ordered_generations: bool = False,
        object_write_rate: float | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.buckets: dict[str, Bucket] = {}
        self._clock = clock
        self._generations = Generations(clock, ordered=ordered_generations)
        self._interval = 1 / object_write_rate if object_write_rate else 0.0
        self._written: dict[tuple[str, str], float] = {}
        self._keeper = keeper
        for bucket in keeper.load() if keeper else ():
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
            GcsError: 400 for its name, 409 when there is one.
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
        if self._keeper:
            self._keeper.put_bucket(bucket)
        self.buckets[name] = bucket
        return bucket

    def update_bucket(self, bucket: Bucket, properties: dict[str, Any]) -> None:
        """Give the bucket other properties."""
        bucket.properties = properties
        bucket.metageneration += 1
        bucket.updated = self._clock()
        if self._keeper:
            self._keeper.put_bucket(bucket)

    def delete_bucket(self, bucket: Bucket) -> None:
        """Delete the bucket.

        Raises:
            GcsError: 409 when there are objects in it.
        """
        if bucket.objects:
            raise GcsError(409, "conflict", "The bucket you tried to delete is not empty.")
        if self._keeper:
            self._keeper.delete_bucket(bucket.name)
        del self.buckets[bucket.name]

    # Objects

    def get(
        self,
        bucket: str,
        name: str,
        generation: int | None = None,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> StoredObject:
        """Return an object to read.

        Args:
            bucket: its bucket's name.
            name: its name.
            generation: the only one that will do; None for the live one.
            preconditions: what it must be like.

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
        """Create the object, or replace it by a new generation.

        Raises:
            GcsError: 400 for the name, 404 for the bucket, 412 or 429.
        """
        return self._insert(bucket, name, content, attributes, preconditions, md5_of(content))

    def check_insert(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        """Check whether `insert` would be refused now, by the name or by the preconditions.

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
        self._count_write(bucket, name, now)
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
        """Change an object's attributes, which makes a new metageneration.

        A custom time may neither be removed nor go backwards
        (https://cloud.google.com/storage/docs/metadata#custom-time).

        Args:
            bucket: its bucket's name.
            name: its name.
            change: takes the attributes that are and returns those to be.
            generation: the only one that will do; None for the live one.
            preconditions: what it must be like.

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
        self._count_write(bucket, name, now)
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
        """Delete an object; its soft deletion is not emulated, it is gone.

        Raises:
            GcsError: 404, 412 or 429.
        """
        stored = self._find(bucket, name, generation)
        preconditions.check(stored, reading=False)
        self._count_write(bucket, name, self._clock())
        if self._keeper:
            self._keeper.delete_object(stored)
        self.buckets[bucket].remove(name)

    def copy(
        self,
        source: Source,
        bucket: str,
        name: str,
        attributes: Attributes | None,
        preconditions: Preconditions = NO_PRECONDITIONS,
    ) -> StoredObject:
        """Make an object of another's content.

        Args:
            source: the other one.
            bucket: where to.
            name: the name there.
            attributes: those of the copy; None for the source's.
            preconditions: what the object in its place must be like.

        Raises:
            GcsError: 400, 404, 412 or 429.
        """
        original = self._read(source)
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
        """Join objects into one, in order.

        Args:
            sources: 1 to 32 of them.
            bucket: where they are and where to.
            name: the name there.
            attributes: those of the new one; None for the first source's content type alone.
            preconditions: what the object in its place must be like.

        Raises:
            GcsError: 400, 404, 412 or 429.
        """
        if not 1 <= len(sources) <= MAX_COMPONENTS:
            raise GcsError.invalid(
                f"The number of source components must be 1 to {MAX_COMPONENTS}.", "sourceObjects"
            )
        parts = [self._read(source) for source in sources]
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
        # Overwritten generations are gone: buckets are without object versioning.
        if stored is None or generation not in (None, stored.generation):
            raise GcsError.no_object(bucket, name)
        return stored

    def _read(self, source: Source) -> StoredObject:
        stored = self._find(source.bucket, source.name, source.generation)
        # Part of a request that writes: what does not hold is a 412 throughout.
        source.preconditions.check(stored, reading=False)
        return stored

    def _put(self, stored: StoredObject) -> None:
        if self._keeper:
            self._keeper.put_object(stored)
        self.buckets[stored.bucket].put(stored)

    def _count_write(self, bucket: str, name: str, now: float) -> None:
        """Refuse the write if it comes too soon after the last one to that name."""
        if not self._interval:
            return
        last = self._written.get((bucket, name))
        if last is not None and 0 <= now - last < self._interval:
            raise GcsError.rate_limited(bucket, name)
        # Taken out first, so that the dict stays in the order of the writes.
        self._written.pop((bucket, name), None)
        self._written[bucket, name] = now
        while len(self._written) > _REMEMBERED_WRITES:
            oldest = next(iter(self._written))
            if now - self._written[oldest] < self._interval:
                break
            del self._written[oldest]
