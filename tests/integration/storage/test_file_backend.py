"""The JSON file backend in the test's process: failures, undone changes, and memory."""

import asyncio
import errno
import logging
import os
import random
import re
import threading
import time

import pytest

from memlite.backends import UNKNOWN, Record
from memlite.backends.jsonfile import FileBackend
from memlite.backends.jsonfile.format import MAX_PLAIN, put_entry
from memlite.core.clock import Clock
from memlite.core.errors import StartError, StorageError
from memlite.core.meta_flags import MetaFlags
from memlite.memory.item import FREQUENCY, line_of
from memlite.testing.backend_contract import TestedServer
from tests.support.filestore import (
    contents,
    is_journal,
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


async def outcome(future):
    try:
        await future
    except StorageError:
        return "refused"
    return "done"


# Failed writes


@pytest.mark.parametrize("call", ["fsync", "write"])
async def test_a_failed_write_is_undone_and_never_seen(path, disk, call):
    async with opened(path, kill=True) as backend:
        for key in (b"kept", b"deleted", b"replaced"):
            await put(backend, key, b"old")
        before = state(backend)
        disk.fail[call] = (errno.EIO, ".journal.")
        changes = [
            backend.put(Record(b"replaced", b"1")),
            backend.put(Record(b"replaced", b"2")),
            backend.delete(b"deleted"),
            backend.put(Record(b"deleted", b"new")),
            backend.put(Record(b"added", b"new")),
        ]
        readers = [
            asyncio.ensure_future(backend.get_cached(key))
            for key in (b"replaced", b"deleted", b"added")
        ]
        for change in changes:
            with pytest.raises(StorageError, match="not stored: Input/output error"):
                await change
        found = await asyncio.wait_for(asyncio.gather(*readers), 60)
        assert [item and item.value for item in found] == [b"old", b"old", None]
        assert state(backend) == before
        assert backend.stats()["last_write_error"] == "Input/output error"
        disk.fail.clear()
        if call == "fsync":  # the system may have dropped any data: a new journal is needed
            with pytest.raises(StorageError):
                await put(backend, b"later", b"1")
            backend.tick()
            await settled(backend)
        await put(backend, b"later", b"1")
        expected = state(backend)
        assert set(expected) == {*before, b"later"}
        assert backend.stats()["last_write_error"] == "none"
    assert await reopened(path) == expected


async def test_a_broken_journal_with_part_of_a_record_can_be_opened(path, disk, monkeypatch):
    """The journal that replaces it must not turn its torn end into damage."""
    real = os.write

    def half(descriptor, data):
        if not is_journal(descriptor):
            return real(descriptor, data)
        monkeypatch.setattr(os, "write", full)
        return real(descriptor, bytes(data)[: len(data) // 2])

    def full(descriptor, data):
        raise OSError(errno.EIO, "broken")

    async with opened(path, kill=True) as backend:
        await put(backend, b"kept", b"1")
        disk.fail["ftruncate"] = (errno.EIO, ".journal.")
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(StorageError):
            await put(backend, b"lost", b"x" * 1000)
        monkeypatch.setattr(os, "write", real)
        disk.fail.clear()
        # The new journal has been started, but the snapshot that would replace the old journal
        # fails.
        disk.fail["fsync"] = (errno.EIO, ".tmp")
        backend.tick()
        await settled(backend)
        await put(backend, b"new", b"2")
        expected = state(backend)
        disk.fail.clear()
        backend._snapshot_owed = False
    assert set(expected) == {b"kept", b"new"}
    assert await reopened(path) == expected


async def test_versions_rise_over_several_restarts(path):
    versions = []
    for _ in range(4):
        async with opened(path, kill=True) as backend:
            await put(backend, b"key", b"1")
            versions.append((await backend.get(b"key")).version)
    assert versions == sorted(set(versions))


async def test_a_refused_delayed_flush_does_not_happen(path, disk):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        await put(backend, b"key", b"1")
        await backend.flush(START + 100)
        disk.fail["write"] = (errno.ENOSPC, ".journal.")
        for at in (START + 10, START + 20):
            with pytest.raises(StorageError):
                await backend.flush(at)
        clock.advance(50)
        backend.tick()
        assert backend.peek(b"key") is not None
        disk.fail.clear()
        clock.advance(60)  # the accepted one does
        assert backend.peek(b"key") is None


@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_a_refused_flush_is_undone(path, disk, call):
    async with opened(path, kill=True) as backend:
        await put(backend, b"old", b"1")
        await put(backend, b"changed", b"1")
        before = state(backend)
        disk.fail[call] = (errno.ENOSPC, ".journal.")
        refused = [
            backend.put(Record(b"changed", b"2")),
            asyncio.ensure_future(backend.flush()),
            backend.put(Record(b"old", b"3")),
            asyncio.ensure_future(backend.flush()),
        ]
        await asyncio.sleep(0)  # the flushes have begun
        refused.append(backend.put(Record(b"new", b"4")))
        assert len(backend.table) == 1
        assert [await outcome(change) for change in refused] == ["refused"] * 5
        assert state(backend) == before
        disk.fail.clear()
        backend.tick()
        await settled(backend)
        await put(backend, b"new", b"5")
        expected = state(backend)
        assert set(expected) == {b"old", b"changed", b"new"}
    assert await reopened(path) == expected


async def test_a_refused_flush_does_not_cancel_one_that_is_still_to_come(path, disk):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        await put(backend, b"old", b"1")
        await backend.flush(START + 10)
        disk.fail["write"] = (errno.ENOSPC, ".journal.")
        assert await outcome(backend.flush()) == "refused"
        disk.fail.clear()
        assert backend.peek(b"old") is not None
        clock.advance(10)
        assert backend.peek(b"old") is None


async def test_a_flush_that_comes_due_is_seen_once_it_is_written(path, monkeypatch):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        await put(backend, b"old", b"1")
        await backend.flush(START + 10)
        clock.advance(10)
        for line in (b"get old\r\n", b"get none\r\n"):
            assert backend.peek_cached_item(line) is UNKNOWN
        assert backend.peek_item(b"get old\r\n") is None
        assert backend.unsettled([b"old"]) is not None
        assert await backend.get_cached(b"old") is None
        assert backend.peek_cached_item(b"get old\r\n") is None


async def test_a_flush_that_is_due_while_the_journal_is_broken_happens(path, disk):
    clock = Clock(lambda: 0.0, lambda: START)
    async with opened(path, kill=True, clock=clock) as backend:
        await put(backend, b"old", b"1")
        await backend.flush(START + 10)
        disk.fail["fsync"] = (errno.EIO, "cache.json")
        with pytest.raises(StorageError):
            await put(backend, b"new", b"2")
        clock.advance(20)
        assert backend.peek(b"old") is None
        await asyncio.sleep(0.05)
        disk.fail.clear()
        clock.advance(10)
        backend.tick()
        await settled(backend)
        backend.tick()
        await put(backend, b"new", b"3")
        expected = state(backend)
        assert set(expected) == {b"new"}
    assert await reopened(path, clock=clock) == expected


async def test_evictions_are_undone_with_the_store_that_caused_them(path, disk):
    async with opened(path, kill=True, memory_limit=10_000) as backend:
        for number in range(20):
            await put(backend, b"key%d" % number, b"x" * 500)
        before = state(backend)
        assert len(before) < 20
        disk.fail["write"] = (errno.ENOSPC, ".journal.")
        with pytest.raises(StorageError):
            await put(backend, b"large", b"x" * 5000)
        assert state(backend) == before
        disk.fail.clear()
        await put(backend, b"large", b"x" * 5000)
        expected = state(backend)
        assert backend.table.used <= 10_000
    assert await reopened(path, memory_limit=10_000) == expected


async def test_a_full_disk_is_logged_once(path, disk, caplog):
    caplog.set_level(logging.WARNING)
    async with opened(path, kill=True) as backend:
        disk.fail["write"] = (errno.ENOSPC, ".journal.")
        for _ in range(50):
            with pytest.raises(StorageError):
                await put(backend, b"key", b"1")
        assert len(caplog.records) == 1
        assert caplog.records[0].getMessage() == f"{path}: No space left on device"
        disk.fail.clear()
        await put(backend, b"key", b"1")
        await put(backend, b"key", b"2")
        assert len(caplog.records) == 2
        assert "writes succeed again" in caplog.text


@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_a_pipeline_into_a_full_disk_keeps_acknowledged_commands(path, disk, call):
    """Each incr of a chain builds on the one before; the chain is cut somewhere in the middle."""
    tested = TestedServer(lambda context: FileBackend(path, context))
    rng = random.Random(1)
    async with tested.running() as client:
        await client.store(b"n", b"0")
        value = refused = 0
        for _ in range(20):
            calls = 0
            fails_at = rng.randrange(1, 6)
            real = getattr(os, call)

            def failing(descriptor, *arguments, real=real, fails_at=fails_at):
                nonlocal calls
                if is_journal(descriptor):
                    calls += 1
                    if calls == fails_at:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(descriptor, *arguments)

            setattr(os, call, failing)
            try:
                for burst in range(6):
                    client._writer.write(b"incr n 1\r\n" * 20)
                    await asyncio.sleep(0.001 * (burst % 3))
                async with asyncio.timeout(60):
                    replies = [await client._reader.readline() for _ in range(120)]
            finally:
                setattr(os, call, real)
            numbers = [int(reply) for reply in replies if not reply.startswith(b"SERVER_ERROR")]
            refused += len(replies) - len(numbers)
            # Each acknowledged number appears once, in order; the others never appear.
            assert numbers == list(range(value + 1, value + 1 + len(numbers)))
            value += len(numbers)
            if call == "fsync":
                client.wait(6)
                await settled(client.server.backend)
            assert int((await client.ask(b"get n\r\n", 3)).split(b"\r\n")[1]) == value
    assert refused > 20
    assert int((await reopened(path))[b"n"][0]) == value


# Reading


async def test_a_key_that_is_written_all_the_time_can_be_read(path):
    async with opened(path, kill=True) as backend:
        stop = False

        async def write(value):
            while not stop:
                await put(backend, b"key", value)

        writers = [asyncio.ensure_future(write(b"%d" % number)) for number in range(4)]
        await asyncio.sleep(0.02)
        for _ in range(20):
            item = await asyncio.wait_for(backend.get_cached(b"key"), 60)
            assert item.value in (b"0", b"1", b"2", b"3")
        stop = True
        await asyncio.gather(*writers)


async def test_only_written_values_are_read(path, disk):
    """A reader runs beside a writer whose disk sometimes fails."""
    async with opened(path, kill=True) as backend:
        stop = False
        written = {b"start"}
        refused = set()

        async def write():
            number = 0
            while not stop:
                number += 1
                value = b"%d" % number
                if number % 5 == 0:
                    disk.fail["write"] = (errno.ENOSPC, ".journal.")
                how = await outcome(backend.put(Record(b"key", value)))
                (refused if how == "refused" else written).add(value)
                disk.fail.clear()

        await put(backend, b"key", b"start")
        writer = asyncio.ensure_future(write())
        seen = set()
        for _ in range(300):
            seen.add((await backend.get_cached(b"key")).value)
            await asyncio.sleep(0)
        stop = True
        await writer
        assert refused
        assert not seen & refused


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("change", "command", "reply"),
    [
        (b"set new 0 0 1\r\n1", b"get new", b"VALUE new 0 1"),
        (b"set new 0 0 1\r\n1", b"gets new", b"VALUE new 0 1 "),
        (b"set new 0 0 1\r\n1", b"gets old new", b"VALUE old 0 1 "),
        (b"set new 0 0 1\r\n1", b"add new 0 0 1\r\n2", b"NOT_STORED"),
        (b"set old 0 0 1\r\n1", b"cas old 0 0 1 0\r\n2", b"EXISTS"),
        (b"set old 0 0 1\r\nx", b"incr old 1", b"CLIENT_ERROR cannot increment"),
        (b"delete old", b"gets old", b"END"),
        (b"delete old", b"replace old 0 0 1\r\n2", b"NOT_STORED"),
        (b"delete old", b"append old 0 0 1\r\n2", b"NOT_STORED"),
        (b"delete old", b"cas old 0 0 1 1\r\n2", b"NOT_FOUND"),
        (b"delete old", b"incr old 1", b"NOT_FOUND"),
        (b"delete old", b"touch old 0", b"NOT_FOUND"),
        (b"delete old", b"gat 0 old", b"END"),
        (b"delete old", b"delete old", b"NOT_FOUND"),
        (b"flush_all", b"get old", b"END"),
        (b"flush_all", b"get other", b"END"),
        (b"flush_all", b"gets old other", b"END"),
        (b"flush_all", b"add old 0 0 1\r\n2", b"STORED"),
        (b"flush_all", b"replace old 0 0 1\r\n2", b"NOT_STORED"),
        (b"flush_all", b"cas old 0 0 1 1\r\n2", b"NOT_FOUND"),
        (b"flush_all", b"incr old 1", b"NOT_FOUND"),
        (b"flush_all", b"touch old 0", b"NOT_FOUND"),
        (b"flush_all", b"gat 0 old", b"END"),
        (b"flush_all", b"delete old", b"NOT_FOUND"),
        (b"flush_all", b"mg old v", b"EN"),
        (b"flush_all", b"me old", b"EN"),
        (b"flush_all", b"flush_all", b"OK"),
    ],
)
async def test_no_reply_contains_an_unwritten_value(
    path, monkeypatch, change, command, reply, fails
):
    tested = TestedServer(lambda context: FileBackend(path, context))
    async with tested.running() as client, client.another() as other:
        await client.store(b"old", b"7")
        begun, go_on = threading.Event(), threading.Event()
        real = os.fsync

        def fsync(descriptor):
            if is_journal(descriptor):
                begun.set()
                assert go_on.wait(60)
                if fails:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        client._writer.write(change + b"\r\n")
        await asyncio.to_thread(begun.wait, 10)
        other._writer.write(command + b"\r\n")
        answer = asyncio.ensure_future(other._reader.readline())
        await asyncio.sleep(0.02)
        early = answer.done()
        go_on.set()
        line = await asyncio.wait_for(answer, 60)
        monkeypatch.setattr(os, "fsync", real)
        assert not early, line
        if not fails:
            assert line.startswith(reply)
        elif command == b"get old":
            assert line == b"VALUE old 0 1\r\n"  # it reads again
        elif command.startswith((b"get ", b"mg ")):
            assert line in (b"END\r\n", b"HD\r\n") or line.startswith(b"VA ")
        else:
            assert line == b"SERVER_ERROR not stored: Input/output error\r\n"


# Memory


async def test_items_that_do_not_fit_into_less_memory_are_removed_for_good(path, caplog):
    caplog.set_level(logging.WARNING)
    async with opened(path, kill=True) as backend:
        for number in range(100):
            await put(backend, b"key%d" % number, b"x" * 500)
        everything = state(backend)
    before = contents(path)
    with pytest.raises(StartError, match=r"holds more than -m allows, and -M forbids .*raise -m"):
        await reopened(path, memory_limit=20_000, evict=False)
    assert contents(path) == before
    async with opened(path, kill=True, memory_limit=20_000) as backend:
        (left_out,) = re.findall(r"holds more than -m allows: dropped (\d+) items", caplog.text)
        expected = state(backend)
        assert 10 < len(expected) == 100 - int(left_out)
        assert expected.items() <= everything.items()
        assert backend.table.used <= 20_000
    # No client has seen the other items since. With more memory they would come back, stale.
    assert await reopened(path) == expected


@pytest.mark.parametrize("kill", [True, False], ids=["journal", "snapshot"])
async def test_with_less_memory_the_newest_items_are_kept(path, kill):
    async with opened(path, kill=kill) as backend:
        for number in [*range(100), *range(5)]:
            await put(backend, b"key%d" % number, b"x" * 5000)
    async with opened(path, kill=True, memory_limit=200_000) as backend:
        kept = set(state(backend))
        assert kept >= {b"key%d" % number for number in range(5)}
        assert not kept & {b"key%d" % number for number in range(5, 50)}


async def test_evicted_items_do_not_come_back(path):
    rng = random.Random(3)
    async with opened(path, kill=True, memory_limit=30_000) as backend:
        for _ in range(2000):
            key = b"key%d" % rng.randrange(300)
            if rng.random() < 0.3:
                item = backend.peek_item(line_of(key))
                if item is not None:
                    item.state |= FREQUENCY
            else:
                backend.put(Record(key, rng.randbytes(rng.randrange(400))))
            if rng.random() < 0.05:
                await backend._journal.written()
            if rng.random() < 0.005:
                await backend._compact()
        backend.table.shrink(20_000)
        await backend._journal.written()
        expected = state(backend)
    assert len(expected) < 100
    assert await reopened(path, memory_limit=30_000) == expected
    assert await reopened(path) == expected


@pytest.mark.slow
async def test_a_huge_value_is_written_to_the_journal(path):
    value = bytes(range(256)) * (32 * MEGABYTE // 256)
    options = {"memory_limit": 256 * MEGABYTE, "item_size": 64 * MEGABYTE}
    async with opened(path, kill=True, **options) as backend:
        await put(backend, b"text", b"x" * len(value))
        await put(backend, b"bytes", value)
        await put(backend, b"escaped", b"\1" * (4 * MEGABYTE))
    async with opened(path, kill=True, **options) as backend:
        assert (await backend.get(b"bytes")).value == value
        assert (await backend.get(b"text")).value == b"x" * len(value)
        async with asyncio.timeout(60):
            while not backend.stats()["compactions"]:  # noqa: ASYNC110 - begun when it was opened
                await asyncio.sleep(0.01)
    async with opened(path, kill=True, **options) as backend:
        assert (await backend.get(b"bytes")).value == value
        assert (await backend.get(b"escaped")).value == b"\1" * (4 * MEGABYTE)


async def test_no_undo_information_is_kept_once_everything_is_written(path):
    async with opened(path, kill=True) as backend:
        for _ in range(5):
            for number in range(50):
                backend.put(Record(b"key%d" % number, b"x"))
            await backend.flush()
            await backend.delete(b"key1")
        assert backend._journal._changes == backend._journal._changes_in_writing == []
        assert backend._journal.unwritten == {}


async def test_statistics_of_the_backend(path):
    async with opened(path, kill=True, durability="none") as backend:
        await put(backend, b"key", b"x")
        journal = path.with_name("cache.json.journal.1")
        assert backend.stats() == {
            "items": 1,
            "bytes": backend.table.used,
            "path": str(path),
            "durability": "none",
            "journal_bytes": journal.stat().st_size,
            "snapshot_bytes": path.stat().st_size,
            "fsyncs": 0,
            "compactions": 0,
            "compacting": 0,
            "last_write_error": "none",
        }
    async with opened(path) as backend:
        assert backend.stats()["snapshot_bytes"] == path.stat().st_size


# Processor time


@pytest.mark.slow
async def test_the_cost_of_a_durable_set_does_not_depend_on_the_number_of_items(path):
    """Measured in processor time, with a tolerance larger than the noise."""

    async def cost(backend):
        best = float("inf")
        for _ in range(5):
            started = time.process_time()
            for number in range(100):
                await put(backend, b"key%d" % number, b"x" * 100)
            best = min(best, time.process_time() - started)
        return best

    async with opened(path, kill=True, memory_limit=1024 * MEGABYTE) as backend:
        for number in range(1000):
            await put(backend, b"key%d" % number, b"x" * 100)
        small = await cost(backend)
        writes = [
            backend.put(Record(b"key%d" % number, b"x" * 100)) for number in range(1000, 100_000)
        ]
        await asyncio.gather(*set(writes))
        large = await cost(backend)
        assert len(backend.table) == 100_000
    assert large < 5 * small


async def test_the_journal_describes_items_of_every_kind(path):
    records = [
        Record(b"text", 'näme "quoted" \\ \x00\n'.encode()),
        Record(b"empty", b""),
        Record("schlüssel".encode(), b"value"),
        Record(b"binary", b"\xff\xfe"),
        Record(b"\xff\xfe", b"value"),
        Record(b"flags", b"value", flags=7),
        Record(b"expires", b"value", expires=START * 2),
        Record(b"long", b"x" * 4 * MAX_PLAIN),
        Record(b"stale", b"value", meta_flags=MetaFlags(stale=True)),
        Record(b"with space", b"value"),
    ]
    async with opened(path, kill=True) as backend:
        for record in records:
            await backend.put(record._replace(value=b"old", meta_flags=None))
            await backend.put(record)
        expected = [put_entry(one.key, backend.table.get(one.key)) for one in records]
        written = path.with_name(path.name + ".journal.1").read_bytes().splitlines()[2::2]
        entries = [re.sub(rb"^.*?,|,\"synced\":\d+(?=}$)", b"", line) for line in written]
        assert [b"{" + entry for entry in entries] == expected
