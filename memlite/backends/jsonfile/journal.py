"""Appends changes to a file, many of them with one fsync."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple, TypeAlias

from memlite.backends.jsonfile.format import MARKER, Header, checked_lines, journal_header
from memlite.backends.jsonfile.lock import is_same_file, try_lock_journal, unlock_journal
from memlite.core.errors import StorageError
from memlite.memory.item import Item
from memlite.memory.table import Contents

__all__ = ["Change", "Journal", "PendingFlushAll", "reason_of", "sync_folder"]


class PendingFlushAll(NamedTuple):
    """A `flush_all` that is not written yet.

    Attributes:
        at: unix time in seconds, 0 for at once.
        before: the time of the `flush_all` that it replaced, 0 for none.
        removed: the items that it removed, None if it cannot be undone.
    """

    at: float
    before: float
    removed: Contents | None = None


Change: TypeAlias = tuple[bytes, Item | PendingFlushAll | None]
"""How to undo a change: a key and its previous item (None if absent), or no key and a flush."""


def sync_folder(path: Path) -> None:
    """Make the names in the folder of `path` durable, where the system can (not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason_of(error: BaseException) -> str:
    """Return why something failed, in a few words; never an empty text."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text or type(error).__name__


# Once this many entries wait, they are written without waiting for the end of the event loop's
# iteration, the rest of which runs during their fsync.
_ENOUGH = 8


class _File:
    """The file of a journal. Its methods block; one thread calls them, one at a time."""

    def __init__(self, path: Path, size: int, crc: int) -> None:
        self.path = path
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        if not try_lock_journal(self._descriptor):
            os.close(self._descriptor)
            raise OSError(errno.EWOULDBLOCK, "in use by another server", str(path))
        self.size = size
        self._crc = crc
        # Bytes known to be durable, and bytes that the file records as durable.
        self._synced = self._noted = 0
        self.broken: OSError | None = None
        self.record: Callable[[str, str, int], None] | None = None

    @classmethod
    def create(cls, path: Path, header: Header) -> "_File":
        file = cls(path, 0, 0)
        try:
            # A failed compaction may have left something there.
            os.ftruncate(file._descriptor, 0)
            file.append([journal_header(header)], durable=True)
            sync_folder(path)
        except BaseException:
            file.close()
            # If it stayed, the previous journal would look complete.
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return file

    def append(self, entries: Sequence[bytes], *, durable: bool) -> None:
        if self.broken is not None:
            raise OSError(*self.broken.args)
        synced = self._synced if self._synced > self._noted else 0
        data, crc = checked_lines(entries, self._crc, synced)
        try:
            view = memoryview(data)
            while view:
                written = os.write(self._descriptor, view)
                if not written:
                    raise OSError(errno.EIO, "nothing was written")
                view = view[written:]
            if durable:
                self._sync(self.size + len(data))
        except BaseException:
            self._cut()
            raise
        self.size += len(data)
        self._crc = crc
        self._noted = max(self._noted, synced)

    def sync(self) -> None:
        self._sync(self.size)

    def _sync(self, size: int) -> None:
        began = perf_counter_ns() if self.record is not None else 0
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # The system may have dropped the data it could not write, and the next fsync would
            # succeed without it.
            self.broken = error
            raise
        if self.record is not None:
            self.record("fsync", "ok", perf_counter_ns() - began)
        self._check(size)
        self._synced = size

    def check(self) -> None:
        """Raise OSError if another program removed, replaced or truncated the file."""
        self._check(self.size)

    def note(self) -> None:
        """Record in the file how much of it is durable, if it does not say so yet.

        At the next start, this distinguishes damage before that point from the torn end of a write.
        """
        if self._synced > self._noted:
            with contextlib.suppress(OSError):  # the next entry will note it
                self.append([MARKER], durable=False)

    def _check(self, size: int) -> None:
        if not is_same_file(self._descriptor, self.path):
            problem = "was removed or replaced while the server was running"
        elif os.fstat(self._descriptor).st_size != size:
            problem = "was changed while the server was running"
        else:
            return
        self.broken = OSError(errno.ESTALE, f"{self.path.name} {problem}")
        raise self.broken

    def _cut(self) -> None:
        """Remove the part of a failed write that reached the file."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as error:
            self.broken = error

    def finish(self) -> None:
        """Make only its intact part durable, before another file continues it.

        If the file is broken, entries that were not written with an fsync may be missing from it:
        a snapshot has to follow.
        """
        if self.broken is not None:
            os.ftruncate(self._descriptor, self.size)
            os.fsync(self._descriptor)
        else:
            self.sync()

    def seal(self) -> None:
        """Make all of it durable, and note that in the file."""
        self.sync()
        self.note()
        self.sync()

    def unlock(self) -> None:
        unlock_journal(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class Journal:
    """Appends entries in order; those that arrive during an fsync share the next one.

    Until an entry is written, it remembers how to undo the change that the entry describes.

    Args:
        path: the current file.
        size: its intact bytes.
        crc: the checksum of its last line.
        durability: ``always`` syncs before an entry counts as written, ``everysec`` once per
            second, ``none`` leaves syncing to the system.
        on_recovery: called when entries were written again after a failure.
        on_flush_all_written: called when a `flush_all` was written.
        on_failure: called when entries could not be written, with the changes to undo, in order.
            Entries not written by then will never be.

    Attributes:
        unwritten: the keys of unwritten changes, with the futures from `append`; the key of a
            `flush_all` is empty.
        broken: whether the file can no longer be written; `replace` repairs that.
        syncs: number of fsyncs.
        failure: why the last entries could not be written, empty if they were.
    """

    def __init__(
        self,
        path: Path,
        size: int,
        crc: int,
        *,
        durability: str,
        on_recovery: Callable[[], None],
        on_flush_all_written: Callable[[PendingFlushAll], None],
        on_failure: Callable[[list[Change]], None],
    ) -> None:
        self._file = _File(path, size, crc)
        self._always = durability == "always"
        self._every_second = durability == "everysec"
        self._on_recovery = on_recovery
        self._on_flush_all_written = on_flush_all_written
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "memlite-journal")
        self.unwritten: dict[bytes, asyncio.Future[None]] = {}
        self._entries: list[bytes] = []
        self._changes: list[Change] = []  # described by these entries
        self._group: asyncio.Future[None] | None = None  # of these entries
        # The changes and the future of the entries being written.
        self._changes_in_writing: list[Change] = []
        self._writing: asyncio.Future[None] | None = None
        self._busy = False
        self._start_due = False
        self._jobs: list[tuple[Callable[[], object], asyncio.Future[object]]] = []
        self._unsynced = False
        self._check_due = False
        self.broken = False
        self.syncs = 0
        self.failure = ""

    def measure(self, record: Callable[[str, str, int], None]) -> None:
        """Report how long each fsync takes; see `Backend.measure`."""
        self._file.record = record

    @property
    def size(self) -> int:
        """Bytes of the current file."""
        return self._file.size

    def append(
        self, entry: bytes, key: bytes, before: Item | PendingFlushAll | None
    ) -> asyncio.Future[None]:
        """Write an entry after those before it.

        Args:
            entry: from `put_entry` and the other functions.
            key: as in `Change`; empty for a `flush_all`.
            before: as in `Change`.

        Returns:
            A future that is done once the entry is written as durably as configured. Entries that
            are written together share it. It raises StorageError if they cannot be written.
        """
        group = self._group
        if group is None:
            self._group = group = self._loop.create_future()
            # Retrieves its exception, as not every writer waits for it.
            group.add_done_callback(asyncio.Future.exception)
        self._entries.append(entry)
        self._changes.append((key, before))
        self.unwritten[key] = group
        if not self._busy:
            if len(self._entries) >= _ENOUGH:
                self._start()
            elif not self._start_due:
                # At the end of this iteration of the event loop, with its other entries.
                self._start_due = True
                self._loop.call_soon(self._start)
        return group

    @property
    def pending(self) -> asyncio.Future[None] | None:
        """The future of the last entry, unless all are written; it raises StorageError."""
        return self._group or self._writing

    async def written(self) -> None:
        """Return once all entries so far are written, or could not be."""
        if self.pending is not None:
            await asyncio.wait([self.pending])

    def _start(self) -> None:
        """Begin the next due job, unless one is in progress."""
        self._start_due = False
        if self._busy:
            return
        work: Callable[[], object]
        end: Callable[[asyncio.Future[object]], None]
        if self._jobs:
            work, result = self._jobs.pop(0)
            end = partial(self._end_job, result)
        elif self._check_due:
            self._check_due = False
            syncs = self._every_second and self._unsynced
            self._unsynced = False
            work = partial(self._look_after, syncs=syncs)
            end = partial(self._end_check, syncs)
        elif self._group is not None:
            work = partial(self._file.append, self._entries, durable=self._always)
            end = partial(self._end_group, self._group)
            self._changes_in_writing, self._writing = self._changes, self._group
            self._entries, self._changes, self._group = [], [], None
        else:
            return
        self._busy = True
        self._loop.run_in_executor(self._thread, work).add_done_callback(end)

    def _end_group(self, group: asyncio.Future[None], done: asyncio.Future[object]) -> None:
        self._busy = False
        self._writing = None
        error = done.exception()
        if error is None:
            self.syncs += self._always
            self._unsynced = not self._always
            unwritten = self.unwritten
            for key, before in self._changes_in_writing:
                if unwritten.get(key) is group:  # its last change
                    del unwritten[key]
                if isinstance(before, PendingFlushAll):
                    self._on_flush_all_written(before)
            self._changes_in_writing = []
            if self.failure:
                self.failure = ""
                self._on_recovery()
            if not group.done():  # it may have been cancelled
                group.set_result(None)
        else:
            self._fail(error, group)
        self._start()

    def _fail(self, error: BaseException, group: asyncio.Future[None] | None) -> None:
        """Fail all unwritten entries: later ones build on those that failed."""
        self.failure = reason = reason_of(error)
        self.broken = self._file.broken is not None
        changes, later = self._changes_in_writing + self._changes, self._group
        self._entries, self._changes_in_writing, self._changes, self._group = [], [], [], None
        self.unwritten.clear()
        self._on_failure(changes)
        for one in (group, later):
            if one is not None and not one.done():
                one.set_exception(StorageError(f"not stored: {reason}"))

    def _end_job(self, result: asyncio.Future[object], done: asyncio.Future[object]) -> None:
        self._busy = False
        self.broken = self._file.broken is not None
        error = done.exception()
        if self._file.broken is not None:
            self.failure = reason_of(error or self._file.broken)
        if not result.done():
            if error is None:
                result.set_result(done.result())
            else:
                result.set_exception(error)
        self._start()

    async def _do(self, work: Callable[[], object]) -> None:
        """Run work between two writes."""
        result: asyncio.Future[object] = self._loop.create_future()
        self._jobs.append((work, result))
        self._start()
        await result

    async def replace(self, path: Path, header: Header) -> None:
        """Continue in another file, after making the content of the old one durable.

        Args:
            path: the new file.
            header: its first line.

        Raises:
            OSError: that failed; the old file stays in use.
        """

        def work() -> None:
            self._file.finish()
            if path == self._file.path:  # the file is restarted
                self._file.unlock()
            file = _File.create(path, header)
            file.record = self._file.record
            self._file.close()
            self._file = file

        await self._do(work)
        self._unsynced = self._check_due = False

    def tick(self) -> None:
        """Sync unsynced entries (``everysec``), and check that the file still exists.

        Called once a second.
        """
        if not self.broken:
            self._check_due = True  # before the next write, if one is in progress
            self._start()

    async def check(self) -> None:
        """Check that the file still exists; if not, set `broken`."""
        with contextlib.suppress(OSError):  # reported by `failure`
            await self._do(self._file.check)

    def _look_after(self, *, syncs: bool) -> None:
        if syncs:
            self._file.sync()
        else:
            self._file.check()
        self._file.note()

    def _end_check(self, synced: bool, done: asyncio.Future[object]) -> None:
        self._busy = False
        error = done.exception()
        self.syncs += synced and error is None
        if error is not None:
            self._fail(error, None)
        self._start()

    async def close(self) -> None:
        """Write and sync the remaining entries, and close the file."""
        while self.pending is not None:
            await self.written()
        try:
            if not self.broken:
                await self._do(self._file.seal)
        finally:
            self._thread.shutdown()
            self._file.close()
