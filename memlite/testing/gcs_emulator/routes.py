"""Routing: map a request's method and path to an operation."""

from typing import NamedTuple

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.messages import unquote

__all__ = ["READ_OPERATIONS", "Route", "find_route"]

READ_OPERATIONS = frozenset(("objects.get", "objects.list", "xml.get"))
"""The operations on objects that are reads; all others on objects are writes."""

_ON_BUCKETS = {"GET": "buckets.list", "POST": "buckets.insert"}
_ON_BUCKET = {
    "GET": "buckets.get",
    "PATCH": "buckets.patch",
    "PUT": "buckets.update",
    "DELETE": "buckets.delete",
}
_ON_OBJECTS = {"GET": "objects.list"}
_ON_OBJECT = {
    "GET": "objects.get",
    "PATCH": "objects.patch",
    "PUT": "objects.update",
    "DELETE": "objects.delete",
}
_UPLOADS = {"POST": "objects.insert", "PUT": "objects.resume", "DELETE": "objects.cancel"}
_XML = {"GET": "xml.get", "HEAD": "xml.get", "PUT": "xml.put", "DELETE": "xml.delete"}
_COPIES = {"copyTo": {"POST": "objects.copy"}, "rewriteTo": {"POST": "objects.rewrite"}}
_RESERVED = frozenset(("batch", "download", "resumable", "storage", "upload", "token", "_emulator"))


class Route(NamedTuple):
    """The operation a request is for.

    Attributes:
        operation: a name from the JSON API's reference, such as ``objects.get``; for the XML API
            ``xml.get``, ``xml.put`` or ``xml.delete``.
        names: the names of bucket and object, then those of a copy's destination.
        style: the format of errors: ``json``, ``text`` or ``xml``.
    """

    operation: str
    names: tuple[str, ...] = ()
    style: str = "json"

    @property
    def on_objects(self) -> bool:
        """Whether the operation concerns objects, rather than buckets or tokens."""
        return not self.operation.startswith(("buckets.", "token"))


def find_route(method: str, path: str) -> Route:
    """Find the route for a request.

    Args:
        method: the HTTP method, in capitals.
        path: the path as received, percent-encoded, without the query.

    Raises:
        GcsError: 400, 404, or 501 for an unsupported operation.
    """
    parts = path.split("/")
    match parts:
        case ["", "storage", "v1", "b", bucket, "o", name] if name:
            return _route(_ON_OBJECT, method, bucket, name)
        case ["", "download", "storage", "v1", "b", bucket, "o", name] if name:
            return _route({"GET": "objects.get"}, method, bucket, name)
        case ["", "upload", "storage", "v1", "b", bucket, "o"]:
            return _route(_UPLOADS, method, bucket)
        case ["", "resumable", "upload", "storage", "v1", "b", bucket, "o"]:
            return _route(_UPLOADS, method, bucket)
        case ["", "storage", "v1", "b", bucket, "o"]:
            return _route(_ON_OBJECTS, method, bucket)
        case ["", "storage", "v1", "b"]:
            return _route(_ON_BUCKETS, method)
        case ["", "storage", "v1", "b", bucket]:
            return _route(_ON_BUCKET, method, bucket)
        case ["", "storage", "v1", "b", bucket, "iam", "testPermissions"]:
            return _route({"GET": "buckets.testPermissions"}, method, bucket)
        case ["", "storage", "v1", "b", bucket, "o", name, "compose"]:
            return _route({"POST": "objects.compose"}, method, bucket, name)
        case ["", "storage", "v1", "b", bucket, "o", name, verb, "b", to_bucket, "o", to_name]:
            return _route(_COPIES.get(verb, {}), method, bucket, name, to_bucket, to_name)
        case ["", "batch", "storage", "v1"]:
            return _route({"POST": "batch"}, method)
        case ["", "token"]:
            return _route({"POST": "token"}, method)
        case ["", bucket, *rest] if bucket not in _RESERVED and any(rest):
            return _route(_XML, method, bucket, "/".join(rest), style="xml")
        case ["", "storage", "v1", *rest] if rest:
            raise GcsError.not_emulated(f"the path {path!r}")
        case ["", bucket, *_] if bucket and bucket not in _RESERVED:
            raise GcsError.not_emulated("the XML API's methods on buckets")
        case _:
            raise GcsError.unknown_path()


def _route(operations: dict[str, str], method: str, *names: str, style: str = "json") -> Route:
    operation = operations.get(method)
    if operation is None:
        raise GcsError.not_emulated(f"the method {method} for this path")
    return Route(operation, tuple(map(unquote, names)), style)
