"""The JSON API's methods on objects, except for uploads.

Reference: https://cloud.google.com/storage/docs/json_api/v1/objects.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.listing import Selection, list_page
from memlite.testing.gcs_emulator.messages import (
    Request,
    Response,
    json_response,
    parse_number,
)
from memlite.testing.gcs_emulator.model import StoredObject
from memlite.testing.gcs_emulator.preconditions import NO_PRECONDITIONS, Preconditions
from memlite.testing.gcs_emulator.resources import (
    new_attributes,
    object_resource,
    patched_attributes,
)
from memlite.testing.gcs_emulator.store import Source, Store

__all__ = ["CONDITIONS", "ObjectsApi", "media_response", "object_response"]

CONDITIONS = frozenset(
    (
        "ifGenerationMatch",
        "ifGenerationNotMatch",
        "ifMetagenerationMatch",
        "ifMetagenerationNotMatch",
    )
)
"""The parameters that are preconditions."""

_OBJECT_PARAMETERS = CONDITIONS | {"generation"}
_LIST = frozenset(
    (
        "delimiter",
        "endOffset",
        "includeTrailingDelimiter",
        "maxResults",
        "pageToken",
        "prefix",
        "softDeleted",
        "startOffset",
        "versions",
    )
)
_COMPOSE = frozenset(("ifGenerationMatch", "ifMetagenerationMatch"))
_COPY = CONDITIONS | {
    "ifSourceGenerationMatch",
    "ifSourceGenerationNotMatch",
    "ifSourceMetagenerationMatch",
    "ifSourceMetagenerationNotMatch",
    "sourceGeneration",
}
_READ_HEADERS = frozenset(("if-match", "if-none-match"))
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


class ObjectsApi:
    """The methods on objects.

    Args:
        store: the store that holds the objects.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, request: Request, bucket: str, name: str) -> Response:
        """Answer ``objects.get``: the resource, or with ``alt=media`` the content."""
        media = request.query.get("alt") == "media"
        request.check(_OBJECT_PARAMETERS, _READ_HEADERS)
        stored = self._store.get(
            bucket, name, request.number("generation"), request.preconditions()
        )
        _check_etag(request, stored)
        if media:
            return media_response(request, stored)
        return object_response(request, stored)

    def list(self, request: Request, bucket: str) -> Response:
        """Answer ``objects.list``."""
        request.check(_LIST)
        for flag in ("versions", "softDeleted"):
            if request.flag(flag):
                raise GcsError.not_emulated(f"{flag}=true")
        query = request.query
        max_results = request.number("maxResults")
        if max_results == 0:
            raise GcsError.invalid("Invalid value for the parameter maxResults: 0", "maxResults")
        selection = Selection(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=query.get("startOffset", ""),
            end=query.get("endOffset", ""),
            include_trailing_delimiter=request.flag("includeTrailingDelimiter"),
            page_token=query.get("pageToken", ""),
            **({} if max_results is None else {"max_results": max_results}),
        )
        page = list_page(self._store.bucket(bucket), selection)
        answer: dict[str, Any] = {"kind": "storage#objects"}
        if page.next_token:
            answer["nextPageToken"] = page.next_token
        if page.prefixes:
            answer["prefixes"] = page.prefixes
        if page.items:
            answer["items"] = [object_resource(item, request.base_url) for item in page.items]
        return json_response(answer)

    def patch(self, request: Request, bucket: str, name: str) -> Response:
        """Answer ``objects.patch``: change the given attributes."""
        request.check(_OBJECT_PARAMETERS)
        fields = request.json()
        changed = self._store.update(
            bucket,
            name,
            lambda attributes: patched_attributes(attributes, fields),
            request.number("generation"),
            request.preconditions(),
        )
        return object_response(request, changed)

    def update(self, request: Request, bucket: str, name: str) -> Response:
        """Answer ``objects.update``: replace all attributes; missing ones are removed."""
        request.check(_OBJECT_PARAMETERS)
        fields = {key: value for key, value in request.json().items() if key != "storageClass"}
        changed = self._store.update(
            bucket,
            name,
            lambda before: replace(new_attributes(fields), storage_class=before.storage_class),
            request.number("generation"),
            request.preconditions(),
        )
        return object_response(request, changed)

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        """Answer ``objects.delete``."""
        request.check(_OBJECT_PARAMETERS)
        self._store.delete(bucket, name, request.number("generation"), request.preconditions())
        return Response(204)

    def compose(self, request: Request, bucket: str, name: str) -> Response:
        """Answer ``objects.compose``."""
        request.check(_COMPOSE)
        body = request.json()
        if unknown := body.keys() - {"kind", "sourceObjects", "destination"}:
            raise GcsError.not_emulated(f"the field {min(unknown)!r} of compose requests")
        sources = body.get("sourceObjects")
        if not isinstance(sources, list):
            raise GcsError.required("sourceObjects")
        destination = body.get("destination")
        composed = self._store.compose(
            [_compose_source(bucket, entry) for entry in sources],
            bucket,
            name,
            new_attributes(destination) if isinstance(destination, dict) else None,
            request.preconditions(),
        )
        return object_response(request, composed)

    def copy(
        self, request: Request, source_bucket: str, source_name: str, bucket: str, name: str
    ) -> Response:
        """Answer ``objects.copy``."""
        request.check(_COPY)
        copied = self._copy(request, source_bucket, source_name, bucket, name)
        return object_response(request, copied)

    def rewrite(
        self, request: Request, source_bucket: str, source_name: str, bucket: str, name: str
    ) -> Response:
        """Answer ``objects.rewrite``, which always completes in one call."""
        request.check(_COPY | {"maxBytesRewrittenPerCall"})
        copied = self._copy(request, source_bucket, source_name, bucket, name)
        size = str(len(copied.content))
        return json_response(
            {
                "kind": "storage#rewriteResponse",
                "totalBytesRewritten": size,
                "objectSize": size,
                "done": True,
                "resource": object_resource(copied, request.base_url),
            }
        )

    def _copy(
        self, request: Request, source_bucket: str, source_name: str, bucket: str, name: str
    ) -> StoredObject:
        fields = request.json()
        source = Source(
            source_bucket,
            source_name,
            request.number("sourceGeneration"),
            request.preconditions("ifSource"),
        )
        # If the body has attributes, they replace all attributes of the source.
        attributes = new_attributes(fields) if fields else None
        return self._store.copy(source, bucket, name, attributes, request.preconditions())


def media_response(request: Request, stored: StoredObject) -> Response:
    """Return a response with the content, or with the part requested by the Range header.

    Raises:
        GcsError: 501 for unsupported ranges and encodings.
    """
    headers = stored.media_headers
    if "Range" in request.headers:
        return _partial_response(request.headers, stored)
    if stored.attributes.content_encoding == "gzip" and "gzip" not in (
        request.headers.get("Accept-Encoding", "")
    ):
        raise GcsError.not_emulated(
            "decompressive transcoding; send Accept-Encoding: gzip to read gzipped objects"
        )
    return Response(200, stored.content, headers)


def _partial_response(headers: Mapping[str, str], stored: StoredObject) -> Response:
    size = len(stored.content)
    found = _RANGE.fullmatch(headers["Range"].replace(" ", ""))
    if found is None or found[1] == found[2] == "":
        raise GcsError.not_emulated(f"the range {headers['Range']!r}")
    if found[1]:
        first = int(found[1])
        last = min(int(found[2]), size - 1) if found[2] else size - 1
    else:
        first, last = max(0, size - int(found[2])), size - 1
    if first > last:
        return Response(
            416,
            b"Request range not satisfiable",
            {"Content-Type": "text/plain; charset=utf-8", "Content-Range": f"bytes */{size}"},
        )
    return Response(
        206,
        stored.content[first : last + 1],
        {**stored.media_headers, "Content-Range": f"bytes {first}-{last}/{size}"},
    )


def object_response(request: Request, stored: StoredObject) -> Response:
    """Return a response with the resource of an object."""
    response = json_response(object_resource(stored, request.base_url))
    response.headers = {**response.headers, "ETag": stored.etag}
    return response


def _check_etag(request: Request, stored: StoredObject) -> None:
    """Check If-Match and If-None-Match, which GCS supports on reads."""
    headers = request.headers
    if "If-Match" in headers and not _matches(headers["If-Match"], stored.etag):
        raise GcsError.condition_not_met()
    if "If-None-Match" in headers and _matches(headers["If-None-Match"], stored.etag):
        raise GcsError.not_modified()


def _matches(value: str, etag: str) -> bool:
    """Return whether the value of a conditional header contains the entity tag, or ``*``."""
    tags = [tag.strip().strip('"') for tag in value.split(",")]
    return etag in tags or "*" in tags


def _compose_source(bucket: str, entry: object) -> Source:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise GcsError.required("sourceObjects[].name")
    if unknown := entry.keys() - {"name", "generation", "objectPreconditions"}:
        raise GcsError.not_emulated(f"the field {min(unknown)!r} of sourceObjects")
    conditions = entry.get("objectPreconditions") or {}
    if conditions.keys() - {"ifGenerationMatch"}:
        raise GcsError.not_emulated("objectPreconditions other than ifGenerationMatch")
    expected = _optional_number("ifGenerationMatch", conditions.get("ifGenerationMatch"))
    return Source(
        bucket,
        entry["name"],
        _optional_number("generation", entry.get("generation")),
        NO_PRECONDITIONS if expected is None else Preconditions(generation_match=expected),
    )


def _optional_number(name: str, value: object) -> int | None:
    return None if value is None else parse_number(name, str(value))
