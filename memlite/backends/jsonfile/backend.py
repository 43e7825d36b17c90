"""All items in memory; changes go to a journal before they are acknowledged, and to snapshots."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from orjson import dumps

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.conversion import item_of, record_of
from memlite.backends.jsonfile.format import (
    MAX_PLAIN,
    PLAIN_PUT,
    Header,
    delete_entry,
    flush_entry,
    put_entry,
    snapshot_head,
    snapshot_line,
)
from memlite.backends.jsonfile.journal import Change, Journal, PendingFlushAll, reason_of
from memlite.backends.jsonfile.load import Loaded, journal_path, journals_of, load
from memlite.backends.jsonfile.lock import Lock, missing_folder, try_lock_journal
from memlite.backends.jsonfile.snapshot import SnapshotFile, SnapshotWriter
from memlite.backends.record import Record, Versioned
from memlite.backends.registry import BackendUrl, Context
from memlite.core.errors import (
    ConfigError,
    OutOfMemoryError,
    StartError,
    StorageError,
    VersionConflict,
)
from memlite.core.logs import failure
from memlite.memory.eviction import POLICIES, cost
from memlite.memory.item import FullItem, Item, key_of, line_of
from memlite.memory.table import Contents, ItemTable

__all__ = ["FileBackend", "make"]

_log = logging.getLogger("memlite")

# A journal is compacted once it is larger than the snapshot and than this (or ?compact=BYTES).
_COMPACT_FROM = 4 * 1024 * 1024
# At shutdown a snapshot is written if the items take no more bytes than this.
_COMPACTED_AT_END = 16 * 1024 * 1024
# Bytes of a snapshot that are formatted at a time, while the server handles nothing else; and how
# many of those bytes take as long as skipping an item.
_CHUNK = 128 * 1024
_LOOK = 64
# Records yielded by scan before other tasks get a turn.
_SCANNED_AT_ONCE = 100
_RETRY_SECONDS = 5.0
# Items checked for expiry once a second.
_SWEPT_PER_TICK = 10_000
# Versions skipped at each start. Clients may have seen versions that are in no file: those of
# changes in progress when the server was killed, or lost in a crash of the machine before they were
# synced.
_LOST_VERSIONS = 2**24
# Stands for the key of a flush.
_ALL = b""


class FileBackend(Backend):
    """Keeps all items in a table, and in files from which the table can be restored.

    A change is applied to the table at once, and undone if it cannot be written. Later changes can
    build on it and share its fsync; replies that reveal it are delayed until it is written.

    Args:
        path: the snapshot. The names of the other files begin with it.
        context: the server's settings.
        compact_from: bytes up to which a journal is not compacted.

    Attributes:
        table: every item. Items are replaced, never changed in place, except for their state.
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
        self._first = self._number = 1  # the journals that the snapshot needs
        self._undone = 0
        self._complained = False
        self._lock_trouble = ""  # last logged
        # A due `flush_all` could not be written: it must be the next entry.
        self._flush_all_owed = False
        # More than one journal has to be read at the next start until a snapshot is written.
        self._snapshot_owed = False
        # Some items are in no file until a snapshot is written, because a file was removed or
        # changed.
        self._in_memory_only = False
        self._snapshot = SnapshotFile(path)
        self._left_out: list[bytes] = []
        self._snapshot_bytes = 0
        self._snapshot_version = 0
        self._compaction: asyncio.Task[None] | None = None
        self._compactions = 0
        self._closing = False
        self._next_compaction = 0.0
        self._record: Callable[[str, str, int], None] | None = None

    _journal: Journal
    _lock: Lock

    # Life

    async def open(self) -> None:
        """Lock the files, and read them."""
        self._lock = Lock(self.path.with_name(self.path.name + ".lock"))
        try:
            self._check_journals()
            self._lock.sign()
            # In a thread, so that signals are handled meanwhile.
            loaded = await asyncio.to_thread(self._load)
            self._journal = Journal(
                journal_path(self.path, self._number),
                loaded.size,
                loaded.crc,
                durability=self._context.durability,
                on_recovery=self._log_recovery,
                on_flush_all_written=self._free_flushed,
                on_failure=self._undo_all,
            )
            if self._record is not None:
                self._journal.measure(self._record)
            if not loaded.size:
                await self._journal.replace(
                    journal_path(self.path, self._number), Header(self._number, self._version)
                )
            await self._journal_left_out()
        except StorageError as error:
            self._lock.release()
            raise StartError(f"--backend: {self.path}: {error}") from None
        except OSError as error:
            self._lock.release()
            raise StartError(
                f"--backend: {error.filename or self.path}: {reason_of(error)}"
            ) from None
        except BaseException:
            self._lock.release()
            raise
        self._compact_if_due()

    def _check_journals(self) -> None:
        """Check that no server uses the journals, as the lock file could have been removed."""
        for journal in journals_of(self.path).values():
            descriptor = os.open(journal, os.O_RDWR | os.O_CLOEXEC)
            try:
                if not try_lock_journal(descriptor):
                    raise StartError(
                        f"--backend: {self.path} is in use by another server, whose lock file "
                        "was removed"
                    )
            finally:
                os.close(descriptor)

    def _load(self) -> Loaded:
        self._snapshot.recognize()
        loaded = load(self.path)
        self._snapshot.temporary.unlink(missing_ok=True)
        lost = _LOST_VERSIONS if loaded.snapshot else 0
        if not loaded.snapshot:
            self._write_empty_snapshot(loaded)
        for number, journal in journals_of(self.path).items():
            if number < loaded.first:
                journal.unlink()
        self._version, self._flush_at = loaded.version + lost, loaded.flush_at
        self._first, self._number = loaded.first, loaded.journal
        self._snapshot_bytes = loaded.snapshot
        self._snapshot_version = loaded.snapshot_version + lost
        self._snapshot_owed = loaded.journal > loaded.first
        now = self._clock.now()
        if not 0 < self._flush_at <= now:
            self._fill(loaded.items, now)
        return loaded

    def _fill(self, items: dict[bytes, FullItem], now: float) -> None:
        # If there is not enough room for all items, the oldest are left out.
        keys: list[bytes] = []
        room = self.table.limit
        for key in sorted(items, key=lambda key: items[key].version, reverse=True):
            item = items[key]
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
                f"--backend: {self.path} holds more than -m allows, and -M forbids dropping "
                "items; raise -m"
            ) from None
        self.table.on_evict = self._journal_evictions

    async def _journal_left_out(self) -> None:
        """Remove items that did not fit from the file, lest they reappear once there is room."""
        left_out, self._left_out = self._left_out, []
        if left_out:
            _log.warning(
                "%s holds more than -m allows: dropped %d items, mostly the oldest",
                self.path,
                len(left_out),
            )
        written = None
        for key in left_out:
            self._version += 1
            written = self._journal.append(delete_entry(self._version, key), key, None)
        if written is not None:
            await written

    async def close(self) -> None:
        """Write the remaining changes, and a snapshot if that takes little time."""
        self._closing = True
        try:
            await self._journal.written()
            if self._compaction is not None:
                await asyncio.wait([self._compaction])
            await self._journal.check()
            self._check_files()
            self._in_memory_only |= self._journal.broken
            changed = self._version > self._snapshot_version
            if (changed or self._in_memory_only) and self._worth_writing_at_end:
                await self._compact_and_tell()
            if self._in_memory_only:
                _log.error("%s: data that was only in memory is lost", self.path)
            await self._journal.close()
        except OSError as error:
            _log.error("%s: %s", self.path, reason_of(error))
        finally:
            self._lock.release()

    # Reads

    def peek_item(self, line: bytes) -> Item | None:
        """Return the item that a request line asks for; it may not be written yet."""
        if self._flush_at:
            self._flush_if_due()
        return self.table.get_by_line(line)

    def peek(self, key: bytes) -> Record | None:
        """Return the record of `key`; it may not be written yet."""
        item = self.peek_item(line_of(key))
        return None if item is None else record_of(key, item)

    async def get(self, key: bytes) -> Record | None:
        """Return the record of `key`; it may not be written yet."""
        return self.peek(key)

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return a future that is done once the last changes of `keys` are written."""
        unwritten = self._journal.unwritten
        if not unwritten or not (_ALL in unwritten or any(key in unwritten for key in keys)):
            return None
        return self._journal.pending

    def peek_cached_item(self, line: bytes) -> Item | Unknown | None:
        """Return the item that a request line asks for, if it is written."""
        if self._flush_at:
            self._flush_if_due()
        unwritten = self._journal.unwritten
        if unwritten and (_ALL in unwritten or key_of(line) in unwritten):
            return UNKNOWN
        return self.table.get_by_line(line)

    def peek_cached(self, key: bytes) -> Record | Unknown | None:
        """Return the record of `key`, if it is written."""
        item = self.peek_cached_item(line_of(key))
        return record_of(key, item) if isinstance(item, Item) else item

    async def get_cached(self, key: bytes) -> Record | None:
        """Return the record of `key`, once it is written."""
        while self.peek_cached(key) is UNKNOWN:
            # The present record, not the one after waiting: otherwise, reads of a constantly
            # written key would never be answered.
            undone, record = self._undone, self.peek(key)
            await self._journal.written()
            if self._undone == undone:
                return record
        return self.peek(key)

    async def scan(self) -> AsyncIterator[Record]:
        """Yield every record."""
        if self._flush_at:
            self._flush_if_due()
        for number, key in enumerate(self.table.list_keys(), 1):
            item = self.table.get(key)
            if item is not None:
                yield record_of(key, item)
            if not number % _SCANNED_AT_ONCE:
                await asyncio.sleep(0)

    # Changes

    def put(
        self, record: Record, replacing: Versioned | Anything | None = ANY
    ) -> asyncio.Future[int]:
        """Store a record; see `Backend.put`. The future is done once it is written."""
        item = item_of(record, FullItem)
        written = self.put_item(record.key, item, replacing)
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        written.add_done_callback(partial(_finish, result, item.version))
        return result

    def put_item(
        self, key: bytes, item: FullItem, replacing: Versioned | Anything | None = ANY
    ) -> asyncio.Future[None]:
        """Store an item, which has its version at once; the future is done once it is written."""
        old = self._current(key, replacing)
        version = self._version + 1
        if item.extra:
            item.version = version
        else:  # inlined, as there are no meta flags
            item.extra = version
        try:
            # May evict; that is journaled first, and takes versions.
            if old is None:
                self.table.put(key, item)
            else:
                self.table.replace(key, old, item)
        except OutOfMemoryError:
            if replacing is ANY:
                # An unconditional set removes an item that it could not replace.
                self.delete(key)
            raise
        if self._version >= version:
            item.version = version = self._version + 1
        self._version = version
        return self._journal.append(_put_entry(key, item, version), key, old)

    def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> asyncio.Future[None]:
        """Remove the record of `key`; see `Backend.delete`."""
        old = self._current(key, replacing)
        if old is None:
            nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        self._version += 1
        self.table.delete(key)
        return self._journal.append(delete_entry(self._version, key), key, old)

    def _current(self, key: bytes, replacing: Versioned | Anything | None) -> Item | None:
        """Return the item of `key`, which is about to be changed; see `Backend.put`."""
        if self._journal.broken:
            raise StorageError(f"not stored: {self._journal.failure}")
        if self._flush_at:
            self._flush_if_due()
        if self._flush_all_owed:
            self._write_owed_flush_all()
        current = self.table.get_by_line(b"get %b\r\n" % key)
        if replacing is not ANY and (current and current.version) != (
            replacing and replacing.version
        ):
            raise VersionConflict
        return current

    def _journal_evictions(self, gone: list[tuple[bytes, Item, int]]) -> None:
        self._context.on_evict(gone)
        for line, item, _ in gone:
            key = key_of(line)
            self._version += 1
            self._journal.append(delete_entry(self._version, key), key, item)

    def _log_recovery(self) -> None:
        if self._complained:
            self._complained = False
            _log.warning(
                "%s: writes succeed again",
                self.path,
                extra=failure("file_written", file=str(self.path)),
            )

    def _undo_all(self, changes: list[Change]) -> None:
        """Undo unwritten changes, which will never be written."""
        for key, before in reversed(changes):
            if not isinstance(before, PendingFlushAll):
                self.table.restore(key, before)
                continue
            if before.removed is not None:
                self.table.put_back(before.removed)
            if before.removed is not None or before.at:
                self._flush_at = before.before
            else:
                self._flush_all_owed = True
        self._undone += 1
        if not self._complained:  # once, no matter how many writes fail
            self._complained = True
            _log.error(
                "%s: %s",
                self.path,
                self._journal.failure,
                extra=failure("file_not_written", file=str(self.path)),
            )

    # Flushing

    async def flush(self, at: float = 0.0) -> None:
        """Make all records absent, now or at the unix time `at`."""
        if self._journal.broken:
            raise StorageError(f"not stored: {self._journal.failure}")
        await self._flush(at, None if at else self.table.set_aside())

    def _flush(self, at: float, removed: Contents | None) -> asyncio.Future[None]:
        before, self._flush_at = self._flush_at, at
        if self._flush_all_owed:
            self._write_owed_flush_all()
        self._version += 1
        entry = flush_entry(self._version, at)
        return self._journal.append(entry, _ALL, PendingFlushAll(at, before, removed))

    def _write_owed_flush_all(self) -> None:
        self._flush_all_owed = False
        self._journal.append(flush_entry(self._version, 0.0), _ALL, PendingFlushAll(0.0, 0.0))

    def _flush_if_due(self) -> None:
        # If this cannot be written it is not undone: the delayed flush is in the file already.
        if self._flush_at and self._flush_at <= self._clock.now():
            self.table.flush()
            self._flush(0.0, None)

    def _free_flushed(self, flush: PendingFlushAll) -> None:
        if flush.removed is not None:
            self.table.discard(flush.removed)

    # Snapshots

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
            _log.info(
                "%s: journal compaction postponed: %s",
                self.path,
                reason,
                extra=failure("file_not_compacted", file=str(self.path)),
            )
            self._next_compaction = self._clock.now() + _RETRY_SECONDS
        except (OSError, StartError) as error:
            _log.error(
                "%s: the journal could not be compacted: %s",
                self.path,
                _plain(error),
                extra=failure("file_not_compacted", file=str(self.path)),
            )
            self._next_compaction = self._clock.now() + _RETRY_SECONDS
        finally:
            self._compaction = None

    async def _compact(self) -> None:
        """Switch to a new journal, and write a snapshot that makes the old journals obsolete.

        The server keeps running, and the snapshot may contain some of the changes made meanwhile.
        Replaying the new journal on it gives the right result, as entries hold complete states.
        """
        self._lock.keep()
        # Beforehand: if the journal breaks meanwhile, the snapshot is abandoned for some time.
        await self._journal.check()
        self._in_memory_only |= self._journal.broken
        if self._journal.broken or not self._snapshot_owed:
            # Otherwise the journal of the last attempt will do.
            number = self._number + 1
            header = Header(number, self._version)
            await self._journal.replace(journal_path(self.path, number), header)
            self._number = number
            self._snapshot_owed = True
        number, version, flush_at = self._number, self._version, self._flush_at
        undone = self._undone
        keys = self.table.list_keys()
        head = snapshot_head(number, version, flush_at)
        writer = SnapshotWriter(self._snapshot.temporary, head)
        try:
            chunk: list[bytes] = []
            size = 0
            now = self._clock.now()
            for key in keys:
                item = self.table.get(key)
                if item is not None and not 0 < item.expires <= now:
                    line = snapshot_line(key, cast("FullItem", item))
                    chunk.append(line)
                    size += len(line)
                size += _LOOK
                if size > _CHUNK:
                    if self._closing and not self._worth_writing_at_end:
                        raise _AbandonedError("the server is shutting down")
                    await asyncio.to_thread(writer.write, chunk)
                    chunk, size = [], 0
            await asyncio.to_thread(writer.write, chunk)
            await asyncio.to_thread(writer.finish)
            # The snapshot may contain changes that are not written yet, and could still be undone.
            await self._journal.written()
            if self._undone != undone:
                # It may contain changes that were undone meanwhile.
                raise _AbandonedError("a change could not be written during the compaction")
            self._lock.keep()
            await asyncio.to_thread(self._install, number)
        except BaseException:
            writer.abandon()
            raise
        self._snapshot_bytes, self._snapshot_version = writer.size, version
        self._snapshot_owed = self._in_memory_only = False
        self._first = number
        self._compactions += 1

    @property
    def _worth_writing_at_end(self) -> bool:
        """Whether a stopping server should write a snapshot, although that may take a while."""
        return self._in_memory_only or self.table.used < _COMPACTED_AT_END

    def _install(self, first: int) -> None:
        """Replace the old snapshot by the new one, and remove the obsolete journals."""
        self._snapshot.replace()
        for number, journal in journals_of(self.path).items():
            if number < first:
                journal.unlink()

    def _write_empty_snapshot(self, loaded: Loaded) -> None:
        writer = SnapshotWriter(self._snapshot.temporary, snapshot_head(1, 0, 0.0))
        writer.finish()
        self._snapshot.replace()
        loaded.snapshot = writer.size

    # Housekeeping

    def tick(self) -> None:
        """Sync, flush and compact when due; free some of the expired items."""
        self._flush_if_due()
        if self._flush_all_owed and not self._journal.broken:
            self._write_owed_flush_all()
        self._journal.tick()
        self._check_files()
        self._compact_if_due()
        self.table.walk(_SWEPT_PER_TICK, self._look)

    def _check_files(self) -> None:
        """Keep the lock; have the snapshot rewritten if another program removed or changed it."""
        trouble = ""
        try:
            self._lock.keep()
            changed = None if self._compaction or self._in_memory_only else self._changed_file()
            if changed is not None:
                self._snapshot_owed = self._in_memory_only = True
                _log.error(
                    "%s was removed or changed while the server was running; rewriting all items",
                    changed,
                    extra=failure("file_changed", file=str(changed)),
                )
        except (OSError, StartError) as error:
            trouble = _plain(error)
        if trouble and trouble != self._lock_trouble:
            _log.error(
                "%s: %s", self.path, trouble, extra=failure("file_lost", file=str(self.path))
            )
        self._lock_trouble = trouble

    def _changed_file(self) -> Path | None:
        """Return the snapshot or an earlier journal if it was removed or changed externally."""
        if self._snapshot.changed:
            return self.path
        earlier = (journal_path(self.path, one) for one in range(self._first, self._number))
        return next((journal for journal in earlier if not journal.exists()), None)

    def _look(self, key: bytes, item: Item) -> None:
        """Free an item if it has expired; the file need not change."""
        # Items that are not written are left alone, as their change may have to be undone.
        if 0 < item.expires <= self._clock.now() and key not in self._journal.unwritten:
            self.table.drop(key)

    def measure(self, record: Callable[[str, str, int], None]) -> None:
        """Report how long the journal's fsyncs take."""
        self._record = record

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the number of items and their bytes, and figures on writes."""
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


def _put_entry(key: bytes, item: FullItem, version: int) -> bytes:
    """Return the entry for an item that was stored, faster than `put_entry` for most."""
    if not item.expires and len(item.wire) <= MAX_PLAIN and isinstance(item.extra, int):
        value, flags, stored, _ = item.content()
        if not flags:
            try:
                texts = dumps(key.decode()), dumps(value.decode())
            except UnicodeDecodeError:
                return put_entry(key, item)
            return PLAIN_PUT % (version, *texts, stored)
    return put_entry(key, item)


class _AbandonedError(Exception):
    """A snapshot was abandoned."""


def _finish(result: asyncio.Future[int], version: int, written: asyncio.Future[None]) -> None:
    """Give a change its result once its group is written, or its error."""
    if result.done():
        return
    if written.cancelled():
        result.cancel()
        return
    error = written.exception()
    if error is None:
        result.set_result(version)
    else:
        result.set_exception(error)
        result.exception()  # retrieved, as not every caller waits for it


def _plain(error: OSError | StartError) -> str:
    """Return the reason without the option's name, which belongs to errors at the start."""
    return reason_of(error).removeprefix("--backend: ")


def make(url: BackendUrl, context: Context) -> Backend:
    """Make a backend from a ``file:///path/cache.json`` URL."""
    compact = url.only("compact").get("compact", str(_COMPACT_FROM))
    if not (compact.isascii() and compact.isdigit()):
        raise ConfigError(f"--backend: compact must be a number of bytes, not {compact!r}")
    if url.host not in ("", ".", "..", "localhost") or url.path in ("", "/"):
        raise ConfigError(
            f"--backend: {url.text!r} does not name a file; use file:///absolute/path/cache.json, "
            "or file://./cache.json for one in this directory"
        )
    path = Path((url.host if url.host.startswith(".") else "") + url.path)
    try:
        if path.is_dir():
            raise ConfigError(f"--backend: {path} is a directory; name a file in it")
        if path.exists() and not path.is_file():  # reading from a pipe could block forever
            raise ConfigError(f"--backend: {path} is not a file")
        # Resolved, so that different names of one file mean the same lock.
        path = path.resolve()
        if not path.parent.exists():
            raise StartError(missing_folder(path))
    except (OSError, RuntimeError, ValueError) as error:  # circular links, a NUL, …
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"--backend: {url.text!r}: {reason}") from None
    return FileBackend(path, context, compact_from=int(compact))
