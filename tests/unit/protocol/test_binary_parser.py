"""The binary parser: each wire case whole, byte by byte, and with trailing input."""

import sys
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlite.core.errors import ProtocolViolation
from memlite.protocol import Limits
from memlite.protocol.binary import BinaryParser
from memlite.protocol.binary_table import COMMANDS
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.protocol.limits import item_total
from memlite.protocol.packets import BinaryRequest, Opcode, Status
from tests.support.packets import NOOP, count, packet, store, touch

# An item with a short key fits if its value has up to about 900 bytes.
LIMITS = Limits(item_size=1024, commands_per_read=1_000_000)
K250 = b"k" * 250
K251 = b"k" * 251
VIOLATION = ("violation",)


class Recorder:
    """A handler that records calls and their arguments."""

    shortcuts = NO_SHORTCUTS

    def __init__(self):
        self.calls = []

    def execute(self, command, arguments):
        request, *rest = arguments
        self.calls.append((command.name, *shown(request), *rest))

    def quit(self):
        self.calls.append(("quit",))


def shown(request):
    assert isinstance(request.key, bytes)
    assert isinstance(request.value, bytes)
    return (request.opcode, request.key, request.numbers, request.value, request.cas)


class Peer:
    """A parser with its recorder, fed as a connection would feed it."""

    def __init__(self, limits=LIMITS):
        self.parser = BinaryParser(limits)
        self.recorder = Recorder()

    @property
    def calls(self):
        return self.recorder.calls

    def send(self, *chunks):
        for chunk in chunks:
            while self.parser.receive(chunk, self.recorder):
                chunk = b""
        return self.calls


def carried_out(chunks, limits=LIMITS):
    """Return the calls for chunks of input, up to a quit or a violation, which end serving."""
    peer = Peer(limits)
    for chunk in chunks:
        try:
            peer.send(chunk)
        except ProtocolViolation:
            peer.calls.append(VIOLATION)
        if VIOLATION in peer.calls or ("quit",) in peer.calls:
            break
    return peer.calls


def one_by_one(stream):
    return [stream[index : index + 1] for index in range(len(stream))]


def call(name, opcode, key=b"", numbers=(), value=b"", cas=0):
    return ("binary_" + name, opcode, key, numbers, value, cas)


def ends(opcode, key=b"", status=Status.INVALID, numbers=(), cas=0):
    return [(*call("reject", opcode, key, numbers, cas=cas), status), ("quit",)]


def unknown(opcode, key=b""):
    return [(*call("reject", opcode, key), Status.UNKNOWN_COMMAND)]


GETS = (Opcode.GET, Opcode.GETQ, Opcode.GETK, Opcode.GETKQ)
STORES = (
    Opcode.SET, Opcode.SETQ, Opcode.ADD, Opcode.ADDQ, Opcode.REPLACE, Opcode.REPLACEQ
)  # fmt: skip
JOINS = (Opcode.APPEND, Opcode.APPENDQ, Opcode.PREPEND, Opcode.PREPENDQ)
DELETES = (Opcode.DELETE, Opcode.DELETEQ)
COUNTS = (Opcode.INCREMENT, Opcode.INCREMENTQ, Opcode.DECREMENT, Opcode.DECREMENTQ)
TOUCHES = (Opcode.TOUCH, Opcode.GAT, Opcode.GATQ, Opcode.GATK, Opcode.GATKQ)

# Each case: the input, and the calls it results in.
CASES = [
    *((packet(one, b"a"), [call("get", one, b"a")]) for one in GETS),
    *((store(one, b"a", b"xy", 3, 9), [call("store", one, b"a", (3, 9), b"xy")]) for one in STORES),
    *((packet(one, b"a", value=b"xy"), [call("store", one, b"a", (), b"xy")]) for one in JOINS),
    *((packet(one, b"a", cas=7), [call("delete", one, b"a", cas=7)]) for one in DELETES),
    *((count(one, b"a", 1, 2, 3), [call("count", one, b"a", (1, 2, 3))]) for one in COUNTS),
    *((touch(one, b"a", 5), [call("touch", one, b"a", (5,))]) for one in TOUCHES),
    (packet(Opcode.STAT), [call("admin", Opcode.STAT)]),
    (packet(Opcode.STAT, b"items"), [call("admin", Opcode.STAT, b"items")]),
    (packet(Opcode.FLUSH), [call("admin", Opcode.FLUSH)]),
    (packet(Opcode.FLUSHQ, b"", bytes(3) + b"\x09"), [call("admin", Opcode.FLUSHQ, b"", (9,))]),
    (packet(Opcode.VERBOSITY, b"", bytes(4)), [call("admin", Opcode.VERBOSITY, b"", (0,))]),
    (packet(Opcode.VERSION), [call("admin", Opcode.VERSION)]),
    (NOOP, [call("admin", Opcode.NOOP)]),
    # Keys and values of any bytes and sizes
    (packet(Opcode.GET, b" \r\n\0\xff"), [call("get", Opcode.GET, b" \r\n\0\xff")]),
    (packet(Opcode.GET, K250), [call("get", Opcode.GET, K250)]),
    (store(Opcode.SET, b"a", b""), [call("store", Opcode.SET, b"a", (0, 0), b"")]),
    (store(Opcode.SET, b"a", NOOP), [call("store", Opcode.SET, b"a", (0, 0), NOOP)]),
    (
        store(Opcode.SET, b"a", b"x", 2**32 - 1, 2**32 - 1, cas=2**64 - 1),
        [call("store", Opcode.SET, b"a", (2**32 - 1, 2**32 - 1), b"x", 2**64 - 1)],
    ),
    # Values that are too large are refused and skipped
    (store(Opcode.SET, b"a", bytes(2000)), [call("too_large", Opcode.SET, b"a", (0, 0))]),
    (packet(Opcode.APPEND, b"a", value=bytes(2000)), [call("too_large", Opcode.APPEND, b"a")]),
    # Unknown commands are skipped with their extras, key and value
    (packet(0x50), unknown(0x50)),
    (packet(0xFF, b"key", b"extras", b"value"), unknown(0xFF, b"key")),
    (packet(0x30, value=bytes(5000)), unknown(0x30)),
    (packet(Opcode.SASL_LIST_MECHS), unknown(Opcode.SASL_LIST_MECHS)),
    (packet(Opcode.SASL_AUTH, b"PLAIN", value=b"\0a\0b"), unknown(Opcode.SASL_AUTH, b"PLAIN")),
    # Touch and stat have no value, so extra bytes are parsed as the next packet
    (
        touch(Opcode.TOUCH, b"a", 5, body=5 + len(NOOP)) + NOOP,
        [call("touch", Opcode.TOUCH, b"a", (5,)), call("admin", Opcode.NOOP)],
    ),
    (
        packet(Opcode.STAT, b"x", value=NOOP),
        [call("admin", Opcode.STAT, b"x"), call("admin", Opcode.NOOP)],
    ),
]
LAST = [
    (packet(Opcode.QUIT), [call("admin", Opcode.QUIT), ("quit",)]),
    (packet(Opcode.QUITQ), [call("admin", Opcode.QUITQ), ("quit",)]),
    # Inconsistent lengths
    (packet(Opcode.GET, b"abc", body=2), ends(Opcode.GET, b"abc", Status.UNKNOWN_COMMAND)),
    (store(Opcode.SET, b"a", b"", body=8), ends(Opcode.SET, b"a", Status.UNKNOWN_COMMAND)),
    (store(Opcode.SET, b"a", b"", body=2**30 + 1), ends(Opcode.SET, b"a")),
    (store(Opcode.SET, b"a", b"", body=2**32 - 1), ends(Opcode.SET, b"a")),
    *((packet(one), ends(one)) for one in (*GETS, *DELETES)),
    *((packet(one, b"a", value=b"x"), ends(one, b"a")) for one in (*GETS, *DELETES)),
    *((packet(one, b"a", b"x"), ends(one, b"a")) for one in (*GETS, *DELETES, *JOINS)),
    *((packet(one, b"a", bytes(7), b"xyz"), ends(one, b"a")) for one in STORES),
    *((packet(one, b"a", bytes(30), b"xyz"), ends(one, b"a")) for one in STORES),
    *((packet(one, b"", bytes(8), b"xyz"), ends(one)) for one in STORES),
    *((packet(one, b"", b"", b"xyz"), ends(one)) for one in JOINS),
    *((packet(one, b"a", bytes(19)), ends(one, b"a")) for one in COUNTS),
    *((packet(one, b"", bytes(20)), ends(one)) for one in COUNTS),
    *((packet(one, b"a", bytes(20), b"x"), ends(one, b"a")) for one in COUNTS),
    *((packet(one, b"a", bytes(3)), ends(one, b"a")) for one in TOUCHES),
    *((packet(one, b"", bytes(4)), ends(one)) for one in TOUCHES),
    *((packet(one, K251), ends(one, K251)) for one in GETS),
    (packet(0x50, K251), ends(0x50, K251)),
    (packet(Opcode.GET, b"k" * 65535), ends(Opcode.GET, b"k" * 65535)),
    (packet(Opcode.NOOP, b"a"), ends(Opcode.NOOP, b"a")),
    (packet(Opcode.NOOP, b"", b"", b"x"), ends(Opcode.NOOP)),
    (packet(Opcode.VERSION, b"", b"x"), ends(Opcode.VERSION)),
    (packet(Opcode.QUIT, b"a"), ends(Opcode.QUIT, b"a")),
    (packet(Opcode.STAT, b"a", b"x"), ends(Opcode.STAT, b"a")),
    (packet(Opcode.FLUSH, b"", bytes(3)), ends(Opcode.FLUSH)),
    (packet(Opcode.FLUSH, b"a", bytes(4)), ends(Opcode.FLUSH, b"a")),
    (packet(Opcode.VERBOSITY), ends(Opcode.VERBOSITY)),
    (packet(Opcode.SASL_LIST_MECHS, b"a"), ends(Opcode.SASL_LIST_MECHS, b"a")),
    (packet(Opcode.SASL_AUTH, b"", b"", b"x"), ends(Opcode.SASL_AUTH)),
    # Magic
    (packet(Opcode.NOOP, magic=0x81), [VIOLATION]),
    (b"get a\r\n", [VIOLATION]),
]
AFTER = [call("admin", Opcode.NOOP)]


@pytest.mark.parametrize(("wire", "calls"), CASES)
def test_whole(wire, calls):
    assert carried_out([wire]) == calls


@pytest.mark.parametrize(("wire", "calls"), CASES)
def test_byte_by_byte_with_trailing_input(wire, calls):
    assert carried_out(one_by_one(wire + NOOP)) == calls + AFTER


@pytest.mark.parametrize(("wire", "calls"), CASES)
def test_twice_in_one_read_with_trailing_input(wire, calls):
    assert carried_out([wire + wire + NOOP]) == calls + calls + AFTER


@pytest.mark.parametrize(("wire", "calls"), LAST)
def test_nothing_is_served_after_the_end(wire, calls):
    assert carried_out([wire + NOOP]) == calls
    assert carried_out([NOOP + wire + NOOP, NOOP]) == AFTER + calls
    assert carried_out(one_by_one(wire + NOOP)) == calls


def test_every_opcode_is_in_one_row():
    listed = [name for command in COMMANDS for name in command.syntax.split(", ")]
    sasl = {opcode.name for opcode in Opcode if opcode.name.startswith("SASL_")}
    assert sorted(listed) == sorted({opcode.name for opcode in Opcode} - sasl)


def test_the_largest_value_that_fits():
    largest = 1024 - item_total(1, 0, 0)
    assert carried_out([store(Opcode.SET, b"a", bytes(largest))])[0][0] == "binary_store"
    # Flags other than 0 take up room.
    assert carried_out([store(Opcode.SET, b"a", bytes(largest), 1)])[0][0] == "binary_too_large"
    assert carried_out([store(Opcode.SET, b"a", bytes(largest + 1))])[0][0] == "binary_too_large"
    assert carried_out([packet(Opcode.APPEND, b"a", b"", bytes(largest))])[0][0] == "binary_store"


def test_turns():
    peer = Peer(Limits(commands_per_read=2))
    assert peer.parser.receive(NOOP * 5 + NOOP[:10], peer.recorder)
    assert len(peer.calls) == 2
    assert peer.parser.in_command
    assert peer.parser.receive(b"", peer.recorder)
    assert not peer.parser.receive(b"", peer.recorder)
    assert len(peer.calls) == 5
    assert peer.parser.in_command
    assert not peer.parser.receive(NOOP[10:], peer.recorder)
    assert len(peer.calls) == 6
    assert not peer.parser.in_command


@pytest.mark.parametrize("cut", [1, 23, 24, 30, 33, 36])
def test_a_packet_that_arrives_in_pieces_counts_when_it_is_carried_out(cut):
    peer = Peer(Limits(commands_per_read=2))
    command = store(Opcode.SET, b"a", b"value")
    assert not peer.parser.receive(command[:cut], peer.recorder)
    assert peer.parser.receive(command[cut:] + command * 2, peer.recorder)
    assert len(peer.calls) == 2
    assert not peer.parser.receive(b"", peer.recorder)
    assert len(peer.calls) == 3


def test_a_stat_ends_the_turn():
    peer = Peer()
    assert peer.parser.receive(packet(Opcode.STAT) * 3, peer.recorder)
    assert len(peer.calls) == 1
    assert peer.parser.receive(packet(Opcode.STAT), peer.recorder)
    assert len(peer.calls) == 2
    assert len(peer.send(b"")) == 4


def test_in_command_and_in_value():
    peer = Peer()
    wire = store(Opcode.SET, b"a", b"value")
    peer.send(wire[:20])
    assert (peer.parser.in_command, peer.parser.in_value) == (True, False)
    peer.send(wire[20:-1])
    assert (peer.parser.in_command, peer.parser.in_value) == (True, True)
    peer.send(wire[-1:])
    assert (peer.parser.in_command, peer.parser.in_value) == (False, False)
    peer.send(store(Opcode.SET, b"a", bytes(2000))[:-1])
    assert (peer.parser.in_command, peer.parser.in_value) == (True, True)
    peer.send(b"x")
    assert (peer.parser.in_command, peer.parser.in_value) == (False, False)


def test_memory_use_depends_on_received_not_announced_bytes():
    peer = Peer(Limits(item_size=2**30))
    peer.send(store(Opcode.SET, b"a", b"abc", body=2**29))
    assert peer.parser.in_value
    assert sys.getsizeof(peer.parser._pieces._pieces) < 1000
    peer = Peer()
    peer.send(packet(0x50, body=2**30))  # skipped
    for _ in range(100):
        peer.send(bytes(65536))
    assert not peer.parser._head
    assert not peer.parser._backlog


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_large_value_in_pieces(size):
    value = bytes(range(256)) * 1000
    wire = store(Opcode.SET, b"a", value) + NOOP
    peer = Peer(Limits())
    for start in range(0, len(wire), size):
        peer.send(wire[start : start + size])
    assert peer.calls == [call("store", Opcode.SET, b"a", (0, 0), value), *AFTER]
    assert not peer.parser.in_command


def test_requests_on_one_line_for_the_log():
    request = BinaryRequest(Opcode.SETQ, b"a b\n\xff", 0, 7)
    request.numbers, request.value = (1, 2), b"xyz"
    assert str(request) == r"SETQ a b\n\xff 1 2 cas=7 3 bytes"
    assert str(BinaryRequest(0x77, b"", 0, 0)) == "opcode 0x77"


# Random input

FUZZ = Limits(item_size=400, commands_per_read=1_000_000)
known = st.sampled_from([wire for wire, _ in CASES + LAST if len(wire) < 1000])
made = st.builds(
    packet,
    st.sampled_from(list(Opcode)) | st.integers(0, 255),
    st.sampled_from([b"", b"a", b"key", K250, K251]),
    st.sampled_from([b"", bytes(4), bytes(8), bytes(20)]) | st.binary(max_size=30),
    st.binary(max_size=20) | st.just(b"v" * 500),
    body=st.none() | st.integers(0, 60),
    key_size=st.none() | st.integers(0, 5),
)


@st.composite
def mutated(draw):
    """A sequence of packets with a few bytes replaced, removed or inserted."""
    stream = bytearray(b"".join(draw(st.lists(known | made, max_size=6))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(stream)


streams = st.binary(max_size=200) | mutated()
positions = st.lists(st.integers(min_value=0), max_size=8)


def cut(stream, where):
    edges = [0, *sorted(position % (len(stream) + 1) for position in where), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


@given(streams, positions)
@example(NOOP + NOOP, [24])
@example(store(Opcode.SET, b"a", b"abcd") + NOOP, [33, 37])
@example(store(Opcode.SET, b"a", b"") + NOOP, [33])
def test_calls_do_not_depend_on_chunks(stream, where):
    assert carried_out(cut(stream, where), FUZZ) == carried_out([stream], FUZZ)


@given(streams)
def test_calls_byte_by_byte_equal_those_of_the_whole(stream):
    assert carried_out(one_by_one(stream), FUZZ) == carried_out([stream], FUZZ)


@given(streams, st.integers(1, 4), positions)
def test_calls_do_not_depend_on_the_commands_per_turn(stream, share, where):
    limits = Limits(item_size=400, commands_per_read=share)
    assert carried_out(cut(stream, where), limits) == carried_out([stream], FUZZ)


@given(streams, st.integers(1, 3), positions)
def test_data_may_arrive_before_the_backlog_is_done(stream, share, where):
    """Nothing is lost if data is fed while a backlog remains, as a careless connection might."""
    peer = Peer(Limits(item_size=400, commands_per_read=share))
    whole = carried_out([stream], FUZZ)
    try:
        for chunk in cut(stream, where):
            peer.parser.receive(chunk, peer.recorder)
        peer.send(b"")
    except ProtocolViolation:
        peer.calls.append(VIOLATION)
    assert peer.calls[: len(whole)] == whole


@given(mutated())
def test_values_and_keys_are_within_limits(stream):
    for name, *fields in carried_out([stream], FUZZ):
        if name in ("binary_get", "binary_store", "binary_delete", "binary_count", "binary_touch"):
            _opcode, key, _numbers, value, _cas = fields
            assert 0 < len(key) <= 250
            assert len(key) + len(value) < 400
