"""The object in a bucket that holds the epoch."""

from memlite.backends.gcs.client import BucketClient
from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Content
from memlite.core.errors import StorageError

__all__ = ["EpochObject"]

# No record's object has this name.
_NAME = "epoch"


class EpochObject:
    """An object named ``epoch``; its version is its generation.

    See `memlite.backends.remote.epoch.Register` for the methods.

    Args:
        client: accesses the object.
    """

    def __init__(self, client: BucketClient) -> None:
        self._client = client

    def call(self) -> Call:
        """Return a new operation."""
        return self._client.call()

    async def read(self, call: Call, known: object) -> Content | None:
        """Read the object."""
        unless = known if isinstance(known, int) and known else None
        reply = await self._client.read(call, _NAME, unless)
        if reply.status == 304:
            return None
        return Content(b"", 0) if reply.status == 404 else Content(reply.body, reply.generation)

    async def write(self, call: Call, text: bytes, expect: object) -> object:
        """Write the object."""
        assert isinstance(expect, int)  # noqa: S101 - as `read` and `write` returned it
        reply = await self._client.write(call, _NAME, text, expect)
        return reply.generation if reply.status == 200 else 0

    def not_ours(self) -> StorageError:
        """Return the error for an object that is not memlite's."""
        return StorageError(f"bucket: object {_NAME!r} under the prefix was not written by memlite")
