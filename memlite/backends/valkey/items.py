"""Keys and their strings in the store."""

import math
import random
import re
from os import urandom

from memlite.backends.record import Record
from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Epoch
from memlite.backends.valkey.codec import DamagedError, decode
from memlite.backends.valkey.commands import Commands
from memlite.backends.valkey.exchange import Reply
from memlite.core.clock import Clock
from memlite.core.errors import StorageError

__all__ = ["Items"]

# Characters with a special meaning in patterns.
_SPECIAL = re.compile(rb"[\\*?\[\]^]")


class Items:
    """The strings of keys.

    Args:
        commands: sends the commands.
        prefix: the prefix of their names, without the colon.
        clock: determines the remaining lifetime of records.
        epoch: determines which records were flushed.
    """

    def __init__(self, commands: Commands, prefix: str, clock: Clock, epoch: Epoch) -> None:
        self._commands = commands
        self._start = f"{prefix}:".encode()
        self._clock = clock
        self._epoch = epoch
        self._versions = random.Random(urandom(16))  # noqa: S311 - no secret

    def name_of(self, key: bytes) -> bytes:
        """Return the name of an item."""
        return self._start + key

    def key_of(self, name: bytes) -> bytes:
        """Return the key of the item with this name."""
        return name[len(self._start) :]

    def is_item(self, name: bytes) -> bool:
        """Return whether this is the name of an item."""
        return name.startswith(self._start)

    @property
    def pattern(self) -> bytes:
        """A pattern that matches the names of all items, for SCAN."""
        return _SPECIAL.sub(rb"\\\g<0>", self._start) + b"*"

    def new_version(self) -> int:
        """Return a version unique among all states of all keys: 63 random bits.

        Clients that parse cas uniques as signed numbers can read it.
        """
        return self._versions.getrandbits(63) or 1

    def lifetime(self, record: Record) -> tuple[int, ...]:
        """Return the milliseconds after which a record expires; nothing for never.

        The store counts from the arrival of the command, so its clock need not agree with this one.
        """
        if not record.expires:
            return ()
        return (max(1, math.ceil((record.expires - self._clock.now()) * 1000)),)

    async def read(self, call: Call, key: bytes, begun: Reply | None = None) -> Record | None:
        """Return the record of a key, or None if it has none; see `Commands.read`.

        Raises:
            StorageError: the store cannot be read, or the content is not memlite's.
        """
        name = self._start + key
        return self.parsed(key, await self._commands.read(call, name, "GET", name, begun=begun))

    def parsed(self, key: bytes, content: object) -> Record | None:
        """Return the record in the reply to a GET; its token is its `Origin`.

        Raises:
            StorageError: the content is not memlite's.
        """
        if content is None:
            return None
        assert isinstance(content, bytes)  # noqa: S101 - as GET returns it
        try:
            return decode(key, content, self._epoch)
        except DamagedError:
            name = self.name_of(key).decode(errors="backslashreplace")
            raise StorageError(f"store: key {name!r} was not written by memlite") from None
