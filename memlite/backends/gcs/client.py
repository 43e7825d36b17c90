"""The objects of a bucket: read, write, remove and list.

The methods and their parameters are those of
https://cloud.google.com/storage/docs/json_api/v1/objects.
"""

from datetime import UTC, datetime
from secrets import token_hex
from urllib.parse import quote

import orjson

from memlite.backends.gcs.credentials import Authorization
from memlite.backends.gcs.options import Options
from memlite.backends.gcs.requests import Reply, Requests
from memlite.backends.remote.breaker import Breaker
from memlite.backends.remote.call import Call

__all__ = ["BucketClient"]

_PAGE = 1000
# The end of the year 9999, the last one in RFC 3339.
_LATEST = 253402300799.0


class BucketClient:
    """The objects of a bucket under a prefix, by their names without the prefix.

    All methods that take a `Call` raise `StorageError` if the bucket refuses the request, or cannot
    be reached in the time of the call.

    Args:
        options: the bucket, its endpoint, and time limits.
        breaker: the circuit breaker for all requests.

    Attributes:
        requests: makes the requests; ``stats backend`` shows its `counts`.
        deadline: seconds for each `Call`.
    """

    def __init__(self, options: Options, breaker: Breaker) -> None:
        self.requests = Requests(breaker, timeout=options.timeout, concurrency=options.concurrency)
        self._counts = self.requests.counts
        self.deadline = options.deadline
        self._skipped = len(options.prefix)
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
        # Random, so that clients cannot include the boundary in a value.
        boundary = token_hex(16)
        self._upload_type = {"Content-Type": f"multipart/related; boundary={boundary}"}
        # The attributes of an object are sent before its content.
        self._head = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n".encode()
        self._middle = (
            f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n".encode()
        )
        self._tail = f"\r\n--{boundary}--".encode()

    def open(self, authorization: Authorization) -> None:
        """Prepare for requests; the event loop must be running."""
        self.requests.open(authorization)

    def call(self) -> Call:
        """Return a new operation."""
        return Call(self.deadline, "bucket")

    async def close(self) -> None:
        """Close all connections."""
        await self.requests.close()

    async def read(self, call: Call, name: str, unless: int | None = None) -> Reply:
        """Read an object.

        Args:
            call: the operation it belongs to.
            name: the name of the object.
            unless: a generation that need not be returned.

        Returns:
            A response with status 200, 304 or 404.
        """
        self._counts["class_b_operations"] += 1
        condition = "" if unless is None else f"&ifGenerationNotMatch={unless}"
        url = f"{self._object}{name}?alt=media{condition}"
        reply = await self.requests.ask(call, "GET", url, (200, 304, 404))
        if reply.status == 200 and not reply.generation:
            raise self.requests.refusal(call, reply)
        return reply

    async def write(
        self, call: Call, name: str, body: bytes, expect: int | None, custom_time: float = 0.0
    ) -> Reply:
        """Write an object.

        Args:
            call: the operation it belongs to.
            name: the name of the object.
            body: its content.
            expect: the generation that must be current; 0 for no object, None for no condition.
            custom_time: unix time in seconds for its ``customTime``, 0 for none.

        Returns:
            A response with status 200 and the new generation, or with 412. With `expect` None, also
            one with another status, after a failure with an uncertain outcome: the current object
            may be another server's, and has to be read before another attempt.
        """
        self._counts["class_a_operations"] += 1
        condition = "" if expect is None else f"&ifGenerationMatch={expect}"
        attributes = _attributes(custom_time) if custom_time else b"{}"
        data = b"".join((self._head, attributes, self._middle, body, self._tail))
        reply = await self.requests.ask(
            call,
            "POST",
            f"{self._upload}{name}{condition}",
            (200, 412),
            data,
            self._upload_type,
            blindly=expect is not None,
        )
        if reply.status != 200:
            return reply
        try:
            return Reply(200, int(orjson.loads(reply.body)["generation"]))
        except (ValueError, KeyError, TypeError):
            raise self.requests.refusal(call, reply) from None

    async def remove(self, call: Call, name: str, expect: int | None) -> Reply:
        """Remove an object; `expect` is as for `write`.

        Returns:
            A response with status 204 (200 from some emulators), 404 or 412.
        """
        self._counts["deletions"] += 1
        condition = "" if expect is None else f"?ifGenerationMatch={expect}"
        url = f"{self._object}{name}{condition}"
        return await self.requests.ask(call, "DELETE", url, (200, 204, 404, 412))

    async def names(self, call: Call, page: str = "") -> tuple[list[str], str]:
        """Return a page of object names, and the token of the next page; empty at the end."""
        self._counts["class_a_operations"] += 1
        url = f"{self._list}&pageToken={quote(page, safe='')}" if page else self._list
        reply = await self.requests.ask(call, "GET", url, (200,))
        answer = orjson.loads(reply.body)
        names = [item["name"][self._skipped :] for item in answer.get("items", ())]
        return names, answer.get("nextPageToken", "")


def _attributes(custom_time: float) -> bytes:
    moment = datetime.fromtimestamp(min(custom_time, _LATEST), UTC).replace(tzinfo=None)
    return f'{{"customTime":"{moment.isoformat()}Z"}}'.encode()
