"""The near cache: reads of one server never go back in time.

Each test holds back a request at the slow backend, before or after it is carried out, and reads
meanwhile.
"""

import asyncio

import pytest

from memlite.backends import UNKNOWN, Record
from memlite.backends.nearcache import NearCache
from memlite.core.errors import StorageError, VersionConflict
from memlite.engine.store import StoreEngine
from memlite.protocol.commands import Access
from memlite.telemetry.counters import Counters
from tests.unit.backends.slow_backend import SlowBackend, settle

KEY = b"key"


@pytest.fixture
async def slow():
    return SlowBackend()


@pytest.fixture
async def near(slow):
    return NearCache(slow, 100_000, ttl=10, clock=slow.clock)


class Held:
    """A request to the slow backend that is held back until `release`."""

    def __init__(self, slow, work, where):
        self._event = asyncio.Event()
        self._slow, self._where = slow, where
        self._work = work

    async def begin(self):
        before = getattr(self._slow, self._where)
        setattr(self._slow, self._where, self._event)
        self._task = asyncio.ensure_future(self._work)
        await settle()
        setattr(self._slow, self._where, before)
        return self

    async def release(self):
        """Let the request go on, and return its result or its error."""
        self._event.set()
        return (await asyncio.gather(self._task, return_exceptions=True))[0]


async def unanswered(slow, work):
    """Begin a request that is carried out at once, and answered when it is released."""
    return await Held(slow, work, "after").begin()


async def underway(slow, work):
    """Begin a request that is carried out when it is released."""
    return await Held(slow, work, "gate").begin()


def of(value):
    return Record(KEY, value)


def alive(record, slow):
    return (
        record is not None and not 0 < record.expires <= slow.clock.now() and record.value
    ) or None


async def get(near):
    """Read as ``get`` does."""
    return alive(await near.get_cached(KEY), near.inner)


async def gets(near):
    """Read as ``gets`` does, and any command that changes an item."""
    return alive(await near.get(KEY), near.inner)


async def test_gets_sees_a_set_that_is_not_acknowledged_and_get_sees_it_from_then_on(slow, near):
    await near.put(of(b"old"))
    setting = await unanswered(slow, near.put(of(b"new")))
    assert await get(near) == b"old"  # allowed: the set is not acknowledged yet
    assert await gets(near) == b"new"
    assert await get(near) == b"new"
    await setting.release()
    assert await get(near) == b"new"


async def test_another_server_s_change_that_gets_has_shown_is_shown_by_get(slow, near):
    await near.put(of(b"old"))
    await slow.store(KEY, b"new")
    assert await get(near) == b"old"
    assert await gets(near) == b"new"
    assert await get(near) == b"new"


async def test_a_removal_that_gets_has_shown_is_shown_by_get(slow, near):
    await near.put(of(b"old"))
    deleting = await unanswered(slow, near.delete(KEY))
    assert await gets(near) is None
    assert await get(near) is None
    await deleting.release()
    assert await get(near) is None


async def test_a_copy_that_gets_confirms_is_kept(slow, near):
    await near.put(of(b"1"))
    assert await gets(near) == b"1"
    assert near.peek_cached(KEY).value == b"1"


@pytest.mark.parametrize("reads", [get, gets])
async def test_a_write_acknowledged_late_does_not_hide_later_changes(slow, near, reads):
    writing = await unanswered(slow, near.put(of(b"mine")))
    await slow.store(KEY, b"other")
    assert await reads(near) == b"other"
    await writing.release()
    assert await get(near) == b"other"


async def test_a_miss_during_a_write_is_not_taken_back(slow, near):
    writing = await unanswered(slow, near.put(of(b"mine")))
    await slow.inner.delete(KEY)
    assert await get(near) is None
    await writing.release()
    assert await get(near) is None


async def test_a_write_without_reads_meanwhile_leaves_its_copy(slow, near):
    await near.put(of(b"old"))
    writing = await unanswered(slow, near.put(of(b"new")))
    assert await get(near) == b"old"  # a copy, which says nothing about the store
    await writing.release()
    assert near.peek_cached(KEY).value == b"new"


async def test_a_fetch_that_gets_overtakes_leaves_no_copy_and_is_not_shared(slow, near):
    await slow.store(KEY, b"old")
    fetching = await unanswered(slow, near.get_cached(KEY))
    await slow.store(KEY, b"new")
    assert await gets(near) == b"new"
    assert await get(near) == b"new"
    assert (await fetching.release()).value == b"old"  # the fetch began before the change
    assert await get(near) == b"new"


async def test_a_fetch_that_another_fetch_overtakes_leaves_no_copy(slow, near):
    """The first fetch is carried out after the second, which a write made necessary."""
    await slow.store(KEY, b"old")
    first = await underway(slow, near.get_cached(KEY))
    await near.delete(KEY)
    await slow.store(KEY, b"older")
    second = await unanswered(slow, near.get_cached(KEY))
    await slow.store(KEY, b"newer")
    assert (await first.release()).value == b"newer"
    assert (await second.release()).value == b"older"  # read before the last change
    assert await get(near) == b"newer"


@pytest.mark.parametrize("lost", [False, True], ids=["failed", "lost"])
async def test_a_write_that_fails_after_gets_has_shown_it(slow, near, lost):
    await near.put(of(b"old"))
    if lost:
        writing = await unanswered(slow, near.put(of(b"new")))
        seen = await gets(near)
        slow.losing = True
    else:
        writing = await underway(slow, near.put(of(b"new")))
        seen = await gets(near)
        slow.failing = True
    assert isinstance(await writing.release(), StorageError)
    slow.losing = slow.failing = False
    assert await get(near) == seen == (b"new" if lost else b"old")


async def test_overlapping_writes_one_acknowledged_and_the_other_shown_by_gets(slow, near):
    await near.put(of(b"0"))
    first = await unanswered(slow, near.put(of(b"1")))
    second = await unanswered(slow, near.put(of(b"2")))
    assert await gets(near) == b"2"
    await first.release()
    assert await get(near) == b"2"
    await second.release()
    assert await get(near) == b"2"
    assert not near._writes and not near._overlapped


async def test_a_read_that_spans_a_write_leaves_nothing_older(slow, near):
    await near.put(of(b"old"))
    reading = await unanswered(slow, near.get(KEY))
    await near.put(of(b"new"))
    assert (await reading.release()).value == b"old"  # the read began before the write
    assert await get(near) == b"new"


async def test_a_read_that_fails_changes_nothing(slow, near):
    await near.put(of(b"1"))
    slow.failing = True
    with pytest.raises(StorageError):
        await gets(near)
    assert near.peek_cached(KEY).value == b"1"


async def test_a_flush_that_gets_has_shown_is_shown_by_get(slow, near):
    await near.put(of(b"old"))
    flushing = await unanswered(slow, near.flush())
    assert await gets(near) is None
    assert await get(near) is None
    await flushing.release()
    assert await get(near) is None


async def test_another_server_s_flush_that_gets_has_shown_is_shown_by_get(slow, near):
    """A flushed record keeps its version; only its expiry shows the flush."""
    await near.put(of(b"old"))
    record = await slow.inner.get(KEY)

    async def flushed(key):
        return record._replace(expires=1.0)

    slow.get = flushed
    assert await gets(near) is None
    assert near.peek_cached(KEY) is UNKNOWN


async def test_states_peeked_from_the_inner_backend_count_as_well(slow, near):
    await near.put(of(b"old"))
    await slow.store(KEY, b"new")
    record = await slow.inner.get(KEY)
    slow.peek = lambda key: record
    assert near.peek(KEY).value == b"new"
    assert near.peek_cached(KEY).value == b"new"


async def test_two_servers(slow):
    one, two = (NearCache(slow, 100_000, ttl=10, clock=slow.clock) for _ in range(2))
    await one.put(of(b"0"))
    assert await get(two) == b"0"
    writing = await unanswered(slow, two.put(of(b"1")))
    assert await gets(one) == b"1"
    assert await get(one) == b"1"
    await one.put(of(b"2"))
    await writing.release()
    assert await gets(two) == b"2"
    assert await get(two) == b"2"


# Commands that show the current state, whether they change it or not


def storing(name, *more):
    return lambda engine: getattr(engine, name)(KEY, 0, 0, b"1", *more)


COMMANDS = {
    "gets": (Access.CURRENT, lambda engine: engine.collect([KEY], [])),
    "mg c": (Access.CURRENT_OR_CHANGE, lambda engine: engine.fetch(KEY)),
    "gat": (Access.CHANGE, lambda engine: engine.fetch_and_touch(KEY, 100)),
    "touch": (Access.CHANGE, lambda engine: engine.touch(KEY, 100)),
    "incr": (Access.CHANGE, lambda engine: engine.incr(KEY, 1)),
    "append": (Access.CHANGE, storing("append")),
    "add": (Access.CHANGE, storing("add")),
    "replace": (Access.CHANGE, storing("replace")),
    "cas": (Access.CHANGE, storing("cas", 12345)),
    "delete": (Access.CHANGE, lambda engine: engine.delete(KEY)),
}


async def reply_to_get(engine):
    replies = []
    await engine.carry_out(Access.CACHED, [KEY], lambda: engine.collect([KEY], replies))
    return b"".join(replies)


@pytest.mark.parametrize("change", ["set", "delete"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_get_shows_states_that_a_command_has_shown(slow, near, command, change):
    engine = StoreEngine(near, slow.clock, Counters())
    await near.put(of(b"old"))
    if change == "set":
        changing = await unanswered(slow, near.put(of(b"7")))
    else:
        changing = await unanswered(slow, near.delete(KEY))
    assert b"old" in await reply_to_get(engine)
    access, run = COMMANDS[command]
    await engine.carry_out(access, [KEY], lambda: run(engine))
    after = await slow.value(KEY)
    for _ in range(2):
        assert await reply_to_get(engine) == (
            b"VALUE key 0 %d\r\n%b\r\n" % (len(after), after) if after else b""
        )
        await changing.release()


async def test_a_conflict_leaves_no_copy(slow, near):
    await near.put(of(b"old"))
    copy = near.peek_cached(KEY)
    await slow.store(KEY, b"new")
    with pytest.raises(VersionConflict):
        await near.put(of(b"mine"), copy)
    assert await get(near) == b"new"
