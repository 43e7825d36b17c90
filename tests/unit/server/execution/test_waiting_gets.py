"""Gets whose replies have no room: however they end, they release room and nothing stalls."""

import asyncio
import socket

import pytest

from memlite.backends import Record
from memlite.core.errors import StorageError
from tests.unit.backends.slow_backend import SlowBackend, settle
from tests.unit.server.execution.test_pipelined import fill, gets, items, serving

VALUE = b"v" * 1_000_000
# The get that waits, and the gets after it, whose replies use all the room.
WAITING, BEHIND = 0, range(1, 5)
VALUES = [VALUE] * 5


class HeldBackend(SlowBackend):
    """A backend that begins reads and lets the test end them.

    Attributes:
        readers: the readers that receive the outcomes, by key.
    """

    peeks = False
    begins = True

    def __init__(self, context=None):
        super().__init__(context)
        self.readers = {}

    def begin_get(self, key, reader):
        self.readers[key] = reader
        return True

    def find(self, key, value=VALUE):
        """End a read."""
        self.readers.pop(key).found(None if value is None else Record(key, value))


@pytest.fixture
async def one():
    """A connection whose first get is slow, while replies to later ones use all room."""
    async with serving(HeldBackend) as one:
        await fill(one, VALUES)
        one.server.counters.until_slow_sample = 10_000  # sampled reads are not begun
        one.send(b"get slow\r\n" + gets(range(5)))
        await one.until(lambda: len(one.backend.readers) == 6)
        for number in BEHIND:
            one.backend.find(b"k%d" % number)
        yield one


def idle(executor):
    """Return whether no trace of any get is left."""
    room = executor._room
    kept = (executor._keys, room.waiting, room.promised)
    return not (executor.pending or executor._last or room.short or any(kept))


async def finished(one, executor):
    await one.until(lambda: not executor.pending)
    await one.until(lambda: not one.server.scheduler._tasks)
    assert idle(executor)


async def short(one, *numbers):
    """End reads whose replies have no room, and wait until their tasks wait."""
    for number in numbers:
        one.backend.find(b"k%d" % number)
    executor = one.connection.executor
    assert len(executor._room.short) == len(numbers)
    await settle()
    return executor


async def test_room_is_offered_before_the_task_has_begun(one):
    """Earlier replies are sent in the same iteration in which this reply finds no room."""
    executor = one.connection.executor
    one.backend.find(b"slow", None)
    one.backend.find(b"k0")
    await one.expect(b"END\r\n" + items(range(5), VALUES))
    await finished(one, executor)
    counters = one.server.counters
    assert (counters.cmd_get, counters.get_hits, counters.get_misses) == (6, 5, 1)


async def test_the_client_leaves_before_the_task_has_begun(one):
    connection, executor = one.connection, one.connection.executor
    connection.abort()
    one.backend.find(b"k0")
    one.backend.find(b"slow", None)
    await finished(one, executor)


async def test_room_is_offered_later(one):
    executor = await short(one, WAITING)
    one.backend.find(b"slow", None)
    await one.expect(b"END\r\n" + items(range(5), VALUES))
    await finished(one, executor)


async def test_the_client_leaves_while_the_get_waits(one):
    """Nothing is read again, because the client has gone."""
    executor = await short(one, WAITING)
    one.vanish()
    await one.until(lambda: not one.server.register.connections)
    assert executor._room.short == {}
    one.backend.find(b"slow", None)
    await finished(one, executor)
    assert not one.backend.calls["get"]


async def test_the_client_leaves_while_the_item_is_read_again(one):
    executor = await short(one, WAITING)
    one.backend.gate.clear()
    one.backend.find(b"slow", None)
    await one.under_way(1)
    assert executor._room.promised > len(VALUE)
    one.vanish()
    await one.until(lambda: not one.server.register.connections)
    one.backend.gate.set()
    await finished(one, executor)


@pytest.mark.parametrize("error", [StorageError("down"), ZeroDivisionError()])
async def test_the_store_fails_when_the_item_is_read_again(one, error):
    async def failing(key):
        raise error

    executor = await short(one, WAITING)
    one.backend.get_cached = failing
    one.backend.find(b"slow", None)
    text = b"down" if isinstance(error, StorageError) else b"internal error"
    await one.expect(b"END\r\nSERVER_ERROR " + text + b"\r\n" + items(BEHIND, VALUES))
    await finished(one, executor)
    assert one.server.counters.storage_errors == 1


@pytest.mark.parametrize("change", [b"", b"w" * 10, b"w" * 999_999])
async def test_the_item_has_changed_by_the_time_it_is_read_again(one, change):
    executor = await short(one, WAITING)
    await one.backend.store(b"k0", change)
    one.backend.find(b"slow", None)
    await one.expect(b"END\r\n" + items(range(5), [change, *VALUES[1:]]))
    await finished(one, executor)


async def test_the_item_is_gone_by_the_time_it_is_read_again(one):
    """The get is counted by its first outcome, as a hit."""
    executor = await short(one, WAITING)
    await one.backend.inner.flush()
    one.backend.find(b"slow", None)
    await one.expect(b"END\r\nEND\r\n" + items(BEHIND, VALUES))
    await finished(one, executor)
    assert one.server.counters.get_hits == 5


async def test_later_commands_wait_for_the_get(one):
    """A flush waits for all earlier commands, a set for the get of its key."""
    executor = await short(one, WAITING)
    one.send(b"set k0 0 0 1\r\n1\r\nget k0\r\nflush_all\r\nget k1\r\n")
    await one.until(lambda: len(executor._queue) == 10)
    one.backend.find(b"slow", None)
    await one.expect(b"END\r\n" + items(range(5), VALUES))
    await one.expect(b"STORED\r\nVALUE k0 0 1\r\n1\r\nEND\r\nOK\r\nEND\r\n")
    await finished(one, executor)


async def test_the_get_is_cancelled(one):
    """A stop that does not wait any longer cancels it like this."""
    executor = await short(one, WAITING)
    (task,) = one.server.scheduler._tasks
    task.cancel()
    one.backend.find(b"slow", None)
    await one.expect(b"END\r\nSERVER_ERROR internal error\r\n" + items(BEHIND, VALUES))
    await finished(one, executor)


async def test_the_get_is_cancelled_while_the_item_is_read_again(one):
    executor = await short(one, WAITING)
    one.backend.gate.clear()
    one.backend.find(b"slow", None)
    await one.under_way(1)
    (task,) = one.server.scheduler._tasks
    task.cancel()
    await one.expect(b"END\r\nSERVER_ERROR internal error\r\n" + items(BEHIND, VALUES))
    await finished(one, executor)


async def test_several_gets_wait_and_each_gets_room(one):
    order = [number % 5 for number in range(20)]
    executor = await short(one, WAITING)
    one.backend.begins = False
    one.send(gets(order))
    await one.until(lambda: len(executor._queue) == 26)
    one.backend.find(b"slow", None)
    await one.expect(b"END\r\n" + items(range(5), VALUES) + items(order, VALUES))
    await finished(one, executor)


async def test_a_peer_that_reads_late(one):
    """Items that are read again also wait for the peer, as often as it stops reading."""
    one.writer.transport.pause_reading()
    order = [number % 5 for number in range(50)]
    one.backend.begins = False
    executor = await short(one, WAITING)
    one.send(gets(order))
    await one.until(lambda: len(executor._queue) == 56)
    one.backend.find(b"slow", None)
    await one.until(lambda: not one.connection.writable and executor._room.short)
    for _ in range(4):
        one.writer.transport.resume_reading()
        await asyncio.sleep(0.001)
        one.writer.transport.pause_reading()
        await asyncio.sleep(0.001)
    one.writer.transport.resume_reading()
    await one.expect(b"END\r\n" + items(range(5), VALUES) + items(order, VALUES))
    await finished(one, executor)


async def test_the_server_stops(one):
    """The replies are sent before the server ends."""
    await short(one, WAITING)
    one.server.request_stop(graceful=True)
    await settle()
    one.backend.find(b"slow", None)
    await one.expect(b"END\r\n" + items(range(5), VALUES))
    async with asyncio.timeout(60):
        assert await one.reader.read() == b""


async def test_a_transport_that_holds_some_without_saying_when_it_is_gone():
    """TLS transports do this, with these limits; the next large reply then waits for nothing."""
    async with serving(HeldBackend) as one:
        one.server.counters.until_slow_sample = 10_000
        connection, small, large = one.connection, b"s" * 100_000, b"l" * 4_100_000
        transport = connection._transport
        transport.set_write_buffer_limits(high=512 * 1024)
        one.writer.transport.pause_reading()
        for part, option in ((transport, socket.SO_SNDBUF), (one.writer, socket.SO_RCVBUF)):
            part.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 64 * 1024)
        count = 0
        while transport.get_write_buffer_size() <= 2 * len(small):  # sockets buffer the first
            one.send(b"get small\r\n")
            await one.until(lambda: one.backend.readers)
            one.backend.find(b"small", small)
            await one.until(lambda: not connection.executor.pending)
            count += 1
        assert connection.writable
        one.send(b"get large\r\nget slow\r\n")
        await one.until(lambda: len(one.backend.readers) == 2)
        one.backend.find(b"large", large)
        one.writer.transport.resume_reading()
        hit = b"VALUE %b 0 %d\r\n%b\r\nEND\r\n"
        await one.expect(hit % (b"small", len(small), small) * count)
        await one.expect(hit % (b"large", len(large), large))
        one.backend.find(b"slow", None)
        await one.expect(b"END\r\n")
        assert idle(connection.executor)
