"""Convert objects to resources of the JSON API, and resources in requests to attributes.

The fields are documented at https://cloud.google.com/storage/docs/json_api/v1/objects#resource.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.model import (
    Attributes,
    StoredObject,
    crc32c_of,
    md5_of,
    rfc3339,
)

__all__ = ["new_attributes", "object_resource", "patched_attributes", "verify_hashes"]

# Attributes that are plain strings, by JSON field.
_TEXTS = {
    "contentType": "content_type",
    "cacheControl": "cache_control",
    "contentDisposition": "content_disposition",
    "contentEncoding": "content_encoding",
    "contentLanguage": "content_language",
}
# Fields that GCS sets itself and ignores in requests, and fields that only repeat the path.
_OUTPUT_ONLY = frozenset(
    (
        "bucket",
        "componentCount",
        "crc32c",
        "etag",
        "generation",
        "id",
        "kind",
        "md5Hash",
        "mediaLink",
        "metageneration",
        "name",
        "selfLink",
        "size",
        "storageClass",
        "timeCreated",
        "timeFinalized",
        "timeStorageClassUpdated",
        "updated",
    )
)
_STORAGE_CLASSES = ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE")
# https://cloud.google.com/storage/quotas#objects
_METADATA_BYTES = 8 * 1024


def object_resource(stored: StoredObject, base_url: str) -> dict[str, Any]:
    """Return an object's resource, with links to the server at `base_url`."""
    attributes = stored.attributes
    path = f"storage/v1/b/{stored.bucket}/o/{quote(stored.name, safe='')}"
    generation = str(stored.generation)
    created = rfc3339(stored.created)
    resource: dict[str, Any] = {
        "kind": "storage#object",
        "id": f"{stored.bucket}/{stored.name}/{generation}",
        "selfLink": f"{base_url}/{path}",
        "mediaLink": f"{base_url}/download/{path}?generation={generation}&alt=media",
        "name": stored.name,
        "bucket": stored.bucket,
        "generation": generation,
        "metageneration": str(stored.metageneration),
        "storageClass": attributes.storage_class,
        "size": str(len(stored.content)),
        "crc32c": stored.crc32c,
        "etag": stored.etag,
        "timeCreated": created,
        "updated": created if stored.updated == stored.created else rfc3339(stored.updated),
        "timeStorageClassUpdated": created,
        "timeFinalized": created,
    }
    if stored.md5:
        resource["md5Hash"] = stored.md5
    if stored.component_count:
        resource["componentCount"] = stored.component_count
    for field, attribute in _TEXTS.items():
        if (value := getattr(attributes, attribute)) is not None:
            resource[field] = value
    if attributes.custom_time:
        resource["customTime"] = rfc3339(attributes.custom_time)
    if attributes.metadata:
        resource["metadata"] = dict(attributes.metadata)
    return resource


def new_attributes(fields: Mapping[str, Any], content_type: str | None = None) -> Attributes:
    """Return the attributes of a new object, or a full replacement of attributes (PUT).

    Args:
        fields: the resource in the request.
        content_type: the content type to use if the resource has none.

    Raises:
        GcsError: 400, or 501 for an unsupported field.
    """
    storage_class = fields.get("storageClass") or "STANDARD"
    if storage_class not in _STORAGE_CLASSES:
        raise GcsError.invalid(f"Invalid storage class: {storage_class!r}", "storageClass")
    changes = _changes(Attributes(), fields)
    if content_type and changes.get("content_type") is None:
        changes["content_type"] = content_type
    return Attributes(**changes, storage_class=storage_class)


def patched_attributes(attributes: Attributes, fields: Mapping[str, Any]) -> Attributes:
    """Return the attributes with the given fields changed; null removes one (PATCH).

    The storage class does not change: on GCS that requires rewriting the object.

    Raises:
        GcsError: 400, or 501 for an unsupported field.
    """
    changes = _changes(attributes, fields)
    return replace(attributes, **changes) if changes else attributes


def _changes(attributes: Attributes, fields: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for field, value in fields.items():
        if field in _TEXTS:
            changes[_TEXTS[field]] = _text(field, value)
        elif field == "customTime":
            changes["custom_time"] = _timestamp(value)
        elif field == "metadata":
            changes["metadata"] = _metadata(attributes.metadata, value)
        elif field not in _OUTPUT_ONLY and value:
            # An empty or false value, such as "temporaryHold": false, requests nothing.
            raise GcsError.not_emulated(f"the field {field!r} of objects")
    return changes


def verify_hashes(content: bytes, fields: Mapping[str, Any], header: str) -> None:
    """Check the content against the checksums supplied by the client.

    Args:
        content: the bytes.
        fields: the resource in the request.
        header: the value of ``X-Goog-Hash``, or "".

    Raises:
        GcsError: 400 if a checksum differs.
    """
    given: list[tuple[str, Any]] = [
        ("CRC32C", fields.get("crc32c")),
        ("MD5", fields.get("md5Hash")),
    ]
    for part in header.split(","):
        kind, _, value = part.strip().partition("=")
        given.append((kind.upper(), value))
    for kind, value in given:
        if not value or kind not in ("CRC32C", "MD5"):
            continue
        actual = crc32c_of(content) if kind == "CRC32C" else md5_of(content)
        if value != actual:
            raise GcsError.invalid(
                f'Provided {kind} hash "{value}" doesn\'t match calculated {kind} hash "{actual}".'
            )


def _text(field: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise GcsError.invalid(f"Invalid value for {field}: it must be a string.", field)
    if value and ("\r" in value or "\n" in value):
        raise GcsError.invalid(f"Invalid value for {field}: it must be one line.", field)
    return value or None


def _timestamp(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise GcsError.invalid(f"Invalid value for customTime: {value!r}", "customTime")
    return moment


def _metadata(before: Mapping[str, str], changes: object) -> dict[str, str]:
    if changes is None:
        return {}
    if not isinstance(changes, dict):
        raise GcsError.invalid("Invalid value for metadata: it must be an object.", "metadata")
    after = dict(before)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        elif isinstance(value, str):
            after[key] = value
        else:
            raise GcsError.invalid(f"Invalid value for metadata.{key}: not a string.", "metadata")
    if sum(len(key.encode()) + len(value.encode()) for key, value in after.items()) > (
        _METADATA_BYTES
    ):
        raise GcsError.invalid("The custom metadata is larger than 8 KiB.", "metadata")
    return after
