"""Requests over UDP to a backend that must be awaited, and their cleanup."""

import asyncio
import contextlib
import gc
import inspect
import struct
import sys
import weakref

import pytest

from memlite.backends import ANY, Record
from memlite.config import Config
from memlite.server.connections import udp
from memlite.server.connections.listeners import listen_tcp, listen_udp
from memlite.server.execution.pipelined import StoreExecutor
from memlite.server.server import Server
from tests.unit.backends.slow_backend import SlowBackend

UNDER_WAY = 256


class Client(asyncio.DatagramProtocol):
    """Sends requests, and collects every datagram it receives."""

    def __init__(self):
        self.replies = []

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.replies.append((*struct.unpack(">HHH", data[:6]), data[8:]))


class Fixture:
    """A server, on a slow backend or on memory, and a client of it."""

    def __init__(self, server, client):
        self.server = server
        self.backend = server.backend
        self.service = server.udp[0]
        self.client = client

    def send(self, data, request_id=1):
        self.client.transport.sendto(struct.pack(">HHHH", request_id, 0, 1, 0) + data)

    async def flood(self, requests):
        """Send each request with its own id, no faster than the server accepts them."""
        expected = self.server.counters.bytes_read
        for number, data in enumerate(requests):
            self.send(data, number)
            expected += 8 + len(data)
            if number % 32 == 31:
                await self.until(lambda: self.server.counters.bytes_read >= expected)  # noqa: B023
        await self.until(lambda: self.server.counters.bytes_read == expected)

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.001)

    async def expect(self, *replies):
        """Wait for the messages in reply to one datagram, as (request id, bytes)."""
        await self.until(lambda: len(self.client.replies) >= len(replies))
        found, self.client.replies = self.client.replies, []
        assert found == [(number, 0, 1, data) for number, data in replies]

    async def counted(self, **counts):
        await self.until(
            lambda: all(
                getattr(self.server.counters, f"udp_{name}") == count
                for name, count in counts.items()
            )
        )


@contextlib.asynccontextmanager
async def serving(make=SlowBackend, **options):
    listeners = listen_tcp(["127.0.0.1"], 0, 5) + listen_udp(["127.0.0.1"], -1)
    server = Server(Config(**options), listeners, backend=make)
    ready = asyncio.Event()
    task = asyncio.ensure_future(server.run(ready.set))
    await ready.wait()
    client = Client()
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: client, remote_addr=("127.0.0.1", listeners[1].port)
    )
    try:
        yield Fixture(server, client)
    finally:
        if server.backend is not None:
            server.backend.gate.set()
            server.backend.after.set()
        server.request_stop()
        async with asyncio.timeout(60):
            await task
        client.transport.close()
        assert listeners[1].sock.fileno() == -1


@pytest.fixture
async def one():
    async with serving() as one:
        yield one


async def test_replies_to_a_datagram_are_separate_and_in_order(one):
    one.send(b"set a 0 0 1\r\n1\r\nset b 0 0 1 noreply\r\n2\r\nget a b\r\nnonsense\r\nincr a 5\r\n")
    await one.expect(
        (1, b"STORED\r\n"),
        (1, b"VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n"),
        (1, b"ERROR\r\n"),
        (1, b"6\r\n"),
    )
    assert one.service.under_way == 0


async def test_waiting_for_the_backend_does_not_delay_other_requests(one):
    one.backend.gate.clear()
    one.send(b"get a\r\nversion\r\n", 1)
    await one.until(lambda: one.backend.under_way == 1)
    one.send(b"nonsense\r\n", 2)
    await one.expect((2, b"ERROR\r\n"))
    one.backend.gate.set()
    await one.until(lambda: len(one.client.replies) == 2)
    assert [(reply[0], reply[3][:3]) for reply in one.client.replies] == [(1, b"END"), (1, b"VER")]


async def test_requests_in_progress_are_limited_and_recover_after_a_pause(one):
    one.backend.gate.clear()
    await one.flood(b"delete k%d\r\n" % number for number in range(2 * UNDER_WAY))
    assert one.server.counters.udp_dropped == UNDER_WAY
    assert one.service.under_way == UNDER_WAY
    one.backend.gate.set()
    await one.until(lambda: one.service.under_way == 0)
    # Meanwhile the client reads, one reply at a time, and makes room in its socket.
    await asyncio.sleep(0.05)
    one.send(b"get a\r\n", 999)
    await one.until(lambda: (999, 0, 1, b"END\r\n") in one.client.replies)
    assert one.backend.most <= UNDER_WAY


async def test_keys_being_read_are_limited(one):
    one.backend.gate.clear()
    keys = b" ".join(b"k%d" % number for number in range(100))
    for number in range(5):
        one.send(b"get %b\r\n" % keys, number)
    await one.counted(dropped=3)
    assert one.service.keys == 200
    one.backend.gate.set()
    await one.until(lambda: one.service.under_way == 0)
    assert one.service.keys == 0
    await one.until(lambda: len(one.client.replies) == 2)
    assert sorted(reply[0] for reply in one.client.replies) == [0, 1]
    one.client.replies.clear()
    one.send(b"gats 0 %b\r\n" % keys, 7)
    await one.expect((7, b"END\r\n"))


@pytest.mark.parametrize("command", [b"get", b"gets", b"gat 0", b"gats 0"])
async def test_more_keys_than_that_are_refused(command):
    async with serving() as one:
        keys = b" ".join(b"k%d" % number for number in range(257))
        one.send(b"%b %b\r\nget a\r\n" % (command, keys))
        await one.expect((1, b"SERVER_ERROR too many keys for UDP\r\n"), (1, b"END\r\n"))
        assert one.service.keys == 0


async def test_the_total_size_of_replies_to_a_datagram_is_limited(one):
    # The largest value, slightly more than once; then a little after it.
    value = b"x" * (one.server.limits.item_size - 400)
    await one.backend.put(Record(b"big", value), ANY)
    one.send(b"get big\r\nversion\r\nget big\r\nversion\r\n")
    await one.until(lambda: any(b"too large" in reply[3] for reply in one.client.replies))
    small = [reply[3] for reply in one.client.replies if reply[2] == 1]
    assert [line.split()[0] for line in small] == [b"VERSION", b"SERVER_ERROR"]
    assert small[1] == b"SERVER_ERROR reply too large for UDP\r\n"
    assert max(reply[2] for reply in one.client.replies) == -(-(len(value) + 30) // 1392)
    await one.until(lambda: one.service.under_way == 0)


async def test_a_failing_backend(one):
    one.backend.failing = True
    one.send(b"get a\r\nversion\r\n")
    await one.until(lambda: len(one.client.replies) == 2)
    assert one.client.replies[0][3] == b"SERVER_ERROR down\r\n"


async def test_a_bug_is_logged_and_others_are_served(one, caplog, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(StoreExecutor, "execute", broken)
        one.send(b"get a\r\nversion\r\n")
        await one.until(lambda: "a bug" in caplog.text)
    assert one.service.under_way == 0
    one.send(b"get a\r\n", 2)
    await one.expect((2, b"END\r\n"))


async def test_requests_are_freed_without_the_garbage_collector(one):
    gc.collect()
    gc.disable()
    try:
        kept = []
        begin = udp._Request.__init__

        class Noted(udp._Request):  # weakly referenceable: the request has no slot for that
            __slots__ = ("__weakref__",)

            def __init__(self, *arguments):
                begin(self, *arguments)
                kept.append(weakref.ref(self))

        original, udp._Request = udp._Request, Noted
        try:
            for request in (b"get a b\r\n", b"set a 0 0 1\r\n1\r\n", b"stats\r\n", b"quit\r\n",
                            b"set a 0 0 9\r\n1", b"get a\r\nget b\r\n"):  # fmt: skip
                one.send(request)
            await one.until(lambda: len(kept) == 6 and not one.service.under_way)
            await asyncio.sleep(0.01)
        finally:
            udp._Request = original
        assert [reference() for reference in kept] == [None] * 6
    finally:
        gc.enable()


async def test_a_stop_waits_for_requests_under_way():
    async with serving() as one:
        one.backend.gate.clear()
        one.send(b"set a 0 0 1\r\n1\r\n")
        await one.until(lambda: one.backend.under_way == 1)
        one.server.request_stop()
        await one.until(lambda: one.service._stopping)
        one.send(b"version\r\n", 2)
        await one.counted(dropped=1)
        one.backend.gate.set()
        await one.expect((1, b"STORED\r\n"))


async def test_a_stop_does_not_wait_forever():
    async with serving() as one:
        one.backend.gate.clear()
        one.send(b"set a 0 0 1\r\n1\r\n")
        await one.until(lambda: one.backend.under_way == 1)
        one.server.request_stop()
        await one.until(lambda: one.service.number == -1)
        assert one.service.under_way == 0


async def test_replies_wait_while_the_socket_buffer_is_full(one):
    one.service.pause_writing()
    await one.flood([b"version\r\n"] * (UNDER_WAY + 1))
    assert one.server.counters.udp_dropped == 1
    assert one.service.under_way == UNDER_WAY
    assert not one.client.replies
    one.service.resume_writing()
    await one.until(lambda: len(one.client.replies) == UNDER_WAY)
    assert [reply[0] for reply in one.client.replies] == list(range(UNDER_WAY))
    assert one.service.under_way == 0


async def test_a_large_reply_takes_turns_with_others(one):
    await one.backend.put(Record(b"big", b"x" * 500_000), ANY)
    one.service.pause_writing()
    one.send(b"get big\r\n", 1)
    await one.until(lambda: one.service.under_way == 1)
    one.send(b"version\r\n", 2)
    await one.until(lambda: one.service.under_way == 2)
    await one.until(lambda: len(one.service._unsent) == 2)
    one.service.resume_writing()
    await one.until(lambda: one.service.under_way == 0)
    await one.until(lambda: any(reply[0] == 2 for reply in one.client.replies))
    ids = [reply[0] for reply in one.client.replies]
    assert ids.index(2) <= 32


async def test_commands_are_sampled(one):
    one.server.counters.until_slow_sample = 64
    one.server.sampler._random = lambda: 0.99
    for _ in range(64):
        one.send(b"delete a\r\n")
        await one.expect((1, b"NOT_FOUND\r\n"))
    assert sum(one.count for one in one.server.sampler.histograms.values()) == 1


async def test_watch_and_dumps_are_rejected(one):
    for request in (b"watch\r\n", b"lru_crawler metadump all\r\n", b"lru_crawler mgdump all\r\n"):
        one.send(request)
        await one.expect((1, b"ERROR\r\n"))


async def test_without_a_backend():
    async with serving(None) as one:
        one.send(b"set a 0 0 1\r\n1\r\nget a\r\nwatch\r\nquit\r\nget a\r\n")
        await one.expect((1, b"STORED\r\n"), (1, b"VALUE a 0 1\r\n1\r\nEND\r\n"), (1, b"ERROR\r\n"))
        await one.until(lambda: not one.service.under_way)
        one.send(b"get b\r\n", 2)
        await one.expect((2, b"END\r\n"))


# The other loop

SIMPLE = {
    name: test
    for name, test in list(globals().items())
    if name.startswith("test_") and [*inspect.signature(test).parameters] in (["one"], [])
}


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run there")
@pytest.mark.parametrize("name", SIMPLE)
def test_the_other_tests_pass_on_uvloop(name):
    import uvloop

    async def run():
        if not inspect.signature(SIMPLE[name]).parameters:
            await SIMPLE[name]()
            return
        async with serving() as one:
            await SIMPLE[name](one)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
