import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from memlite.backends.jsonfile import format as lines
from memlite.backends.jsonfile.format import Header
from memlite.backends.jsonfile.journal import Journal
from memlite.core.errors import StorageError


class Disk:
    """A layer between the journal and the system: counts, delays and fails fsyncs."""

    def __init__(self, monkeypatch):
        self.syncs = 0
        self.fail = {}  # "fsync", "write" or "ftruncate" to an errno
        self.partial = 0  # bytes written by a write that fails
        self.go_on = threading.Event()
        self.go_on.set()
        self._real = {name: getattr(os, name) for name in ("fsync", "write", "ftruncate")}
        for name in self._real:
            monkeypatch.setattr(os, name, getattr(self, name))

    def _call(self, name, *arguments):
        self.go_on.wait(60)
        if name in self.fail:
            raise OSError(self.fail[name], os.strerror(self.fail[name]))
        return self._real[name](*arguments)

    def fsync(self, descriptor):
        self._call("fsync", descriptor)
        self.syncs += 1

    def write(self, descriptor, data):
        if self.partial and "write" in self.fail and len(data) > self.partial:
            size, self.partial = self.partial, 0
            return self._real["write"](descriptor, bytes(data)[:size])
        return self._call("write", descriptor, data)

    def ftruncate(self, descriptor, size):
        self._call("ftruncate", descriptor, size)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


class Log:
    def __init__(self):
        self.written = 0
        self.recoveries = 0
        self.failures = 0
        self.undone = []

    def count(self, done):
        self.written += not done.cancelled() and done.exception() is None

    def recover(self):
        self.recoveries += 1

    def fail(self, changes):
        self.failures += 1
        self.undone += changes


class LoggedJournal(Journal):
    def __init__(self, path, durability):
        self.log = Log()
        super().__init__(
            path,
            0,
            0,
            durability=durability,
            on_recovery=self.log.recover,
            on_flush_all_written=lambda flush: None,
            on_failure=self.log.fail,
        )

    def append(self, entry, key, before):
        written = super().append(entry, key, before)
        written.add_done_callback(self.log.count)
        return written


async def begin(path, durability="always"):
    journal = LoggedJournal(path, durability)
    await journal.replace(path, Header(1, 0))
    return journal, journal.log


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def append(journal, number):
    return journal.append(lines.delete_entry(number, b"key"), b"key", None)


def read(path):
    """Check all entries of a journal and return their versions."""
    header, *rest = path.read_bytes().splitlines()
    _, crc = lines.read_header(header)
    versions = []
    for line in rest:
        found, crc = lines.read_entry(line, crc)
        if found.operation != "synced":
            versions.append(found.version)
    return versions


async def test_many_appends_share_few_fsyncs(tmp_path, disk):
    path = tmp_path / "journal.1"
    journal, log = await begin(path)
    before = disk.syncs
    await asyncio.gather(*(append(journal, number) for number in range(1000)))
    assert disk.syncs <= before + 2  # the first few need not wait for the rest

    async def client(number):
        for turn in range(20):
            await append(journal, number * 20 + turn)

    before = disk.syncs
    await asyncio.gather(*(client(number) for number in range(50)))
    assert disk.syncs - before <= 100  # 1,000 appends, a sync or two for each round of them
    assert log.written == 2000
    assert journal.syncs == disk.syncs - 3  # those of `begin`
    await journal.close()
    assert len(read(path)) == 2000


async def test_entries_written_during_an_fsync_wait_for_the_next(tmp_path, disk):
    path = tmp_path / "journal.1"
    journal, _ = await begin(path)
    disk.go_on.clear()
    first = append(journal, 1)
    await asyncio.sleep(0.02)
    behind = [append(journal, number) for number in range(2, 100)]
    assert all(one is behind[0] for one in behind)
    await asyncio.sleep(0.02)
    assert not first.done()
    assert not behind[0].done()
    before = disk.syncs
    disk.go_on.set()
    await asyncio.gather(first, *behind)
    assert disk.syncs == before + 2
    await journal.close()
    assert read(path) == list(range(1, 100))


async def test_entries_keep_their_order(tmp_path):
    path = tmp_path / "journal.1"
    journal, _ = await begin(path)
    done = []
    for number in range(300):
        future = append(journal, number)
        future.add_done_callback(lambda _, number=number: done.append(number))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await journal.written()
    await asyncio.sleep(0)
    assert done == sorted(done)
    await journal.close()
    assert read(path) == list(range(300))


@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_a_failed_group_fails_all_later_ones(tmp_path, disk, call):
    path = tmp_path / "journal.1"
    journal, log = await begin(path)
    await append(journal, 1)
    size = path.stat().st_size
    disk.go_on.clear()
    disk.fail[call] = errno.ENOSPC
    first = append(journal, 2)
    await asyncio.sleep(0.02)
    behind = append(journal, 3)
    disk.go_on.set()
    for future in (first, behind):
        with pytest.raises(StorageError, match="not stored: No space left on device"):
            await future
    # After a failed write the file's content is known, after a failed fsync it is not.
    assert journal.broken == (call == "fsync")
    assert journal.failure == "No space left on device"
    assert (log.written, log.failures) == (1, 1)
    assert path.stat().st_size == size
    disk.fail.clear()
    if journal.broken:
        with pytest.raises(StorageError):
            await append(journal, 4)
        assert path.stat().st_size == size
    else:
        await append(journal, 4)
        assert journal.failure == ""
    await journal.close()
    assert read(path) == [1] if call == "fsync" else [1, 4]


async def test_bytes_of_a_failed_write_are_removed(tmp_path, disk):
    path = tmp_path / "journal.1"
    journal, _ = await begin(path)
    disk.fail["write"] = errno.ENOSPC
    disk.partial = 20
    with pytest.raises(StorageError):
        await asyncio.gather(*(append(journal, number) for number in range(10)))
    assert not journal.broken
    disk.fail.clear()
    await append(journal, 11)
    await journal.close()
    assert read(path) == [11]


async def test_a_broken_file_takes_nothing_more_and_is_repaired_before_the_next(tmp_path, disk):
    """Half an entry at the end of any journal but the last would be damage."""
    path, after = tmp_path / "journal.1", tmp_path / "journal.2"
    journal, _ = await begin(path)
    await append(journal, 1)
    size = path.stat().st_size
    disk.fail.update(write=errno.EIO, ftruncate=errno.EIO)
    disk.partial = 20
    with pytest.raises(StorageError, match="Input/output error"):
        await append(journal, 2)
    assert journal.broken
    assert path.stat().st_size == size + 20
    with pytest.raises(OSError, match="Input/output error"):
        await journal.replace(after, Header(2, 2))
    assert journal.broken
    assert not after.exists()
    with pytest.raises(StorageError, match="Input/output error"):
        await append(journal, 3)
    disk.fail.clear()
    with pytest.raises(StorageError, match="Input/output error"):
        await append(journal, 3)
    await journal.replace(after, Header(2, 2))
    assert not journal.broken
    await append(journal, 4)
    await journal.close()
    assert read(path) == [1]
    assert read(after) == [4]


@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_a_file_that_could_not_be_begun_is_not_left_behind(tmp_path, disk, call):
    path, after = tmp_path / "journal.1", tmp_path / "journal.2"
    journal, _ = await begin(path)
    before = open_files()
    for _ in range(5):
        if call == "write":
            disk.fail["write"] = errno.ENOSPC
        else:
            real, disk.fsync_calls = disk.fsync, 0

            def second_fails(descriptor, real=real):
                disk.fsync_calls += 1
                if disk.fsync_calls == 2:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                real(descriptor)

            os.fsync = second_fails  # the fixture restores it
        with pytest.raises(OSError):
            await journal.replace(after, Header(2, 0))
        assert not after.exists()
        os.fsync = disk.fsync
        disk.fail.clear()
    assert open_files() == before
    await append(journal, 1)
    await journal.close()
    assert read(path) == [1]


async def test_an_fsync_that_fails_when_the_journal_is_replaced_is_reported(tmp_path, disk):
    journal, _ = await begin(tmp_path / "journal.1")
    disk.fail["fsync"] = errno.EIO
    with pytest.raises(OSError):
        await journal.replace(tmp_path / "journal.2", Header(2, 0))
    assert journal.broken
    assert journal.failure == "Input/output error"
    disk.fail.clear()
    await journal.close()


async def test_unwritten_keys_are_remembered_until_written(tmp_path, disk):
    journal, log = await begin(tmp_path / "journal.1")
    entry = lines.delete_entry(1, b"key")
    disk.go_on.clear()
    first = [journal.append(entry, key, None) for key in (b"a", b"b")]
    await asyncio.sleep(0.02)
    second = journal.append(entry, b"b", None)
    assert journal.unwritten == {b"a": first[0], b"b": second}
    disk.go_on.set()
    await asyncio.gather(*first)
    assert journal.unwritten == {b"b": second}
    await second
    assert journal.unwritten == {}
    assert log.undone == []
    await journal.close()


async def test_unwritten_changes_are_handed_over_in_order(tmp_path, disk):
    journal, log = await begin(tmp_path / "journal.1")
    entry = lines.delete_entry(1, b"key")
    changes = [(b"%d" % number, None) for number in range(6)]

    async def fail():
        disk.go_on.clear()
        disk.fail["write"] = errno.ENOSPC
        for change in changes[:2]:
            journal.append(entry, *change)
        await asyncio.sleep(0.02)
        for change in changes[2:4]:
            journal.append(entry, *change)
        for change in changes[4:]:
            last = journal.append(entry, *change)
        disk.go_on.set()
        with pytest.raises(StorageError):
            await last
        disk.fail.clear()
        undone, log.undone = log.undone, []
        return undone

    assert await fail() == changes
    assert journal.unwritten == {}
    assert (log.written, log.failures, log.recoveries) == (0, 1, 0)
    for _ in range(2):
        await append(journal, 1)
    assert (log.written, log.failures, log.recoveries) == (2, 1, 1)
    await journal.close()


async def until(condition, pause=0.001):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a journal has no event
            await asyncio.sleep(pause)


async def test_everysec_syncs_even_when_a_write_is_always_under_way(tmp_path, disk):
    journal, _ = await begin(tmp_path / "journal.1", "everysec")
    stop = False

    async def client():
        while not stop:
            await append(journal, 1)

    clients = [asyncio.ensure_future(client()) for _ in range(4)]
    before = disk.syncs
    for tick in range(1, 11):
        # At the worst moment.
        await until(lambda: journal._unsynced and journal._busy, pause=0)
        journal.tick()
        await until(lambda tick=tick: disk.syncs == before + tick)
    stop = True
    await asyncio.gather(*clients)
    await journal.close()


@pytest.mark.parametrize("durability", ["everysec", "none"])
async def test_without_always_nothing_waits_for_the_disk(tmp_path, disk, durability):
    path = tmp_path / "journal.1"
    journal, _ = await begin(path, durability)
    before = disk.syncs
    for number in range(10):
        await append(journal, number)
    assert disk.syncs == before
    assert read(path) == list(range(10))  # written even so: the process may be killed
    journal.tick()
    expected = before + (durability == "everysec")
    await until(lambda: disk.syncs == expected)
    for _ in range(2):
        journal.tick()
        await asyncio.sleep(0.05)
    assert disk.syncs == expected
    await journal.close()


async def test_everysec_stops_when_a_sync_fails(tmp_path, disk):
    journal, log = await begin(tmp_path / "journal.1", "everysec")
    await append(journal, 1)
    disk.fail["fsync"] = errno.EIO
    journal.tick()
    await until(lambda: log.failures == 1)
    assert journal.broken
    with pytest.raises(StorageError, match="Input/output error"):
        await append(journal, 2)
    disk.fail.clear()
    await journal.close()


async def test_a_cancelled_waiter_does_not_stop_the_others(tmp_path, disk):
    path = tmp_path / "journal.1"
    journal, _ = await begin(path)
    disk.go_on.clear()
    append(journal, 1).cancel()
    await asyncio.sleep(0.02)
    behind = append(journal, 2)
    disk.go_on.set()
    await asyncio.wait_for(behind, 60)
    await journal.close()
    assert read(path) == [1, 2]


async def test_closing_writes_the_remaining_entries(tmp_path):
    path = tmp_path / "journal.1"
    journal, _ = await begin(path, "none")
    futures = [append(journal, number) for number in range(10)]
    await journal.close()
    assert all(future.done() for future in futures)
    assert read(path) == list(range(10))
