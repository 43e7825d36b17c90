"""Gets without a task: however they end, they give back their turn and notify the reader once."""

import asyncio
import contextlib
import gc
from functools import partial

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends.registry import parse_url
from memlite.backends.remote.call import TimeLimits
from memlite.backends.remote.epoch import Epoch
from memlite.backends.valkey.begun_read import BegunRead
from memlite.backends.valkey.commands import Commands
from memlite.backends.valkey.connections import connection_of
from memlite.backends.valkey.epoch_key import EpochKey
from memlite.backends.valkey.items import Items
from memlite.backends.valkey.node import Node
from memlite.backends.valkey.options import parse_options
from memlite.backends.valkey.topology import SLOTS, Topology
from memlite.core.clock import Clock
from memlite.core.errors import StorageError

NIL = b"$-1\r\n"
RECORD = b"m1 5f2e01a9c0ffee42 7 0 1796049000 0 - -\nhello"


class Server:
    """A server that answers GET as the test wants, and OK to everything else.

    Attributes:
        reply: its reply to GET; while it is empty, the server does not answer.
        asked: the number of GETs received.
    """

    def __init__(self):
        self.reply = b"$%d\r\n%b\r\n" % (len(RECORD), RECORD)
        self.asked = 0
        self.writers = []
        self.tasks = []

    async def serve(self, reader, writer):
        self.writers.append(writer)
        self.tasks.append(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                words = []
                for _ in range(int((await reader.readuntil(b"\r\n"))[1:])):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                if words[0] != b"GET":
                    writer.write(b"+OK\r\n")
                    continue
                self.asked += 1
                writer.write(self.reply)


class Store:
    """The objects through which the backend accesses the server.

    Attributes:
        server: as above.
        commands: sends commands, few at once.
        topology: knows the one server.
    """

    def __init__(self, server, port):
        options = parse_options(parse_url(f"valkey://127.0.0.1:{port}/p"))
        connect, limits = partial(connection_of, options), TimeLimits()
        self.server = server
        self.topology = Topology(
            ("127.0.0.1", port),
            lambda address: Node(address, partial(connect, address), limits, 5.0),
        )
        self.commands = Commands(self.topology, concurrency=2, deadline=5.0)
        clock = Clock()
        self.items = Items(self.commands, "p", clock, Epoch(EpochKey(self.commands, "p"), clock))

    @property
    def node(self):
        return self.topology.seed


class Reader:
    """Records its notifications.

    Attributes:
        told: a future of the record, or of the error raised by the rest of the read.
        count: the number of notifications.
    """

    def __init__(self):
        self.told = asyncio.get_running_loop().create_future()
        self.count = 0

    def found(self, record):
        self.count += 1
        self.told.set_result(record)

    def unfinished(self, rest):
        self.count += 1
        self.rest = asyncio.ensure_future(rest)
        self.rest.add_done_callback(self.ended)

    def ended(self, rest):
        self.told.set_result(rest.exception() or rest.result())


@pytest.fixture
async def one():
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    one = Store(server, listener.sockets[0].getsockname()[1])
    yield one
    await one.topology.close()
    for writer in server.writers:
        writer.close()
    listener.close()
    await listener.wait_closed()
    await asyncio.gather(*server.tasks)


def begin(one, count):
    """Begin `count` reads and return their readers."""
    readers = [Reader() for _ in range(count)]
    for reader in readers:
        assert BegunRead(one.items, one.commands, b"k", reader).begin()
    return readers


async def outcomes(one, readers):
    """Return the outcome for each reader, notified once; check that all turns are free again."""
    async with asyncio.timeout(60):
        told = [await reader.told for reader in readers]
    assert [reader.count for reader in readers] == [1] * len(readers)
    assert one.commands.turns.taken == 0
    assert not one.commands.turns._waiting
    return told


async def test_more_reads_than_turns(one):
    readers = begin(one, 10)
    assert one.commands.turns.taken == 2
    found = await outcomes(one, readers)
    assert [(record.value, record.flags) for record in found] == [(b"hello", 7)] * 10
    assert one.server.asked == 10


async def test_a_key_that_is_not_there(one):
    one.server.reply = NIL
    assert await outcomes(one, begin(one, 10)) == [None] * 10


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"$3\r\nfoo\r\n", StorageError),
        (b"-WRONGTYPE no string\r\n", StorageError),
        (b":5\r\n", AssertionError),
    ],
    ids=["not memlite's", "refused", "not what GET returns"],
)
async def test_a_reply_that_is_not_a_record(one, reply, kind):
    one.server.reply = reply
    told = await outcomes(one, begin(one, 10))
    assert [type(error) for error in told] == [kind] * 10
    assert one.server.asked == 10


async def test_the_deadline_passes_before_there_is_a_turn(one):
    one.commands._deadline = 0.05
    one.server.reply = b""
    readers = begin(one, 10)
    async with asyncio.timeout(60):
        told = [await reader.told for reader in readers[2:]]
    assert {str(error) for error in told} == {"store: too many requests in progress"}
    assert one.commands.turns.taken == 2
    await one.node.close()
    assert all(isinstance(error, StorageError) for error in await outcomes(one, readers))


async def test_the_node_is_closed_while_reads_wait(one):
    """Readers without a turn are notified too, and without nested calls."""
    one.commands._deadline = 0.05
    one.server.reply = b""
    readers = begin(one, 1_500)
    await one.node.close()
    assert all(isinstance(error, StorageError) for error in await outcomes(one, readers))


async def test_no_server_has_the_slot_when_a_read_gets_its_turn(one):
    one.commands._deadline = 0.3
    readers = begin(one, 10)
    one.topology.clustered, one.topology._slots = True, [None] * SLOTS
    told = await outcomes(one, readers)
    assert [record.value for record in told[:2]] == [b"hello"] * 2
    assert all(isinstance(error, StorageError) for error in told[2:])
    assert one.server.asked == 2


async def test_the_connection_is_lost(one):
    one.server.reply = b""
    readers = begin(one, 10)
    async with asyncio.timeout(60):
        while one.server.asked < 2:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
    one.server.reply = NIL
    for writer in one.server.writers:
        writer.close()
    assert await outcomes(one, readers) == [None] * 10


async def test_commands_waiting_on_a_connection_ended_by_a_bug_use_another(one):
    class Broken:
        def done(self):
            return False

        def set_result(self, reply):
            one.reply = one.node.send(("GET", b"p:k"))  # waits for this connection
            raise ZeroDivisionError

        def set_exception(self, error):
            """Ignore the end of the connection."""

    noticed = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: noticed.append(context))
    one.node.send_for(Broken(), ("GET", b"p:k"))
    async with asyncio.timeout(60):
        while one.server.asked < 2:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        assert await one.reply == RECORD
    gc.collect()
    assert [type(context["exception"]) for context in noticed] == [ZeroDivisionError]
