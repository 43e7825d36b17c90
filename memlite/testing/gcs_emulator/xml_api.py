"""The XML API's methods on single objects (``/bucket/object``), which some clients use for speed.

Reference: https://cloud.google.com/storage/docs/xml-api/reference-methods.
"""

from dataclasses import replace
from xml.sax.saxutils import escape

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.messages import Request, Response, parse_number
from memlite.testing.gcs_emulator.objects_api import media_response
from memlite.testing.gcs_emulator.preconditions import NO_PRECONDITIONS, Preconditions
from memlite.testing.gcs_emulator.resources import new_attributes, verify_hashes
from memlite.testing.gcs_emulator.store import Store

__all__ = ["XmlApi", "xml_error"]

_PARAMETERS = frozenset(("generation",))
_CONDITIONS = frozenset(("x-goog-if-generation-match", "x-goog-if-metageneration-match"))
_PUT_HEADERS = _CONDITIONS | {"x-goog-meta-", "x-goog-custom-time", "x-goog-storage-class"}
_METADATA_PREFIX = "x-goog-meta-"
# Resource fields that the XML API sends as headers.
_FIELDS = {
    "contentType": "Content-Type",
    "cacheControl": "Cache-Control",
    "contentDisposition": "Content-Disposition",
    "contentEncoding": "Content-Encoding",
    "contentLanguage": "Content-Language",
    "customTime": "X-Goog-Custom-Time",
    "storageClass": "X-Goog-Storage-Class",
}
_CODES = {
    304: "NotModified",
    400: "InvalidArgument",
    401: "AuthenticationRequired",
    404: "NoSuchKey",
    412: "PreconditionFailed",
    429: "SlowDown",
    501: "NotImplemented",
    503: "ServiceUnavailable",
}


class XmlApi:
    """The methods on objects.

    Args:
        store: the store that holds the objects.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, request: Request, bucket: str, name: str) -> Response:
        """Answer a GET or HEAD."""
        request.check(_PARAMETERS, _CONDITIONS)
        stored = self._store.get(
            bucket, name, request.number("generation"), _preconditions(request)
        )
        return media_response(request, stored)

    def put(self, request: Request, bucket: str, name: str) -> Response:
        """Answer a PUT: create the object or replace it."""
        request.check(frozenset(), _PUT_HEADERS)
        headers = request.headers
        metadata = {
            key.lower().removeprefix(_METADATA_PREFIX): value
            for key, value in headers.items()
            if key.lower().startswith(_METADATA_PREFIX)
        }
        fields = {field: headers.get(header) for field, header in _FIELDS.items()}
        attributes = replace(new_attributes(fields), metadata=metadata)
        verify_hashes(
            request.body, {"md5Hash": headers.get("Content-MD5")}, headers.get("X-Goog-Hash", "")
        )
        stored = self._store.insert(bucket, name, request.body, attributes, _preconditions(request))
        returned = ("ETag", "X-Goog-Generation", "X-Goog-Metageneration", "X-Goog-Hash")
        return Response(200, b"", {name: stored.media_headers[name] for name in returned})

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        """Answer a DELETE."""
        request.check(_PARAMETERS, _CONDITIONS)
        self._store.delete(bucket, name, request.number("generation"), _preconditions(request))
        return Response(204)


def xml_error(error: GcsError) -> Response:
    """Return an error response in the format of the XML API."""
    code = _CODES.get(error.status, error.reason)
    if error.status == 404 and "bucket" in error.message:
        code = "NoSuchBucket"
    text = (
        "<?xml version='1.0' encoding='UTF-8'?><Error>"
        f"<Code>{code}</Code><Message>{escape(error.message)}</Message></Error>"
    )
    return Response(error.status, text.encode(), {"Content-Type": "application/xml; charset=UTF-8"})


def _preconditions(request: Request) -> Preconditions:
    values = [request.headers.get(name) for name in sorted(_CONDITIONS)]
    if values == [None, None]:
        return NO_PRECONDITIONS
    generation, metageneration = (
        None if value is None else parse_number(name, value)
        for name, value in zip(sorted(_CONDITIONS), values, strict=True)
    )
    return Preconditions(generation_match=generation, metageneration_match=metageneration)
