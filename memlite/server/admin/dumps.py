"""``lru_crawler metadump`` and ``mgdump``: a line per item, sent as fast as the peer reads."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Final

from memlite.backends import Backend
from memlite.backends.conversion import item_of
from memlite.core.clock import Clock
from memlite.core.errors import CommandError, StorageError
from memlite.core.logs import failure
from memlite.core.uris import uri_encoded
from memlite.engine.sizes import SizeClasses
from memlite.memory import FullItem, Item, ItemTable
from memlite.protocol import replies
from memlite.protocol.meta import encode_key
from memlite.protocol.numbers import unsigned
from memlite.server.interfaces import Client
from memlite.telemetry.counters import Counters

__all__ = ["BAD_CLASS", "BUSY", "Dumps", "parse_classes", "scan_backend", "scan_table"]

_log = logging.getLogger("memlite")

_CLASSES_END: Final = 64
# Batches without any items that are skipped between two turns of the event loop.
_EMPTY_PER_TURN: Final = 100
_WRITE_BYTES: Final = 16 * 1024
# How long a peer may go without reading, in seconds. Only one dump can run at a time, so a stuck
# dump delays the next.
_PATIENCE = 300.0
# Bytes that a key of the text protocol cannot contain.
_NOT_IN_TEXT: Final = frozenset(range(0x21)) | {0x7F}

_Items = Callable[[], AsyncGenerator[tuple[bytes, Item], None]]

BUSY: Final = b"BUSY currently processing crawler request\r\n"
BAD_CLASS: Final = b"BADCLASS invalid class id\r\n"


def parse_classes(words: bytes) -> set[int] | None:
    """Parse ``1,2,3``; None if any part of it is not a class id."""
    class_ids = {unsigned(word, _CLASSES_END) for word in words.split(b",") if word}
    return {class_id for class_id in class_ids if class_id} if all(class_ids) else None


async def scan_table(table: ItemTable) -> AsyncGenerator[tuple[bytes, Item], None]:
    """Yield every item of a table, yielding to the event loop from time to time."""
    for number, keys in enumerate(table.key_batches()):
        for key in keys:
            item = table.get(key)
            if item is not None:
                yield key, item
        if keys or not number % _EMPTY_PER_TURN:
            await asyncio.sleep(0)


async def scan_backend(backend: Backend) -> AsyncGenerator[tuple[bytes, Item], None]:
    """Yield every item of a backend."""
    async for record in backend.scan():
        yield record.key, item_of(record, FullItem)


class Dumps:
    """Starts dumps, one at a time as memcached does.

    Args:
        items: yields all items, possibly including expired ones; `scan_table` or `scan_backend`.
        sizes: the size classes a dump can be limited to.
        clock: determines which items have expired.
        counters: count dumps.
        spawn: runs a coroutine in the background.
        enabled: whether the crawler accepts commands initially.
        announce: called when a dump begins or has ended; returns False if it may not begin.

    Attributes:
        enabled: whether the crawler accepts commands (``lru_crawler enable``).
        running: whether a dump is in progress.
    """

    def __init__(
        self,
        *,
        items: _Items,
        sizes: SizeClasses,
        clock: Clock,
        counters: Counters,
        spawn: Callable[[Coroutine[None, None, None]], None],
        enabled: bool,
        announce: Callable[[bool], bool] = lambda running: True,
    ) -> None:
        self._announce = announce
        self._items = items
        self._sizes = sizes
        self._clock = clock
        self._counters = counters
        self._spawn = spawn
        self.enabled = enabled
        self.running = False

    def start(self, command: bytes, which: bytes, client: Client) -> bytes:
        """Start to send the dump requested by ``lru_crawler <command> <which>``.

        Args:
            command: metadump or mgdump.
            which: all, hash or class ids.
            client: receives the dump, and nothing else until its end.

        Returns:
            The reply; empty if the dump has started, since it sends OK itself.
        """
        class_ids = None
        if which not in (b"all", b"hash"):
            class_ids = parse_classes(which)
            if class_ids is None:
                return BAD_CLASS
        if self.running:
            return BUSY
        if class_ids is not None and not class_ids:
            return b"NOTSTARTED no items to crawl\r\n"
        if not self._announce(True):
            return BUSY
        self.running = True
        self._counters.lru_crawler_starts += 1
        form, end = (
            (self._metadump_line, replies.END)
            if command == b"metadump"
            else (_mgdump_line, b"EN\r\n")
        )
        dump = _Dump(client, self._items, self._selects(class_ids), form, end)
        client.attach(dump)
        self._spawn(self._run(dump))
        return b""

    async def _run(self, dump: "_Dump") -> None:
        try:
            await dump.run()
        finally:
            self.running = False
            self._announce(False)

    def _selects(self, class_ids: set[int] | None) -> Callable[[bytes, Item], bool]:
        """Return a predicate for the items to dump; `class_ids` is None for all classes."""

        def selects(key: bytes, item: Item) -> bool:
            if item.expires and item.expires <= self._clock.now():
                return False
            return class_ids is None or self._sizes.of_item(len(key), item) in class_ids

        return selects

    def _metadump_line(self, key: bytes, item: Item) -> bytes:
        total = self._sizes.total(len(key), item)
        return b"key=%b exp=%d la=%d cas=%d fetch=%b cls=%d size=%d flags=%d \n" % (
            uri_encoded(key).encode(),
            int(item.expires) or -1,
            item.accessed,
            item.unique,
            b"yes" if item.fetched else b"no",
            self._sizes.of_total(total),
            total,
            item.flags,
        )


def _mgdump_line(key: bytes, item: Item) -> bytes:
    if _NOT_IN_TEXT.isdisjoint(key) and not (item.meta_flags and item.meta_flags.binary):
        return b"mg %b\r\n" % key
    return b"mg %b b\r\n" % encode_key(key)


class _Dump:
    """Lines for one connection, produced only as fast as they are sent.

    Args:
        client: receives the lines.
        items: yields all items.
        selects: returns whether to dump an item.
        form: formats an item's line.
        end: the last line.
    """

    endless = False

    def __init__(
        self,
        client: Client,
        items: _Items,
        selects: Callable[[bytes, Item], bool],
        form: Callable[[bytes, Item], bytes],
        end: bytes,
    ) -> None:
        self._client = client
        self._items = items
        self._selects = selects
        self._form = form
        self._end = end
        self._lines = [replies.OK]
        self._size = 0
        self._lost = False
        self._writable = asyncio.Event()

    def resume(self) -> None:
        """Continue: the peer reads again."""
        self._writable.set()

    def lost(self) -> None:
        """Stop producing lines."""
        self._lost = True
        self._writable.set()

    async def run(self) -> None:
        """Send all lines, and hand back the connection."""
        try:
            await self._send_items()
            self._lines.append(self._end)
        except CommandError as error:
            self._lines.append(replies.error_line(error))
        except Exception:  # noqa: BLE001 - in any case, the peer must not wait forever
            _log.exception("a dump failed", extra=failure("dump_failed"))
            self._lines.append(replies.error_line(StorageError("internal error")))
        if not self._lost:
            self._client.send(b"".join(self._lines))
            self._client.detach()

    async def _send_items(self) -> None:
        async with aclosing(self._items()) as items:
            async for key, item in items:
                if self._lost:
                    return
                if not self._selects(key, item):
                    continue
                line = self._form(key, item)
                self._lines.append(line)
                self._size += len(line)
                if self._size >= _WRITE_BYTES:
                    await self._write()

    async def _write(self) -> None:
        """Write the lines produced so far, and wait until the peer can take more."""
        self._writable.clear()
        self._client.send(b"".join(self._lines))
        self._lines.clear()
        self._size = 0
        if self._client.writable:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._writable.wait()
        except TimeoutError:
            self._lost = True
            self._client.abort()
