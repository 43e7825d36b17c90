"""The emulator as an HTTP server."""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

from memlite.core.errors import StartError
from memlite.testing.gcs_emulator.api import Api, error_response
from memlite.testing.gcs_emulator.control import PREFIX, Control
from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.faults import Faults
from memlite.testing.gcs_emulator.messages import Request, Response
from memlite.testing.gcs_emulator.routes import READ_OPERATIONS, Route, find_route
from memlite.testing.gcs_emulator.store import Store

__all__ = ["GcsEmulator"]

_log = logging.getLogger("memlite.gcs_emulator")

# Request bodies are held in memory; larger ones are rejected.
MAX_BODY_BYTES = 1 << 30
_STOP_SECONDS = 1.0
_HANG_POLL_SECONDS = 0.02
_LINGER_0 = struct.pack("ii", 1, 0)


class GcsEmulator:
    """A strict emulator of Google Cloud Storage.

    Use it as an async context manager, or with `start` and `stop`. After `stop` it can be started
    again, on the same port and with the same contents.

    Args:
        buckets: names of buckets to create if they do not exist.
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        store: the contents (default: an empty store).
        faults: the faults to inject (default: none).
        require_token: whether requests need ``Authorization: Bearer`` with any token.

    Attributes:
        store: the contents. Must not be changed from other threads.
        faults: the faults. May be changed at any time, from any thread.
    """

    def __init__(
        self,
        buckets: Iterable[str] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        store: Store | None = None,
        faults: Faults | None = None,
        require_token: bool = False,
    ) -> None:
        self.store = store or Store()
        self.faults = faults or Faults()
        self._host = host
        self._port = port
        self._api = Api(self.store, require_token=require_token)
        self._control = Control(self.faults, self._api.operations)
        self._late: set[asyncio.TimerHandle] = set()
        self._listener: asyncio.Server | None = None
        self._server: web.Server | None = None
        for name in buckets:
            if name not in self.store.buckets:
                self.store.insert_bucket(name)

    @property
    def url(self) -> str:
        """The URL of the server, for STORAGE_EMULATOR_HOST or as a client's API endpoint."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def operations(self) -> Counter[str]:
        """Number of requests that reached the API, by operation (``objects.get``, …)."""
        return self._api.operations

    async def start(self) -> None:
        """Start listening.

        Raises:
            StartError: the address or port is not available.
        """
        loop = asyncio.get_running_loop()
        self._server = web.Server(
            self._serve,
            request_factory=_make_request,
            access_log=None,
            # Gzipped uploads are stored unchanged.
            auto_decompress=False,
        )
        try:
            self._listener = await loop.create_server(
                self._server, self._host, self._port, backlog=1024
            )
        except (OSError, UnicodeError) as error:
            raise StartError(
                f"failed to listen on port {self._port} of {self._host}: {_reason(error)}"
            ) from None
        self._port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, close all connections, and drop late requests."""
        if self._listener is None or self._server is None:
            return
        while self._late:
            self._late.pop().cancel()
        self._listener.close()
        await self._server.shutdown(_STOP_SECONDS)
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration
        self._listener = self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.stop()

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        if incoming.headers.get("Expect", "").lower() == "100-continue" and incoming.transport:
            incoming.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = Request(
            incoming.method, incoming.raw_path, incoming.headers, await incoming.read()
        )
        response = await self._answer(request)
        if response is None:
            _reset(incoming.transport)
            return web.Response()
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s %s %d", request.method, request.target, response.status)
        return web.Response(
            status=response.status, body=response.body or None, headers=response.headers
        )

    async def _answer(self, request: Request) -> Response | None:
        """Return the response; None to reset the connection."""
        try:
            if request.target.startswith(PREFIX):
                return self._control.handle(request)
            route = find_route(request.method, request.path)
        except GcsError as error:
            return error_response(error)
        decision = self.faults.decide(
            on_objects=route.on_objects, reads=route.operation in READ_OPERATIONS
        )
        if decision.delay:
            await asyncio.sleep(decision.delay)
        if decision.action == "serve":
            return self._api.execute(route, request)
        _log.info("%s %s: fault %s", request.method, request.target, decision.action)
        if decision.action == "error":
            return _fault_response(decision.status, route)
        if decision.action == "hang":
            # Polled, because faults are independent of event loops.
            while self.faults.outage == "hang":  # noqa: ASYNC110
                await asyncio.sleep(_HANG_POLL_SECONDS)
        elif decision.action in ("lose-503", "lose-reset"):
            self._api.execute(route, request)
            if decision.action == "lose-503":
                return _fault_response(503, route)
        elif decision.action == "late":
            self._execute_later(decision.late, route, request)
        return None

    def _execute_later(self, seconds: float, route: Route, request: Request) -> None:
        def execute() -> None:
            self._late.discard(timer)
            self._api.execute(route, request)

        timer = asyncio.get_running_loop().call_later(seconds, execute)
        self._late.add(timer)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "not a host name"
    # asyncio adds the address to the text again; look-up errors are negative.
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else error.strerror) or str(error)


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )


def _fault_response(status: int, route: Route) -> Response:
    reasons = {429: "rateLimitExceeded", 500: "internalError", 503: "backendError"}
    error = GcsError(status, reasons.get(status, "injected"), f"Injected fault {status}.")
    return error_response(error, route.style)


def _reset(transport: asyncio.Transport | None) -> None:
    """Abort the connection so that the peer sees a reset instead of an orderly close."""
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
    transport.abort()
