"""Uploads: simple, multipart (with metadata), and resumable in chunks.

Reference: https://cloud.google.com/storage/docs/uploads-downloads and the pages it links to.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.messages import Request, Response, parse_json
from memlite.testing.gcs_emulator.model import Attributes, StoredObject
from memlite.testing.gcs_emulator.multipart import parse_multipart
from memlite.testing.gcs_emulator.objects_api import CONDITIONS, object_response
from memlite.testing.gcs_emulator.preconditions import Preconditions
from memlite.testing.gcs_emulator.resources import new_attributes, verify_hashes
from memlite.testing.gcs_emulator.store import Store

__all__ = ["UploadsApi"]

_START = CONDITIONS | {"contentEncoding", "name", "uploadType"}
_CONTINUE = _START | {"upload_id"}
_RESUMABLE_HEADERS = frozenset(("x-upload-content-type", "x-upload-content-length"))
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.ASCII)
# The size of every chunk except the last must be a multiple of this.
_CHUNK_QUANTUM = 256 * 1024
# Number of sessions beyond which finished ones are forgotten. They are kept for clients that did
# not receive the response.
_MAX_SESSIONS = 1000


@dataclass(slots=True)
class _Session:
    """A resumable upload."""

    bucket: str
    name: str
    fields: Mapping[str, Any]
    attributes: Attributes
    preconditions: Preconditions
    declared: int | None
    received: bytearray = field(default_factory=bytearray)
    stored: StoredObject | None = None


class UploadsApi:
    """The upload methods.

    Args:
        store: the store that receives the objects.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, _Session] = {}

    def insert(self, request: Request, bucket: str) -> Response:
        """Answer a POST, according to its ``uploadType``."""
        request.check(_START, _RESUMABLE_HEADERS)
        kind = request.query.get("uploadType")
        if kind == "media":
            return self._media(request, bucket)
        if kind == "multipart":
            return self._multipart(request, bucket)
        if kind == "resumable":
            return self._start(request, bucket)
        if kind is None:
            raise GcsError.required("uploadType")
        raise GcsError.invalid(
            f"Invalid value for the parameter uploadType: {kind!r}", "uploadType"
        )

    def resume(self, request: Request, bucket: str) -> Response:
        """Answer a PUT: accept a chunk of a resumable upload, or report its progress."""
        request.check(_CONTINUE)
        session = self._session(request, bucket)
        if session.stored is not None:
            return object_response(request, session.stored)
        content_range = request.headers.get("Content-Range")
        if content_range is None:
            session.received[:] = request.body
            return self._finish(request, session)
        found = _CONTENT_RANGE.fullmatch(content_range.strip())
        if found is None:
            raise GcsError.invalid(f"Failed to parse Content-Range: {content_range}")
        total = None if found[3] == "*" else int(found[3])
        if found[1] is not None:
            _receive(session, request.body, int(found[1]), int(found[2]), total)
        if total is not None and len(session.received) == total:
            return self._finish(request, session)
        return _incomplete(session)

    def cancel(self, request: Request, bucket: str) -> Response:
        """Answer a DELETE: cancel a resumable upload. GCS's status for that is 499."""
        request.check(_CONTINUE)
        self._session(request, bucket)
        del self._sessions[request.query["upload_id"]]
        return Response(499)

    def _media(self, request: Request, bucket: str) -> Response:
        name = request.query.get("name")
        if not name:
            raise GcsError.required("name")
        fields = _with_encoding(request, {})
        attributes = new_attributes(fields, request.headers.get("Content-Type"))
        stored = self._insert(
            request, bucket, name, request.body, fields, attributes, request.preconditions()
        )
        return object_response(request, stored)

    def _multipart(self, request: Request, bucket: str) -> Response:
        parts = parse_multipart(request.headers.get("Content-Type", ""), request.body)
        if len(parts) != 2:
            raise GcsError.invalid(f"A multipart upload has two parts, not {len(parts)}.")
        (_, metadata), (headers, content) = parts
        fields = _with_encoding(request, parse_json(metadata))
        attributes = new_attributes(fields, headers.get("Content-Type"))
        stored = self._insert(
            request,
            bucket,
            _name(request, fields),
            content,
            fields,
            attributes,
            request.preconditions(),
        )
        return object_response(request, stored)

    def _start(self, request: Request, bucket: str) -> Response:
        fields = _with_encoding(request, request.json())
        declared = request.headers.get("X-Upload-Content-Length")
        if declared is not None and not (declared.isascii() and declared.isdigit()):
            raise GcsError.invalid(f"Invalid X-Upload-Content-Length: {declared!r}")
        session = _Session(
            bucket,
            _name(request, fields),
            fields,
            new_attributes(fields, request.headers.get("X-Upload-Content-Type")),
            request.preconditions(),
            None if declared is None else int(declared),
        )
        self._store.check_insert(bucket, session.name, session.preconditions)
        upload_id = secrets.token_urlsafe(24)
        self._sessions[upload_id] = session
        self._forget_finished()
        location = (
            f"{request.base_url}/upload/storage/v1/b/{bucket}/o"
            f"?uploadType=resumable&upload_id={upload_id}"
        )
        return Response(200, b"", {"Location": location, "X-GUploader-UploadID": upload_id})

    def _session(self, request: Request, bucket: str) -> _Session:
        upload_id = request.query.get("upload_id")
        if not upload_id:
            raise GcsError.required("upload_id")
        session = self._sessions.get(upload_id)
        if session is None or session.bucket != bucket:
            raise GcsError(404, "notFound", "The resumable upload does not exist.")
        return session

    def _finish(self, request: Request, session: _Session) -> Response:
        if session.declared not in (None, len(session.received)):
            raise GcsError.invalid(
                f"The upload has {len(session.received)} bytes, but X-Upload-Content-Length is "
                f"{session.declared}."
            )
        session.stored = self._insert(
            request,
            session.bucket,
            session.name,
            bytes(session.received),
            session.fields,
            session.attributes,
            session.preconditions,
        )
        session.received.clear()
        return object_response(request, session.stored)

    def _insert(
        self,
        request: Request,
        bucket: str,
        name: str,
        content: bytes,
        fields: Mapping[str, Any],
        attributes: Attributes,
        preconditions: Preconditions,
    ) -> StoredObject:
        verify_hashes(content, fields, request.headers.get("X-Goog-Hash", ""))
        return self._store.insert(bucket, name, content, attributes, preconditions)

    def _forget_finished(self) -> None:
        if len(self._sessions) > _MAX_SESSIONS:
            finished = [key for key, value in self._sessions.items() if value.stored is not None]
            for key in finished[: len(self._sessions) - _MAX_SESSIONS]:
                del self._sessions[key]


def _name(request: Request, fields: Mapping[str, Any]) -> str:
    name = request.query.get("name") or fields.get("name")
    if not isinstance(name, str) or not name:
        raise GcsError.required("name")
    return name


def _with_encoding(request: Request, fields: dict[str, Any]) -> dict[str, Any]:
    encoding = request.query.get("contentEncoding")
    return {**fields, "contentEncoding": encoding} if encoding else fields


def _receive(session: _Session, chunk: bytes, first: int, last: int, total: int | None) -> None:
    """Append a chunk, or the part of it that is new.

    Raises:
        GcsError: 400 if the chunk does not fit.
    """
    if last - first + 1 != len(chunk):
        raise GcsError.invalid(
            f"Content-Range announces {last - first + 1} bytes, but the body has {len(chunk)}."
        )
    if total is not None and last >= total:
        raise GcsError.invalid("Content-Range extends beyond the end of the upload.")
    if first > len(session.received):
        raise GcsError.invalid(
            f"The next expected byte is {len(session.received)}, but the chunk starts at {first}."
        )
    if (total is None or last + 1 < total) and len(chunk) % _CHUNK_QUANTUM:
        raise GcsError.invalid("The size of every chunk but the last must be a multiple of 262144.")
    session.received += chunk[len(session.received) - first :]


def _incomplete(session: _Session) -> Response:
    received = len(session.received)
    return Response(308, b"", {"Range": f"bytes=0-{received - 1}"} if received else {})
