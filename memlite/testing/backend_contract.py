"""The test suite that every backend must pass; inherit from it.

    from memlite.testing.backend_contract import BackendContract

    class TestMyBackend(BackendContract):
        def make(self, context):
            return MyBackend(context)

It needs ``memlite-cache[test]`` (pytest and Hypothesis). `docs/how-to/write-a-backend.md` explains
it with an example.
"""

import asyncio
import contextlib
import re
from abc import abstractmethod
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
)
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from memlite.backends import ANY, Backend, Record
from memlite.backends.registry import Context
from memlite.config import Config
from memlite.core.clock import Clock
from memlite.core.errors import VersionConflict
from memlite.core.meta_flags import MetaFlags
from memlite.server.connections.listeners import listen_tcp
from memlite.server.embedding import EmbeddedServer
from memlite.server.server import Server
from memlite.testing.contract_scripts import COMMANDS

__all__ = ["COMMANDS", "BackendContract", "Client", "ModelMachine", "TestedServer"]

START = 1_800_000_000.0
MEGABYTE = 1024 * 1024
# Larger than any limit that applies to a value: 16 MiB of held writes, 8 MiB of a near cache.
LARGE = 17 * MEGABYTE
SECONDS = 60

ODD_KEYS = [
    b"k",
    b"k" * 250,
    b"\xff\xfe",
    "schlüssel".encode(),
    b"a/b",
    b"..",
    b"%2F",
    b"a\0b",
    b'"{}',
]
ODD_VALUES = [
    b"", b"\r\n", b"END\r\n", b"\0", bytes(range(256)), b"\xff" * 1000, "größe".encode(), b" 1 ",
    b"VALUE a 0 1\r\nx\r\n",
]  # fmt: skip


class TestedServer:
    """A server on a backend, in this process, with a clock that only the test advances.

    Args:
        make: makes the backend.
        options: settings other than the defaults.
    """

    __test__ = False

    def __init__(self, make: Callable[[Context], Backend | None], **options: Any) -> None:
        self.seconds = 0.0
        self._make = make
        self._options = options

    @property
    def clock(self) -> Clock:
        """A clock that shows the time to which the test has advanced."""
        clock = Clock(lambda: 0.0, lambda: START)
        clock.advance(self.seconds)
        return clock

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Client"]:
        """Serve, and yield a client; at the end close everything as SIGTERM does."""
        listeners = listen_tcp(["127.0.0.1"], 0, 100)
        config = Config(**self._options)
        server = Server(
            config, listeners, clock=self.clock, backend=self._backend, owns_process=False
        )
        async with (
            EmbeddedServer(server),
            Client.connected(listeners[0].port, server, self) as client,
        ):
            yield client

    def _backend(self, context: Context) -> Backend:
        backend = self._make(context)
        assert backend is not None
        return backend


class Client:
    """A connection with methods that send requests and check the replies.

    Attributes:
        server: the server to which it is connected.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: Server,
        tested: TestedServer,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tested = tested
        self._history: deque[bytes] = deque(maxlen=40)
        self.server = server

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls, port: int, server: Server, tested: TestedServer
    ) -> AsyncIterator["Client"]:
        """Yield a connected client, and close the connection at the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
        try:
            yield cls(reader, writer, server, tested)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def another(self) -> AsyncIterator["Client"]:
        """Yield another connection to the same server."""
        port = self.server.listeners[0].port
        async with Client.connected(port, self.server, self._tested) as client:
            yield client

    async def ask(self, request: bytes, lines: int = 1) -> bytes:
        """Send a request, and return this many lines of the reply."""
        self._writer.write(request)
        async with asyncio.timeout(SECONDS):
            return b"".join([await self._reader.readuntil(b"\n") for _ in range(lines)])

    async def expect(self, request: bytes, reply: bytes) -> None:
        """Send a request, and check that the server sends exactly `reply`."""
        self._writer.write(request)
        got = b""
        try:
            async with asyncio.timeout(SECONDS):
                while len(got) < len(reply):
                    got += await self._reader.read(len(reply) - len(got))
        except TimeoutError:
            pass  # the comparison below fails
        self._history.append(request[:80])
        assert got == reply, (
            f"received {got[:300]!r}, expected {reply[:300]!r}; sent: {list(self._history)}"
        )

    async def store(self, key: bytes, value: bytes, **how: int) -> None:
        """Set a key, and check that the value was stored."""
        request = b"set %b %d %d %d\r\n" % (
            key, how.get("flags", 0), how.get("exptime", 0), len(value)
        )  # fmt: skip
        await self.expect(request + value + b"\r\n", b"STORED\r\n")

    async def expect_value(self, key: bytes, value: bytes | None, flags: int = 0) -> None:
        """Get a key, and check its value and flags; None means a miss."""
        reply = b"END\r\n"
        if value is not None:
            reply = b"VALUE %b %d %d\r\n%b\r\nEND\r\n" % (key, flags, len(value), value)
        await self.expect(b"get %b\r\n" % key, reply)

    async def unique(self, key: bytes) -> int:
        """Return the cas unique of an item, as gets shows it."""
        head = await self.ask(b"gets %b\r\n" % key)
        assert head.startswith(b"VALUE "), head
        *_, size, unique = head.split()
        await self._reader.readexactly(int(size) + len(b"\r\nEND\r\n"))
        return int(unique)

    def wait(self, seconds: float) -> None:
        """Advance the clock, and run the tick that the server runs once a second."""
        self._tested.seconds += seconds
        self._history.append(b"(%d s later)" % seconds)
        self.server.clock.advance(seconds)
        self.server.engine.tick()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the coroutine of a test."""
    asyncio.run(test())


class BackendContract:
    """The tests. A subclass implements `make`, and pytest collects and runs them.

    Attributes:
        persistent: whether records are still present when the backend is created again.
        options: settings of the server that differ from the defaults (`memlite.config.Config`).
        largest: the size of the largest value to test, in bytes.
        examples: the number of command sequences to test.
    """

    persistent = False
    options: dict[str, Any] = {}  # noqa: RUF012 - to be overridden as a whole
    largest = LARGE
    examples = 25

    @abstractmethod
    def make(self, context: Context) -> Backend:
        """Return an unopened backend; within a test each call must return one on the same store."""

    @pytest.fixture(autouse=True)
    def _contract_fixture(self) -> Iterator[None]:
        self.tested = TestedServer(self.make, **self.options)
        yield

    # The backend without a server

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Backend]:
        """Yield the opened backend, without a server."""
        backend = self.make(Context(clock=self.tested.clock, memory_limit=256 * MEGABYTE))
        await backend.open()
        try:
            yield backend
        finally:
            await backend.close()

    def test_a_record_can_be_read_after_put(self) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                assert await backend.get(b"key") is None
                version = await backend.put(Record(b"key", b"value", 7, START + 100))
                assert version > 0
                found = await backend.get(b"key")
                assert found is not None
                assert (found.value, found.flags, found.expires) == (b"value", 7, START + 100)
                assert (found.key, found.version) == (b"key", version)

        run(test)

    @pytest.mark.parametrize(
        "meta_flags",
        [
            None,
            MetaFlags(stale=True),
            MetaFlags(won=True),
            MetaFlags(binary=True),
            MetaFlags(unique=0),
            MetaFlags(True, True, True, 2**64 - 1),
        ],
    )
    def test_meta_flags_are_kept(self, meta_flags: MetaFlags | None) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                await backend.put(Record(b"k", b"value", meta_flags=meta_flags))
                found = await backend.get(b"k")
                assert found is not None
                assert found.meta_flags == meta_flags
                await backend.put(Record(b"k", b"value"), found)
                found = await backend.get(b"k")
                assert found is not None
                assert found.meta_flags is None
                await backend.put(Record(b"k", b"value", meta_flags=meta_flags), found)
            if self.persistent:
                async with self.opened() as backend:
                    found = await backend.get(b"k")
                    assert found is not None
                    assert found.meta_flags == meta_flags

        run(test)

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_any_key(self, key: bytes) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                await backend.put(Record(key, b"value"))
                found = await backend.get(key)
                assert found is not None
                assert found.value == b"value"
                assert [record.key async for record in backend.scan()] == [key]
                await backend.delete(key)
                assert await backend.get(key) is None

        run(test)

    @pytest.mark.parametrize("value", ODD_VALUES)
    def test_any_value(self, value: bytes) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                await backend.put(Record(b"key", value, 2**32 - 1))
                found = await backend.get(b"key")
                assert found is not None
                assert (found.value, found.flags) == (value, 2**32 - 1)

        run(test)

    def test_put_replaces_only_the_version_that_was_read(self) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                with pytest.raises(VersionConflict):
                    stranger = Record(b"key", b"never there", version=1)
                    await backend.put(Record(b"key", b"0"), stranger)
                version = await backend.put(Record(b"key", b"1"), None)
                first = Record(b"key", b"1", version=version)
                with pytest.raises(VersionConflict):
                    await backend.put(Record(b"key", b"2"), None)
                read = await backend.get(b"key")
                await backend.put(Record(b"key", b"3"), read)
                assert read is not None
                for stale in (first, read):
                    with pytest.raises(VersionConflict):
                        await backend.put(Record(b"key", b"4"), stale)
                    with pytest.raises(VersionConflict):
                        await backend.delete(b"key", stale)
                assert (await _value(backend, b"key")) == b"3"

        run(test)

    def test_delete_removes_only_the_version_that_was_read(self) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                await backend.delete(b"key")  # nothing there
                await backend.put(Record(b"key", b"1"))
                read = await backend.get(b"key")
                assert read is not None
                await backend.delete(b"key", read)
                assert await backend.get(b"key") is None
                with pytest.raises(VersionConflict):
                    await backend.delete(b"key", read)
                await backend.put(Record(b"key", b"2"), None)
                await backend.delete(b"key", ANY)
                assert await backend.get(b"key") is None

        run(test)

    def test_versions_are_unique_and_never_reused(self) -> None:
        async def test() -> None:
            versions = []
            async with self.opened() as backend:
                for number in range(10):
                    versions.append(await backend.put(Record(b"key", b"%d" % number)))
                    if number % 3 == 2:
                        await backend.delete(b"key")
            if self.persistent:
                async with self.opened() as backend:
                    versions += [
                        await backend.put(Record(b"key", b"%d" % number)) for number in range(3)
                    ]
            assert len(set(versions)) == len(versions)
            assert all(0 < version < 2**64 for version in versions)

        run(test)

    def test_exactly_one_of_several_concurrent_puts_succeeds(self) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                for before in (None, b"something"):
                    if before is not None:
                        await backend.delete(b"key")
                        await backend.put(Record(b"key", before))
                    read = await backend.get(b"key")
                    outcomes = await asyncio.gather(
                        *(
                            _outcome(backend.put, Record(b"key", b"%d" % number), read)
                            for number in range(8)
                        )
                    )
                    assert sorted(outcomes) == [False] * 7 + [True]
                    winner = b"%d" % outcomes.index(True)
                    assert await _value(backend, b"key") == winner

        run(test)

    def test_get_many(self) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                keys = [b"key%d" % number for number in range(100)]
                for key in keys[::2]:
                    await backend.put(Record(key, key))
                found = await backend.get_many(keys)
                assert [item and item.value for item in found] == [
                    None if number % 2 else b"key%d" % number for number in range(100)
                ]

        run(test)

    def test_scan_yields_every_record_once(self) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                assert [record async for record in backend.scan()] == []
                expected = {b"key%d" % number: b"%d" % number for number in range(50)}
                for key, value in expected.items():
                    await backend.put(Record(key, value))
                await backend.delete(b"key7")
                del expected[b"key7"]
                found = [(record.key, record.value) async for record in backend.scan()]
                assert sorted(found) == sorted(expected.items())

        run(test)

    def test_flush_removes_earlier_records_but_no_later_ones(self) -> None:
        async def test() -> None:
            async with self.opened() as backend:
                await backend.put(Record(b"key", b"1"))
                await backend.put(Record(b"other", b"1"))
                await backend.flush()
                assert await _value(backend, b"key") is None
                await backend.put(Record(b"key", b"2"))
                assert await _value(backend, b"key") == b"2"
                assert await _value(backend, b"other") is None

        run(test)

    def test_items_survive_a_restart_of_the_server(self) -> None:
        if not self.persistent:
            pytest.skip("this backend is not persistent")

        async def test() -> None:
            async with self.tested.running() as client:
                await client.store(b"kept", b"\xff\r\n\0", flags=5, exptime=1000)
                await client.store(b"gone", b"x", exptime=10)
                await client.store(b"deleted", b"x")
                await client.expect(b"delete deleted\r\n", b"DELETED\r\n")
                unique = await client.unique(b"kept")
            self.tested.seconds += 100
            async with self.tested.running() as client:
                await client.expect_value(b"kept", b"\xff\r\n\0", 5)
                await client.expect_value(b"gone", None)
                await client.expect_value(b"deleted", None)
                assert await client.unique(b"kept") == unique
                await client.expect(b"cas kept 0 0 1 %d\r\ny\r\n" % unique, b"STORED\r\n")
            async with self.tested.running() as client:
                await client.expect_value(b"kept", b"y")

        run(test)

    # The backend under a server

    @pytest.mark.parametrize("name", COMMANDS)
    def test_commands(self, name: str) -> None:
        async def test() -> None:
            async with self.tested.running() as client:
                for request, reply in COMMANDS[name]:
                    await client.expect(request, reply)

        run(test)

    def test_all_commands_in_one_packet_are_answered_in_order(self) -> None:
        async def test() -> None:
            async with self.tested.running() as client:
                for script in COMMANDS.values():
                    requests = b"".join(request for request, _ in script)
                    await client.expect(requests, b"".join(reply for _, reply in script))
                    await client.expect(b"flush_all\r\n", b"OK\r\n")

        run(test)

    def test_expiry_times(self) -> None:
        async def test() -> None:
            async with self.tested.running() as client:
                await client.store(b"short", b"1", exptime=10)
                await client.store(b"long", b"2", exptime=100)
                await client.store(b"absolute", b"3", exptime=int(START) + 50)
                await client.store(b"never", b"4")
                await client.store(b"past", b"5", exptime=-1)
                await client.expect_value(b"past", None)
                client.wait(9)
                await client.expect_value(b"short", b"1")
                await client.expect(b"touch never 20\r\n", b"TOUCHED\r\n")
                client.wait(2)
                await client.expect_value(b"short", None)
                await client.expect(b"add short 0 0 1\r\n6\r\n", b"STORED\r\n")
                await client.expect(b"gat 0 short\r\n", b"VALUE short 0 1\r\n6\r\nEND\r\n")
                await client.expect_value(b"never", b"4")
                client.wait(20)
                await client.expect_value(b"never", None)
                for command in (b"incr never 1", b"touch never 1", b"delete never"):
                    await client.expect(command + b"\r\n", b"NOT_FOUND\r\n")
                for command in (b"append", b"prepend", b"replace"):
                    await client.expect(command + b" never 0 0 1\r\nx\r\n", b"NOT_STORED\r\n")
                await client.expect(b"cas never 0 0 1 1\r\nx\r\n", b"NOT_FOUND\r\n")
                client.wait(20)
                await client.expect_value(b"absolute", None)
                await client.expect_value(b"long", b"2")

        run(test)

    def test_cas(self) -> None:
        async def test() -> None:
            async with self.tested.running() as client:
                await client.store(b"key", b"1")
                first = await client.unique(b"key")
                assert await client.unique(b"key") == first
                await client.expect(b"cas key 3 0 1 %d\r\n2\r\n" % first, b"STORED\r\n")
                await client.expect(b"cas key 0 0 1 %d\r\n3\r\n" % first, b"EXISTS\r\n")
                await client.expect_value(b"key", b"2", 3)
                for change in (
                    b"set key 0 0 1\r\n5\r\n", b"append key 0 0 1\r\n6\r\n", b"incr key 1\r\n",
                    b"replace key 0 0 1\r\n7\r\n",
                ):  # fmt: skip
                    before = await client.unique(b"key")
                    await client.ask(change)
                    await client.expect(b"cas key 0 0 1 %d\r\nx\r\n" % before, b"EXISTS\r\n")
                before = await client.unique(b"key")
                await client.expect(b"delete key\r\n", b"DELETED\r\n")
                await client.expect(b"cas key 0 0 1 %d\r\nx\r\n" % before, b"NOT_FOUND\r\n")
                await client.store(b"key", b"1")
                await client.expect(b"cas key 0 0 1 %d\r\nx\r\n" % before, b"EXISTS\r\n")
                head = await client.ask(b"gats 0 key\r\n", 3)
                shown = int(head.split()[4])
                assert shown == await client.unique(b"key")

        run(test)

    def test_flush_with_a_delay(self) -> None:
        async def test() -> None:
            async with self.tested.running() as client:
                await client.store(b"before", b"1")
                await client.expect(b"flush_all 10\r\n", b"OK\r\n")
                await client.store(b"between", b"2")
                client.wait(9)
                await client.expect_value(b"before", b"1")
                client.wait(2)
                await client.expect_value(b"before", None)
                await client.expect_value(b"between", None)
                await client.store(b"after", b"3")
                client.wait(20)
                await client.expect_value(b"after", b"3")
                # A later delayed flush replaces a pending one.
                await client.expect(b"flush_all 10\r\n", b"OK\r\n")
                await client.expect(b"flush_all 100\r\n", b"OK\r\n")
                client.wait(50)
                await client.expect_value(b"after", b"3")
                await client.expect(b"flush_all\r\n", b"OK\r\n")
                await client.expect_value(b"after", None)
                await client.store(b"after", b"4")
                client.wait(100)
                await client.expect_value(b"after", b"4")
            if not self.persistent:
                return
            async with self.tested.running() as client:
                await client.expect(b"flush_all 10\r\n", b"OK\r\n")
            self.tested.seconds += 20
            async with self.tested.running() as client:
                await client.expect_value(b"after", None)
                await client.store(b"new", b"5")
            async with self.tested.running() as client:
                await client.expect_value(b"new", b"5")

        run(test)

    @pytest.mark.parametrize("size", [MEGABYTE - 300, LARGE - 300])
    def test_large_values(self, size: int) -> None:
        if size > self.largest:
            pytest.skip("this backend does not accept values of that size")
        large = {"max_item_size": LARGE, "memory_limit": 512, **self.options}
        value = bytes(range(251)) * (size // 251)

        async def test() -> None:
            async with TestedServer(self.make, **large).running() as client:
                await client.store(b"large", value)
                await client.expect_value(b"large", value)
                await client.expect(b"append large 0 0 1\r\nx\r\n", b"STORED\r\n")
                await client.expect_value(b"large", value + b"x")
                await client.expect(b"delete large\r\n", b"DELETED\r\n")
                await client.expect_value(b"large", None)

        run(test)

    def test_a_set_that_is_too_large_removes_the_old_item(self) -> None:
        async def test() -> None:
            async with self.tested.running() as client:
                await client.store(b"key", b"1")
                refused = b"SERVER_ERROR object too large for cache\r\n"
                body = b" 0 0 %d\r\n" % (2 * MEGABYTE) + b"x" * 2 * MEGABYTE + b"\r\n"
                await client.expect(b"add key" + body, refused)
                await client.expect_value(b"key", b"1")
                await client.expect(b"set key" + body, refused)
                await client.expect_value(b"key", None)

        run(test)

    def test_exactly_one_of_many_clients_wins_the_right_to_recache(self) -> None:
        """This holds for a stale item, an absent one, and one that expires soon."""

        async def ask(client: Client, request: bytes) -> bytes:
            async with client.another() as mine:
                head = await mine.ask(request)
                return head + (await mine.ask(b"") if head.startswith(b"VA") else b"")

        async def winner(client: Client, request: bytes) -> bytes:
            answers = await asyncio.gather(*(ask(client, request) for _ in range(8)))
            won = [answer for answer in answers if b" W\r\n" in answer]
            others = [answer for answer in answers if b" Z" in answer]
            assert (len(won), len(others)) == (1, 7), answers
            return won[0]

        async def test() -> None:
            async with self.tested.running() as client:
                await client.store(b"k", b"old")
                for turn in range(3):
                    await client.expect(b"md k I T300\r\n", b"HD\r\n")
                    won = await winner(client, b"mg k c v\r\n")
                    unique = int(won.split()[2][1:])
                    await client.expect(b"ms k 1 C%d\r\n%d\r\n" % (unique, turn), b"HD\r\n")
                    await client.expect(b"mg k v\r\n", b"VA 1\r\n%d\r\n" % turn)
                await winner(client, b"mg absent N60 v\r\n")
                await client.expect(b"ms absent 1 T60\r\nx\r\n", b"HD\r\n")
                assert b" t60 W" in await winner(client, b"mg absent R100 t\r\n")

        run(test)

    def test_many_clients_at_once(self) -> None:
        """Counters are exact, one add succeeds, no append is lost, every cas loop terminates."""

        async def work(client: Client, number: int) -> int:
            won = 0
            async with client.another() as mine:
                for turn in range(5):
                    await mine.ask(b"incr count 1\r\n")
                    await mine.ask(b"append list 0 0 1\r\n%d\r\n" % number)
                    won += await mine.ask(b"add add%d 0 0 1\r\nx\r\n" % turn) == b"STORED\r\n"
                    while True:
                        head = await mine.ask(b"gets sum\r\n", 3)
                        unique, value = int(head.split()[4]), int(head.split(b"\r\n")[1])
                        text = b"%d" % (value + 1)
                        request = b"cas sum 0 0 %d %d\r\n%b\r\n" % (len(text), unique, text)
                        if await mine.ask(request) == b"STORED\r\n":
                            break
            return won

        async def test() -> None:
            async with self.tested.running() as client:
                await client.store(b"count", b"0")
                await client.store(b"sum", b"0")
                await client.store(b"list", b"")
                won = await asyncio.gather(*(work(client, number) for number in range(8)))
                assert sum(won) == 5
                await client.expect_value(b"count", b"40")
                await client.expect_value(b"sum", b"40")
                head = await client.ask(b"get list\r\n", 3)
                assert sorted(head.split(b"\r\n")[1]) == sorted(b"01234567" * 5)

        run(test)

    def test_any_sequence_of_commands(self) -> None:
        """The replies to random command sequences equal those of a model, which is a dict."""
        contract = self

        class Machine(ModelMachine):
            def __init__(self) -> None:
                super().__init__(contract.tested, contract.persistent)

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=self.examples,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


async def _value(backend: Backend, key: bytes) -> bytes | None:
    """Return the value if the record has not expired."""
    item = await backend.get(key)
    return None if item is None or 0 < item.expires <= START else item.value


async def _outcome(change: Callable[..., Awaitable[object]], *arguments: Any) -> bool:
    try:
        await change(*arguments)
    except VersionConflict:
        return False
    return True


_KEYS = st.sampled_from([b"a", b"b", b"c"])
_VALUES = st.sampled_from([b"", b"1", b"41", b"18446744073709551615", b"x\r\ny", b"\xff\0"])
_EXPTIMES = st.sampled_from([0, 0, 0, 5, 20, -1])


class ModelMachine(RuleBasedStateMachine):
    """Sends commands to a server on the backend, and compares the replies with a dict's contents.

    Args:
        tested: the server. All machines share it, because the time of a store must not go back.
            Each machine begins with a flush.
        persistent: whether to restart the server between commands.
    """

    def __init__(self, tested: TestedServer, persistent: bool) -> None:
        super().__init__()
        self.tested = tested
        self.persistent = persistent
        self.model: dict[bytes, tuple[bytes, int, float]] = {}
        self.runner = asyncio.Runner()
        self._start()
        self.expect(b"flush_all\r\n", b"OK\r\n")

    def _start(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self.client = self.runner.run(self.stack.enter_async_context(self.tested.running()))

    def teardown(self) -> None:
        """Stop the server."""
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def expect(self, request: bytes, reply: bytes) -> None:
        """Send a request, and check the reply."""
        self.runner.run(self.client.expect(request, reply))

    def current(self, key: bytes) -> tuple[bytes, int, float] | None:
        """Return the value, flags and expiry of a key in the model; None if it is absent."""
        entry = self.model.get(key)
        if entry is not None and 0 < entry[2] <= START + self.tested.seconds:
            entry = None
        return entry

    def expires(self, exptime: int) -> float:
        """Return the time at which an item stored now with this exptime expires."""
        if exptime <= 0:
            return -exptime
        return START + self.tested.seconds + exptime

    @rule(
        command=st.sampled_from([b"set", b"add", b"replace", b"append", b"prepend"]),
        key=_KEYS,
        value=_VALUES,
        flags=st.sampled_from([0, 7]),
        exptime=_EXPTIMES,
    )
    def store(self, command: bytes, key: bytes, value: bytes, flags: int, exptime: int) -> None:
        """Execute one of the five storage commands."""
        old = self.current(key)
        new: tuple[bytes, int, float] | None = (value, flags, self.expires(exptime))
        if command == b"add":
            new = None if old else new
        elif command != b"set" and old is None:
            new = None
        elif old is not None and command == b"append":
            new = (old[0] + value, *old[1:])
        elif old is not None and command == b"prepend":
            new = (value + old[0], *old[1:])
        if new is not None:
            self.model[key] = new
        line = b"%b %b %d %d %d\r\n" % (command, key, flags, exptime, len(value))
        self.expect(line + value + b"\r\n", b"NOT_STORED\r\n" if new is None else b"STORED\r\n")

    @rule(key=_KEYS)
    def delete(self, key: bytes) -> None:
        """Delete a key."""
        there = self.current(key) is not None
        self.model.pop(key, None)
        self.expect(b"delete %b\r\n" % key, b"DELETED\r\n" if there else b"NOT_FOUND\r\n")

    @rule(key=_KEYS, exptime=_EXPTIMES)
    def touch(self, key: bytes, exptime: int) -> None:
        """Set the expiry of a key."""
        old = self.current(key)
        if old is not None:
            self.model[key] = (*old[:2], self.expires(exptime))
        reply = b"NOT_FOUND\r\n" if old is None else b"TOUCHED\r\n"
        self.expect(b"touch %b %d\r\n" % (key, exptime), reply)

    @rule(key=_KEYS, up=st.booleans(), delta=st.sampled_from([1, 9, 2**63]))
    def count(self, key: bytes, up: bool, delta: int) -> None:
        """Increment or decrement a counter."""
        old = self.current(key)
        # The digits end at the end of the value, or at a space: shorter numbers are padded.
        digits = re.match(rb"[0-9]+(?= |$)", old[0]) if old else None
        if old is None:
            reply = b"NOT_FOUND\r\n"
        elif digits is None or int(digits[0]) >= 2**64:
            reply = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
        else:
            before = int(digits[0])
            number = (before + delta) % 2**64 if up else max(0, before - delta)
            self.model[key] = ((b"%d" % number).ljust(len(old[0])), *old[1:])
            reply = b"%d\r\n" % number
        self.expect(b"%b %b %d\r\n" % (b"incr" if up else b"decr", key, delta), reply)

    @rule(key=_KEYS, stale=st.booleans())
    def cas(self, key: bytes, stale: bool) -> None:
        """Store if unchanged, with the current cas unique or with a different one."""
        old = self.current(key)
        if old is None:
            self.expect(b"cas %b 0 0 1 1\r\nx\r\n" % key, b"NOT_FOUND\r\n")
            return
        unique = self.runner.run(self.client.unique(key)) + stale
        if not stale:
            self.model[key] = (b"new", 1, 0)
        reply = b"EXISTS\r\n" if stale else b"STORED\r\n"
        self.expect(b"cas %b 1 0 3 %d\r\nnew\r\n" % (key, unique), reply)

    @rule(delay=st.sampled_from([0, 0, 3]))
    def flush(self, delay: int) -> None:
        """Flush at once or with a delay, and wait until the flush has happened."""
        self.expect(b"flush_all %d\r\n" % delay, b"OK\r\n")
        self.wait(delay)
        self.model.clear()

    @rule(seconds=st.sampled_from([1, 6, 30]))
    def wait(self, seconds: int) -> None:
        """Advance the clock."""
        if seconds:
            self.client.wait(seconds)

    @precondition(lambda self: self.persistent)
    @rule()
    def restart(self) -> None:
        """Stop the server and start it again."""
        self.runner.run(self.stack.aclose())
        self._start()

    @rule()
    def get_all(self) -> None:
        """Get all keys in one request."""
        reply = b""
        for key in (b"a", b"b", b"c"):
            entry = self.current(key)
            if entry is not None:
                value, flags, _ = entry
                reply += b"VALUE %b %d %d\r\n%b\r\n" % (key, flags, len(value), value)
        self.expect(b"get a b c\r\n", reply + b"END\r\n")
