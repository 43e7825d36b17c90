"""The file backend when its files are removed or replaced while it runs."""

import errno
import os
import shutil

import pytest

from memlite.backends.jsonfile import FileBackend
from memlite.backends.jsonfile.format import Header
from memlite.backends.jsonfile.load import journal_path
from memlite.backends.registry import Context
from memlite.core.errors import StartError, StorageError
from tests.support.filestore import opened, put, reopened, settled, state

DURABILITY = ["always", "everysec", "none"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache.json"


def journal_of(path):
    (journal,) = path.parent.glob("cache.json.journal.*")
    return journal


def remove(journal):
    journal.unlink()


def replace_by_copy(journal):
    copy = journal.with_name("copy")
    shutil.copy(journal, copy)
    copy.rename(journal)


def rename(journal):
    journal.rename(journal.with_name("rotated"))


def empty(journal):
    os.truncate(journal, 0)


def extend(journal):
    with journal.open("ab") as file:
        file.write(b"more\n")


TAMPERING = [remove, replace_by_copy, rename, empty, extend]


async def repaired(backend):
    """Wait until the backend has noticed, and has written its files again."""
    backend.tick()
    await backend._journal._do(lambda: None)
    backend.tick()
    await settled(backend)


@pytest.mark.parametrize("tamper", TAMPERING)
async def test_a_change_is_refused_if_the_journal_was_changed(path, tamper):
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")
        tamper(journal_of(path))
        with pytest.raises(StorageError, match=r"not stored: cache\.json\.journal\.1 was "):
            await put(backend, b"new", b"2")
        with pytest.raises(StorageError, match=r"not stored: cache\.json\.journal\.1 was "):
            await backend.flush()
        assert set(state(backend)) == {b"old"}
        await repaired(backend)
        await put(backend, b"new", b"3")
        expected = state(backend)
    assert set(expected) == {b"old", b"new"}
    assert await reopened(path) == expected


@pytest.mark.parametrize("durability", DURABILITY)
@pytest.mark.parametrize("tamper", TAMPERING)
async def test_a_changed_journal_is_noticed_without_a_change(path, tamper, durability, caplog):
    async with opened(path, kill=True, durability=durability) as backend:
        await put(backend, b"old", b"1")
        tamper(journal_of(path))
        await repaired(backend)
        expected = state(backend)
        assert "while the server was running" in caplog.text
    assert set(expected) == {b"old"}
    assert await reopened(path) == expected


@pytest.mark.parametrize("durability", ["everysec", "none"])
async def test_changes_acknowledged_before_the_damage_is_noticed_are_kept(path, durability):
    async with opened(path, kill=True, durability=durability) as backend:
        await put(backend, b"old", b"1")
        journal_of(path).unlink()
        await put(backend, b"new", b"2")
        await repaired(backend)
        expected = state(backend)
    assert set(expected) == {b"old", b"new"}
    assert await reopened(path) == expected


async def test_a_removed_snapshot_is_written_again(path, caplog):
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")
        path.unlink()
        backend.tick()
        await settled(backend)
        assert f"{path} was removed or changed while the server was running" in caplog.text
        expected = state(backend)
    assert await reopened(path) == expected


async def test_a_replaced_snapshot_is_written_again(path, caplog):
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")
        shutil.copy(path, path.with_name("older"))
        await backend._compact()
        path.with_name("older").replace(path)
        backend.tick()
        await settled(backend)
        assert f"{path} was removed or changed while the server was running" in caplog.text
        expected = state(backend)
    assert await reopened(path) == expected


async def test_a_snapshot_that_the_server_replaces_is_no_reason_to_complain(path, caplog):
    async with opened(path) as backend:
        for _ in range(3):
            await put(backend, b"old", b"1")
            await backend._compact()
            backend.tick()
            await settled(backend)
    assert caplog.messages == []


async def test_an_earlier_journal_that_is_still_needed_is_removed(path, caplog):
    """A compaction was abandoned after it had begun the next journal."""
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")
        number = backend._number
        await backend._journal.replace(journal_path(path, number + 1), Header(number + 1, 9))
        backend._number, backend._snapshot_owed = number + 1, True
        backend._next_compaction = float("inf")
        await put(backend, b"new", b"2")
        journal_path(path, number).unlink()
        backend.tick()
        assert f"{journal_path(path, number)} was removed" in caplog.text
        backend._next_compaction = 0.0
        backend.tick()
        await settled(backend)
        expected = state(backend)
    assert set(expected) == {b"old", b"new"}
    assert await reopened(path) == expected


@pytest.mark.parametrize("what", ["journal", "snapshot"])
@pytest.mark.parametrize("noticed", ["not", "before", "during"])
async def test_a_stopping_server_writes_removed_files_again(path, what, noticed):
    """This holds even if there is too much data to write a snapshot at each stop."""
    keys = {b"key%d" % number for number in range(20)}
    async with opened(path, compact_from=10**9) as backend:
        for key in keys:
            await put(backend, key, b"v" * 1_000_000)
        if what == "snapshot":
            await backend._compact()
        (journal_of(path) if what == "journal" else path).unlink()
        if noticed != "not":
            backend.tick()
            await backend._journal.check()
        if noticed == "during":
            backend.tick()
            assert backend._compaction is not None
    assert set(await reopened(path)) == keys


async def test_a_stopping_server_says_that_unwritten_data_is_lost(path, caplog):
    async with opened(path) as backend:
        await put(backend, b"old", b"1")
        path.parent.rename(path.parent.with_name("moved"))
    path.parent.with_name("moved").rename(path.parent)
    assert f"{path}: data that was only in memory is lost" in caplog.text


async def test_files_that_another_server_has_created_are_left_alone(path, caplog):
    """All files are removed, and a second server starts: the first must not disturb it."""
    async with opened(path) as first:
        await put(first, b"old", b"1")
        for file in path.parent.iterdir():
            file.unlink()
        async with opened(path, kill=True) as second:
            await put(second, b"second", b"1")
            for _ in range(3):
                await repaired(first)
                first._next_compaction = 0.0
            await refused(first)
            await repaired(second)
            await put(second, b"second too", b"1")
        await repaired(first)  # the second has ended, but the files are still its own
        await refused(first)
        assert "has taken over the files since" in caplog.text
    assert "data that was only in memory is lost" in caplog.text
    assert set(await reopened(path)) == {b"second", b"second too"}


async def refused(backend):
    with pytest.raises(StorageError, match="was removed or replaced while the server was running"):
        await put(backend, b"first", b"2")


@pytest.mark.parametrize("durability", DURABILITY)
async def test_files_that_were_all_removed_are_written_again_at_once(path, durability):
    """One attempt is enough, although snapshot and journal are missing at the same time."""
    async with opened(path, kill=True, durability=durability) as backend:
        await put(backend, b"old", b"1")
        for file in path.parent.iterdir():
            file.unlink()
        backend.tick()
        await settled(backend)
        await put(backend, b"new", b"2")
        expected = state(backend)
    assert set(expected) == {b"old", b"new"}
    assert await reopened(path) == expected


async def test_each_problem_is_logged(path, monkeypatch, caplog):
    """A problem with the lock file is not confused with a write error."""
    async with opened(path, kill=True) as backend:
        lock = path.with_name("cache.json.lock")
        lock.unlink()
        lock.mkdir()
        for _ in range(2):
            backend.tick()
        assert caplog.text.count(f"{lock}: Is a directory") == 1
        lock.rmdir()
        backend.tick()
        monkeypatch.setattr(os, "fsync", fail_to_write)
        with pytest.raises(StorageError):
            await put(backend, b"a", b"1")
        monkeypatch.undo()
        assert "Input/output error" in caplog.text


def fail_to_write(descriptor):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_a_removed_folder_is_an_error_until_it_is_back(path):
    moved = path.parent.with_name("moved")
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")
        path.parent.rename(moved)
        with pytest.raises(StorageError, match="was removed or replaced"):
            await put(backend, b"new", b"2")
        await repaired(backend)
        with pytest.raises(StorageError, match=r"not stored: ."):
            await put(backend, b"new", b"2")
        moved.rename(path.parent)
        backend._next_compaction = 0.0
        await repaired(backend)
        await put(backend, b"new", b"3")
        expected = state(backend)
    assert await reopened(path) == expected


@pytest.mark.parametrize("way", ["removed", "replaced"])
async def test_a_second_server_does_not_start_without_the_lock_file(path, way, caplog):
    lock = path.with_name("cache.json.lock")
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")
        lock.unlink()
        if way == "replaced":
            lock.touch()
        before = journal_of(path).read_bytes()
        for _ in range(2):
            with pytest.raises(StartError, match="is in use by another server"):
                await FileBackend(path, Context()).open()
        assert journal_of(path).read_bytes() == before
        backend.tick()
        assert f"{lock} was removed while the server was running; created it again" in caplog.text
        assert lock.read_text() == f"{os.getpid()}\n"
        await put(backend, b"new", b"2")
        expected = state(backend)
    assert await reopened(path) == expected


async def test_a_missing_journal_is_mentioned(path, caplog):
    async with opened(path) as backend:
        await put(backend, b"old", b"1")
    journal_of(path).unlink()
    async with opened(path) as backend:
        assert set(state(backend)) == {b"old"}
    assert "is missing: any changes in it are lost" in caplog.text


@pytest.mark.parametrize("error", [OSError(), OSError("odd"), MemoryError()])
async def test_the_reason_is_never_empty(path, error, monkeypatch):
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")

        def fail(descriptor):
            raise error

        monkeypatch.setattr(os, "fsync", fail)
        expected = str(error) or type(error).__name__
        for _ in range(2):
            with pytest.raises(StorageError, match=f"^not stored: {expected}$"):
                await put(backend, b"new", b"2")
        monkeypatch.undo()
