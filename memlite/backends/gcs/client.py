"""Requests to the bucket: few at once, none for long, the failed ones again.

The methods and their parameters are those of
https://cloud.google.com/storage/docs/json_api/v1/objects; what may be tried again, and how, is in
https://cloud.google.com/storage/docs/retry-strategy.
"""

import asyncio
import contextlib
import io
import random
from collections import Counter
from datetime import UTC, datetime
from http import HTTPStatus
from secrets import token_hex
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

import aiohttp
import orjson
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from yarl import URL

from memlite.backends.gcs.breaker import Breaker
from memlite.backends.gcs.credentials import Authorization, NoTokenError
from memlite.backends.gcs.options import Options
from memlite.errors import StorageError

__all__ = ["BucketClient", "Call", "Reply"]

# Pauses between tries: a random part of the first, of twice that, and so on ("full jitter",
# https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_PAGE = 1000
# Larger bodies aiohttp sends in pieces, and others get their turn.
_ONE_WRITE = 512 * 1024
_TEXT_AT_MOST = 200
# The year 9999, where RFC 3339 ends.
_LATEST = 253402300799.0
_NO_REPLY = 0
_AGAIN = frozenset((_NO_REPLY, 401, 408, 429, 500, 502, 503, 504))
# Answers that tell that nothing was done; after any other failure a write may have happened.
_NOT_DONE = frozenset((401, 429))
_READ = (200, 304, 404)
_WRITTEN = (200, 412)
_REMOVED = (200, 204, 404, 412)  # the bucket says 204; some emulators say 200
_LISTED = (200,)
_NO_BUCKET = b"bucket does not exist"


class Reply(NamedTuple):
    """What came back.

    Attributes:
        status: HTTP's; 0 when nothing came.
        generation: the object's, where the answer has one, else 0.
        body: the content, or what else was sent.
    """

    status: int
    generation: int = 0
    body: bytes = b""


class Call:
    """An operation: the time it has for all of its tries, and what they came to.

    Use it as an async context manager around all that is done for the operation.

    Args:
        seconds: the time.

    Attributes:
        uncertain: whether a try failed in a way that leaves open whether it was carried out.
        trouble: how the last failed try failed; empty when there is none.
    """

    __slots__ = ("_seconds", "_timeout", "_tries", "trouble", "uncertain")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)
        self._tries = 0
        self.uncertain = False
        self.trouble = ""

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            trouble = self.trouble or "no answer"
            raise self.error(f"{trouble} for {self._seconds:g} s") from None

    @property
    def expired(self) -> bool:
        """Whether the time is up."""
        return self._timeout.expired()

    def error(self, text: str) -> StorageError:
        """Return the error that says so, and in what state things are left."""
        doubt = "; the change may have been made or not" if self.uncertain else ""
        return StorageError(f"bucket: {text}{doubt}")

    async def pause(self) -> None:
        """Wait before another try."""
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._tries)
        self._tries += 1
        await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret


class BucketClient:
    """The objects of a bucket under a prefix, by the rest of their names.

    Args:
        options: which, where, and how patiently.
        breaker: asked before each request, and told how it went.

    Attributes:
        counts: what was asked and what went wrong; its keys are those of ``stats backend``.
        in_flight: requests under way.
    """

    def __init__(self, options: Options, breaker: Breaker) -> None:
        self.counts: Counter[str] = Counter()
        self.in_flight = 0
        self._options = options
        self._breaker = breaker
        self._turns = asyncio.Semaphore(options.concurrency)
        root = f"{options.endpoint}/storage/v1/b/{options.bucket}/o"
        prefix = quote(options.prefix, safe="")
        self._object = f"{root}/{prefix}"
        self._upload = (
            f"{options.endpoint}/upload/storage/v1/b/{options.bucket}/o"
            f"?uploadType=multipart&fields=generation&name={prefix}"
        )
        self._list = (
            f"{root}?delimiter=%2F&maxResults={_PAGE}&prefix={prefix}"
            "&fields=nextPageToken%2Citems%2Fname"
        )
        # Not to be known by those whose values go between two of them.
        self._boundary = token_hex(16)
        self._upload_type = {"Content-Type": f"multipart/related; boundary={self._boundary}"}

    _session: aiohttp.ClientSession
    _authorization: Authorization

    def open(self, authorization: Authorization) -> None:
        """Get ready, with the loop running."""
        self._authorization = authorization
        self._session = aiohttp.ClientSession(
            # How many there are is seen to here.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            timeout=aiohttp.ClientTimeout(total=self._options.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"User-Agent": "memlite"},
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._authorization.close()

    def call(self) -> Call:
        """Begin an operation."""
        return Call(self._options.deadline)

    # Objects. Each of these raises StorageError when the bucket refuses, or cannot be reached.

    async def read(self, call: Call, name: str, unless: int | None = None) -> Reply:
        """Read an object.

        Args:
            call: what it is for.
            name: the object's.
            unless: a generation that need not be sent.

        Returns:
            A reply of the status 200, 304 or 404.
        """
        self.counts["class_b_operations"] += 1
        condition = "" if unless is None else f"&ifGenerationNotMatch={unless}"
        url = f"{self._object}{name}?alt=media{condition}"
        reply = await self._until_answered(call, "GET", url, _READ)
        if reply.status == 200 and not reply.generation:
            raise self._refusal(call, reply)
        return reply

    async def write(
        self, call: Call, name: str, body: bytes, expect: int | None, expires: float = 0.0
    ) -> Reply:
        """Write an object.

        Args:
            call: what it is for.
            name: the object's.
            body: its content.
            expect: the generation it must have now; 0 if there must be none, None for any.
            expires: unix time in seconds for its ``customTime``, 0 for none.

        Returns:
            A reply of the status 200, with the new generation, or 412. With `expect` None, also
            one of another status, after a failure that leaves open whether it was written: what
            is there now may be somebody else's, and must be looked at before another try.
        """
        self.counts["class_a_operations"] += 1
        condition = "" if expect is None else f"&ifGenerationMatch={expect}"
        # What is sent with an object begins with what is to be known about it.
        data = b"".join(
            (
                f"--{self._boundary}\r\nContent-Type: application/json\r\n\r\n".encode(),
                _attributes(expires),
                f"\r\n--{self._boundary}\r\n"
                "Content-Type: application/octet-stream\r\n\r\n".encode(),
                body,
                f"\r\n--{self._boundary}--".encode(),
            )
        )
        url = f"{self._upload}{name}{condition}"
        blindly = expect is not None
        reply = await self._until_answered(call, "POST", url, _WRITTEN, data, blindly=blindly)
        if reply.status != 200:
            return reply
        try:
            return reply._replace(generation=int(orjson.loads(reply.body)["generation"]))
        except (ValueError, KeyError, TypeError):
            raise self._refusal(call, reply) from None

    async def remove(self, call: Call, name: str, expect: int | None) -> Reply:
        """Remove an object; `expect` is as for `write`.

        Returns:
            A reply of the status 204 (or 200), 404 or 412.
        """
        self.counts["deletions"] += 1
        condition = "" if expect is None else f"?ifGenerationMatch={expect}"
        url = f"{self._object}{name}{condition}"
        return await self._until_answered(call, "DELETE", url, _REMOVED)

    async def names(self, call: Call, page: str = "") -> tuple[list[str], str]:
        """Return names of objects, and the page on which there are more; empty at the end."""
        self.counts["class_a_operations"] += 1
        url = f"{self._list}&pageToken={quote(page, safe='')}" if page else self._list
        reply = await self._until_answered(call, "GET", url, _LISTED)
        answer = orjson.loads(reply.body)
        skipped = len(self._options.prefix)
        names = [item["name"][skipped:] for item in answer.get("items", ())]
        return names, answer.get("nextPageToken", "")

    # Tries

    async def _until_answered(
        self,
        call: Call,
        method: str,
        url: str,
        answers: tuple[int, ...],
        data: bytes | None = None,
        *,
        blindly: bool = True,
    ) -> Reply:
        """Try until there is an answer to go by.

        Args:
            call: what it is for.
            method: in capitals.
            url: percent-encoded.
            answers: the statuses to go by.
            data: to send.
            blindly: whether it may be tried again without knowing what the last try did.
        """
        address = URL(url, encoded=True)
        while True:
            reply = await self._try(call, method, address, data)
            status = reply.status
            if status not in _AGAIN:
                break
            await call.pause()
            if call.uncertain and not blindly:
                return reply
            self.counts["retries"] += 1
        if status in answers and not (status == 404 and _NO_BUCKET in reply.body):
            return reply
        raise self._refusal(call, reply)

    async def _try(self, call: Call, method: str, url: URL, data: bytes | None) -> Reply:
        changes = method != "GET"
        async with self._turns:
            if not self._breaker.lets_through():
                raise call.error("unavailable")
            self.in_flight += 1
            try:
                reply = await self._send(method, url, data)
            except aiohttp.ClientConnectorError as error:
                reply = Reply(_NO_REPLY)
                call.trouble = f"cannot connect: {error.strerror or error}"
            except (aiohttp.ClientError, TimeoutError) as error:
                reply = Reply(_NO_REPLY)
                call.uncertain |= changes
                call.trouble = _reason(error)
            except NoTokenError as error:
                reply = Reply(_NO_REPLY)
                call.trouble = str(error)
            except asyncio.CancelledError:
                call.uncertain |= changes
                if call.expired:
                    self._breaker.failed()
                raise
            finally:
                self.in_flight -= 1
        status = reply.status
        if status >= 500 or status in (_NO_REPLY, 408):
            self._breaker.failed()
            self.counts["failures"] += 1
        else:
            self._breaker.succeeded()
        if status in _AGAIN and status != _NO_REPLY:
            call.trouble = f"{status} {_phrase(status)}"
            call.uncertain |= changes and status not in _NOT_DONE
            self.counts["throttled"] += status == 429
        return reply

    async def _send(self, method: str, url: URL, data: bytes | None) -> Reply:
        headers = await self._authorization.headers()
        async with self._session.request(
            method,
            url,
            data=data if data is None or len(data) <= _ONE_WRITE else io.BytesIO(data),
            headers=headers if data is None else {**headers, **self._upload_type},
            allow_redirects=False,
            middlewares=_ONCE if method == "DELETE" else (),
        ) as response:
            body = await response.read()
            status = response.status
            if status == 401:
                self._authorization.reject(headers)
            return Reply(status, int(response.headers.get("X-Goog-Generation", 0)), body)

    def _refusal(self, call: Call, reply: Reply) -> StorageError:
        self.counts["refusals"] += 1
        text = reply.body.decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = str(orjson.loads(reply.body)["error"]["message"])
        text = " ".join(text.split())[:_TEXT_AT_MOST]
        return call.error(f"{reply.status} {text or _phrase(reply.status)}")


async def _once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Keep aiohttp from repeating a request, unseen, whose connection was cut.

    It does that for methods that are idempotent. A DELETE that was carried out and not
    acknowledged would then be answered by 404 or 412 as if by the first.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if isinstance(error, aiohttp.ClientConnectorError):
            raise
        raise aiohttp.ClientConnectionError(_reason(error)) from error


_ONCE = (_once,)


def _attributes(expires: float) -> bytes:
    if not expires:
        return b"{}"
    moment = datetime.fromtimestamp(min(expires, _LATEST), UTC).replace(tzinfo=None)
    return f'{{"customTime":"{moment.isoformat()}Z"}}'.encode()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return str(error) or type(error).__name__


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"
