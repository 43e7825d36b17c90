"""The data model: buckets, and objects as immutable values, one for each version."""

import base64
import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from functools import cached_property
from typing import Any

import google_crc32c

__all__ = ["Attributes", "Bucket", "StoredObject", "crc32c_of", "md5_of", "rfc3339"]

DEFAULT_CONTENT_TYPE = "application/octet-stream"


def rfc3339(moment: float | datetime) -> str:
    """Format a time like the JSON API, in UTC with milliseconds.

    Args:
        moment: unix time in seconds, or a datetime with a time zone.
    """
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def crc32c_of(content: bytes) -> str:
    """Return the checksum GCS stores with every object, in base64."""
    return base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()


def md5_of(content: bytes) -> str:
    """Return the hash GCS stores with every non-composite object, in base64."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


@dataclass(frozen=True, slots=True)
class Attributes:
    """The user-settable attributes of an object.

    Attributes:
        content_type: the media type returned with the content; None for GCS's default.
        custom_time: a user-defined timestamp, for lifecycle rules.
        metadata: user-defined keys and values.
    """

    content_type: str | None = None
    cache_control: str | None = None
    content_disposition: str | None = None
    content_encoding: str | None = None
    content_language: str | None = None
    custom_time: datetime | None = None
    storage_class: str = "STANDARD"
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredObject:
    """One version of an object. Every change creates a new value.

    Attributes:
        bucket: the bucket's name.
        name: the object's name.
        content: its bytes.
        attributes: its user-settable attributes.
        generation: identifies the content; unique, but not ordered.
        metageneration: 1 for a new generation, incremented by every change of attributes.
        crc32c: checksum of the content, in base64.
        md5: hash of the content, in base64; None for composite objects, as on GCS.
        created: creation time of this generation, in seconds of unix time.
        updated: creation time of this metageneration, in seconds of unix time.
        component_count: number of objects it was composed of; None if it is not composite.
    """

    bucket: str
    name: str
    content: bytes
    attributes: Attributes
    generation: int
    metageneration: int
    crc32c: str
    md5: str | None
    created: float
    updated: float
    component_count: int | None = None

    @cached_property
    def etag(self) -> str:
        """The entity tag: as on GCS, a protocol buffer of both generations, in base64."""
        packed = b"\x08" + _varint(self.generation) + b"\x10" + _varint(self.metageneration)
        return base64.b64encode(packed).decode()

    @cached_property
    def media_headers(self) -> Mapping[str, str]:
        """The headers sent with the content; cached, because objects are read often."""
        attributes = self.attributes
        hashes = f"crc32c={self.crc32c}" + (f",md5={self.md5}" if self.md5 else "")
        headers = {
            "Content-Type": attributes.content_type or DEFAULT_CONTENT_TYPE,
            "ETag": self.etag,
            "Last-Modified": formatdate(self.updated, usegmt=True),
            "Cache-Control": attributes.cache_control
            or "no-cache, no-store, max-age=0, must-revalidate",
            "X-Goog-Generation": str(self.generation),
            "X-Goog-Metageneration": str(self.metageneration),
            "X-Goog-Hash": hashes,
            "X-Goog-Storage-Class": attributes.storage_class,
            "X-Goog-Stored-Content-Encoding": attributes.content_encoding or "identity",
            "X-Goog-Stored-Content-Length": str(len(self.content)),
            "Accept-Ranges": "bytes",
        }
        time = attributes.custom_time
        optional = {
            "Content-Encoding": attributes.content_encoding,
            "Content-Disposition": attributes.content_disposition,
            "Content-Language": attributes.content_language,
            "X-Goog-Custom-Time": rfc3339(time) if time else None,
            "X-Goog-Component-Count": str(self.component_count) if self.component_count else None,
        }
        headers |= {name: value for name, value in optional.items() if value}
        return headers | {f"X-Goog-Meta-{key}": value for key, value in attributes.metadata.items()}


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class Bucket:
    """A bucket and its objects.

    Args:
        name: the bucket's name.
        properties: the user-settable fields of its resource, as JSON.
        created: creation time, in seconds of unix time.

    Attributes:
        objects: the objects by name; modify only with `put` and `remove`.
        metageneration: 1 at first, incremented by every change of the properties.
        updated: time of the last change of the properties, in seconds of unix time.
    """

    def __init__(self, name: str, properties: dict[str, Any], created: float) -> None:
        self.name = name
        self.properties = properties
        self.created = created
        self.updated = created
        self.metageneration = 1
        self.objects: dict[str, StoredObject] = {}
        self._sorted: list[str] | None = None

    @property
    def generation(self) -> int:
        """The bucket's own generation, derived from its creation time."""
        return int(self.created * 1_000_000)

    def put(self, stored: StoredObject) -> None:
        """Add an object, or replace the one with its name."""
        if stored.name not in self.objects:
            self._sorted = None
        self.objects[stored.name] = stored

    def remove(self, name: str) -> None:
        """Remove the object with that name."""
        del self.objects[name]
        self._sorted = None

    def names(self) -> Sequence[str]:
        """Return the object names sorted by code point, which is also the order of UTF-8 bytes."""
        if self._sorted is None:
            self._sorted = sorted(self.objects)
        return self._sorted

    def position(self, name: str) -> int:
        """Return the index in `names` of the first name that is not less than `name`."""
        return bisect_left(self.names(), name)
