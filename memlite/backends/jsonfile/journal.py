"""The file that changes are appended to, many of them with one fsync."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from memlite.backends.jsonfile.format import Header, checked_lines, journal_header
from memlite.errors import StorageError

__all__ = ["Journal", "sync_folder"]


def sync_folder(path: Path) -> None:
    """Make names in the folder of `path` durable, where the system can (not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


# Records that are written without waiting for what else a turn of the loop brings: that is then
# dealt with during their fsync.
_ENOUGH = 8


class _File:
    """A journal's file. Its methods block, and are called one at a time, from one thread."""

    def __init__(self, path: Path, size: int, crc: int) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        self.size = size
        self._crc = crc
        self.broken: OSError | None = None

    @classmethod
    def create(cls, path: Path, header: Header) -> "_File":
        file = cls(path, 0, 0)
        try:
            # What a compaction that failed has left behind.
            os.ftruncate(file._descriptor, 0)
            file.append([journal_header(header)], durable=True)
            sync_folder(path)
        except BaseException:
            file.close()
            # Left behind it would look as if the one before it had come to its end.
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return file

    def append(self, records: Sequence[bytes], *, durable: bool) -> None:
        if self.broken is not None:
            raise OSError(*self.broken.args)
        data, crc = checked_lines(records, self._crc)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            if durable:
                self.sync()
        except OSError:
            self._cut()
            raise
        self.size += len(data)
        self._crc = crc

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # The system may have dropped what it could not write, and would say "done" next time.
            self.broken = error
            raise

    def _cut(self) -> None:
        """Take away what came through of a failed write."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as error:
            self.broken = error

    def finish(self) -> None:
        """Make what is good of it durable, and nothing else, before another file goes on from it.

        When it is broken, not all may be that was never asked to be: a snapshot has to follow.
        """
        if self.broken is not None:
            os.ftruncate(self._descriptor, self.size)
            os.fsync(self._descriptor)
        else:
            self.sync()

    def close(self) -> None:
        os.close(self._descriptor)


class Journal:
    """Appends records in the order they come; those that come during an fsync share the next.

    Args:
        path: of the current file.
        size: bytes of it that are good.
        crc: checksum of its last line.
        durability: ``always`` syncs before a record counts as written, ``everysec`` once a
            second, ``none`` leaves it to the system.
        on_written: called with how many records were.
        on_failure: called when some could not be; all that were not written by then never will.

    Attributes:
        syncs: how often it was synced.
        failure: why the last records could not be written, empty when they could.
    """

    def __init__(
        self,
        path: Path,
        size: int,
        crc: int,
        *,
        durability: str,
        on_written: Callable[[int], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._file = _File(path, size, crc)
        self._always = durability == "always"
        self._every_second = durability == "everysec"
        self._on_written = on_written
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "memlite-journal")
        self._records: list[bytes] = []
        self._group: asyncio.Future[None] | None = None  # of those records
        self._writing: asyncio.Future[None] | None = None  # the group under way
        self._busy = False
        self._start_due = False
        self._jobs: list[tuple[Callable[[], object], asyncio.Future[object]]] = []
        self._unsynced = False
        self._sync_due = False
        self.syncs = 0
        self.failure = ""

    @property
    def size(self) -> int:
        """Bytes of the current file."""
        return self._file.size

    @property
    def broken(self) -> bool:
        """Whether the file can take no more; `replace` cures that."""
        return self._file.broken is not None

    def append(self, record: bytes) -> asyncio.Future[None]:
        """Write a record behind those before it.

        Returns:
            What is done once it is written, as durably as asked for; several share one. It
            raises StorageError.
        """
        self._records.append(record)
        if self._group is None:
            self._group = self._loop.create_future()
            # Those that are not waited for need not be complained about.
            self._group.add_done_callback(asyncio.Future.exception)
        group = self._group
        if not self._busy:
            if len(self._records) >= _ENOUGH:
                self._start()
            elif not self._start_due:
                # With the others that this turn of the loop brings.
                self._start_due = True
                self._loop.call_soon(self._start)
        return group

    @property
    def pending(self) -> asyncio.Future[None] | None:
        """What is done once all that was appended by now is written; it raises StorageError."""
        return self._group or self._writing

    async def written(self) -> None:
        """Return once what was appended by now is written, or failed to be."""
        if self.pending is not None:
            await asyncio.wait([self.pending])

    def _start(self) -> None:
        self._start_due = False
        if self._busy:
            return
        if self._jobs:
            work, result = self._jobs.pop(0)
            self._begin(work).add_done_callback(lambda done: self._end_job(done, result))
        elif self._sync_due:
            self._sync_due = self._unsynced = False
            self._begin(self._file.sync).add_done_callback(self._end_sync)
        elif self._group is not None:
            records, group = self._records, self._group
            self._records, self._group, self._writing = [], None, group
            self._begin(lambda: self._file.append(records, durable=self._always)).add_done_callback(
                lambda done: self._end_group(done, group, len(records))
            )

    def _begin(self, work: Callable[[], object]) -> asyncio.Future[object]:
        self._busy = True
        return self._loop.run_in_executor(self._thread, work)

    def _end_group(
        self, done: asyncio.Future[object], group: asyncio.Future[None], count: int
    ) -> None:
        self._busy = False
        self._writing = None
        error = done.exception()
        if error is None:
            self.syncs += self._always
            self._unsynced = not self._always
            self.failure = ""
            self._on_written(count)
            if not group.done():  # as when one who waited for it was cancelled
                group.set_result(None)
        else:
            self._fail(error, group)
        self._start()

    def _fail(self, error: BaseException, group: asyncio.Future[None] | None) -> None:
        """Fail all records that are not written: those behind the failed ones build on them."""
        self.failure = reason = _reason(error)
        later, self._group = self._group, None
        self._records = []
        self._on_failure()
        for one in (group, later):
            if one is not None and not one.done():
                one.set_exception(StorageError(f"not stored: {reason}"))

    def _end_job(self, done: asyncio.Future[object], result: asyncio.Future[object]) -> None:
        self._busy = False
        error = done.exception()
        if error is not None and self.broken:
            self.failure = _reason(error)
        if not result.done():
            if error is None:
                result.set_result(done.result())
            else:
                result.set_exception(error)
        self._start()

    async def _do(self, work: Callable[[], object]) -> None:
        """Do something between two writes."""
        result: asyncio.Future[object] = self._loop.create_future()
        self._jobs.append((work, result))
        self._start()
        await result

    async def replace(self, path: Path, header: Header) -> None:
        """Go on in another file; what is in the old one is durable by then.

        Args:
            path: the new file's.
            header: its first line.

        Raises:
            OSError: it could not be; the old one stays in use.
        """

        def work() -> None:
            self._file.finish()
            file = _File.create(path, header)
            self._file.close()
            self._file = file

        await self._do(work)
        self._unsynced = self._sync_due = False

    def tick(self) -> None:
        """Sync what is not, once a second (``everysec``)."""
        if self._every_second and self._unsynced and not self.broken:
            self._sync_due = True  # before the next write, if one is under way
            self._start()

    def _end_sync(self, done: asyncio.Future[object]) -> None:
        self._busy = False
        error = done.exception()
        self.syncs += error is None
        if error is not None:
            self._fail(error, None)
        self._start()

    async def close(self) -> None:
        """Write and sync what is left, and close the file."""
        while self.pending is not None:
            await self.written()
        try:
            if not self.broken:
                await self._do(self._file.sync)
        finally:
            self._thread.shutdown()
            self._file.close()
