"""A client that sends more commands than fit in a turn does not starve other clients."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.protocol.packets import Opcode
from memlite.server.connections import native_receiver
from memlite.server.connections.states import State
from tests.support.packets import NOOP, count, packet, store
from tests.unit.server.connections.test_fast_path import END, K2, Client, K, Transport

TURN = 20 * (K + END)


@pytest.fixture(params=["native", "runner", "fast"])
def client(request, monkeypatch):
    if request.param == "runner":  # in C, without the receiver in C
        monkeypatch.setattr(native_receiver, "NATIVE", None)
    return Client("fast" if request.param == "fast" else "native")


def connect(client):
    other = client.server.connect()
    other.connection_made(Transport())
    return other


def iterate(client):
    """Run one iteration of the loop: the calls that are due, but none that they schedule."""
    loop = client.server.scheduler.loop
    due, loop.soon = loop.soon, []
    for function in due:
        function()


def held(client):
    return client.connection._services.intake.held


def test_connections_take_turns_one_after_another(client):
    others = [connect(client) for _ in range(3)]
    for one in others:
        one.data_received(b"get k\r\n" * 60)
    for turns in (1, 2, 3):
        assert [b"".join(one._transport.written) for one in others] == [turns * TURN] * 3
        late = connect(client)  # its read comes between the other clients' turns
        late.data_received(b"get k2\r\n")
        assert late._transport.written == [K2 + END]
        iterate(client)
    assert client.counted["conn_yields"] == 6
    assert client.server.scheduler.loop.soon == []


def test_all_turns_of_an_iteration_are_one_call(client):
    for one in (connect(client), connect(client)):
        one.data_received(b"get k\r\n" * 45)
    assert len(client.server.scheduler.loop.soon) == 1
    iterate(client)
    assert len(client.server.scheduler.loop.soon) == 1


def test_input_that_comes_between_turns_is_held_and_stays_in_order(client):
    connection, transport = client.connection, client.transport
    connection.data_received(b"get k\r\n" * 50)
    assert held(client) == 50 * 7
    assert transport.reading
    connection.data_received(b"get k2\r\n" * 2)
    assert held(client) == 50 * 7 + 2 * 8
    assert not transport.reading
    assert connection.busy
    iterate(client)
    assert client.written == 2 * TURN
    iterate(client)
    assert client.written == 50 * (K + END) + 2 * (K2 + END)
    assert held(client) == 0
    assert transport.reading
    assert not connection.busy
    assert client.counted["bytes_read"] == 50 * 7 + 2 * 8
    assert client.counted["bytes_written"] == len(client.written)


def test_a_client_that_leaves_between_turns_is_served_no_more(client):
    client.connection.data_received(b"get k\r\n" * 50)
    client.connection.connection_lost(None)
    client.server.scheduler.loop.run()
    assert client.written == TURN
    assert held(client) == 0
    assert client.counted["get_hits"] == 20


def test_a_closing_transport_gets_no_more_turns(client):
    client.connection.data_received(b"get k\r\n" * 50)
    client.transport.closing = True
    client.server.scheduler.loop.run()
    assert client.written == TURN


def test_a_peer_that_stops_reading_between_turns_is_waited_for(client):
    client.connection.data_received(b"get k\r\n" * 50)
    client.connection.pause_writing()
    client.server.scheduler.loop.run()
    assert client.written == TURN
    client.connection.resume_writing()
    client.server.scheduler.loop.run()
    assert client.written == 50 * (K + END)
    assert client.transport.reading


def test_a_peer_that_does_not_read_the_replies_of_a_turn_is_waited_for(client):
    connection, transport = client.connection, client.transport
    write = transport.write

    def fill(data):
        write(data)
        connection.pause_writing()

    transport.write = fill
    connection.data_received(b"get k\r\n" * 50)
    assert connection._state is State.BLOCKED
    assert client.server.scheduler.loop.soon == []
    transport.write = write
    connection.resume_writing()
    client.server.scheduler.loop.run()
    assert client.written == 50 * (K + END)


def test_a_half_closed_connection_is_closed_after_its_last_turn(client):
    client.connection.data_received(b"get k\r\n" * 50)
    assert client.connection.eof_received()
    iterate(client)
    assert not client.transport.closing
    iterate(client)
    assert client.written == 50 * (K + END)
    assert client.transport.closing


def test_other_commands_may_come_in_any_turn(client):
    data = b"get k\r\n" * 25 + b"verbosity 0\r\n" + b"get k\r\n" * 30 + b"quit\r\nget k\r\n"
    client.connection.data_received(data)
    client.server.scheduler.loop.run()
    assert client.written == 25 * (K + END) + b"OK\r\n" + 30 * (K + END)
    assert client.transport.closing
    assert held(client) == 0


def test_commands_without_replies_are_written_as_nothing(client):
    client.connection.data_received(b"set n 0 0 1 noreply\r\nx\r\n" * 50 + b"get k\r\n")
    assert client.transport.written == []
    client.server.scheduler.loop.run()
    assert client.written == K + END
    assert client.counted["conn_yields"] == 2


def test_commands_are_watched_from_the_next_turn_on(client):
    client.connection.data_received(b"get k\r\n" * 50)
    client.server.instrumentation.watch_commands(True)
    client.server.scheduler.loop.run()
    assert client.written == 50 * (K + END)
    assert client.parser.reads > 0


def test_an_error_in_a_turn_does_not_affect_other_turns(client):
    connections = [connect(client), client.connection]
    for one in connections:
        one.data_received(b"get k\r\n" * 25)

    def fail(data):
        raise OSError("no such socket")

    connections[0]._transport.write = fail
    with pytest.raises(OSError, match="no such socket"):
        iterate(client)
    client.server.scheduler.loop.run()
    assert client.written == 25 * (K + END)


@pytest.mark.skipif(native_receiver.NATIVE is None, reason="the modules in C are not compiled")
@pytest.mark.parametrize(
    "reads",
    [
        (b"get k\r\n" * 100,),
        (b"get k\r\n" * 3000,),  # after which less is to be read at a time
        (b"get", b" k\r\n" + b"get k\r\n" * 99),
    ],
)
def test_turns_between_need_few_functions_in_python(reads):
    client = Client("native")
    client.connection.data_received(b"get k\r\n" * 20)  # the first turn; all input is ready
    called = []

    def note(frame, event, _):
        if event == "call":
            called.append(frame.f_code.co_name)

    for data in reads:
        client.connection.data_received(data)
    iterate(client)
    sys.setprofile(note)
    try:
        iterate(client)
    finally:
        sys.setprofile(None)
    assert client.written == 4 * TURN
    ours = {
        "is_closing",
        "write",
        "get_write_buffer_size",
        "get_extra_info",
        "call_soon",
        "iterate",
    }
    assert set(called) - ours <= {"_call_together", "call_together", "descriptor"}


# Commands cut into several reads

COMMANDS = {
    "ascii": [
        b"get k\r\n", b"get absent\r\n", b"set x 0 0 5\r\nvalue\r\n", b"delete k\r\n", b"mn\r\n",
        b"add y 0 0 1 noreply\r\nv\r\n", b"ms x 3\r\nabc\r\n", b"set x 0 0 1\r\nbad\r\n",
        b"set z 0 0 2000000\r\n", b"touch k 0\r\n", b"gets k x\r\n", b"nonsense\r\n",
        b"get k\r\n" * 7,
    ],
    "binary": [
        NOOP, packet(Opcode.GET, b"k"), packet(Opcode.GETQ, b"absent"), NOOP * 7,
        store(Opcode.SET, b"x", b"value"), store(Opcode.ADDQ, b"y", b"v"),
        packet(Opcode.APPEND, b"x", value=b"more"), count(Opcode.INCREMENT, b"n", 1, 1),
        packet(Opcode.DELETE, b"k"), packet(Opcode.VERSION), packet(0x99, b"a", value=b"value"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", COMMANDS)
@given(data=st.data())
def test_a_command_counts_in_the_turn_in_which_it_is_carried_out(protocol, data):
    """It does not matter who carries it out, nor in how many reads it arrives."""
    commands = st.sampled_from(COMMANDS[protocol])
    stream = b"".join(data.draw(st.lists(commands, min_size=1, max_size=12)))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    share = data.draw(st.integers(1, 4))
    clients = [Client(path, protocol, share) for path in ("native", "fast", "general")]
    first, *others = clients
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if start == stop:
            continue
        for one in clients:
            one.read(stream[start:stop])
        for other in others:
            assert other.written == first.written
            assert other.state == first.state
