"""Input in C: it is handled, and replies are sent, as by a connection in Python."""

import asyncio
import gc
import socket
import weakref

import pytest

from memlite.config import Config
from memlite.core.clock import Clock
from memlite.server.connections import native_receiver
from memlite.server.connections.connection import Connection
from memlite.server.connections.intake import FULL_READ, Intake
from memlite.server.connections.states import State
from memlite.server.server import Server
from memlite.telemetry.counters import Counters
from tests.unit.server.connections.test_fast_path import Loop

pytestmark = pytest.mark.skipif(
    native_receiver.NATIVE is None, reason="the modules in C are not compiled"
)

uvloop = pytest.importorskip("uvloop")


class Transport:
    """A transport with a socket for replies; it records what it has to write itself."""

    def __init__(self, sock=None, unsent=0):
        self.sock = sock
        self.unsent = unsent
        self.written = []

    def get_write_buffer_size(self):
        return self.unsent

    def write(self, data):
        self.written.append(data)


class Stub:
    """The part of a connection that the receiver uses; its run returns `reply`.

    Args:
        transport: where replies go.
        reply: of each run.
    """

    __slots__ = (
        "__weakref__", "_clock", "_out", "_run_commands", "_state", "_transport", "last_command",
        "seen",
    )  # fmt: skip

    def __init__(self, transport, reply=b"STORED\r\n"):
        self._transport = transport
        self._clock = Clock(wall=lambda: 1000.0)
        self._run_commands = lambda data, out: reply
        self._state = State.SERVING
        self.last_command = 0
        self._out = None
        self.seen = []

    def data_received(self, data):
        self.seen.append(("in Python", data))

    def _serve_rest(self, data):
        self.seen.append(("serve rest", data))

    def _keep_for_next_turns(self, data):
        self.seen.append(("kept", data))

    def _own_executor(self):
        self.seen.append(("executor for", self._out))

    def _share_executor(self):
        self.seen.append("executor is dropped")
        self._out = None


def receiving(kind, descriptor=lambda transport: transport.sock.fileno()):
    states = State.SERVING, State.YIELDED
    native = native_receiver.NATIVE.Receiver(
        kind, Clock, descriptor, Counters, Intake, *states, FULL_READ
    )
    return type("Receiving", (kind,), {"data_received": native})


# Properties hide the slots of the base, so that all of these are found by name.
LOOSE = type(
    "Loose",
    (Stub,),
    {
        name: property(getattr(Stub, name).__get__, getattr(Stub, name).__set__)
        for name in ("_clock", "_run_commands", "_state", "_transport", "last_command", "_out")
    },
)


@pytest.fixture(params=[Stub, LOOSE], ids=["slots", "by name"])
def kind(request):
    return receiving(request.param)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_a_reply_is_sent_at_once(kind, pair):
    ours, theirs = pair
    connection = kind(Transport(ours))
    connection.data_received(b"set a 0 0 1\r\nx\r\n")
    assert theirs.recv(100) == b"STORED\r\n"
    assert connection._transport.written == []
    assert connection.last_command == 1000
    assert connection.seen == []


def test_without_a_runner_the_method_in_python_is_called(kind):
    connection = kind(Transport())
    connection._run_commands = None
    connection.data_received(b"get a\r\n")
    assert connection.seen == [("in Python", b"get a\r\n")]
    assert connection.last_command == 0


def test_input_between_turns_is_kept(kind):
    connection = kind(Transport())
    connection._state = State.YIELDED
    connection.data_received(b"get a\r\n")
    assert connection.seen == [("kept", b"get a\r\n")]


def test_input_left_by_the_runner_is_processed(kind):
    connection = kind(Transport(), None)
    connection._run_commands = lambda data, out: out.append(b"first")
    connection.data_received(b"stats\r\n")
    assert connection.seen == [("executor for", [b"first"]), ("serve rest", b"stats\r\n")]
    assert connection._transport.written == []
    connection._run_commands = lambda data, out: None
    connection.data_received(b"stats\r\n")
    assert connection.seen[2:] == [("serve rest", b"stats\r\n")]
    assert connection._out == [b"first"]


def test_a_list_for_replies_is_dropped_once_the_runner_answers(kind, pair):
    connection = kind(Transport(pair[0]))
    connection._out = []
    connection.data_received(b"set a 0 0 1\r\nx\r\n")
    connection.data_received(b"set a 0 0 1\r\nx\r\n")
    assert connection.seen == ["executor is dropped"]
    assert pair[1].recv(100) == b"STORED\r\n" * 2


def test_no_reply_is_written_for_none(kind, pair):
    connection = kind(Transport(pair[0]), b"")
    connection.data_received(b"mn q\r\n")
    assert connection.last_command == 1000
    assert connection._transport.written == connection.seen == []


def test_a_reply_waits_for_those_before_it(kind, pair):
    ours, theirs = pair
    connection = kind(Transport(ours))
    connection.data_received(b"1")
    connection._transport.unsent = 1
    connection.data_received(b"2")
    assert connection._transport.written == [b"STORED\r\n"]
    assert theirs.recv(100) == b"STORED\r\n"


def test_the_transport_sends_what_the_socket_does_not_take(kind, pair):
    ours, theirs = pair
    reply = bytes(range(256)) * 64
    connection = kind(Transport(ours), reply)
    transport = connection._transport
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    sent = 0
    while not transport.written:
        connection.data_received(b"get a\r\n")
        sent += 1
    theirs.setblocking(False)
    arrived = b""
    while len(arrived) + len(transport.written[0]) < sent * len(reply):
        arrived += theirs.recv(65536)
    assert arrived + transport.written[0] == reply * sent


def test_a_socket_that_takes_a_part(kind):
    """A TCP socket accepts part of a reply, unlike the UNIX sockets of the other tests."""
    ours, theirs = connected()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        reply = bytes(range(256)) * 64
        connection = kind(Transport(ours), reply)
        transport = connection._transport
        sent = 0
        while not transport.written:
            connection.data_received(b"get a\r\n")
            sent += 1
        arrived = b""
        while len(arrived) + len(transport.written[0]) < sent * len(reply):
            arrived += theirs.recv(65536)
        assert arrived + transport.written[0] == reply * sent


def test_a_peer_that_is_gone_is_left_to_the_transport(kind, pair):
    ours, theirs = pair
    theirs.close()
    connection = kind(Transport(ours))
    connection.data_received(b"get a\r\n")
    assert connection._transport.written == [b"STORED\r\n"]


def test_a_large_reply_is_left_to_the_transport(kind, pair):
    reply = b"x" * 20_000
    connection = kind(Transport(pair[0]), reply)
    connection.data_received(b"get a\r\n")
    assert connection._transport.written[0] is reply


def test_other_replies_than_bytes_are_left_to_the_transport(kind, pair):
    reply = memoryview(b"value")
    connection = kind(Transport(pair[0]), reply)
    connection.data_received(b"get a\r\n")
    assert connection._transport.written == [reply]


def test_a_transport_without_such_a_socket_writes_all_replies():
    asked = []
    kind = receiving(Stub, lambda transport: asked.append(transport) or -1)
    connection = kind(Transport())
    received = connection.data_received
    for _ in range(3):
        received(b"get a\r\n")
    assert connection._transport.written == [b"STORED\r\n"] * 3
    assert asked == [connection._transport]


def test_a_type_without_such_sockets_is_asked_once():
    asked = []
    connection = receiving(Stub, asked.append)(Transport())
    for _ in range(3):
        connection.data_received(b"get a\r\n")
    assert connection._transport.written == [b"STORED\r\n"] * 3
    assert asked == [connection._transport]


def test_more_kinds_of_transports_than_are_known(pair):
    ours, theirs = pair
    kind = receiving(Stub)
    for number in range(6):
        transport = type(f"Transport{number}", (Transport,), {})(ours)
        kind(transport).data_received(b"get a\r\n")
        assert transport.written == ([] if number < 4 else [b"STORED\r\n"])
    assert theirs.recv(100) == b"STORED\r\n" * 4


@pytest.mark.parametrize("where", ["run", "_serve_rest", "descriptor", "size", "write"])
def test_errors_are_raised(pair, where):
    def fail(*arguments):
        raise OverflowError(where)

    base = type("Base", (Stub,), {"_serve_rest": fail})
    kind = receiving(base, fail if where == "descriptor" else lambda transport: pair[0].fileno())
    methods = {"get_write_buffer_size": fail} if where == "size" else {"write": fail}
    connection = kind(type("Failing", (Transport,), methods)(pair[0], unsent=1))
    if where == "run":
        connection._run_commands = fail
    elif where == "_serve_rest":
        connection._run_commands = lambda data, out: None
    with pytest.raises(OverflowError, match=where):
        connection.data_received(b"get a\r\n")


def test_a_connection_that_lacks_an_attribute(kind):
    connection = kind.__new__(kind)
    with pytest.raises(AttributeError, match="_run_commands"):
        connection.data_received(b"get a\r\n")


def test_another_clock_is_asked_by_name(kind, pair):
    connection = kind(Transport(pair[0]))
    connection._clock = type("Other", (), {"second": 7})()
    connection.data_received(b"get a\r\n")
    assert connection.last_command == 7


def test_misuse_is_an_error(kind):
    native = native_receiver.NATIVE.Receiver
    rest = (len, Counters, Intake, State.SERVING, State.YIELDED, FULL_READ)
    with pytest.raises(TypeError):
        native(Stub, Clock)
    with pytest.raises(TypeError):
        native(Stub(None), Clock, *rest)
    with pytest.raises(AttributeError, match="data_received"):
        native(int, Clock, *rest)
    with pytest.raises(TypeError, match="not a connection"):
        vars(kind)["data_received"].__get__(1, int)
    with pytest.raises(TypeError, match="not a connection"):
        native.__new__(native).__get__(1, int)
    with pytest.raises(TypeError, match="initialized only once"):
        vars(kind)["data_received"].__init__(Stub, Clock, len)
    connection = kind(Transport())
    with pytest.raises(TypeError, match="one argument"):
        connection.data_received(b"1", b"2")
    with pytest.raises(TypeError, match="one argument"):
        connection.data_received(data=b"1")
    assert kind.data_received is vars(kind)["data_received"]


def test_a_connection_that_is_dropped_is_freed():
    kind = receiving(Stub)
    connection = kind(Transport(), b"")
    connection._transport.received = connection.data_received  # as a transport stores it
    connection.data_received(b"")
    gone, kind_gone = weakref.ref(connection), weakref.ref(kind)
    del connection, kind
    gc.collect()
    assert gone() is None
    assert kind_gone() is None


def test_only_a_server_with_a_runner_has_a_receiver():
    server = Server(Config(), [])
    server.scheduler.loop = Loop()
    assert type(server.connect()) is not Connection
    assert isinstance(server.connect(), Connection)
    server = Server(Config(eviction="lru"), [])
    assert type(server.connect()) is Connection


class Made(asyncio.Protocol):
    """A protocol that stores its transport."""

    def __init__(self):
        self.transport, self.lost = (asyncio.get_running_loop().create_future() for _ in range(2))

    def connection_made(self, transport):
        self.transport.set_result(transport)

    def connection_lost(self, exc):
        self.lost.set_result(None)


async def descriptors(family):
    """Return a socket's file descriptor, and the one the receiver finds in its transport."""
    ours, theirs = socket.socketpair() if family == socket.AF_UNIX else connected()
    loop = asyncio.get_running_loop()
    connect = loop.create_unix_connection if family == socket.AF_UNIX else loop.create_connection
    with theirs:
        transport, protocol = await connect(Made, sock=ours)
        fd = transport.get_extra_info("socket").fileno()
        known = native_receiver.descriptor(transport)
        transport.close()
        await protocol.lost
    return fd, known


def connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    return ours, theirs


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_which_transports_have_such_a_socket(family, loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        fd, known = runner.run(descriptors(family))
    assert fd >= 0
    assert known == (fd if loop is uvloop.new_event_loop else None)
