"""The complete API, independent of sockets: maps requests to responses."""

import secrets
from collections import Counter
from collections.abc import Callable

import orjson

from memlite.testing.gcs_emulator.batch import answer_batch
from memlite.testing.gcs_emulator.buckets_api import BucketsApi
from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.messages import JSON, Request, Response, json_response
from memlite.testing.gcs_emulator.objects_api import ObjectsApi
from memlite.testing.gcs_emulator.partial import parse_fields, select_fields
from memlite.testing.gcs_emulator.routes import Route, find_route
from memlite.testing.gcs_emulator.store import Store
from memlite.testing.gcs_emulator.uploads_api import UploadsApi
from memlite.testing.gcs_emulator.xml_api import XmlApi, xml_error

__all__ = ["Api", "error_response"]

_TOKEN_SECONDS = 3599


class Api:
    """The methods the emulator supports.

    Args:
        store: the store they operate on.
        require_token: whether requests without ``Authorization: Bearer`` are refused. Any token is
            accepted.

    Attributes:
        operations: number of executed requests by operation, including failed ones.
    """

    def __init__(self, store: Store, *, require_token: bool = False) -> None:
        buckets, objects = BucketsApi(store), ObjectsApi(store)
        uploads, xml = UploadsApi(store), XmlApi(store)
        self.operations: Counter[str] = Counter()
        self._require_token = require_token
        self._methods: dict[str, Callable[..., Response]] = {
            "batch": self._batch,
            "buckets.delete": buckets.delete,
            "buckets.get": buckets.get,
            "buckets.insert": buckets.insert,
            "buckets.list": buckets.list,
            "buckets.patch": buckets.patch,
            "buckets.testPermissions": buckets.test_permissions,
            "buckets.update": buckets.update,
            "objects.cancel": uploads.cancel,
            "objects.compose": objects.compose,
            "objects.copy": objects.copy,
            "objects.delete": objects.delete,
            "objects.get": objects.get,
            "objects.insert": uploads.insert,
            "objects.list": objects.list,
            "objects.patch": objects.patch,
            "objects.resume": uploads.resume,
            "objects.rewrite": objects.rewrite,
            "objects.update": objects.update,
            "token": self._token,
            "xml.delete": xml.delete,
            "xml.get": xml.get,
            "xml.put": xml.put,
        }

    def handle(self, request: Request) -> Response:
        """Execute a request and return the response, which may be an error."""
        try:
            route = find_route(request.method, request.path)
        except GcsError as error:
            return error_response(error)
        return self.execute(route, request)

    def execute(self, route: Route, request: Request) -> Response:
        """Execute a request whose route is known, like `handle`."""
        self.operations[route.operation] += 1
        try:
            if self._require_token and route.operation != "token":
                _check_token(request)
            return self._call_method(route, request)
        except OSError as failure:  # from the disk
            return error_response(GcsError(500, "internalError", str(failure)), route.style)
        except GcsError as error:
            # Requests for content get plain-text errors.
            media = route.operation == "objects.get" and "alt=media" in request.target
            return error_response(error, "text" if media else route.style)

    def _call_method(self, route: Route, request: Request) -> Response:
        method = self._methods[route.operation]
        text = request.query.get("fields")
        if not text or route.style != "json" or request.query.get("alt") == "media":
            return method(request, *route.names)
        # Parse the selection first: a malformed one must not have side effects.
        fields = parse_fields(text)
        response = method(request, *route.names)
        if response.headers.get("Content-Type") == JSON:
            response.body = orjson.dumps(select_fields(orjson.loads(response.body), fields))
        return response

    def _token(self, request: Request) -> Response:
        """Answer like an OAuth 2 token endpoint (RFC 6749, 5.1), without authentication."""
        return json_response(
            {
                "access_token": secrets.token_urlsafe(24),
                "expires_in": _TOKEN_SECONDS,
                "token_type": "Bearer",
            }
        )

    def _batch(self, request: Request) -> Response:
        """Answer a batch request (https://cloud.google.com/storage/docs/batch)."""
        request.check(frozenset())
        return answer_batch(request, self.handle)


def _check_token(request: Request) -> None:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise GcsError(401, "required", "Login Required.", location=("header", "Authorization"))


def error_response(error: GcsError, style: str = "json") -> Response:
    """Return the response for an error.

    Args:
        error: the error.
        style: ``json``, ``xml``, or ``text``, which GCS uses for requests for content.
    """
    headers = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'}
    challenge = headers if error.status == 401 else {}
    if error.status == 304:
        return Response(304)
    if style == "xml":
        response = xml_error(error)
    elif style == "text":
        text = {"Content-Type": "text/html; charset=UTF-8"}
        response = Response(error.status, error.message.encode(), text)
    else:
        detail = {"message": error.message, "domain": error.domain, "reason": error.reason}
        if error.location:
            detail["locationType"], detail["location"] = error.location
        inner = {"code": error.status, "message": error.message, "errors": [detail]}
        response = json_response({"error": inner}, error.status)
    response.headers = {**response.headers, **challenge}
    return response
