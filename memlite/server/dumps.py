"""``lru_crawler metadump`` and ``mgdump``: a line for every item, sent as the peer takes them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from memlite.backends import Item
from memlite.errors import CommandError, StorageError
from memlite.protocol import replies
from memlite.protocol.meta import encode_key
from memlite.protocol.numbers import unsigned
from memlite.protocol.uris import uri_encoded

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["BAD_CLASS", "BUSY", "Dumps", "parse_classes"]

_log = logging.getLogger("memlite")

_CLASSES_END = 64
# Items between two turns of the event loop: about half a millisecond.
_ITEMS_AT_ONCE = 200
_WRITE_AT = 16 * 1024
# Seconds a peer may take nothing: there is one dump at a time, and it holds up the next.
_PATIENCE = 300.0
# Bytes that neither a line of the text protocol nor its words can hold.
_UNSPEAKABLE = frozenset(range(0x21)) | {0x7F}

BUSY = b"BUSY currently processing crawler request\r\n"
BAD_CLASS = b"BADCLASS invalid class id\r\n"


def parse_classes(words: bytes) -> set[int] | None:
    """Read ``1,2,3``; None if one of them is no class id."""
    class_ids = {unsigned(word, _CLASSES_END) for word in words.split(b",") if word}
    return {class_id for class_id in class_ids if class_id} if all(class_ids) else None


class Dumps:
    """Starts dumps, one at a time as memcached does.

    Args:
        server: whose items are dumped.

    Attributes:
        enabled: whether the crawler's commands are carried out (``lru_crawler enable``).
        running: whether a dump is under way.
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.enabled = server.config.extended.lru_crawler
        self.running = False

    def start(self, command: bytes, which: bytes, connection: "Connection") -> bytes:
        """Begin to send what ``lru_crawler <command> <which>`` asks for.

        Args:
            command: metadump or mgdump.
            which: all, hash or class ids.
            connection: sends nothing else until the dump is over.

        Returns:
            The reply; none when the dump has begun, which begins with OK.
        """
        wanted = None
        if which not in (b"all", b"hash"):
            wanted = parse_classes(which)
            if wanted is None:
                return BAD_CLASS
        if self.running:
            return BUSY
        if wanted is not None and not wanted:
            return b"NOTSTARTED no items to crawl\r\n"
        self.running = True
        self._server.counters.lru_crawler_starts += 1
        form, end = (
            (_metadump_line, replies.END) if command == b"metadump" else (_mgdump_line, b"EN\r\n")
        )
        dump = _Dump(self._server, connection, form, end, wanted)
        connection.attach(dump)
        self._server.spawn(self._run(dump))
        return b""

    async def _run(self, dump: "_Dump") -> None:
        try:
            await dump.run()
        finally:
            self.running = False


class _Dump:
    """Lines for one connection; the next are made when those before are on their way.

    Args:
        server: whose items.
        connection: where they go.
        form: makes an item's line.
        end: the last line.
        wanted: the classes to be dumped, None for all.
    """

    endless = False

    def __init__(
        self,
        server: "Server",
        connection: "Connection",
        form: "Callable[[Server, bytes, Item], bytes]",
        end: bytes,
        wanted: set[int] | None,
    ) -> None:
        self._server = server
        self._connection = connection
        self._form = form
        self._end = end
        self._wanted = wanted
        self._lines = [replies.OK]
        self._size = 0
        self._lost = False
        self._taken = asyncio.Event()

    def resume(self) -> None:
        """Go on: the peer takes more."""
        self._taken.set()

    def lost(self) -> None:
        """Make no more lines."""
        self._lost = True
        self._taken.set()

    async def run(self) -> None:
        """Send all, and give the connection back."""
        try:
            await self._send_items()
            self._lines.append(self._end)
        except CommandError as error:
            self._lines.append(error.reply)
        except Exception:  # noqa: BLE001 - whatever it is, the peer must not wait for ever
            _log.exception("a dump failed")
            self._lines.append(StorageError("internal error").reply)
        if not self._lost:
            self._connection.send(b"".join(self._lines))
            self._connection.detach()

    async def _send_items(self) -> None:
        server, wanted, form = self._server, self._wanted, self._form
        classes = server.engine.sizes
        async with aclosing(self._items()) as items:
            async for key, item in items:
                if self._lost:
                    return
                if (item.expires and item.expires <= server.clock.now()) or (
                    wanted is not None and classes.of_item(len(key), item) not in wanted
                ):
                    continue
                line = form(server, key, item)
                self._lines.append(line)
                self._size += len(line)
                if self._size >= _WRITE_AT:
                    await self._write()

    def _items(self) -> AsyncGenerator[tuple[bytes, Item], None]:
        backend = self._server.backend
        return _in_table(self._server) if backend is None else _as_generator(backend.scan())

    async def _write(self) -> None:
        """Write the lines made so far, and wait until the peer takes more."""
        self._taken.clear()
        self._connection.send(b"".join(self._lines))
        self._lines.clear()
        self._size = 0
        if self._connection.writable:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._taken.wait()
        except TimeoutError:
            self._lost = True
            self._connection.abort()


async def _in_table(server: "Server") -> AsyncGenerator[tuple[bytes, Item], None]:
    """Yield every item in memory, with turns for others between."""
    table = server.table
    keys = table.list_keys()
    # Taken from the end, so that the list gets shorter: a million are not freed at one stroke.
    keys.reverse()
    while keys:
        for _ in range(min(_ITEMS_AT_ONCE, len(keys))):
            key = keys.pop()
            item = table.get(key)
            if item is not None:
                yield key, item
        await asyncio.sleep(0)


async def _as_generator(
    items: AsyncIterator[tuple[bytes, Item]],
) -> AsyncGenerator[tuple[bytes, Item], None]:
    async for pair in items:
        yield pair


def _metadump_line(server: "Server", key: bytes, item: Item) -> bytes:
    engine = server.engine
    total = engine.sizes.total(len(key), item)
    return b"key=%b exp=%d la=%d cas=%d fetch=%b cls=%d size=%d flags=%d \n" % (
        uri_encoded(key).encode(),
        int(item.expires) or -1,
        item.accessed,
        item.unique,
        b"yes" if item.fetched else b"no",
        engine.sizes.of_total(total),
        total,
        item.flags,
    )


def _mgdump_line(server: "Server", key: bytes, item: Item) -> bytes:
    if _UNSPEAKABLE.isdisjoint(key) and not (item.marks and item.marks.binary):
        return b"mg %b\r\n" % key
    return b"mg %b b\r\n" % encode_key(key)
