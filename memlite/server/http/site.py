"""Requests and replies: access checks, routing by path, and the headers of every reply."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import orjson
from aiohttp import web

from memlite.core.logs import failure
from memlite.server.http.access import Access
from memlite.server.http.documents import Document

__all__ = ["HEADERS", "Page", "Site", "document_reply", "json_reply", "text_reply"]

_log = logging.getLogger("memlite")

Page = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Answers a request for one path."""

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "memlite",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of every reply. None of them lets pages of other origins read it."""

_NEVER: Final = re.compile(r"q\s*=\s*0(\.0*)?")


class Site:
    """Answers requests.

    Args:
        pages: the pages by path.
        access: the access control.
        open_paths: paths that are answered without a token.
    """

    def __init__(
        self, pages: Mapping[str, Page], access: Access, open_paths: frozenset[str]
    ) -> None:
        self._pages = pages
        self._access = access
        self._open_paths = open_paths

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the reply to a request; raises only if the connection is lost."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        page = self._pages.get(request.path)
        if page is None:
            return text_reply("not found", 404)
        try:
            return await page(request)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - the client must get a reply in any case
            _log.exception(
                "HTTP request for %s failed",
                request.path,
                extra=failure("http_request_failed", path=request.path),
            )
            return text_reply("internal error; see the server's log", 500)

    def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        """Return the reply that refuses a request; None if the request is allowed."""
        if request.method not in ("GET", "HEAD"):
            return text_reply("only GET and HEAD are supported", 405, {"Allow": "GET, HEAD"})
        access, headers = self._access, request.headers
        has_token = access.has_token(headers.get("Authorization", ""))
        hosts = headers.getall("Host", [])
        # Health checks of load balancers may send no name at all; browsers always send one.
        misnamed = len(hosts) > 1 or (bool(hosts) and not access.knows_host(hosts[0]))
        if misnamed and not has_token:
            return text_reply("unknown host name; allow it with --http-hosts", 421)
        crossing = headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        # Links to the page are allowed. Other requests from other sites are not.
        if crossing and (request.path != "/" or headers.get("Sec-Fetch-Mode") != "navigate"):
            return text_reply("cross-site requests are not allowed", 403)
        if access.needs_token and not has_token and request.path not in self._open_paths:
            return text_reply(
                "a token is required", 401, {"WWW-Authenticate": 'Basic realm="memlite"'}
            )
        return None


def text_reply(
    text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a reply of one line."""
    return web.Response(text=text + "\n", status=status, headers={**HEADERS, **(headers or {})})


def json_reply(value: object, status: int = 200) -> web.Response:
    """Return a reply in JSON."""
    return web.Response(
        body=orjson.dumps(value),
        status=status,
        content_type="application/json",
        headers=HEADERS,
    )


def document_reply(
    request: web.BaseRequest,
    document: Document,
    content_type: str,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a reply, compressed if the client accepts gzip."""
    found = {**HEADERS, "Content-Type": content_type, **(headers or {}), "Vary": "Accept-Encoding"}
    if not _reads_gzip(request.headers.get("Accept-Encoding", "")):
        return web.Response(body=document.plain, headers=found)
    found["Content-Encoding"] = "gzip"
    return web.Response(body=document.compressed, headers=found)


def _reads_gzip(accepted: str) -> bool:
    """Return whether an ``Accept-Encoding`` header allows gzip (RFC 9110, section 12.5.3)."""
    for one in accepted.lower().split(","):
        coding, _, weight = one.partition(";")
        if coding.strip() == "gzip":
            return not _NEVER.fullmatch(weight.strip())
    return False
