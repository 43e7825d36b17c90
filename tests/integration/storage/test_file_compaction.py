"""The JSON file backend in the test's process: compaction."""

import asyncio
import errno
import os
import random
import time

import pytest

from memlite.backends import Record
from memlite.backends.conversion import item_of
from memlite.backends.jsonfile import backend as module
from memlite.backends.jsonfile.backend import _AbandonedError
from memlite.core.clock import Clock
from memlite.core.errors import OutOfMemoryError, StorageError
from memlite.memory import ItemTable
from memlite.memory.item import FullItem
from tests.support.filestore import (
    contents,
    is_journal,
    open_files,
    opened,
    put,
    reopened,
    settled,
    state,
)

MEGABYTE = 1024 * 1024
START = 1_800_000_000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache.json"


def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 200)


async def test_changes_during_compaction_are_kept(path, monkeypatch):
    small_chunks(monkeypatch)
    rng = random.Random(7)
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock, memory_limit=60_000) as backend:
        keys = [b"key%d" % number for number in range(150)]

        async def change(_):
            key = rng.choice(keys)
            match rng.randrange(12):
                case 0 | 1:
                    await backend.delete(key)
                case 2 if rng.random() < 0.02:
                    await backend.flush()
                case 3 if rng.random() < 0.02:
                    await backend.flush(clock.now() + rng.choice([1, 2]))
                case 4:
                    backend.table.shrink(rng.choice([50_000, 60_000]))
                case 5:
                    await put(backend, key, b"gone soon", expires=clock.now() + 2)
                case _:
                    value = rng.randbytes(rng.choice([0, 10, 500]))
                    await put(backend, key, value, flags=rng.randrange(9))

        for turn in range(12):
            compacting = asyncio.ensure_future(backend._compact())
            while not compacting.done():
                await asyncio.gather(*(change(n) for n in range(20)))
            compacting.result()
            await asyncio.gather(*(change(n) for n in range(5)))
            clock.advance(1)
            assert backend._compactions == turn + 1
            if turn % 4 == 3:
                copy = path.parent / f"copy-{turn}"
                copy.mkdir()
                await backend._journal.written()  # evictions too, which no client waits for
                for name, data in contents(path).items():
                    (copy / name).write_bytes(data)
                options = {"clock": clock, "memory_limit": 60_000}
                assert await reopened(copy / path.name, **options) == state(backend)


async def test_a_refused_change_before_the_snapshot_is_installed_is_not_in_it(
    path, disk, monkeypatch
):
    async with opened(path, kill=True) as backend:
        await put(backend, b"key", b"old")
        change = None

        def failing_later(descriptor, data, real_write=os.write):
            if not is_journal(descriptor):
                return real_write(descriptor, data)
            time.sleep(0.2)
            raise OSError(errno.EIO, "too late")

        def list_keys(table, real_list=ItemTable.list_keys):
            # This is after the start of the new journal, before the first item is written.
            nonlocal change
            monkeypatch.setattr(os, "write", failing_later)
            change = backend.put(Record(b"key", b"refused"))
            return real_list(table)

        monkeypatch.setattr(ItemTable, "list_keys", list_keys)
        with pytest.raises(_AbandonedError, match="could not be written during the compaction"):
            await backend._compact()
        with pytest.raises(StorageError):
            await change
        monkeypatch.undo()
        expected = state(backend)
        assert expected[b"key"][0] == b"old"
        backend._snapshot_owed = False
    assert await reopened(path) == expected


async def test_a_snapshot_that_does_not_fit_leaves_nothing_behind(path, disk, monkeypatch):
    async with opened(path, kill=True, compact_from=100) as backend:
        await put(backend, b"key", b"x" * 1000)
        before = set(contents(path))
        count = open_files()
        real_open = os.fdopen

        class Full:
            def __init__(self, file):
                self._file = file

            def write(self, data):
                return self._file.write(data)

            def flush(self):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            def fileno(self):
                return self._file.fileno()

            def close(self):
                self._file.close()
                self.flush()

        monkeypatch.setattr(os, "fdopen", lambda *how: Full(real_open(*how)))
        for _ in range(10):
            backend._next_compaction = 0
            backend.tick()
            await settled(backend)
            await put(backend, b"key", b"y")
        monkeypatch.undo()
        after = set(contents(path))
        assert "cache.json.tmp" not in after
        # There is one more journal, however many attempts there were.
        assert len(after) == len(before) + 1
        assert open_files() == count
        assert backend._compactions == 0
        backend._next_compaction = 0
        backend.tick()
        await settled(backend)
        assert backend._compactions == 1
        assert len(contents(path)) == 2


async def test_an_interrupted_compaction_is_completed_at_start(path, monkeypatch):
    async with opened(path, kill=True) as backend:
        await put(backend, b"key", b"1")
        monkeypatch.setattr(backend, "_install", lambda number: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await backend._compact()
        await put(backend, b"key", b"2")
        expected = state(backend)
    assert len(contents(path)) == 3
    async with opened(path, kill=True) as backend:
        await settled(backend)
        assert backend._compactions == 1
        assert len(contents(path)) == 2
    assert await reopened(path) == expected


async def test_after_a_compaction_none_is_due(path):
    async with opened(path, kill=True) as backend:
        await put(backend, b"key", b"x")
        await backend._compact()
        backend.tick()
        assert backend._compaction is None
        assert backend.stats()["compactions"] == 1


async def test_many_compactions_leak_no_files(path):
    async with opened(path, kill=True) as backend:
        await put(backend, b"key", b"x")
        await backend._compact()
        before = open_files()
        for _ in range(30):
            await put(backend, b"key", b"x" * 100)
            await backend._compact()
        assert open_files() == before
        assert len(contents(path)) == 2
    assert backend._compactions == 31


async def test_expired_items_are_dropped_by_compaction_and_freed(path):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        for number in range(100):
            await put(backend, b"key%d" % number, b"x", expires=START + 10)
        await put(backend, b"kept", b"x")
        clock.advance(20)
        await backend._compact()
        assert path.read_bytes().count(b'"key"') == 1
        backend.tick()
        assert len(backend.table) == 1
        expected = state(backend)
    assert await reopened(path, clock=clock) == expected


async def test_expired_items_make_room_if_eviction_is_disabled(path):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock, memory_limit=10_000, evict=False) as backend:
        with pytest.raises(OutOfMemoryError):
            for number in range(100):
                await put(backend, b"key%d" % number, b"x" * 500, expires=START + 10)
        clock.advance(20)
        backend.tick()
        await put(backend, b"new", b"x" * 500)
        assert set(state(backend)) == {b"new"}


async def test_a_delayed_flush_survives_compaction_and_restart(path):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        await put(backend, b"key", b"1")
        await backend.flush(START + 10)
        await backend._compact()
        await put(backend, b"between", b"2")
    async with opened(path, kill=True, clock=clock) as backend:
        assert len(state(backend)) == 2
        compacting = asyncio.ensure_future(backend._compact())
        await asyncio.sleep(0)
        clock.advance(11)
        assert state(backend) == {}
        await put(backend, b"after", b"3")
        await compacting
        expected = state(backend)
        assert set(expected) == {b"after"}
    assert await reopened(path, clock=clock) == expected
    clock.advance(100)
    assert await reopened(path, clock=clock) == expected


async def test_a_flush_that_was_due_while_the_server_was_down(path):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        await put(backend, b"key", b"1")
        await backend.flush(START + 10)
    clock.advance(20)
    async with opened(path, kill=True, clock=clock) as backend:
        assert state(backend) == {}
        await put(backend, b"after", b"2")
        expected = state(backend)
    assert set(expected) == {b"after"}
    assert await reopened(path, clock=clock) == expected


async def test_compaction_yields_to_other_tasks_even_if_it_writes_nothing(path, monkeypatch):
    """For example, when a great many items have expired."""
    small_chunks(monkeypatch)
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        for number in range(1000):
            item = item_of(Record(b"key%d" % number, b"", 0, START + 1), FullItem)
            backend.table.put(b"key%d" % number, item)
        clock.advance(10)
        pauses = 0
        real = module.SnapshotWriter.write

        def write(writer, chunk):
            nonlocal pauses
            pauses += 1
            real(writer, chunk)

        monkeypatch.setattr(module.SnapshotWriter, "write", write)
        await backend._compact()
        assert pauses > 200
