"""The dashboard: one page, its style and its scripts, all served by this server."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from aiohttp import web

from memlite.server.http.documents import Document
from memlite.server.http.site import Page, document_reply

__all__ = ["dashboard"]

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SCRIPTS: Final = ("dashboard.js", "charts.js", "elements.js", "proxy.js", "text.js")
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/dashboard.css": ("dashboard.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in _SCRIPTS},
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}


def dashboard() -> Mapping[str, Page]:
    """Return the pages by path; reads the files immediately."""
    folder = files("memlite.server.http") / "page"
    return {
        path: _page(Document((folder / name).read_bytes()), kind)
        for path, (name, kind) in _FILES.items()
    }


def _page(document: Document, kind: str) -> Page:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return document_reply(request, document, kind, {"Content-Security-Policy": _POLICY})

    return answer
