"""Conditional writes, merged writes and tombstones, on a bucket without failures."""

import asyncio
import contextlib

import pytest

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

from memlite.backends import Record
from memlite.backends.gcs import make, objects, tombstones
from memlite.backends.gcs.codec import name_of
from memlite.backends.registry import Context, parse_url
from memlite.core.errors import StorageError, VersionConflict
from memlite.testing.gcs_emulator import Faults, GcsEmulator
from memlite.testing.gcs_emulator.faults import Decision

KEY = b"key"


@pytest.fixture
async def emulator():
    async with GcsEmulator(["bucket"]) as emulator:
        yield emulator


@contextlib.asynccontextmanager
async def opened(emulator, more=""):
    backend = make(parse_url(f"gs://bucket/p?endpoint={emulator.url}{more}"), Context())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def stored(emulator):
    return emulator.store.bucket("bucket").objects


def of(value):
    return Record(KEY, value)


def requests(backend):
    stats = backend.stats()
    return stats["class_a_operations"], stats["class_b_operations"]


async def test_a_set_reads_only_items_not_seen_recently(emulator):
    async with opened(emulator) as one, opened(emulator) as two:
        _, before = requests(one)
        await one.put(of(b"1"))
        assert requests(one) == (1, before + 1)
        await one.put(of(b"2"))  # seen by the write
        assert requests(one) == (2, before + 1)
        await two.put(of(b"3"))
        await one.get(KEY)
        await one.put(of(b"4"))  # seen by the read
        assert requests(one) == (3, before + 2)
        await two.put(of(b"5"))
        await one.put(of(b"6"))  # another server was faster
        assert requests(one) == (5, before + 3)
        assert (await two.get(KEY)).value == b"6"


async def test_without_conditions_a_set_is_one_request(emulator):
    async with opened(emulator, "&strict=0") as one, opened(emulator) as two:
        before = requests(one)[1]
        await one.put(of(b"1"))
        await two.put(of(b"2"))
        await one.put(of(b"3"))
        assert requests(one) == (2, before)
        assert (await two.get(KEY)).value == b"3"


async def test_known_states_are_bounded(emulator, monkeypatch):
    monkeypatch.setattr(objects, "_STATES", 3)
    async with opened(emulator) as one:
        for number in range(6):
            await one.put(Record(b"%d" % number, b"v"))
        one.tick()
        assert list(one._objects._states) == [b"3", b"4", b"5"]
        await one.put(Record(b"0", b"w"))
        assert (await one.get(b"0")).value == b"w"


async def test_waiting_sets_are_merged(emulator):
    async with opened(emulator) as one:
        writes = [asyncio.ensure_future(one.put(of(b"%d" % number))) for number in range(50)]
        versions = await asyncio.gather(*writes)
        assert requests(one)[0] == 2
        found = await one.get(KEY)
        assert (found.value, found.version) == (b"49", versions[-1])
        assert len(one._overwrites._next) == 0


async def test_servers_that_set_the_same_key_do_not_starve(emulator):
    emulator.faults.set(latency="uniform:1ms-5ms")
    patient = "&timeout=30&deadline=60"
    async with (
        opened(emulator, patient) as one,
        opened(emulator, patient) as two,
        opened(emulator, patient) as three,
    ):
        done = dict.fromkeys((one, two, three), 0)

        async def write(server):
            while min(done.values()) < 20:
                await server.get(KEY)
                await server.put(of(b"%d" % done[server]))
                done[server] += 1

        await asyncio.wait_for(asyncio.gather(*map(write, done)), 60)


async def test_a_cancelled_set_does_not_cancel_waiting_sets(emulator):
    emulator.faults.set(write_latency="fixed:20ms")
    async with opened(emulator) as one:
        writes = [asyncio.ensure_future(one.put(of(b"%d" % number))) for number in range(4)]
        await asyncio.sleep(0)
        writes[0].cancel()
        writes[2].cancel()
        results = await asyncio.gather(*writes, return_exceptions=True)
        cancelled = [isinstance(result, asyncio.CancelledError) for result in results]
        assert cancelled == [True, False, True, False]
        assert (await one.get(KEY)).value == b"3"
        assert len(one._overwrites._next) == 0


async def test_waiting_sets_share_the_error(emulator):
    async with opened(emulator, "&timeout=2&deadline=2") as one:
        await one.get(KEY)
        emulator.faults.begin_outage("503")
        writes = [one.put(of(b"%d" % number)) for number in range(4)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, StorageError) for result in results)
        emulator.faults.end_outage()
        assert len(one._overwrites._next) == 0


async def test_a_tombstone_is_no_item(emulator):
    async with opened(emulator) as one, opened(emulator) as two, opened(emulator) as three:
        await one.put(of(b"1"))
        read = await two.get(KEY)
        await one.delete(KEY, await one.get(KEY))
        assert [name_of(KEY) in name for name in stored(emulator)] == [True]
        for server in (one, two, three):
            assert await server.get(KEY) is None
            assert await server.get_many([KEY]) == [None]
            assert [record async for record in server.scan()] == []
        with pytest.raises(VersionConflict):
            await two.delete(KEY, read)
        with pytest.raises(VersionConflict):
            await two.put(of(b"2"), read)
        await three.put(of(b"3"), None)
        with pytest.raises(VersionConflict):
            await two.put(of(b"2"), None)
        assert (await two.get(KEY)).value == b"3"


async def test_an_add_needs_no_read_to_replace_a_tombstone(emulator):
    async with opened(emulator) as one, opened(emulator) as two:
        await one.put(of(b"1"))
        await one.delete(KEY)
        await two.put(of(b"2"), None)
        assert (await one.get(KEY)).value == b"2"


async def test_a_tombstone_is_kept_for_a_while(emulator, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(tombstones, "monotonic", lambda: now)
    async with opened(emulator) as one, opened(emulator) as two:
        for key in (b"gone", b"back"):
            await one.put(Record(key, b"v"))
            await one.delete(key, await one.get(key))
        await two.put(Record(b"back", b"w"), None)
        await one.put(Record(b"mine", b"v"))
        await one.delete(b"mine")
        await one.put(Record(b"mine", b"w"))
        deletions = one.stats()["deletions"]
        now += 59
        one.tick()
        assert (one._tombstones._removal, one.stats()["tombstones"]) == (None, 3)
        now += 2
        one.tick()
        await one._tombstones._removal
        assert one.stats()["tombstones"] == 0
        # The server knows that its own key was stored again.
        assert one.stats()["deletions"] == deletions + 2
        assert sorted(stored(emulator)) == sorted(f"p/{name_of(k)}" for k in (b"back", b"mine"))
        for key in (b"back", b"mine"):
            assert (await one.get(key)).value == b"w"
        # It still knows the tombstone, and must read again.
        with pytest.raises(VersionConflict):
            await one.put(Record(b"gone", b"x"), None)
        assert await one.get(b"gone") is None
        await one.put(Record(b"gone", b"x"), None)
        assert (await two.get(b"gone")).value == b"x"


async def test_the_time_of_a_tombstone_suits_lifecycle_rules(emulator):
    async with opened(emulator) as one:
        await one.put(of(b"1"))
        await one.delete(KEY)
        (tombstone,) = stored(emulator).values()
        assert tombstone.attributes.custom_time.year > 2000


async def test_without_conditions_a_delete_leaves_nothing(emulator):
    async with opened(emulator, "&strict=0") as one:
        await one.put(of(b"1"))
        await one.delete(KEY, await one.get(KEY))
        assert not stored(emulator)


class _Refusing(Faults):
    def decide(self, *, on_objects, reads):
        return Decision("serve") if reads or not on_objects else Decision("error", 0.0, 412)


@pytest.mark.parametrize("more", ["", "&strict=0"])
async def test_a_412_without_a_reason_is_an_error(more):
    async with (
        GcsEmulator(["bucket"], faults=_Refusing()) as emulator,
        opened(emulator, f"&timeout=2&deadline=2{more}") as one,
    ):
        # Which error depends on what the deadline interrupts: a lost race, or a request.
        with pytest.raises(StorageError, match=r"^bucket: "):
            await one.put(of(b"1"))
