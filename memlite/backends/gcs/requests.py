"""Requests to the storage API, with bounded concurrency, timeouts and retries.

For retries, see https://cloud.google.com/storage/docs/retry-strategy.
"""

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import monotonic, perf_counter_ns
from typing import NamedTuple

import aiohttp
import orjson
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from multidict import istr
from yarl import URL

from memlite.backends.gcs.credentials import Authorization, NoTokenError
from memlite.backends.remote.breaker import Breaker
from memlite.backends.remote.call import Call, TimeLimits, Turns
from memlite.core.errors import StorageError

__all__ = ["Reply", "Requests"]

_MAX_TEXT = 200
# Larger bodies are passed as streams: aiohttp sends them in pieces, so other tasks can run.
_ONE_WRITE = 512 * 1024
_GENERATION = istr("X-Goog-Generation")
_NO_REPLY = 0
_AGAIN = frozenset((_NO_REPLY, 401, 408, 429, 500, 502, 503, 504))
# Responses and errors that mean that the request was not carried out. After any other failure, a
# write may have happened.
_NOT_DONE = frozenset((401, 429))
_NOT_SENT = (aiohttp.ClientConnectorError, NoTokenError)
_NO_BUCKET = b"bucket does not exist"


class Reply(NamedTuple):
    """A response.

    Attributes:
        status: the HTTP status; 0 for no response.
        generation: the generation of the object, if the response has one, else 0.
        body: the content of the object, or any other body.
    """

    status: int
    generation: int = 0
    body: bytes = b""


class Requests:
    """Makes requests, and retries them.

    Args:
        breaker: consulted before each request, and informed of its outcome.
        timeout: seconds after which a request is aborted.
        concurrency: number of requests that may be in progress at once.

    Attributes:
        counts: failures and retries, and the caller's own counts.
        turns: bounds the requests in progress, and counts them.
        record: called with the duration of each attempt, by method; see `Backend.measure`.
    """

    def __init__(self, breaker: Breaker, *, timeout: float, concurrency: int) -> None:
        self.counts: Counter[str] = Counter()
        self._breaker = breaker
        self._timeout = timeout
        self.turns = Turns(concurrency)
        self._limits = TimeLimits()
        self.record: Callable[[str, str, int], None] | None = None

    _session: aiohttp.ClientSession
    _authorization: Authorization

    def open(self, authorization: Authorization) -> None:
        """Prepare for requests; the event loop must be running."""
        self._authorization = authorization
        self._session = aiohttp.ClientSession(
            # Concurrency and timeouts are handled in this module.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # All headers are given, so that aiohttp adds none; compression is off.
            headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "memlite"},
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._authorization.close()

    async def ask(
        self,
        call: Call,
        method: str,
        url: str,
        answers: tuple[int, ...],
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        blindly: bool = True,
    ) -> Reply:
        """Make a request, and retry it until there is a conclusive response.

        Args:
            call: the operation it belongs to.
            method: in capitals; every method except GET changes something.
            url: percent-encoded.
            answers: the statuses that are conclusive.
            data: the body to send.
            headers: in addition to those for authorization.
            blindly: whether to retry even if the outcome of the last attempt is uncertain.

        Returns:
            A response with one of `answers`. Without `blindly`, possibly one with another status,
            after an attempt whose outcome is uncertain.

        Raises:
            StorageError: any other response, or no response within the call's time.
        """
        address = URL(url, encoded=True)
        while True:
            reply = await self._try(call, method, address, data, headers)
            status = reply.status
            if status in answers and (status != 404 or _NO_BUCKET not in reply.body):
                return reply
            if status not in _AGAIN:
                raise self.refusal(call, reply)
            await call.pause()
            if call.uncertain and not blindly:
                return reply
            self.counts["retries"] += 1

    async def _try(
        self,
        call: Call,
        method: str,
        url: URL,
        data: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> Reply:
        await self.turns.take(call)
        began = perf_counter_ns() if self.record is not None else 0
        try:
            if self._breaker.is_open and not self._breaker.lets_through():
                raise call.error("unavailable")
            authorization = self._authorization
            fresh = authorization.clock() < authorization.renew_at
            authorized = authorization.current if fresh else await authorization.headers()
            due = min(monotonic() + self._timeout, call.due)
            sent = {**authorized, **headers} if headers else authorized
            reply = await self._limits.run(self._send(method, url, data, sent), due)
            if reply.status == 401:
                authorization.reject(authorized)
        except (aiohttp.ClientError, TimeoutError, NoTokenError) as error:
            reply = Reply(_NO_REPLY)
            call.trouble = _reason(error)
            call.uncertain |= method != "GET" and not isinstance(error, _NOT_SENT)
        finally:
            self.turns.give_back()
        if self.record is not None:
            outcome = "failed" if reply.status in _AGAIN else "ok"
            self.record(method.lower(), outcome, perf_counter_ns() - began)
        if reply.status in _AGAIN:
            self._count_failure(call, method, reply.status)
        elif self._breaker.recent_failures:
            self._breaker.succeeded()
        return reply

    async def _send(
        self, method: str, url: URL, data: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        response = await self._session.request(
            method,
            url,
            data=data if data is None or len(data) <= _ONE_WRITE else io.BytesIO(data),
            headers=headers,
            allow_redirects=False,
            middlewares=_ONCE if method == "DELETE" else (),
        )
        body = await response.read()  # gives the connection back, or closes it
        return Reply(response.status, int(response.headers.get(_GENERATION, 0)), body)

    def _count_failure(self, call: Call, method: str, status: int) -> None:
        if status != _NO_REPLY:
            call.trouble = f"{status} {_phrase(status)}"
            call.uncertain |= method != "GET" and status not in _NOT_DONE
        if status in _NOT_DONE:
            self._breaker.succeeded()
            self.counts["throttled"] += status == 429
        else:
            self._breaker.failed()
            self.counts["failures"] += 1

    def refusal(self, call: Call, reply: Reply) -> StorageError:
        """Return an error with the message of a response."""
        self.counts["refusals"] += 1
        text = reply.body.decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = str(orjson.loads(reply.body)["error"]["message"])
        text = " ".join(text.split())[:_MAX_TEXT]
        return call.error(f"{reply.status} {text or _phrase(reply.status)}")


async def _once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Keep aiohttp from silently repeating a request whose connection was cut.

    It repeats idempotent methods. If a DELETE was carried out but not acknowledged, the repetition
    would get 404 or 412, as if the first attempt had.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if isinstance(error, aiohttp.ClientConnectorError):
            raise
        raise aiohttp.ClientConnectionError(_reason(error)) from error


_ONCE = (_once,)


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.strerror or error}"
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"
