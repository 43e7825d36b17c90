"""The HTTP side of a server or proxy: puts its parts together, starts and stops them."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web

from memlite.server.http.access import Access
from memlite.server.http.api import Api
from memlite.server.http.dashboard import dashboard
from memlite.server.http.documents import Recent
from memlite.server.http.door import Door, HttpListener
from memlite.server.http.health import Health
from memlite.server.http.history import Recorder
from memlite.server.http.site import Page, Site, document_reply, json_reply, text_reply
from memlite.telemetry.metrics.exposition import OPENMETRICS, TEXT, render, wants_openmetrics
from memlite.telemetry.metrics.metric import Metric
from memlite.telemetry.slow import SlowStats
from memlite.telemetry.snapshot import HotKeysStats, HttpStats, Snapshot

if TYPE_CHECKING:
    from memlite.server.http.debug import Debug

__all__ = ["HttpService", "HttpSources"]

_OPEN_PATHS: Final = frozenset(("/healthz", "/readyz"))
_STARTING: Final = "starting"
_MAX_LINE_LENGTH: Final = 2048
_MAX_HEADERS: Final = 64
_log = logging.getLogger("memlite.http")
# Errors caused by malformed requests are reported to the client, not logged.
_log.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class HttpSources:
    """The sources of the data shown.

    Attributes:
        snapshot: returns the server's figures.
        health: tells whether the server should receive requests.
        hot_keys: returns the most requested keys.
        slow: returns the last slow commands; None without a slow log.
        metrics: the metrics shown.
    """

    snapshot: Callable[[], Snapshot]
    health: Health
    hot_keys: Callable[[], HotKeysStats]
    slow: Callable[[], SlowStats | None]
    metrics: Sequence[Metric]


class _Protocol(web.RequestHandler):
    """Replies to malformed requests in the usual form, without echoing their content."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("part of a reply was sent")
        reply = text_reply("malformed request" if status < 500 else "failed", status)
        reply.force_close()
        return reply


class HttpService:
    """Serves HTTP on the server's event loop.

    Args:
        listeners: the sockets.
        context: returns the TLS settings of a new connection, by the kind of TLS.
        access: the access control.
        sources: the data to show.
        shows_keys: whether to show the names of hot keys.
        debug: whether to serve information about the internals of the process.
    """

    def __init__(
        self,
        listeners: Sequence[HttpListener],
        context: Callable[[str], ssl.SSLContext],
        access: Access,
        sources: HttpSources,
        *,
        shows_keys: bool,
        debug: bool = False,
    ) -> None:
        self._listeners = listeners
        self._context = context
        self._access = access
        self._sources = sources
        self._texts = {
            openmetrics: Recent(partial(self._render, openmetrics), time.monotonic)
            for openmetrics in (False, True)
        }
        self._recorder = Recorder(sources.snapshot)
        api = Api(self._recorder, sources.hot_keys, sources.slow, shows_keys=shows_keys)
        pages: dict[str, Page] = {
            **dashboard(),
            **api.pages(),
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/metrics": self._scrape,
        }
        self._debug = _debug(access) if debug else None
        if self._debug is not None:
            pages.update(self._debug.pages())
        self._site = Site(pages, access, _OPEN_PATHS)
        self._door: Door | None = None
        self._started = False

    def listen(self) -> None:
        """Accept connections; until `start`, only probes are answered, as there are no figures."""
        self._door = Door(self._listeners, self._context, self._protocol_maker())
        self._door.open()

    def start(self) -> None:
        """Answer all requests; accept connections if `listen` was not called."""
        self._recorder.start()
        if self._debug is not None:
            self._debug.start()
        self._started = True
        if self._door is None:
            self.listen()

    def stop(self) -> None:
        """Close all connections."""
        if self._door is not None:
            self._recorder.stop()
            self._door.close()
        if self._debug is not None:
            self._debug.stop()

    def unfinished(self) -> bool:
        """Return whether replies are in progress, except streams of events, which do not end."""
        return self._door is not None and self._door.unfinished > self._recorder.followers

    def _protocol_maker(self) -> Callable[[], web.RequestHandler]:
        server = web.Server(self._serve)
        return partial(
            _Protocol,
            server,
            loop=asyncio.get_running_loop(),
            access_log=_log,  # its level suppresses all of it
            logger=_log,
            max_line_size=_MAX_LINE_LENGTH,
            max_field_size=_MAX_LINE_LENGTH,
            max_headers=_MAX_HEADERS,
            lingering_time=0.0,
            auto_decompress=False,
        )

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        guard = self._door.guard_of(request.protocol) if self._door is not None else None
        if guard is None:
            raise ConnectionResetError
        guard.began()
        if self._access.has_token(request.headers.get("Authorization", "")):
            guard.trusted = True
        try:
            if not self._started and request.path not in _OPEN_PATHS:
                return text_reply(_STARTING, 503)
            return await self._site.answer(request)
        finally:
            guard.ended()

    async def _alive(self, request: web.BaseRequest) -> web.StreamResponse:
        return text_reply("alive")

    async def _ready(self, request: web.BaseRequest) -> web.StreamResponse:
        troubles = await self._sources.health.troubles() if self._started else (_STARTING,)
        return json_reply({"ready": not troubles, "reasons": troubles}, 503 if troubles else 200)

    async def _scrape(self, request: web.BaseRequest) -> web.StreamResponse:
        openmetrics = wants_openmetrics(request.headers.get("Accept", ""))
        document = self._texts[openmetrics].document()
        return document_reply(request, document, OPENMETRICS if openmetrics else TEXT)

    def snapshot(self) -> Snapshot:
        """Return the server's figures, including the figures of this port."""
        snapshot = self._sources.snapshot()
        if self._door is None:
            return snapshot
        return replace(snapshot, http=HttpStats(self._door.refused, self._door.displaced))

    def _render(self, openmetrics: bool) -> bytes:
        return render(self._sources.metrics, self.snapshot(), openmetrics=openmetrics)


def _debug(access: Access) -> "Debug":
    from memlite.server.http.debug import Debug  # imports profilers, so only on demand

    return Debug(access)
