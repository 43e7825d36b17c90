"""A store that is paused, killed, cut off or reorganized."""

import asyncio
import contextlib
import time

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import Record
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import make
from memlite.backends.valkey.codec import VERSION_AT
from memlite.backends.valkey.scripts import REPLACE
from memlite.core.errors import StorageError, UnconfirmedError, VersionConflict
from tests.support.servers import running
from tests.support.stores import cluster, move_slot, store
from tests.support.waiting import eventually, wait_until

# An order of magnitude more than the deadlines below.
BOUND = 40


@contextlib.asynccontextmanager
async def opened(port, options="?timeout=10&deadline=40"):
    backend = make(parse_url(f"valkey://127.0.0.1:{port}/p{options}"), Context())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@pytest.mark.slow
def test_clients_get_errors_in_bounded_time_while_the_store_is_paused_or_dead():
    """The server recovers by itself after both."""
    with store() as one:
        url = f"valkey://127.0.0.1:{one.port}/p?timeout=0.3&deadline=0.6"
        with running("memlite", "--backend", url) as server, server.connect(BOUND) as wire:

            def ask(request):
                wire.send(request)
                return wire.line().rstrip()

            assert ask(b"set k 0 0 1\r\n1\r\n") == b"STORED"
            for break_it, mend in ((one.pause, one.resume), (one.kill, one.restart)):
                break_it()
                for request in (b"set k 0 0 1\r\n2\r\n", b"get k\r\n", b"incr k 1\r\n"):
                    assert ask(request).startswith(b"SERVER_ERROR store: ")
                mend()
                assert wait_until(lambda: ask(b"set k 0 0 1\r\n3\r\n") == b"STORED")
                assert ask(b"incr k 1\r\n") == b"4"
            assert server.process.poll() is None


@pytest.mark.slow
def test_gets_of_pipelines_wait_for_their_turn_in_bounded_time():
    """Two commands may run at once, and there are many more gets; replies stay in order."""
    count = 300
    gets = b"".join(b"get k%d\r\n" % number for number in range(count))
    with store() as one:
        url = f"valkey://127.0.0.1:{one.port}/p?concurrency=2&timeout=0.3&deadline=0.6"
        with running("memlite", "--backend", url) as server, contextlib.ExitStack() as stack:
            wires = [stack.enter_context(server.connect(BOUND)) for _ in range(4)]
            for number in range(count):
                wires[0].send(b"set k%d 0 0 3\r\n%03d\r\n" % (number, number))
                assert wires[0].line() == b"STORED\r\n"

            def errors():
                """Return the number of failed gets, and check the values of all other gets."""
                found = 0
                for wire in wires:
                    wire.send(gets)
                for wire in wires:
                    for number in range(count):
                        line = wire.line()
                        if line.startswith(b"SERVER_ERROR store: "):
                            found += 1
                            continue
                        assert line == b"VALUE k%d 0 3\r\n" % number
                        assert (wire.line(), wire.line()) == (b"%03d\r\n" % number, b"END\r\n")
                return found

            assert wait_until(lambda: errors() == 0)
            one.pause()
            assert errors() > 0
            one.resume()
            assert wait_until(lambda: errors() == 0)
            # The epoch is read once a second.
            assert wait_until(lambda: server.stats("backend")["in_flight"] == "0")


class Cut:
    """A proxy that forwards requests, and can withhold one reply and cut the connection."""

    def __init__(self, port):
        self._port = port
        self.keep_back = b""
        self.meanwhile = None
        self._tasks = set()
        self._writers = set()

    @contextlib.asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for writer in self._writers:
                writer.close()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, inner_writer}
        with contextlib.suppress(OSError):
            while request := await reader.read(2**20):
                inner_writer.write(request)
                reply = await inner_reader.read(2**20)
                if self.keep_back and self.keep_back in request:
                    self.keep_back = b""
                    if self.meanwhile:
                        await self.meanwhile()
                    break
                writer.write(reply)
        for one in (writer, inner_writer):
            one.close()
            with contextlib.suppress(OSError):
                await one.wait_closed()


@contextlib.asynccontextmanager
async def behind_a_cut():
    """Yield a backend whose replies can be lost, another backend of the store, and the proxy."""
    with store() as one:
        cut = Cut(one.port)
        async with cut.running() as port, opened(port) as backend, opened(one.port) as other:
            yield backend, other, cut


def acknowledged(backend):
    return backend.stats()["lost_acknowledgements"]


@pytest.mark.parametrize("replacing", ["anything", "nothing", "what was read"])
async def test_a_write_whose_reply_is_lost_is_acknowledged(replacing):
    async with behind_a_cut() as (backend, other, cut):
        before = {}
        if replacing == "nothing":
            before = {"replacing": None}
        elif replacing == "what was read":
            await backend.put(Record(b"k", b"1"))
            await backend.put(Record(b"k", b"1"), await backend.get(b"k"))
            before = {"replacing": await backend.get(b"k")}
        cut.keep_back = b"p:k"
        version = await backend.put(Record(b"k", b"2"), **before)
        found = await other.get(b"k")
        assert (found.value, found.version) == (b"2", version)
        assert acknowledged(backend) == 1


async def test_a_write_that_others_have_built_on_is_acknowledged():
    async with behind_a_cut() as (backend, other, cut):
        await backend.put(Record(b"k", b"1"))

        async def build():
            for value in (b"3", b"4"):
                await other.put(Record(b"k", value), await other.get(b"k"))

        found = await backend.get(b"k")
        cut.keep_back, cut.meanwhile = b"p:k", build
        await backend.put(Record(b"k", b"2"), found)
        assert (await other.get(b"k")).value == b"4"
        assert acknowledged(backend) == 1


async def test_a_lost_race_is_distinguished_from_a_lost_reply():
    async with behind_a_cut() as (backend, other, cut):
        await backend.put(Record(b"k", b"1"))
        found = await backend.get(b"k")
        await other.put(Record(b"k", b"3"), await other.get(b"k"))
        for change in (backend.put(Record(b"k", b"2"), found), backend.delete(b"k", found)):
            cut.keep_back = b"p:k"
            with pytest.raises(VersionConflict):
                await change
        assert (await other.get(b"k")).value == b"3"
        assert acknowledged(backend) == 0


async def test_an_unknown_outcome_is_reported_as_uncertain():
    async with behind_a_cut() as (backend, other, cut):

        async def overwrite():
            await other.put(Record(b"k", b"3"))

        await backend.put(Record(b"k", b"1"))
        found = await backend.get(b"k")
        for change in (
            backend.put(Record(b"k", b"2")),
            backend.put(Record(b"k", b"2"), found),
            backend.delete(b"k"),
        ):
            cut.keep_back, cut.meanwhile = b"p:k", overwrite
            with pytest.raises(StorageError, match="may or may not have been made"):
                await change
            assert (await other.get(b"k")).value == b"3"


async def test_a_change_that_is_eventually_made_is_not_reported_as_uncertain():
    with store() as one:
        options = "?timeout=10&deadline=40&wait=1&wait_timeout=0.1"
        async with opened(one.port, options) as backend:
            with pytest.raises(UnconfirmedError):  # there is no replica
                await backend.put(Record(b"k", b"1"))
            found = await backend.get(b"k")
            assert one.ask("CLIENT", "PAUSE", 60_000, "WRITE") == b"+OK\r\n"
            changing = asyncio.ensure_future(backend.put(Record(b"k", b"2"), found))
            assert await eventually(lambda: b"blocked_clients:1\r" in one.ask("INFO", "clients"))
            one.ask("CLIENT", "KILL", "TYPE", "normal")  # and their requests are lost
            assert await eventually(lambda: backend.stats()["failures"] > 0)
            assert one.ask("CLIENT", "UNPAUSE") == b"+OK\r\n"
            with pytest.raises(UnconfirmedError, match=r"a failover may undo it$"):
                await changing
            assert (await backend.get(b"k")).value == b"2"


async def test_a_late_attempt_changes_nothing():
    """A paused server carries out the requests that it has received when it resumes."""
    with store() as one:
        async with opened(one.port, "?timeout=0.3&deadline=20") as backend:
            await backend.put(Record(b"k", b"1"))
            await backend.put(Record(b"k", b"1"), await backend.get(b"k"))
            found = await backend.get(b"k")
            one.pause()
            writing = asyncio.ensure_future(backend.put(Record(b"k", b"2"), found))
            assert await eventually(lambda: backend.stats()["failures"] > 0)
            one.resume()
            version = await writing
            now = await backend.get(b"k")
            assert (now.value, now.version) == (b"2", version)
            # The same request again, as if it had been held back until now.
            reply = one.ask(
                "EVALSHA", REPLACE.sha, 1, "p:k", *VERSION_AT, b"%016x" % found.version, "late"
            )
            assert reply == b":0\r\n"


@pytest.mark.slow
async def test_a_cluster_whose_slots_move():
    """Slots are taken from one server and given to another while counters are incremented."""
    with cluster() as stores:
        keys = [b"count%d" % number for number in range(30)]
        async with opened(stores[0].port, "?timeout=5&deadline=30") as backend:
            done = asyncio.Event()
            counts = dict.fromkeys(keys, 0)

            async def count(key):
                await backend.put(Record(key, b"0"))
                while not done.is_set():
                    found = await backend.get(key)
                    value = b"%d" % (int(found.value) + 1)
                    await backend.put(Record(key, value), found)
                    counts[key] += 1

            work = [asyncio.ensure_future(count(key)) for key in keys]
            await asyncio.to_thread(move_first_server, stores)
            after = dict(counts)
            assert await eventually(
                lambda: (
                    all(counts[key] >= after[key] + 5 for key in keys)
                    or any(task.done() for task in work)
                )
            )
            done.set()
            await asyncio.gather(*work)
            for key in keys:
                assert int((await backend.get(key)).value) == counts[key]
            assert {record.key async for record in backend.scan()} == set(keys)
            assert backend.stats()["redirections"] > 0


def move_first_server(stores):
    """Move all slots that have keys from the first server to the second."""
    for slot in range(16384 // 3):
        if stores[0].ask("CLUSTER", "COUNTKEYSINSLOT", slot) != b":0\r\n":
            move_slot(stores, slot, stores[0], stores[1])


@pytest.mark.slow
def test_a_start_with_a_million_items_loads_nothing():
    with store("--enable-debug-command", "yes") as one:
        assert one.ask("DEBUG", "POPULATE", 1_000_000, "p", 10) == b"+OK\r\n"
        began = time.process_time()

        async def start():
            async with opened(one.port) as backend:
                return backend.stats()["commands"]

        assert asyncio.run(start()) == 1
        assert time.process_time() - began < 5
