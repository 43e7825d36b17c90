"""Items in memory, changes in a journal before they are acknowledged, a snapshot now and then."""

import asyncio
import contextlib
import logging
import os
import zlib
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.eviction import POLICIES, cost
from memlite.backends.item import FullItem, Item, key_of
from memlite.backends.jsonfile import format as lines
from memlite.backends.jsonfile.format import Header
from memlite.backends.jsonfile.journal import Journal, sync_folder
from memlite.backends.jsonfile.load import Loaded, journal_path, journals_of, load
from memlite.backends.jsonfile.lock import lock
from memlite.backends.registry import BackendUrl, Context
from memlite.backends.table import ItemTable
from memlite.errors import ConfigError, OutOfMemoryError, StartError, StorageError, VersionConflict

__all__ = ["FileBackend", "make"]

_log = logging.getLogger("memlite")

# A journal is compacted when it is larger than the snapshot, and than this or ?compact=BYTES.
_COMPACT_FROM = 4 * 1024 * 1024
# Up to so many bytes of items a server that ends takes the time to write a snapshot.
_COMPACTED_AT_END = 16 * 1024 * 1024
# Bytes of a snapshot that are made in one go, with the server standing still; and how many of them
# it costs as much time to find that an item needs no line.
_CHUNK = 128 * 1024
_LOOK = 64
# Items yielded by scan before others have their turn.
_SCANNED_AT_ONCE = 100
_RETRY_SECONDS = 5.0
# Items that are looked at once a second, whether they have expired.
_SWEPT_PER_TICK = 10_000
# Versions passed over at each start. Clients may hold some that are in no file: of changes under
# way when the server was killed, or lost with the machine for want of a sync.
_LOST_VERSIONS = 2**24


class _Flush(NamedTuple):
    """A flush that is not written: of when (0 for at once), and of when the one was that waited."""

    at: float
    before: float


class FileBackend(Backend):
    """All items in a table, and what it takes to have them again, in files.

    A change is made in the table at once, and is undone if it cannot be written: later changes
    may build on it, and share its fsync. Replies that tell of it wait for it.

    Args:
        path: the snapshot's; the others' names begin with it.
        context: the server's settings.
        compact_from: bytes of journal up to which it is left alone.

    Attributes:
        table: every item. None of them is ever changed in place.
    """

    table: ItemTable
    ordered = True

    def __init__(self, path: Path, context: Context, *, compact_from: int = _COMPACT_FROM) -> None:
        self.path = path
        self.table = ItemTable(
            context.memory_limit,
            evict=context.evict,
            on_evict=self._journal_evictions,
            policy=POLICIES[context.eviction],
        )
        self._context = context
        self._compact_from = compact_from
        self._clock = context.clock
        self._version = 0
        self._flush_at = 0.0
        self._number = 1
        # Changes that are not written, in their order: how many of a key's, and what was there.
        self._unwritten: dict[bytes, int] = {}
        self._undo: list[tuple[bytes, Item | None] | _Flush | None] = []
        self._undone = 0
        self._complained = False
        # A flush has happened here and not in the file: it has to get there before anything else.
        self._flush_owed = False
        # A snapshot has been begun, or must be: journals have to be read that it would replace.
        self._snapshot_owed = False
        self._left_out: list[bytes] = []
        self._snapshot_bytes = 0
        self._snapshot_version = 0
        self._compaction: asyncio.Task[None] | None = None
        self._compactions = 0
        self._closing = False
        self._next_compaction = 0.0
        self._lock = -1

    _journal: Journal

    # Life

    async def open(self) -> None:
        """Lock the files and read them."""
        self._lock = lock(self.path.with_name(self.path.name + ".lock"))
        try:
            # In a thread, so that signals are heard meanwhile.
            loaded = await asyncio.to_thread(self._load)
            self._journal = Journal(
                journal_path(self.path, self._number),
                loaded.size,
                loaded.crc,
                durability=self._context.durability,
                on_written=self._forget_written,
                on_failure=self._undo_all,
            )
            if not loaded.size:
                await self._journal.replace(
                    journal_path(self.path, self._number), Header(self._number, self._version)
                )
            await self._journal_left_out()
        except StorageError as error:
            os.close(self._lock)
            raise StartError(f"--backend: {self.path}: {error}") from None
        except OSError as error:
            os.close(self._lock)
            raise StartError(
                f"--backend: {error.filename or self.path}: {error.strerror}"
            ) from None
        except BaseException:
            os.close(self._lock)
            raise
        self._compact_if_due()

    def _load(self) -> Loaded:
        loaded = load(self.path)
        self._temporary.unlink(missing_ok=True)
        lost = _LOST_VERSIONS if loaded.snapshot else 0
        if not loaded.snapshot:
            self._write_empty_snapshot(loaded)
        for number, journal in journals_of(self.path).items():
            if number < loaded.first:
                journal.unlink()
        self._version, self._flush_at = loaded.version + lost, loaded.flush_at
        self._number, self._snapshot_bytes = loaded.journal, loaded.snapshot
        self._snapshot_version = loaded.snapshot_version + lost
        self._snapshot_owed = loaded.journal > loaded.first
        now = self._clock.now()
        if not 0 < self._flush_at <= now:
            self._fill(loaded.items, now)
        return loaded

    def _fill(self, items: dict[bytes, Item], now: float) -> None:
        # Where there is no room for all it is the oldest that are left out.
        keys: list[bytes] = []
        room = self.table.limit
        for key, item in reversed(items.items()):
            if not item.expires or item.expires > now:
                room -= cost(key, item)
                (keys if room >= 0 else self._left_out).append(key)
        self.table.on_evict = lambda gone: self._left_out.extend(
            key_of(line) for line, _, _ in gone
        )
        try:
            if self._left_out and not self._context.evict:
                raise OutOfMemoryError
            while keys:
                key = keys.pop()
                self.table.put(key, items[key])
        except OutOfMemoryError:
            raise StartError(
                f"--backend: {self.path} holds more than -m allows, and -M forbids to leave "
                "anything out; raise -m"
            ) from None
        self.table.on_evict = self._journal_evictions

    async def _journal_left_out(self) -> None:
        """Remove from the file what did not fit: it would be back when there is room again."""
        left_out, self._left_out = self._left_out, []
        if left_out:
            _log.warning(
                "%s holds more than -m allows: %d items are left out, most of them the oldest",
                self.path,
                len(left_out),
            )
        written = None
        for key in left_out:
            self._version += 1
            written = self._append(None, lines.delete_record(self._version, key))
        if written is not None:
            await written

    async def close(self) -> None:
        """Write what is left, and a snapshot if that is quickly done."""
        self._closing = True
        try:
            if self._compaction is not None:
                await asyncio.wait([self._compaction])
            changed = self._version > self._snapshot_version
            if self._journal.broken or (changed and self.table.used < _COMPACTED_AT_END):
                self._closing = False
                await self._compact_and_tell()
            await self._journal.close()
        except OSError as error:
            _log.error("%s: %s", self.path, error.strerror)
        finally:
            os.close(self._lock)

    # Reads

    def peek(self, key: bytes) -> Item | None:
        """Return what is stored under `key`, perhaps not yet in the file."""
        if self._flush_at:
            self._flush_if_due()
        return self.table.get(key)

    async def get(self, key: bytes) -> Item | None:
        """Return what is stored under `key`."""
        return self.peek(key)

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return what is done once the last changes of `keys` are in the file."""
        unwritten = self._unwritten
        if not unwritten or not any(key in unwritten for key in keys):
            return None
        return self._journal.pending

    def peek_cached(self, key: bytes) -> Item | Unknown | None:
        """Return what is stored under `key`, if it is in the file."""
        return UNKNOWN if key in self._unwritten else self.peek(key)

    async def get_cached(self, key: bytes) -> Item | None:
        """Return what is stored under `key`, once it is in the file."""
        while key in self._unwritten:
            # Not what is there when it is written: a key that is always being stored would never
            # be answered.
            undone, item = self._undone, self.peek(key)
            await self._journal.written()
            if self._undone == undone:
                return item
        return self.peek(key)

    async def scan(self) -> AsyncIterator[tuple[bytes, Item]]:
        """Yield every key and item."""
        for number, key in enumerate(self.table.list_keys(), 1):
            item = self.peek(key)
            if item is not None:
                yield key, item
            if not number % _SCANNED_AT_ONCE:
                await asyncio.sleep(0)

    # Changes

    def put(
        self, key: bytes, item: FullItem, replacing: Item | Anything | None = ANY
    ) -> asyncio.Future[None]:
        """Store `item`; see `Backend.put`. What it returns is done when it is written."""
        old = self._current(key, replacing)
        if old is not None:
            self.table.delete(key)
        try:
            self.table.put(key, item)  # may evict, which is journaled before it
        except OutOfMemoryError:
            self.table.restore(key, old)
            if replacing is ANY:
                # What set could not replace must not be served as if it were current.
                self.delete(key)
            raise
        self._version += 1
        self.table.number(item, self._version)
        return self._append((key, old), lines.put_record(key, item))

    def delete(self, key: bytes, replacing: Item | Anything = ANY) -> asyncio.Future[None]:
        """Remove what is stored under `key`; see `Backend.delete`."""
        old = self._current(key, replacing)
        if old is None:
            nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        self._version += 1
        self.table.delete(key)
        return self._append((key, old), lines.delete_record(self._version, key))

    def _current(self, key: bytes, replacing: Item | Anything | None) -> Item | None:
        if self._journal.broken:
            raise StorageError(f"not stored: {self._journal.failure}")
        if self._flush_at:
            self._flush_if_due()
        current = self.table.get(key)
        if replacing is not ANY and (current and current.version) != (
            replacing and replacing.version
        ):
            raise VersionConflict
        return current

    def _append(
        self, undo: tuple[bytes, Item | None] | _Flush | None, record: bytes
    ) -> asyncio.Future[None]:
        """Journal what has happened in the table; remember how to undo it until it is written.

        Args:
            undo: a key and what was under it, or a flush; None if it is never to be undone.
            record: its line.
        """
        self._write_owed_flush()
        self._undo.append(undo)
        if undo is not None and not isinstance(undo, _Flush):
            key = undo[0]
            self._unwritten[key] = self._unwritten.get(key, 0) + 1
        return self._journal.append(record)

    def _journal_evictions(self, gone: list[tuple[bytes, Item, int]]) -> None:
        for line, item, _ in gone:
            key = key_of(line)
            self._context.on_evict(key, item)
            self._version += 1
            self._append((key, item), lines.delete_record(self._version, key))

    def _forget_written(self, count: int) -> None:
        """Forget how to undo the `count` oldest changes."""
        for change in self._undo[:count]:
            if change is not None and not isinstance(change, _Flush):
                key = change[0]
                left = self._unwritten[key] - 1
                if left:
                    self._unwritten[key] = left
                else:
                    del self._unwritten[key]
        del self._undo[:count]
        if self._complained:
            self._complained = False
            _log.warning("%s: is written again", self.path)

    def _undo_all(self) -> None:
        """Bring back what is in the file, as no change that is not written can be."""
        for change in reversed(self._undo):
            if isinstance(change, _Flush):
                if change.at:
                    self._flush_at = change.before
                else:
                    self._flush_owed = True
            elif change is not None:
                self.table.restore(*change)
        self._undo.clear()
        self._unwritten.clear()
        self._undone += 1
        if not self._complained:  # once, however many clients try
            self._complained = True
            _log.error("%s: %s", self.path, self._journal.failure)

    # Flushing

    async def flush(self, at: float = 0.0) -> None:
        """Make everything absent, now or at the unix time `at`.

        What is absent by now stays so if that cannot be written, and is absent from the file as
        soon as anything can be.
        """
        if self._journal.broken:
            raise StorageError(f"not stored: {self._journal.failure}")
        await self._flush(at)

    def _flush(self, at: float) -> asyncio.Future[None]:
        before, self._flush_at = self._flush_at, at
        if not at:
            # Not undone if it cannot be written: what was asked to be gone may as well stay so.
            self._undo = [None] * len(self._undo)
            self._unwritten.clear()
            self.table.flush()
        self._version += 1
        return self._append(_Flush(at, before), lines.flush_record(self._version, at))

    def _write_owed_flush(self) -> None:
        if self._flush_owed:
            self._flush_owed = False
            self._append(_Flush(0.0, 0.0), lines.flush_record(self._version, 0.0))

    def _flush_if_due(self) -> None:
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush(0.0)

    # Snapshots

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(self.path.name + ".tmp")

    def _compact_if_due(self) -> None:
        due = (
            self._journal.broken
            or self._snapshot_owed
            or self._journal.size > max(self._compact_from, self._snapshot_bytes)
        )
        if due and self._compaction is None and self._clock.now() >= self._next_compaction:
            self._compaction = asyncio.ensure_future(self._compact_and_tell())

    async def _compact_and_tell(self) -> None:
        try:
            await self._compact()
        except _AbandonedError as reason:
            _log.info("%s: the journal is not compacted now: %s", self.path, reason)
            self._next_compaction = self._clock.now() + _RETRY_SECONDS
        except OSError as error:
            _log.error("%s: the journal could not be compacted: %s", self.path, error.strerror)
            self._next_compaction = self._clock.now() + _RETRY_SECONDS
        finally:
            self._compaction = None

    async def _compact(self) -> None:
        """Go on in a new journal, and write a snapshot that makes the old ones superfluous.

        The server goes on meanwhile, and the snapshot may hold some of what it does: the new
        journal, replayed on it, comes to the same, as its records are whole states.
        """
        if self._journal.broken or not self._snapshot_owed:
            # Otherwise the last one's may do; or there would be another with every attempt.
            number = self._number + 1
            header = Header(number, self._version)
            await self._journal.replace(journal_path(self.path, number), header)
            self._number = number
            self._snapshot_owed = True
        number, version, flush_at = self._number, self._version, self._flush_at
        undone = self._undone
        keys = self.table.list_keys()
        writer = _SnapshotWriter(self._temporary, lines.snapshot_head(number, version, flush_at))
        try:
            chunk: list[bytes] = []
            size = 0
            now = self._clock.now()
            for key in keys:
                item = self.table.get(key)
                if item is not None and not 0 < item.expires <= now:
                    line = lines.snapshot_line(key, item)
                    chunk.append(line)
                    size += len(line)
                size += _LOOK
                if size > _CHUNK:
                    if self._closing:
                        raise _AbandonedError("the server ends")
                    await asyncio.to_thread(writer.write, chunk)
                    chunk, size = [], 0
            await asyncio.to_thread(writer.write, chunk)
            await asyncio.to_thread(writer.finish)
            # What is in it and not yet written may still turn out not to be.
            await self._journal.written()
            if self._undone != undone:
                # It may hold what was taken back meanwhile, or lack what was brought back.
                raise _AbandonedError("a change could not be written meanwhile")
            await asyncio.to_thread(self._install, number)
        except BaseException:
            writer.abandon()
            raise
        self._snapshot_bytes, self._snapshot_version = writer.size, version
        self._snapshot_owed = False
        self._compactions += 1

    def _install(self, first: int) -> None:
        """Put the new snapshot into the old one's place; remove what it makes superfluous."""
        self._temporary.replace(self.path)
        sync_folder(self.path)
        for number, journal in journals_of(self.path).items():
            if number < first:
                journal.unlink()

    def _write_empty_snapshot(self, loaded: Loaded) -> None:
        writer = _SnapshotWriter(self._temporary, lines.snapshot_head(1, 0, 0.0))
        writer.finish()
        self._temporary.replace(self.path)
        sync_folder(self.path)
        loaded.snapshot = writer.size

    # The rest

    def tick(self) -> None:
        """Sync, flush and compact when due; free some of what has expired."""
        self._flush_if_due()
        if not self._journal.broken:
            self._write_owed_flush()
        self._journal.tick()
        self._compact_if_due()
        self.table.walk(_SWEPT_PER_TICK, self._look)

    def _look(self, key: bytes, item: Item) -> None:
        """Free an item if it has expired; the file need not be told."""
        # What is not written is left alone, as it may have to be undone.
        if 0 < item.expires <= self._clock.now() and key not in self._unwritten:
            self.table.drop(key)

    def stats(self) -> Mapping[str, int | float | str]:
        """Return what there is, and how much has been written."""
        return {
            "items": len(self.table),
            "bytes": self.table.used,
            "path": str(self.path),
            "durability": self._context.durability,
            "journal_bytes": self._journal.size,
            "snapshot_bytes": self._snapshot_bytes,
            "fsyncs": self._journal.syncs,
            "compactions": self._compactions,
            "compacting": int(self._compaction is not None),
            "last_write_error": self._journal.failure or "none",
        }


class _AbandonedError(Exception):
    """A snapshot is not to be finished."""


class _SnapshotWriter:
    """Writes a snapshot beside the old one. Its methods block."""

    def __init__(self, path: Path, head: bytes) -> None:
        self._path = path
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._file.write(head)
        self._crc = zlib.crc32(head)
        self._count = 0
        self.size = len(head)

    def write(self, items: list[bytes]) -> None:
        """Write items' lines."""
        if not items:
            return
        # Commas stand between items, and so before all but the first.
        data = (b",\n" if self._count else b"") + b",\n".join(items)
        self._count += len(items)
        self._crc = zlib.crc32(data, self._crc)
        self.size += len(data)
        self._file.write(data)

    def finish(self) -> None:
        """Write the end, and make it durable."""
        self.write_end()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def write_end(self) -> None:
        """Write the last line."""
        if self._count:
            self._crc = zlib.crc32(b"\n", self._crc)
            self._file.write(b"\n")
        self._file.write(lines.snapshot_end(self._count, self._crc))

    def abandon(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(OSError):  # it would write what a full disk has not taken
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def make(url: BackendUrl, context: Context) -> Backend:
    """Make a backend of a ``file:///path/cache.json`` URL."""
    compact = url.only("compact").get("compact", str(_COMPACT_FROM))
    if not (compact.isascii() and compact.isdigit()):
        raise ConfigError(f"--backend: compact must be a number of bytes, not {compact!r}")
    if url.host not in ("", ".", "..", "localhost") or url.path in ("", "/"):
        raise ConfigError(
            f"--backend: {url.text!r} names no file; write file:///absolute/path/cache.json, "
            "or file://./cache.json for one in this directory"
        )
    path = Path((url.host if url.host.startswith(".") else "") + url.path)
    try:
        if path.is_dir():
            raise ConfigError(f"--backend: {path} is a directory; name a file in it")
        if path.exists() and not path.is_file():  # to read from a pipe might take for ever
            raise ConfigError(f"--backend: {path} is not a file")
        # Resolved, so that the same file has the same lock by whatever name.
        path = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a NUL, …
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"--backend: {url.text!r}: {reason}") from None
    return FileBackend(path, context, compact_from=int(compact))
