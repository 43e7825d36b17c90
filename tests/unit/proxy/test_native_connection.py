"""Input handled in C, and output that bypasses the transports."""

import asyncio
import csv
import gc
import socket
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest
import uvloop

from memlite.core.clock import Clock
from memlite.protocol import Limits
from memlite.protocol.discovery import CLUSTER_KEY
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.proxy.cluster import Cluster
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.framing import NATIVE
from memlite.proxy.known_nodes import MAX_REMEMBERED
from memlite.proxy.link import Link
from memlite.proxy.native_link import NativeLink
from memlite.proxy.node import Node
from memlite.proxy.parts import JoinedBatch, JoinedMultiGet
from memlite.proxy.recognizer import Recognizer
from memlite.proxy.requests import Read
from memlite.proxy.single_requests import writer_of
from memlite.proxy.trace_rows import COLUMNS, lines_of, row_of_traced
from memlite.proxy.turns import Turns, TurnsInPython
from memlite.telemetry.counters import Counters
from tests.unit.proxy.clusters import cluster_of
from tests.unit.proxy.transcripts import Loop, NodeTransport

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")


class Transport:
    """Records what is written, and reports a given number of unsent bytes."""

    def __init__(self, unsent: int = 0) -> None:
        self.unsent = unsent
        self.written: list[bytes] = []

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_small_data_bypasses_the_transport(pair: tuple[socket.socket, socket.socket]) -> None:
    transport = Transport()
    write = NATIVE.Writer(transport, pair[0].fileno())
    write(b"END\r\n")
    assert pair[1].recv(100) == b"END\r\n"
    write(b"")
    assert transport.written == [b""]


def test_data_after_unsent_data_goes_through_the_transport(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    transport = Transport(unsent=1)
    NATIVE.Writer(transport, pair[0].fileno())(b"END\r\n")
    assert transport.written == [b"END\r\n"]


def test_large_data_goes_through_the_transport(pair: tuple[socket.socket, socket.socket]) -> None:
    transport = Transport()
    NATIVE.Writer(transport, pair[0].fileno())(b"x" * (16 * 1024 + 1))
    assert transport.written == [b"x" * (16 * 1024 + 1)]


def test_the_transport_gets_what_the_socket_does_not_take(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    transport, data = Transport(), bytes(range(256)) * 64
    write = NATIVE.Writer(transport, pair[0].fileno())
    sent = 0
    while not transport.written:
        write(data)
        sent += len(data)
    rest = transport.written[0]
    pair[0].close()
    got = b""
    while piece := pair[1].recv(1 << 20):
        got += piece
    assert got + rest == data * (sent // len(data))


def test_the_transport_sees_the_error_too(pair: tuple[socket.socket, socket.socket]) -> None:
    transport = Transport()
    pair[1].close()
    NATIVE.Writer(transport, pair[0].fileno())(b"END\r\n")
    assert transport.written == [b"END\r\n"]


def test_only_bytes_are_written(pair: tuple[socket.socket, socket.socket]) -> None:
    write = NATIVE.Writer(Transport(), pair[0].fileno())
    for wrong in (bytearray(b"x"), "x", None):
        with pytest.raises(TypeError):
            write(wrong)
    with pytest.raises(TypeError):
        write()


class Keeping(asyncio.Protocol):
    """Keeps its transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.Transport, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Keeping, *server.getsockname())
        theirs, _ = server.accept()
        # The buffers are small, so that bytes soon wait here.
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ours = transport.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with theirs:
            yield transport, theirs
            transport.abort()


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_replies_keep_their_order_whichever_object_writes_them(loop: Any) -> None:
    async def main() -> bytes:
        async with connected() as (transport, theirs):
            write = writer_of(transport)
            assert (type(write) is NATIVE.Writer) == (loop is uvloop.new_event_loop)
            sent = 0
            while transport.get_write_buffer_size() < 100_000:
                (write if sent % 3 else transport.write)(b"%07d\n" % sent)
                sent += 1
            got = b""
            theirs.setblocking(False)
            while len(got) < 8 * sent:
                got += await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
            assert got == b"".join(b"%07d\n" % number for number in range(sent))
            return got

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main())


def test_a_lost_connection_is_left_to_the_transport() -> None:
    class Owner:
        def link_lost(self, reason: str, *, down: bool) -> None: ...

    async def main() -> None:
        link = NativeLink(cast("Any", Owner()))
        with socket.create_server(("127.0.0.1", 0)) as server:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: link, *server.getsockname())
            assert type(link.write) is NATIVE.Writer
            link.close()
            await asyncio.sleep(0)  # the transport reports it in the next iteration
            assert type(link.write) is not NATIVE.Writer

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_link_without_a_node_is_served_by_the_method_in_python() -> None:
    class Owner:
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def usual_received(self, data: bytes) -> int:
            self.seen.append(data)
            return len(data)

    async def main() -> list[bytes]:
        owner = Owner()
        link = NativeLink(cast("Any", owner))
        for data in (b"END\r\n", b"x", b""):
            link.data_received(data)
        return owner.seen

    assert asyncio.run(main()) == [b"END\r\n", b"x", b""]


def test_a_receiver_serves_connections_of_its_type_alone() -> None:
    with pytest.raises(TypeError, match="not a supported connection"):
        vars(NativeLink)["data_received"].__get__(3)
    with pytest.raises(TypeError):
        NATIVE.Receiver(3)
    with pytest.raises(TypeError):
        NATIVE.Receiver(Link, dict)
    with pytest.raises(TypeError, match="one argument"):
        asyncio.run(_received_nothing())


async def _received_nothing() -> None:
    NativeLink(cast("Any", None)).data_received()  # type: ignore[call-arg]


def test_bound_objects_are_freed() -> None:
    class Node:
        """A node that refers to its flusher."""

    class Holder(Transport):
        """A transport that refers to its writer."""

    node, holder = Node(), Holder()
    cast("Any", node).flusher = NATIVE.Flusher(node)
    cast("Any", holder).writer = NATIVE.Writer(holder, -1)
    gone = weakref.ref(node), weakref.ref(holder)
    del node, holder
    gc.collect()
    assert gone[0]() is gone[1]() is None


def test_a_flusher_calls_the_python_method_of_other_types() -> None:
    class Node:
        flushed = 0

        def _flush(self) -> None:
            self.flushed += 1

    node = Node()
    flush = NATIVE.Flusher(node)
    flush()
    assert node.flushed == 1
    with pytest.raises(TypeError):
        flush(1)


class Numbered(ProxyExecutor):
    number = 5  # of the connection, as in executors that trace


class Stub:
    """A connection that records the data left to its Python method."""

    def __init__(self, cluster: Cluster) -> None:
        self.out: list[Any] = []
        self._out = self.out  # the name that connections use
        self.executor = Numbered(
            cluster, cast("Any", None), cast("Any", self), self.out, Recognizer(cluster, Limits())
        )
        self.executor.lone.write = self.out.append
        self._counters = self.executor.lone.counters = Counters()
        self._counters.until_slow_sample = 10
        self._immediate_limit = 0
        self._clock = Clock(lambda: 5.0, lambda: 1000.0)
        self.last_command = 0
        self.left: list[bytes] = []
        self.settled = self.unread = 0

    def replies_ready(self) -> None:
        self.settled += 1

    def count_unread(self) -> None:
        self.unread += 1

    def _flush(self) -> None: ...  # the replies stay in `out`

    def data_received(self, data: bytes) -> None:
        self.left.append(data)


class Receiving(Stub):
    if NATIVE is not None:
        data_received = NATIVE.Receiver(Stub, ProxyExecutor, Counters, Clock, MAX_GET_LENGTH)


@pytest.fixture
async def client() -> Receiving:
    cluster = cluster_of(1, cast("Any", Loop()))
    for key in (b"k", b"noreply", CLUSTER_KEY, b"a\nb", b"n" * 250):
        cluster.node_of_line(b"get %b\r\n" % key, key)
        cluster.known_nodes[key] = cluster.nodes[0]
    node = cluster.nodes[0]
    link = NativeLink(node)
    link.connection_made(cast("Any", NodeTransport(Random(1))))
    node._serve(link)
    return Receiving(cluster)


USUAL = [
    b"get k\r\n", b"set k 0 0 1\r\nx\r\n", b"delete k\r\n", b"incr k 1\r\n", b"decr k 9999\r\n",
    b"touch k 0\r\n", b"delete %b\r\n" % (b"n" * 250), b"add k 0 0 1\r\nx\r\n",
    b"replace k 1 9999 0\r\n\r\n", b"append k 0 0 2\r\n\r\n\r\n", b"prepend k 0 0 1\r\nx\r\n",
    b"add noreply 0 0 300\r\n%b\r\n" % (b"v" * 300), b"append %b 0 0 1\r\nx\r\n" % (b"n" * 250),
    b"cas k 0 0 1 0\r\nx\r\n", b"cas k 0 0 1 9223372036854775807\r\nx\r\n", b"md k\r\n",
    b"ms k 1\r\nx\r\n", b"ms k 0 T0\r\n\r\n", b"ms k 1 F9999 T30\r\nx\r\n", b"incr noreplies 1\r\n",
    b"get unknown\r\n", b"delete unknown\r\n", b"delete k\r\r\n", b"add unknown 0 0 1\r\nx\r\n",
    b"get %b\r\n" % (b"m" * 250), b"set \xff 0 0 1\r\nx\r\n",
]  # fmt: skip
UNUSUAL = [
    b"get \r\n", b"get u\nv\r\n", b"get %b\r\n" % (b"m" * 251),
    b"get \0\r\n", b"get u\n", b"gets u\r\n", b"add u\0 0 0 1\r\nx\r\n", b"delete k 0\r\n",
    b"delete k noreply\r\n", b"delete noreply\r\n", b"touch noreply 1\r\n",
    b"delete %b\r\n" % CLUSTER_KEY, b"incr k\r\n", b"incr k \r\n", b"incr k 01\r\n",
    b"incr k 10000\r\n", b"incr k -1\r\n",
    b"incr k 1 noreply\r\n", b"touch k 1 noreply\r\n", b"delete k\n", b"delete k", b"delete  k\r\n",
    b"delete a\nb\r\n", b"incr a\nb 1\r\n", b"delete \r\n", b"Delete k\r\n", b"deletek\r\n",
    b"delete k\r\ndelete k\r\n", b"incr k 1\r\nincr k 1\r\n", b"set k 0 0 1 noreply\r\nx\r\n", b"",
    b"get k", b"g", b"delete \0\r\n", b"set noreply\r\n", b"incr k 1\r\r\n",
    b"incr\r\n", b"add k 0 0 1 noreply\r\nx\r\n",
    b"adds k 0 0 1\r\nx\r\n", b"add k 0 0 2\r\nx\r\n", b"add k 0 0 1\r\nxx\r",
    b"add a\nb 0 0 1\r\nx\r\n", b"add k 0 0 1\nx\r\n",
    b"append k 01 0 1\r\nx\r\n", b"append k 0 -1 1\r\nx\r\n", b"cas k 0 0 1\r\nx\r\n",
    b"cas k 0 0 1 \r\nx\r\n", b"cas k 0 0 1 01\r\nx\r\n", b"cas k 0 0 1 7 noreply\r\nx\r\n",
    b"cas k 0 0 1 18446744073709551615\r\nx\r\n", b"cas k 0 0 1 noreply\r\nx\r\n",
    b"cas k 0 0 1 7 \r\nx\r\n", b"cas k 0 0 1 7 8 9\r\nx\r\n", b"ms k\r\n", b"ms k 1 q\r\nx\r\n",
    b"ms k 1 T0 q\r\nx\r\n", b"ms k 1 T0 T0\r\nx\r\n", b"ms k 1 T\r\nx\r\n", b"ms k 1 T-1\r\nx\r\n",
    b"ms k 1 T0 \r\nx\r\n", b"ms k 1 \r\nx\r\n", b"ms k 1 F0 T0 c\r\nx\r\n", b"ms k 1 b\r\nx\r\n",
    b"ms k S1\r\nx\r\n", b"ms a\nb 1\r\nx\r\n", b"md k q\r\n", b"md k b\r\n", b"md k \r\n",
    b"md a\nb\r\n", b"md \r\n", b"md\r\n", b"ms\r\n\r\n", b"ms  1\r\nx\r\n", b"add  0 0 1\r\nx\r\n",
]  # fmt: skip


@pytest.mark.parametrize("data", USUAL)
async def test_incomplete_requests_are_left_to_python(client: Receiving, data: bytes) -> None:
    for size in range(len(data)):
        client.data_received(data[:size])
    assert client.left == [data[:size] for size in range(len(data))]
    assert not client.executor.lone.alone


@pytest.mark.parametrize("data", USUAL)
async def test_requests_that_are_taken_in_c(client: Receiving, data: bytes) -> None:
    client.data_received(data)
    assert client.left == []
    assert client.executor.lone.alone
    counters = client._counters
    assert (counters.bytes_read, counters.until_slow_sample) == (len(data), 9)
    assert client.last_command == 1000
    client.data_received(data)  # not alone
    assert client.left == [data]


@pytest.mark.parametrize("data", UNUSUAL)
async def test_requests_that_are_left_to_python(client: Receiving, data: bytes) -> None:
    client.data_received(data)
    assert client.left == [data]
    assert not client.executor.lone.alone
    assert client._counters.bytes_read == 0


async def test_nothing_is_taken_while_something_else_is_to_be_done(client: Receiving) -> None:
    client._counters.until_slow_sample = 1
    client.data_received(b"get k\r\n")
    client._counters.until_slow_sample, client._immediate_limit = 10, -1
    client.data_received(b"get k\r\n")
    client._immediate_limit = 0
    client.executor.lone.write = None  # another object has to write the reply
    client.data_received(b"delete k\r\n")
    client.executor.lone.write = client.out.append
    client.executor.lone.by_line = None  # as after quit
    client.data_received(b"get k\r\n")
    assert client.left == [b"get k\r\n"] * 2 + [b"delete k\r\n", b"get k\r\n"]


async def test_nodes_of_unknown_keys_are_remembered(client: Receiving) -> None:
    cluster = client.executor._cluster
    known = set(cluster.known_nodes)
    for times in range(1, 4):
        client.data_received(b"get u\r\n")
        reply_to(client, b"END\r\n")
        assert set(cluster.known_nodes) - known == {b"u"}
        assert (b"get u\r\n" in cluster.by_line) == (times > 1)
    for batch in range(3):
        client.data_received(b"".join(b"get v%d\r\n" % number for number in range(20)))
        reply_to(client, b"END\r\n" * 20)
        assert (b"get v7\r\n" in cluster.by_line) == (batch > 0)
    assert client.left == []


@pytest.mark.parametrize("key", [CLUSTER_KEY, b"noreply", b"a\nb"])
@pytest.mark.parametrize("more", [b"", b"get k\r\n"])
async def test_gets_of_other_words_are_left_to_python_though_their_node_is_known(
    client: Receiving, key: bytes, more: bytes
) -> None:
    client.executor._cluster.by_line.clear()
    data = more + b"get %b\r\n" % key + more
    client.data_received(data)
    assert client.left == [data]
    assert key not in b"".join(client.executor._cluster.by_line)


async def test_no_more_keys_and_lines_are_remembered_than_the_limit(client: Receiving) -> None:
    cluster = client.executor._cluster
    most = 0
    for start in range(0, MAX_REMEMBERED + 1024, 32):
        keys = range(start, start + 32)
        for _ in range(2):
            client.data_received(b"".join(b"get %d\r\n" % number for number in keys))
            reply_to(client, b"END\r\n" * 32)
        most = max(most, len(cluster.known_nodes), len(cluster.by_line))
    assert client.left == []
    assert MAX_REMEMBERED - 32 < most <= MAX_REMEMBERED
    assert len(cluster.known_nodes) < 2048 > len(cluster.by_line)


async def test_unknown_keys_are_left_to_python_while_they_cannot_be_forwarded(
    client: Receiving,
) -> None:
    client.executor._cluster.suspend("for the test")
    for data in (b"get u\r\n", b"set u 0 0 1\r\nx\r\n", b"delete u\r\n", b"get u\r\n" * 2):
        client.left.clear()
        client.data_received(data)
        assert client.left == [data]
    assert not client.executor._cluster.known_nodes


TOGETHER = [
    b"get k\r\n" * 2, b"get k\r\n" * 64, b"add k 0 0 1\r\nx\r\nget k\r\n",
    b"set k 0 0 1\r\nx\r\n" * 3, b"get noreply\r\nset noreply 0 0 1\r\nx\r\n",
]  # fmt: skip


@pytest.mark.parametrize("data", TOGETHER)
async def test_requests_that_come_together_are_taken_in_c(client: Receiving, data: bytes) -> None:
    client.data_received(data)
    assert client.left == []
    counters = client._counters
    assert (counters.bytes_read, counters.until_slow_sample) == (len(data), 9)
    assert client.last_command == 1000
    queue, node = client.executor._queue, client.executor._cluster.nodes[0]
    assert [type(batch) for batch in queue] == [JoinedBatch]
    count = queue[0].count
    assert (node.pending, count) == (count, data.count(b"get") + data.count(b" 0 0 "))
    node._flush()
    assert written(node) == data
    gets = [line[:3] == b"get" for line in data.splitlines() if b" " in line]
    replies = [b"END\r\n" if get else b"STORED\r\n" for get in gets]
    node._link.data_received(b"".join(replies[:-1]))
    assert client.out == []
    node._link.data_received(replies[-1])
    whole = b"".join(replies)
    assert client.out == [whole]  # without the executor: `write` puts it there
    assert (counters.bytes_written, len(queue)) == (len(whole), 0)
    client.out.clear()
    client.data_received(data)
    assert node.pending == count


def written(node: Node) -> bytes:
    """Return what a node was sent."""
    return bytes(cast("NodeTransport", node._link.transport).written)


def trace_in_c(client: Receiving) -> Any:
    """Make the next request of a client a traced one; return what decides about the others."""
    turns = client.executor.lone.turns = NATIVE.Turns(1000)
    turns.cluster, turns.done, turns.offset = client.executor._cluster, [], 0
    return turns


def reply_to(client: Receiving, reply: bytes) -> None:
    node = client.executor._cluster.nodes[0]
    node._flush()
    node._link.data_received(reply)
    client._counters.until_slow_sample = 10
    client.out.clear()


@pytest.mark.parametrize("data", [b"get k\r\n", b"get k\r\n" * 2])
async def test_the_line_of_a_request_traced_in_c(client: Receiving, data: bytes) -> None:
    turns = trace_in_c(client)
    for number in range(400):
        turns.left = 1
        turns.offset = offset = 10**18 + number * 37_001  # times with all kinds of last digits
        before = time.monotonic_ns()
        client.data_received(data)
        reply_to(client, b"END\r\n" * data.count(b"get"))
        after = time.monotonic_ns()
        lines, count = turns.take_lines()
        assert count == 1
        (row,) = csv.DictReader(lines.decode().splitlines(), COLUMNS)
        times = [int(row[name]) for name in ("arrival", "sent", "received", "replied")]
        limits = [(before + offset) // 1000, (after + offset) // 1000]
        assert [*limits[:1], *times, *limits[1:]] == sorted([*times, *limits])
        assert row["arrival"] == row["enqueued"] == row["dequeued"]
        node = client.executor._cluster.nodes[0]
        others = {"client": "5", "queue_length": "0", "worker": "", "command": "get", "keys": "1"}
        others |= {"nodes": node.name, "result": "END", "bytes": "5"}
        others["epoch"] = str(client.executor._cluster.version)
        assert row.items() >= others.items()
    assert turns.done == []
    assert turns.take_lines() == (b"", 0)


@pytest.mark.parametrize("name", ["a,b", 'a"b', " a", "a\nb", "\u00e9", "n" * 513])
async def test_a_line_that_needs_quotes_is_left_to_python(client: Receiving, name: str) -> None:
    turns = trace_in_c(client)
    client.executor._cluster.nodes[0].name = name
    client.data_received(b"get k\r\n")
    reply_to(client, b"VALUE k 0 30\r\n%b\r\nEND\r\n" % (b"v" * 30))
    assert turns.take_lines() == (b"", 0)
    (traced,) = turns.done
    row = dict(zip(COLUMNS, row_of_traced(traced, 0, names=True), strict=True))
    assert row.items() >= {"nodes": name, "keys": "k", "result": "VALUE", "bytes": 51}.items()


ITEMS = {key: b"VALUE %b 0 1\r\nx\r\n" % key for key in (b"a", b"b", b"c", b"d", b"e")}


@pytest.fixture
async def sharded() -> Receiving:
    """Return a client of three nodes; the keys of `ITEMS` are on all of them."""
    cluster = cluster_of(3, cast("Any", Loop()))
    for node in cluster.nodes:
        link = NativeLink(node)
        link.connection_made(cast("Any", NodeTransport(Random(1))))
        node._serve(link)
    for number, key in enumerate(ITEMS):
        cluster.known_nodes[key] = cluster.nodes[number % 3]
    return Receiving(cluster)


def serve(client: Receiving, missing: bytes = b"") -> list[bytes]:
    """Make all nodes answer, with items except for one key; return what the client gets."""
    for node in client.executor._cluster.nodes:
        if node._link is None:
            continue
        node._flush()
        transport = cast("NodeTransport", node._link.transport)
        requests, transport.written = transport.written, b""
        for line in requests.splitlines():
            items = [ITEMS[key] for key in line.split()[1:] if key != missing]
            node._link.data_received(b"".join([*items, b"END\r\n"]))
    client.executor._cluster.deliver()
    client._counters.until_slow_sample = 10
    written = list(client.out)
    client.out.clear()
    return written


async def test_gets_of_several_keys_are_taken_in_c(sharded: Receiving) -> None:
    cluster, counters = sharded.executor._cluster, sharded._counters
    for keys in (b"a b c d e", b"e c", b"a a b a", b"c d"):
        data = b"get %b\r\n" % keys
        counters.bytes_read, counters.bytes_written = 0, 0
        before = cluster.multigets
        sharded.data_received(data)
        (whole,) = sharded.executor._queue
        assert type(whole) is JoinedMultiGet
        written = serve(sharded, missing=b"b")
        reply = b"".join([*(ITEMS[key] for key in keys.split() if key != b"b"), b"END\r\n"])
        assert (sharded.left, written) == ([], [reply])
        assert (counters.bytes_read, counters.bytes_written) == (len(data), len(reply))
        assert (cluster.multigets - before, len(sharded.executor._queue)) == (1, 0)


async def test_a_get_of_several_keys_of_one_node_is_a_request_like_others(
    sharded: Receiving,
) -> None:
    sharded.data_received(b"get a d\r\n")
    assert sharded.executor.lone.alone
    assert serve(sharded) == [ITEMS[b"a"] + ITEMS[b"d"] + b"END\r\n"]
    assert sharded.executor._cluster.multigets == 0


async def test_a_node_that_fails_while_it_is_asked_for_some_keys(sharded: Receiving) -> None:
    cluster = sharded.executor._cluster
    sharded.data_received(b"get a b c\r\n")
    cluster.nodes[1].link_lost("gone", down=False)
    assert serve(sharded) == [ITEMS[b"a"] + ITEMS[b"c"] + b"END\r\n"]
    assert (cluster.failures, cluster.failed_shards) == (1, 1)
    sharded.data_received(b"get a b c\r\n")  # the node is not connected
    assert (sharded.left, serve(sharded)) == ([], [])
    cluster.nodes[1].link_lost("gone", down=True)
    assert serve(sharded) == [ITEMS[b"a"] + ITEMS[b"c"] + b"END\r\n"]


async def test_nodes_that_are_down_when_they_are_asked_for_some_keys(sharded: Receiving) -> None:
    cluster = sharded.executor._cluster
    turns = trace_in_c(sharded)
    cluster.nodes[1].link_lost("gone", down=True)
    sharded.data_received(b"get a b c\r\n")
    assert serve(sharded) == [ITEMS[b"a"] + ITEMS[b"c"] + b"END\r\n"]
    assert (cluster.failures, cluster.failed_shards, turns.take_lines()[1]) == (1, 1, 1)
    for node in (cluster.nodes[0], cluster.nodes[2]):
        node.link_lost("gone", down=True)
    turns.left = 1
    sharded.data_received(b"get a b c\r\n")
    assert sharded.executor._queue == deque()  # it was answered at once
    (error,) = sharded.out
    assert error.startswith(b"SERVER_ERROR")
    assert (cluster.failures, turns.take_lines()[1], sharded.left) == (4, 1, [])


@pytest.mark.parametrize(
    "data",
    [
        b"get a b\r\nget c d\r\n", b"get a  b\r\n", b"get a b \r\n", b"get  a b\r\n",
        b"get a b\n", b"get a \0 b\r\n", b"get a x\0\r\n", b"get a noreply\r\n",
        b"get a %b\r\n" % CLUSTER_KEY, b"get a %b\r\n" % (b"n" * 251), b"gets a b\r\n",
        b"get a b", b"get a b\r", b"gat 0 a b\r\n",
    ],
)  # fmt: skip
async def test_other_gets_of_several_keys_are_left_to_python(
    sharded: Receiving, data: bytes
) -> None:
    sharded.executor._cluster.known_nodes[b"x\0"] = sharded.executor._cluster.nodes[0]
    sharded.data_received(data)
    assert sharded.left == [data]


@pytest.mark.parametrize("name", ["a,b", "n" * 600, "other"])
async def test_a_get_of_several_keys_is_traced_in_c(sharded: Receiving, name: str) -> None:
    turns = trace_in_c(sharded)
    nodes = sharded.executor._cluster.nodes
    nodes[1].name = name
    for keys in (b"a b c d", b"a d"):
        turns.left = 2
        names = " ".join(node.name for node in (nodes if b"b" in keys else nodes[:1]))
        sharded.data_received(b"get %b\r\n" % keys)
        serve(sharded)
        assert (turns.left, turns.take_lines()) == (1, (b"", 0))
        sharded.data_received(b"get %b\r\n" % keys)
        serve(sharded)
        lines, count = turns.take_lines()
        assert count == (name == "other" or b"b" not in keys)
        if not count:
            lines = lines_of([row_of_traced(turns.done.pop(), turns.offset, names=False)])
        (row,) = csv.DictReader(lines.decode().splitlines(), COLUMNS)
        number = len(keys.split())
        assert (row["command"], row["keys"], row["nodes"]) == ("get", str(number), names)
        assert (row["result"], row["bytes"]) == ("VALUE", str(len(ITEMS[b"a"]) * number + 5))
        times = [int(row[of]) for of in ("arrival", "sent", "received", "replied")]
        assert times == sorted(times)
        assert (sharded.left, turns.left, turns.done) == ([], 1000, [])
    turns.left, turns.offset = 1, -1  # keys are named
    sharded.data_received(b"get a b\r\n")
    assert sharded.left == [b"get a b\r\n"]


async def test_requests_have_no_lines_without_an_offset(client: Receiving) -> None:
    turns = trace_in_c(client)
    turns.offset = -1
    client.data_received(b"get k\r\n")
    reply_to(client, b"END\r\n")
    assert turns.take_lines() == (b"", 0)
    assert [traced.reply for traced in turns.done] == [b"END\r\n"]


@pytest.mark.parametrize("kind", [Turns, TurnsInPython])
def test_one_request_in_n_passes_through_the_queue(kind: Any) -> None:
    turns = kind(3)
    assert [turns.passes() for _ in range(7)] == [True, False, False, True, False, False, True]
    assert kind(1).passes()
    assert turns.take_lines() == (b"", 0)


async def test_more_requests_than_are_taken_at_once_are_left_to_python(client: Receiving) -> None:
    client.data_received(b"get k\r\n" * 66)
    assert client.left == [b"get k\r\n" * 2]
    assert client._counters.bytes_read == 64 * 7
    assert client.executor._queue[0].count == 64


@pytest.mark.parametrize(
    "data",
    [b"get k\r\n" * 2 + b"get", b"get k\r\nget x y\r\n", b"get k\r\nmn\r\n", b"mn\r\nmn\r\n"],
)
async def test_requests_with_another_are_left_to_python(client: Receiving, data: bytes) -> None:
    client.data_received(data)
    assert client.left == [data]
    assert not client.executor._queue


async def test_requests_are_left_to_python_while_something_else_is_to_be_done(
    client: Receiving,
) -> None:
    data, lone, node = b"get k\r\n" * 2, client.executor.lone, client.executor._cluster.nodes[0]
    lone.write = None
    client.data_received(data)
    lone.write, node._limited = client.out.append, True
    client.data_received(data)
    node._limited = False
    lone.by_line = None  # as after quit
    client.data_received(data)
    assert client.left == [data] * 3
    assert node.pending == 0


async def test_a_batch_queued_after_another_request_is_delivered_after_it(
    client: Receiving,
) -> None:
    node = client.executor._cluster.nodes[0]
    client.data_received(b"get k\r\n" * 2)
    batch = client.executor._queue[0]
    first = Read(client.executor)
    client.executor._queue.appendleft(first)
    node._flush()
    node._link.data_received(b"END\r\n" * 2)
    assert (client.out, batch.reply, batch.held) == ([], b"END\r\n" * 2, 10)
    first.answer(b"first")
    client.executor._cluster.deliver()
    assert (client.out, client.settled) == ([b"first", b"END\r\n" * 2], 2)


async def test_a_batch_that_fails_is_answered_with_errors(client: Receiving) -> None:
    cluster = client.executor._cluster
    client.data_received(b"get k\r\n" * 3)
    cluster.nodes[0]._lose("it is gone", down=True)
    name = cluster.nodes[0].name.encode()
    assert client.out == [b"SERVER_ERROR node %b: it is gone\r\n" % name * 3]
    assert cluster.failures == 3


async def test_a_client_that_has_gone_is_sent_nothing(client: Receiving) -> None:
    node = client.executor._cluster.nodes[0]
    client.data_received(b"get k\r\n" * 2)

    class OfTheExecutor:
        """Freed with the executor, which takes no weak references itself if compiled."""

    client.executor.lone.counters = OfTheExecutor()
    gone = weakref.ref(client.executor.lone.counters)
    client.executor.detach()
    del client.executor
    node._flush()
    node._link.data_received(b"END\r\n" * 2)
    assert client.out == []
    assert gone() is None  # it is freed without the garbage collector


async def test_the_executor_learns_that_a_client_reads_no_more(client: Receiving) -> None:
    node, lone = client.executor._cluster.nodes[0], client.executor.lone

    def write(data: bytes) -> None:
        client.out.append(data)
        lone.write = None

    lone.write = write
    client.data_received(b"get k\r\n" * 2)
    node._flush()
    node._link.data_received(b"END\r\n" * 2)
    assert (client.out, client.unread) == ([b"END\r\n" * 2], 1)


async def test_the_available_part_of_a_batch_is_sent_soon() -> None:
    loop = Loop()
    cluster = cluster_of(2, cast("Any", loop))
    keys = {cluster.node_of_line(b"get %d\r\n" % n, b"%d" % n): b"%d" % n for n in range(99)}
    for node in cluster.nodes:
        link = NativeLink(node)
        link.connection_made(cast("Any", NodeTransport(Random(1))))
        node._serve(link)
    clients = [Receiving(cluster) for _ in range(3)]
    first, second = cluster.nodes
    item = b"VALUE %b 0 1\r\nx\r\nEND\r\n" % keys[second]
    for one in clients:
        one.data_received(b"get %b\r\nget %b\r\n" % (keys[first], keys[second]))
        assert one.left == []
    clients[2].executor.lone.write = None
    loop.turn()
    first._link.data_received(b"END\r\n" * 3)
    assert ([one.out for one in clients], len(loop.later)) == ([[], [], []], 1)
    second._link.data_received(item)
    assert clients[0].out == [b"END\r\n" + item]
    loop.timers()
    assert [one.settled for one in clients] == [0, 0, 1]
    assert clients[0].out == [b"END\r\n" + item]
    for one in clients[1:]:
        assert one.out == [b"END\r\n"]
        one.out.clear()
    second._link.data_received(item * 2)
    for one in clients[1:]:
        assert one.out == [item]
    assert not loop.later
    assert not any(one.executor.lone.progresses or one.executor.lone.due for one in clients)


def test_wrong_arguments_of_batches() -> None:
    for function in (NATIVE.deliver, NATIVE.send_progress):
        for wrong in (None, (), [1], [object()]):
            with pytest.raises((TypeError, AttributeError)):
                function(wrong)
    for arguments in [(), (1,), (1, "x"), (1, b"", 2)]:
        with pytest.raises(TypeError):
            NATIVE.Batch(*arguments)
    with pytest.raises(TypeError):
        NATIVE.Batch(1, order=b"")
    batch = NATIVE.Batch(object(), b"\0")
    for count in (0, -1, 1 << 30):
        with pytest.raises(ValueError, match="count"):
            batch.part(count, reads=True)
    batch.part(1, reads=True)
    with pytest.raises(ValueError, match="already has a part"):
        batch.part(1, reads=True)
    with pytest.raises(TypeError):
        batch.part(1, True)
    batch.discard()
    with pytest.raises(AttributeError):
        batch.part_done()  # its executor cannot be told
