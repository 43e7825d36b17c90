"""The commands of the text protocol that concern one key, as methods."""

import abc
import re
from typing import Final

from memlite.client.errors import CommandFailedError
from memlite.client.replies import Item, Reply, Shape

__all__ = ["KeyCommands", "check_key", "checked"]

_is_key = re.compile(rb"[^\x00-\x20\x7f]{1,250}").fullmatch
_STORED: Final = b"STORED"


class KeyCommands(abc.ABC):
    """Commands for items. Each may raise the errors of `request`, and two further ones.

    They raise ValueError for a key that is not 1 to 250 bytes without white space and control
    characters, and CommandFailedError if the server replies with an error.

    Exptimes are memcached's: seconds from now up to 30 days, else a unix time; 0 means never, and a
    negative one has already expired. Flags are a 32-bit number.
    """

    @abc.abstractmethod
    async def request(self, key: bytes, data: bytes, shape: Shape = Shape.LINE) -> Reply:
        """Send a request, and return its reply.

        Args:
            key: the key that it concerns.
            data: the request.
            shape: the shape of the reply.
        """

    async def get(self, key: bytes) -> Item | None:
        """Return the item; None if there is none."""
        return await self._item(key, b"get %b\r\n" % check_key(key))

    async def gets(self, key: bytes) -> Item | None:
        """Return the item with its cas unique; None if there is none."""
        return await self._item(key, b"gets %b\r\n" % check_key(key))

    async def gat(self, key: bytes, exptime: int) -> Item | None:
        """Return the item and set its expiry; None if there is none."""
        return await self._item(key, b"gat %d %b\r\n" % (exptime, check_key(key)))

    async def set(self, key: bytes, value: bytes, *, flags: int = 0, exptime: int = 0) -> bool:
        """Store an item; return whether it was stored."""
        return await self._store(b"set", key, value, flags, exptime)

    async def add(self, key: bytes, value: bytes, *, flags: int = 0, exptime: int = 0) -> bool:
        """Store an item if there is none; return whether it was stored."""
        return await self._store(b"add", key, value, flags, exptime)

    async def replace(self, key: bytes, value: bytes, *, flags: int = 0, exptime: int = 0) -> bool:
        """Store an item if there is one; return whether it was stored."""
        return await self._store(b"replace", key, value, flags, exptime)

    async def append(self, key: bytes, value: bytes) -> bool:
        """Append bytes to the value of an item; return whether there is one."""
        return await self._store(b"append", key, value, 0, 0)

    async def prepend(self, key: bytes, value: bytes) -> bool:
        """Prepend bytes to the value of an item; return whether there is one."""
        return await self._store(b"prepend", key, value, 0, 0)

    async def cas(
        self, key: bytes, value: bytes, unique: int, *, flags: int = 0, exptime: int = 0
    ) -> bool:
        """Store an item if it has not changed; return whether it was stored.

        Args:
            key: its key.
            value: its new value.
            unique: the cas unique of the item, as returned by `gets`.
            flags: its new flags.
            exptime: its new exptime.
        """
        return await self._store(b"cas", key, value, flags, exptime, b" %d" % unique)

    async def delete(self, key: bytes) -> bool:
        """Delete an item; return whether there was one."""
        reply = checked(await self.request(key, b"delete %b\r\n" % check_key(key)))
        return reply.line == b"DELETED"

    async def incr(self, key: bytes, delta: int = 1) -> int | None:
        """Increase an item's numeric value; return the new one, or None if there is no item."""
        return await self._count(b"incr", key, delta)

    async def decr(self, key: bytes, delta: int = 1) -> int | None:
        """Decrease an item's numeric value, to no less than 0; see `incr`."""
        return await self._count(b"decr", key, delta)

    async def touch(self, key: bytes, exptime: int) -> bool:
        """Set an item's expiry; return whether there is one."""
        reply = checked(await self.request(key, b"touch %b %d\r\n" % (check_key(key), exptime)))
        return reply.line == b"TOUCHED"

    async def _item(self, key: bytes, data: bytes) -> Item | None:
        items = checked(await self.request(key, data, Shape.ITEMS)).items
        return items[0] if items else None

    async def _store(
        self, word: bytes, key: bytes, value: bytes, flags: int, exptime: int, more: bytes = b""
    ) -> bool:
        head = b"%b %b %d %d %d%b" % (word, check_key(key), flags, exptime, len(value), more)
        reply = checked(await self.request(key, b"%b\r\n%b\r\n" % (head, value)))
        return reply.line == _STORED

    async def _count(self, word: bytes, key: bytes, delta: int) -> int | None:
        data = b"%b %b %d\r\n" % (word, check_key(key), delta)
        line = checked(await self.request(key, data)).line
        return None if line == b"NOT_FOUND" else int(line)


def check_key(key: bytes) -> bytes:
    """Return the key.

    Raises:
        ValueError: the key cannot be sent.
    """
    if not _is_key(key):
        raise ValueError(
            "a key must have 1 to 250 bytes, without white space or control characters, "
            f"not {key[:80]!r}"
        )
    return key


def checked(reply: Reply) -> Reply:
    """Return the reply.

    Raises:
        CommandFailedError: the reply is an error.
    """
    error = reply.error
    if error is not None:
        raise CommandFailedError(error)
    return reply
