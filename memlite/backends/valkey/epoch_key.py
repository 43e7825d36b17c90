"""The key that holds the epoch."""

from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Content
from memlite.backends.valkey.commands import LOST, Commands
from memlite.backends.valkey.scripts import REPLACE
from memlite.core.errors import StorageError, UnconfirmedError

__all__ = ["EpochKey"]


class EpochKey:
    """A key under the prefix that is not an item; its version is its content.

    No two schedules of epochs are the same, so no version ever recurs. See
    `memlite.backends.remote.epoch.Register` for the methods.

    Args:
        commands: gives access to it.
        prefix: the prefix.
    """

    def __init__(self, commands: Commands, prefix: str) -> None:
        self._commands = commands
        self._name = f"{prefix}/epoch".encode()

    def call(self) -> Call:
        """Return a new operation."""
        return self._commands.call()

    async def read(self, call: Call, known: object) -> Content | None:
        """Read the key."""
        text = await self._commands.read(call, self._name, "GET", self._name)
        if text is None:
            return Content(b"", b"")
        assert isinstance(text, bytes)  # noqa: S101 - as GET returns it
        return None if text == known else Content(text, text)

    async def write(self, call: Call, text: bytes, expect: object) -> object:
        """Write the key; without a reply, the next read shows whether it was written.

        That read does not show whether replicas have the content: if they must, a missing reply is
        an error.
        """
        assert isinstance(expect, bytes)  # noqa: S101 - as `read` and `write` returned it
        reply = await self._commands.run(call, REPLACE, self._name, 0, -1, expect, text)
        if reply is LOST:
            if self._commands.confirmed:
                raise call.error(call.trouble)
            await call.pause()
            return b""
        if reply == 1:
            return text
        if self._commands.confirmed:
            await self._confirm(call)
        return b""

    async def _confirm(self, call: Call) -> None:
        """Make sure that replicas have the content that another server has written meanwhile.

        The other server's flush may be taken for this server's, and be acknowledged; only the other
        server knows whether it reached the replicas.

        Raises:
            StorageError: the replicas do not have it, or may not have it.
        """
        while content := await self.read(call, None):
            if not content.text:
                return
            same = content.text, content.text
            try:
                reply = await self._commands.run(call, REPLACE, self._name, 0, -1, *same)
            except UnconfirmedError:
                raise call.error(
                    "another server flushed first, but too few replicas have confirmed its flush"
                ) from None
            if reply is LOST:
                raise call.error(call.trouble)
            if reply == 1:
                return
            await call.pause_after_race()

    def not_ours(self) -> StorageError:
        """Return the error for a key that is not memlite's."""
        return StorageError(f"store: key {self._name.decode()!r} was not written by memlite")
