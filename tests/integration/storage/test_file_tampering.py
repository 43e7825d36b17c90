"""The file backend when somebody removes or replaces its files while it runs."""

import os
import shutil

import pytest

from memlite.backends.jsonfile import FileBackend
from memlite.backends.registry import Context
from memlite.core.errors import StartError, StorageError
from tests.support.filestore import opened, put, settled, state

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
        assert "while the server runs" in caplog.text
    assert set(expected) == {b"old"}
    assert await reopened(path) == expected


@pytest.mark.parametrize("durability", ["everysec", "none"])
async def test_what_was_acknowledged_before_it_was_noticed_is_kept(path, durability):
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
        assert "was removed while the server runs; written again" in caplog.text
        expected = state(backend)
    assert await reopened(path) == expected


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
        assert f"{lock} was removed while the server runs; made again" in caplog.text
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
    assert "is missing: what it held is lost, if it held anything" in caplog.text


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


async def reopened(path):
    async with opened(path, kill=True) as backend:
        return state(backend)
