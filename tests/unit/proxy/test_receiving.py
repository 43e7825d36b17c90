"""Input that is taken in C, and output that does not pass the transports."""

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvloop

from memlite.proxy.arriving import ArrivingLink
from memlite.proxy.framing import NATIVE
from memlite.proxy.link import Link
from memlite.proxy.lone import writer_of

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")


class Transport:
    """Keeps what is written, and has as much yet to be sent as is said."""

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


def test_small_data_does_not_pass_the_transport(pair: tuple[socket.socket, socket.socket]) -> None:
    transport = Transport()
    write = NATIVE.Writer(transport, pair[0].fileno())
    write(b"END\r\n")
    assert pair[1].recv(100) == b"END\r\n"
    write(b"")
    assert transport.written == [b""]


def test_what_comes_after_unsent_data_passes_the_transport(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    transport = Transport(unsent=1)
    NATIVE.Writer(transport, pair[0].fileno())(b"END\r\n")
    assert transport.written == [b"END\r\n"]


def test_much_passes_the_transport(pair: tuple[socket.socket, socket.socket]) -> None:
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


def test_the_transport_meets_the_error_too(pair: tuple[socket.socket, socket.socket]) -> None:
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
        with theirs:
            yield transport, theirs
            transport.abort()


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_replies_keep_their_order_whoever_writes_them(loop: Any) -> None:
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
        link = ArrivingLink(cast("Any", Owner()))
        with socket.create_server(("127.0.0.1", 0)) as server:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: link, *server.getsockname())
            assert type(link.write) is NATIVE.Writer
            link.close()
            await asyncio.sleep(0)  # the transport tells of it in the next iteration
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
        link = ArrivingLink(cast("Any", owner))
        for data in (b"END\r\n", b"x", b""):
            link.data_received(data)
        return owner.seen

    assert asyncio.run(main()) == [b"END\r\n", b"x", b""]


def test_a_receiver_serves_connections_of_its_type_alone() -> None:
    with pytest.raises(TypeError, match="not such a connection"):
        vars(ArrivingLink)["data_received"].__get__(3)
    with pytest.raises(TypeError):
        NATIVE.Receiver(3)
    with pytest.raises(TypeError):
        NATIVE.Receiver(Link, dict)
    with pytest.raises(TypeError, match="one argument"):
        asyncio.run(_received_nothing())


async def _received_nothing() -> None:
    ArrivingLink(cast("Any", None)).data_received()  # type: ignore[call-arg]


def test_what_is_bound_is_freed() -> None:
    class Node:
        """As a node, which has its flusher."""

    class Holder(Transport):
        """As a transport, which has what writes to it."""

    node, holder = Node(), Holder()
    cast("Any", node).flusher = NATIVE.Flusher(node)
    cast("Any", holder).writer = NATIVE.Writer(holder, -1)
    gone = weakref.ref(node), weakref.ref(holder)
    del node, holder
    gc.collect()
    assert gone[0]() is gone[1]() is None


def test_a_flusher_calls_the_method_in_python_of_what_is_no_node() -> None:
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
