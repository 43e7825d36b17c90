"""What the store holds: buckets, and objects as immutable values, one for each state they had."""

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
    """Return a time as the JSON API writes it, in UTC with milliseconds.

    Args:
        moment: unix time in seconds, or a date with its zone.
    """
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def crc32c_of(content: bytes) -> str:
    """Return the checksum GCS keeps of every object, in base64."""
    return base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()


def md5_of(content: bytes) -> str:
    """Return the hash GCS keeps of objects that are not composite, in base64."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a user may set on an object beside its content.

    Attributes:
        content_type: as sent back with the content; None stands for GCS's default.
        custom_time: the user's own time stamp, for lifecycle rules.
        metadata: the user's own keys and values.
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
    """An object in one of its states. A change makes a new one.

    Attributes:
        bucket: its bucket's name.
        name: its name.
        content: its bytes.
        attributes: what users set.
        generation: changes with the content. Unique, and not ordered.
        metageneration: 1 for a new generation, and one more with each change of attributes.
        crc32c: of the content, in base64.
        md5: of the content, in base64; None for composite objects, as on GCS.
        created: unix time of this generation, in seconds.
        updated: unix time of this metageneration, in seconds.
        component_count: of how many objects it was composed; None when it was not.
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
        """The entity tag: on GCS a protocol buffer of the two generations, in base64."""
        packed = b"\x08" + _varint(self.generation) + b"\x10" + _varint(self.metageneration)
        return base64.b64encode(packed).decode()

    @cached_property
    def media_headers(self) -> Mapping[str, str]:
        """The headers that go with the content; made once, for objects are read often."""
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
        name: its name.
        properties: the resource's fields that users set, as JSON.
        created: unix time in seconds.

    Attributes:
        objects: by name; change them with `put` and `remove` only.
        metageneration: 1, and one more with each change of the properties.
        updated: unix time of the last change of the properties, in seconds.
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
        """The bucket's own generation, which is that of its creation."""
        return int(self.created * 1_000_000)

    def put(self, stored: StoredObject) -> None:
        """Add an object, or put it in the place of the one of its name."""
        if stored.name not in self.objects:
            self._sorted = None
        self.objects[stored.name] = stored

    def remove(self, name: str) -> None:
        """Remove the object of that name."""
        del self.objects[name]
        self._sorted = None

    def names(self) -> Sequence[str]:
        """Return the names in order, which is that of their UTF-8 bytes and of code points."""
        if self._sorted is None:
            self._sorted = sorted(self.objects)
        return self._sorted

    def position(self, name: str) -> int:
        """Return where in `names` the first name stands that is not before `name`."""
        return bisect_left(self.names(), name)
