"""Fuzzing of the text parser: no input may raise anything but `ProtocolViolation`."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from memlite.core.errors import ProtocolViolation
from memlite.protocol import Limits
from tests.unit.protocol.recorder import Peer
from tests.unit.protocol.text_cases import CASES

LIMITS = Limits(item_size=400, line_length=2048, commands_per_read=1_000_000)
VIOLATION = ("violation",)

words = st.sampled_from(
    [
        b"get", b"gets", b"gat", b"gats", b"set", b"add", b"replace", b"append", b"prepend", b"cas",
        b"mg", b"ms", b"md", b"ma", b"me", b"mn", b"v", b"b", b"k", b"q", b"T5", b"N9", b"MA",
        b"delete", b"incr", b"decr", b"touch", b"stats", b"version", b"quit", b"flush_all",
        b"noreply", b"a", b"key", b"k" * 250, b"k" * 251, b"0", b"1", b"2", b"5", b"20", b"500",
        b"-1", b"+1", b"1_0", b"0x1", b"4294967296", b"18446744073709551616", b"", b"\x00", b"\xff",
        b"\r", b"HTTP/1.1",
    ]
)  # fmt: skip
line_ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r\r\n", b" \r\n"])
random_lines = st.builds(
    lambda words, end: b" ".join(words) + end, st.lists(words, max_size=8), line_ends
)
stores = st.builds(
    lambda name, key, size, unique, noreply, value, end: (
        b" ".join([name, key, b"0 0", b"%d" % size, *unique, *noreply]) + end + value + end
    ),
    st.sampled_from([b"set", b"add", b"replace", b"append", b"prepend", b"cas"]),
    st.sampled_from([b"a", b"key", b"k" * 251]),
    st.integers(0, 20) | st.just(400),
    st.sampled_from([[], [b"7"]]),
    st.sampled_from([[], [b"noreply"]]),
    st.binary(max_size=20) | st.just(b"v" * 400),
    line_ends,
)
meta_stores = st.builds(
    lambda key, size, flags, value: b" ".join([b"ms", key, b"%d" % size, *flags]) + value,
    st.sampled_from([b"a", b"key", b"YQ==", b"k" * 251]),
    st.integers(0, 20) | st.just(400),
    st.lists(
        st.sampled_from([b"b", b"c", b"T9", b"C5", b"I", b"MA", b"Mz", b"?", b"O1"]), max_size=4
    ),
    st.builds(lambda value: b"\r\n" + value + b"\r\n", st.binary(max_size=20)),
)
known = st.sampled_from([wire for wire, _ in CASES if len(wire) < 1000])


@st.composite
def mutated(draw):
    """A sequence of commands with a few bytes replaced, removed or inserted."""
    stream = bytearray(
        b"".join(draw(st.lists(known | random_lines | stores | meta_stores, max_size=6)))
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    # Whether a line over the limit closes the connection depends on how it is chunked, so that is
    # tested separately.
    return b"\n".join(line[:2000] for line in bytes(stream).split(b"\n"))


streams = st.binary(max_size=200) | mutated()


def carried_out(chunks, limits):
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


def cut(stream, positions):
    edges = [0, *sorted(position % (len(stream) + 1) for position in positions), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


@given(st.lists(st.binary(max_size=100) | mutated() | st.just(b"x" * 1000), max_size=20))
def test_only_protocol_violation_escapes(chunks):
    carried_out(chunks, LIMITS)


@given(streams, st.lists(st.integers(min_value=0), max_size=8))
@example(b"get a\r\nget b\r\n", [7])
@example(b"set a 0 0 4\r\nabcd\r\nget b\r\n", [14, 18])
@example(b"set a 0 0 4\r\nabcd\r\nget b\r\n", [19])
@example(b"set a 0 0 4\r\nabcd\r\nget b\r\n", [18, 18])  # an empty chunk; see the parser's
@example(b"\r\nget a\r\n", [1])
@example(b"\x80\n", [1])
def test_calls_do_not_depend_on_chunks(stream, positions):
    assert carried_out(cut(stream, positions), LIMITS) == carried_out([stream], LIMITS)


@given(streams)
def test_calls_byte_by_byte_equal_those_of_the_whole(stream):
    whole = carried_out([stream], LIMITS)
    assert carried_out([stream[at : at + 1] for at in range(len(stream))], LIMITS) == whole


@given(streams, st.integers(1, 4), st.lists(st.integers(min_value=0), max_size=4))
def test_calls_do_not_depend_on_the_commands_per_turn(stream, share, positions):
    limits = Limits(item_size=400, line_length=2048, commands_per_read=share)
    assert carried_out(cut(stream, positions), limits) == carried_out([stream], LIMITS)


@given(streams, st.integers(1, 3), st.lists(st.integers(min_value=0), max_size=4))
def test_data_may_arrive_before_the_backlog_is_done(stream, share, positions):
    """Nothing is lost if data is fed while a backlog remains, as a careless connection might."""
    limits = Limits(item_size=400, line_length=2048, commands_per_read=share)
    peer = Peer(limits)
    whole = carried_out([stream], LIMITS)
    try:
        for chunk in cut(stream, positions):
            peer.parser.receive(chunk, peer.recorder)
        peer.send(b"")
    except ProtocolViolation:
        peer.calls.append(VIOLATION)
    assert peer.calls[: len(whole)] == whole


@given(mutated())
def test_values_and_keys_are_within_limits(stream):
    for name, *arguments in carried_out([stream], LIMITS):
        if name in ("get", "gets", "gat", "gats"):
            keys = arguments[-1]
            assert keys
            assert all(0 < len(key) <= 250 for key in keys)
        elif name in ("set", "add", "replace", "append", "prepend", "cas"):
            key, flags, _exptime, value, *_ = arguments
            assert 0 < len(key) <= 250
            assert 0 <= flags < 2**32
            assert len(key) + len(value) < 300
