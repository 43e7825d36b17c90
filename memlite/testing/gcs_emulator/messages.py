"""HTTP requests and responses, independent of sockets, and request parsing common to both APIs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson
from multidict import CIMultiDict

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.preconditions import NO_PRECONDITIONS, Preconditions

__all__ = ["JSON", "Request", "Response", "json_response", "unquote"]

JSON = "application/json; charset=UTF-8"
"""The content type of JSON."""

_INT64 = range(2**63)
_JSON_HEADERS = {"Content-Type": JSON}
# Parameters common to all methods of the JSON API that control the response format or billing; it
# is safe to ignore them. https://cloud.google.com/storage/docs/json_api/v1/parameters
_HARMLESS = frozenset(
    ("alt", "fields", "key", "prettyPrint", "projection", "quotaUser", "userIp", "userProject")
)
# The headers starting with x-goog- that do not change the meaning of a request.
_KNOWN_GOOG_HEADERS = frozenset(
    (
        "x-goog-api-client",
        "x-goog-gcs-idempotency-token",
        "x-goog-hash",
        "x-goog-request-params",
        "x-goog-user-project",
    )
)
_GENERATION_PARAMETERS = (
    "GenerationMatch",
    "GenerationNotMatch",
    "MetagenerationMatch",
    "MetagenerationNotMatch",
)


class Request:
    """A complete HTTP request.

    Args:
        method: the method, in capitals.
        target: path and query as received, percent-encoded.
        headers: a case-insensitive mapping.
        body: the bytes of the body.

    Attributes:
        path: the path, still percent-encoded.
    """

    __slots__ = ("_query", "_query_text", "body", "headers", "method", "path", "target")

    def __init__(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.method = method
        self.target = target
        self.headers = CIMultiDict() if headers is None else headers
        self.body = body
        self.path, _, self._query_text = target.partition("?")
        self._query: Mapping[str, str] | None = None

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters; the last one wins if a parameter is repeated.

        Raises:
            GcsError: 400 if the query is malformed.
        """
        if self._query is None:
            self._query = _parse_query(self._query_text)
        return self._query

    @property
    def base_url(self) -> str:
        """The URL of the server as seen by the client."""
        return f"http://{self.headers.get('Host', 'localhost')}"

    def check(self, known: frozenset[str], known_headers: frozenset[str] = frozenset()) -> None:
        """Reject the request if it has unsupported parameters or headers that must not be ignored.

        Args:
            known: the parameters the method supports, besides those common to all methods.
            known_headers: the conditional and ``x-goog-`` headers the method supports, besides the
                harmless ones; in lower case. A trailing ``-`` makes a name a prefix.

        Raises:
            GcsError: 501 for an unsupported parameter or header.
        """
        for name in self.query.keys() - known:
            if name not in _HARMLESS:
                raise GcsError.not_emulated(f"the parameter {name!r} of this method")
        for name in self.headers:
            special = _special_header(name)
            if special and special not in known_headers:
                if special.startswith(tuple(text for text in known_headers if text[-1] == "-")):
                    continue
                raise GcsError.not_emulated(f"the header {name!r} with this method")

    def number(self, name: str) -> int | None:
        """Return a parameter that is a 63-bit number; None if it is missing.

        Raises:
            GcsError: 400 if it is not such a number.
        """
        text = self.query.get(name)
        return None if text is None else parse_number(name, text)

    def flag(self, name: str) -> bool:
        """Return whether a parameter is present and true.

        Raises:
            GcsError: 400 if it is not a boolean.
        """
        text = self.query.get(name, "false").lower()
        if text not in ("true", "false"):
            raise GcsError.invalid(f"Invalid value for the parameter {name}: {text!r}", name)
        return text == "true"

    def preconditions(self, prefix: str = "if") -> Preconditions:
        """Return the preconditions given as parameters.

        Args:
            prefix: ``if``, or ``ifSource`` for preconditions on the source of a copy.

        Raises:
            GcsError: 400 if one is not a number.
        """
        names = [prefix + name for name in _GENERATION_PARAMETERS]
        if self.query.keys().isdisjoint(names):
            return NO_PRECONDITIONS
        return Preconditions(*map(self.number, names))

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty one if there is no body.

        Raises:
            GcsError: 400 if it is not a JSON object.
        """
        return parse_json(self.body) if self.body else {}


@dataclass(slots=True)
class Response:
    """An HTTP response.

    Attributes:
        status: the status.
        body: the bytes of the body; not sent in response to HEAD.
        headers: all headers except Content-Length.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_response(value: object, status: int = 200) -> Response:
    """Return a response with `value` as JSON."""
    return Response(status, orjson.dumps(value), _JSON_HEADERS)


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        GcsError: 400 if `body` is not a JSON object.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise GcsError(400, "parseError", "Parse Error") from None
    if not isinstance(value, dict):
        raise GcsError(400, "parseError", "Parse Error")
    return value


def parse_number(name: str, text: str) -> int:
    """Parse a generation or another 63-bit number.

    Raises:
        GcsError: 400, naming the parameter `name`.
    """
    if not (text.isascii() and text.isdigit() and int(text[:20]) in _INT64):
        raise GcsError.invalid(f"Invalid value for the parameter {name}: {text!r}", name)
    return int(text)


def unquote(text: str) -> str:
    """Decode a percent-encoded name; ``+`` is literal.

    Raises:
        GcsError: 400 if the name is not UTF-8.
    """
    if "%" not in text and text.isascii():
        return text
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise GcsError.invalid("The name is not UTF-8.", "name") from None


@lru_cache(maxsize=1024)
def _special_header(name: str) -> str:
    """Return the header name in lower case if it must not be ignored, else ""."""
    lower = name.lower()
    if lower.startswith("x-goog-"):
        return "" if lower in _KNOWN_GOOG_HEADERS else lower
    return lower if lower.startswith("if-") or lower == "x-http-method-override" else ""


@lru_cache(maxsize=1024)
def _parse_query(text: str) -> Mapping[str, str]:
    # Cached, because most requests have one of a few queries, such as "alt=media".
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except (UnicodeDecodeError, ValueError):
        raise GcsError.invalid("The query is malformed.") from None
    return MappingProxyType(dict(pairs))
