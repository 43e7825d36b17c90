"""The lite dialect's parser: its calls for any input, however it is chunked."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlite.core.errors import ProtocolViolation
from memlite.protocol import Limits
from memlite.protocol.limits import item_total
from memlite.protocol.lite import LiteParser
from tests.unit.protocol.recorder import Recorder, one_by_one, reject

LIMITS = Limits(item_size=1024, commands_per_read=1_000_000)
LARGEST = 1024 - item_total(1, 0, 0)

INVALID = reject(b"INVALID\r\n")
NOT_STORED = reject(b"NOT_STORED\r\n")
ERROR = reject(b"ERROR\r\n")
VIOLATION = ("violation",)
K250, K251 = b"k" * 250, b"k" * 251
EVERY_BYTE = bytes(range(256))


def stored(key, value):
    return ("set", key, 0, 0, value, False)


def got(key):
    return ("get", [key])


def calls(chunks, limits=LIMITS):
    """Return the calls for chunks of input, up to a quit or a violation, which end serving."""
    parser, recorder = LiteParser(limits), Recorder()
    for chunk in chunks:
        try:
            while parser.receive(chunk, recorder):
                chunk = b""
        except ProtocolViolation:
            recorder.calls.append(VIOLATION)
        if recorder.calls and recorder.calls[-1] in (VIOLATION, ("quit",)):
            break
    return recorder.calls


# Input and the resulting calls. The first five are the acceptance cases.
CASES = [
    (b"set greeting 5\r\nhello\r\n", [stored(b"greeting", b"hello")]),
    (b"get greeting\r\n", [got(b"greeting")]),
    (b"set word 4\r\nletters\r\n", [stored(b"word", b"lett")]),
    (b"get word\r\n", [got(b"word")]),
    (b"set word letters\r\n", [NOT_STORED]),
    # set: the line
    (b"set a 1\nx\n", [stored(b"a", b"x")]),
    (b"set  a  1  \r\nx\r\n", [stored(b"a", b"x")]),
    (b"  set a 1\r\nx\r\n", [stored(b"a", b"x")]),
    (b"set a 007\r\n1234567\r\n", [stored(b"a", b"1234567")]),
    (b"set " + K250 + b" 1\r\nx\r\n", [stored(K250, b"x")]),
    (b"set " + K251 + b" 1\r\n", [NOT_STORED]),
    (b"set\r\n", [NOT_STORED]),
    (b"set a\r\n", [NOT_STORED]),
    (b"set a 1 noreply\r\n", [NOT_STORED]),
    (b"set a 0 0 1\r\nx\r\n", [NOT_STORED, ERROR]),
    (b"set a -1\r\n", [NOT_STORED]),
    (b"set a +1\r\n", [NOT_STORED]),
    (b"set a 1_0\r\n", [NOT_STORED]),
    (b"set a 1.0\r\n", [NOT_STORED]),
    (b"set a \xb2\r\n", [NOT_STORED]),
    (b"set a 2147483646\r\n", [NOT_STORED]),
    (b"set a " + b"9" * 1000 + b"\r\n", [NOT_STORED]),
    (b"set a word\r\nget a\r\n", [NOT_STORED, got(b"a")]),
    # set: the value
    (b"set a 0\r\n\r\n", [stored(b"a", b"")]),
    (b"set a 0\r\nall of it\r\n", [stored(b"a", b"")]),
    (b"set a 4\r\n\r\n\r\n\r\n", [stored(b"a", b"\r\n\r\n")]),
    (b"set a 3\r\nx\r\n\r\n", [stored(b"a", b"x\r\n")]),
    (b"set a 3\r\nx\r\nget a\r\nget b\r\n", [stored(b"a", b"x\r\n"), got(b"b")]),
    (b"set a 2\r\nx\r\nget a\r\n", [stored(b"a", b"x\r"), got(b"a")]),
    (b"set a 1\r\nxyz\nget a\r\n", [stored(b"a", b"x"), got(b"a")]),
    (b"set a 256\r\n" + EVERY_BYTE + b"\r\n", [stored(b"a", EVERY_BYTE)]),
    (b"set a 1\r\nx" + b"y" * 5000 + b"\r\nget b\r\n", [stored(b"a", b"x"), got(b"b")]),
    (b"set a %d\r\n" % LARGEST + b"x" * LARGEST + b"\r\n", [stored(b"a", b"x" * LARGEST)]),
    (
        b"set a %d\r\n" % (LARGEST + 1) + b"\n" * (LARGEST + 1) + b"more\r\nget b\r\n",
        [("too_large", b"set", b"a", False), got(b"b")],
    ),
    # Incomplete requests get no reply yet
    (b"set a 5\r\nhell", []),
    (b"set a 5\r\nhello", []),
    (b"set a 5\r\nhello, you", []),
    (b"set a 5\r\nhello\r", []),
    (b"get a", []),
    (b"set a 2000\r\nx", [("too_large", b"set", b"a", False)]),
    # get
    (b"get a\n", [got(b"a")]),
    (b"get  a  \r\n", [got(b"a")]),
    (b"get \xff\x00\t\r\n", [got(b"\xff\x00\t")]),
    (b"get " + K250 + b"\r\n", [got(K250)]),
    (b"get " + K251 + b"\r\n", [INVALID]),
    (b"get\r\n", [INVALID]),
    (b"get  \r\n", [INVALID]),
    (b"get a b\r\n", [INVALID]),
    (b"get / HTTP/1.1\r\n", [INVALID]),
    # Other lines
    (b"\r\n", [ERROR]),
    (b"\n", [ERROR]),
    (b"   \r\n", [ERROR]),
    (b"GET a\r\n", [ERROR]),
    (b"gets a\r\n", [ERROR]),
    (b"add a 1\r\nx\r\n", [ERROR, ERROR]),
    (b"delete a\r\n", [ERROR]),
    (b"version\r\n", [ERROR]),
    (b"stats\r\n", [ERROR]),
    (b"flush_all\r\n", [ERROR]),
    (b"shutdown\r\n", [ERROR]),
    (b"mg a v\r\n", [ERROR]),
    (b"HTTP/1.1\r\n", [ERROR]),
    (b"x" * 2047 + b"\r\n", [ERROR]),
    (b"quit\r\n", [("quit",)]),
    (b"quit now\r\nget a\r\n", [("quit",)]),
    (b"get a\r\nquit\r\nget b\r\n", [got(b"a"), ("quit",)]),
    # Input that no client sends
    (b"\x80\x00\x00\x01", [VIOLATION]),
    (b"\x80\n", [VIOLATION]),
    (b"get a\r\n\x80", [got(b"a"), VIOLATION]),
    (b"POST / HTTP/1.1\r\nx: y\r\n", [VIOLATION]),
    (b"x" * 2049, [VIOLATION]),
    (b"get " + b"x" * 2044 + b"\r\n", [VIOLATION]),
    (b"get a\r\n" + b" " * 3000, [got(b"a"), VIOLATION]),
]
ENDED = [case for case in CASES if case[0].endswith(b"\n") and case[1][-1] != VIOLATION]


@pytest.mark.parametrize(("stream", "expected"), CASES)
def test_cases(stream, expected):
    assert calls([stream]) == expected
    assert calls(one_by_one(stream)) == expected


@pytest.mark.parametrize(("stream", "expected"), ENDED)
def test_cases_with_trailing_input(stream, expected):
    more = [] if ("quit",) in expected else [got(b"z")]
    assert calls([stream + b"get z\r\n"]) == expected + more


def state(parser):
    return parser.in_command, parser.in_value


def test_in_command_and_in_value():
    parser, recorder = LiteParser(LIMITS), Recorder()
    for chunk, after in (
        (b"", (False, False)),
        (b"se", (True, False)),
        (b"t a 3\r\n", (True, True)),
        (b"xyz", (True, True)),
        (b"rest", (True, True)),
        (b"\r\n", (False, False)),
        (b"set a 5000\r\n", (True, True)),
        (b"x" * 5000 + b"\n", (False, False)),
    ):
        parser.receive(chunk, recorder)
        assert state(parser) == after, chunk


def test_turns():
    parser, recorder = LiteParser(Limits(commands_per_read=2)), Recorder()
    assert parser.receive(b"get a\r\nset b 1\r\nx\r\nget c\r\nget d\r\nge", recorder)
    assert recorder.calls == [got(b"a"), stored(b"b", b"x")]
    assert state(parser) == (True, False)
    assert not parser.receive(b"", recorder)
    assert recorder.calls[2:] == [got(b"c"), got(b"d")]
    assert state(parser) == (True, False)
    assert not parser.receive(b"t e\r\n", recorder)
    assert recorder.calls[4:] == [got(b"e")]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_set_that_arrives_in_pieces_counts_when_it_is_carried_out(cut):
    parser, recorder = LiteParser(Limits(commands_per_read=2)), Recorder()
    command = b"set b 1\r\nx\r\n"
    assert not parser.receive(command[:cut], recorder)
    assert parser.receive(command[cut:] + command * 2, recorder)
    assert len(recorder.calls) == 2
    assert not parser.receive(b"", recorder)
    assert len(recorder.calls) == 3


def test_a_refused_value_and_the_rest_of_a_line_take_no_memory():
    parser, recorder = LiteParser(LIMITS), Recorder()
    parser.receive(b"set a 2000000000\r\n", recorder)
    pending = parser._pending
    parser.receive(b"x" * 1_000_000, recorder)
    assert parser._pending is pending
    assert not hasattr(pending, "_pieces")
    assert pending.missing == 1_999_000_000
    parser, recorder = LiteParser(LIMITS), Recorder()
    for chunk in (b"set a 1\r\nx", *[b"y" * 1000] * 1000):
        parser.receive(chunk, recorder)
    assert parser._pending.value() == b"x"
    parser.receive(b"\n", recorder)
    assert recorder.calls == [stored(b"a", b"x")]


def test_values_are_joined_once():
    """A large value that arrives a byte at a time takes no more memory than its bytes."""
    limits = Limits(item_size=1 << 20)
    parser, recorder = LiteParser(limits), Recorder()
    parser.receive(b"set a 300000\r\n", recorder)
    for _ in range(300_000):
        parser.receive(b"x", recorder)
    assert len(parser._pending._pieces) + len(parser._pending._blocks) < 2048
    parser.receive(b"\r\n", recorder)
    assert recorder.calls == [stored(b"a", b"x" * 300_000)]


# Random input

lines = st.builds(
    lambda words, end: b" ".join(words) + end,
    st.lists(
        st.sampled_from([b"get", b"set", b"quit", b"version", b"a", b"key", K250, K251, b"", b"0",
                         b"1", b"5", b"20", b"2000", b"-1", b"x", b"\xff", b"\r", b"HTTP/1.1"]),
        max_size=5,
    ),
    st.sampled_from([b"\r\n", b"\r\n", b"\n", b"\r\r\n", b" \r\n"]),
)  # fmt: skip
sets = st.builds(
    lambda size, value, end: b"set a %d\r\n%b%b" % (size, value, end),
    st.integers(0, 20) | st.just(2000),
    st.binary(max_size=25) | st.just(b"v" * 2000),
    st.sampled_from([b"\r\n", b"\n", b""]),
)
known = st.sampled_from([stream for stream, _ in CASES])


@st.composite
def mutated(draw):
    """A sequence of commands with a few bytes replaced, removed or inserted."""
    stream = bytearray(b"".join(draw(st.lists(known | lines | sets, max_size=6))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(stream)


streams = st.binary(max_size=200) | mutated()


def cut(stream, positions):
    edges = [0, *sorted(position % (len(stream) + 1) for position in positions), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


@given(streams, st.lists(st.integers(min_value=0), max_size=8))
@example(b"set a 4\r\nabcd\r\nget b\r\n", [9, 13])
@example(b"set a 4\r\nabcd\r\nget b\r\n", [13, 13])  # an empty chunk
@example(b"set a 4\r\nabcd\r\nget b\r\n", [14])
@example(b"set a 4\r\nabcdef\r\nget b\r\n", [14])
def test_calls_do_not_depend_on_chunks(stream, positions):
    assert calls(cut(stream, positions)) == calls([stream])


@given(streams)
def test_calls_byte_by_byte_equal_those_of_the_whole(stream):
    assert calls(one_by_one(stream)) == calls([stream])


@given(streams, st.integers(1, 4), st.lists(st.integers(min_value=0), max_size=4))
def test_calls_do_not_depend_on_the_commands_per_turn(stream, share, positions):
    limits = Limits(item_size=1024, commands_per_read=share)
    assert calls(cut(stream, positions), limits) == calls([stream])


@given(streams, st.integers(1, 3), st.lists(st.integers(min_value=0), max_size=4))
def test_data_may_arrive_before_the_backlog_is_done(stream, share, positions):
    parser, recorder = LiteParser(Limits(item_size=1024, commands_per_read=share)), Recorder()
    whole = calls([stream])
    try:
        for chunk in cut(stream, positions):
            parser.receive(chunk, recorder)
        while parser.receive(b"", recorder):
            pass
    except ProtocolViolation:
        recorder.calls.append(VIOLATION)
    assert recorder.calls[: len(whole)] == whole


@given(mutated())
def test_values_and_keys_are_within_limits(stream):
    for name, *arguments in calls([stream]):
        if name == "get":
            assert 0 < len(arguments[0][0]) <= 250
        elif name == "set":
            key, _, _, value, _ = arguments
            assert 0 < len(key) <= 250
            assert item_total(len(key), 0, len(value)) <= 1024
