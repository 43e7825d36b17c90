"""The text parser: each wire case whole, byte by byte, and with trailing input."""

from dataclasses import replace

import pytest

from memlite.core.errors import ProtocolViolation
from tests.unit.protocol.recorder import (
    BAD_FORMAT,
    LIMITS,
    Peer,
    admin,
    one_by_one,
    reject,
)
from tests.unit.protocol.text_cases import AS_IN_MEMCACHED, CASES


def case_id(case):
    wire = case[0]
    text = repr(wire)[2:-1]
    return text if len(text) <= 60 else f"{text[:50]}…({len(wire)})"


@pytest.mark.parametrize(
    ("wire", "calls"),
    [pytest.param(*case, id=case_id(case)) for case in [*CASES, *AS_IN_MEMCACHED]],
)
def test_each_case(wire, calls):
    whole(wire, calls)
    byte_by_byte(wire, calls)
    in_two_pieces(wire, calls)
    with_trailing_bytes(wire, calls)


def whole(wire, calls):
    peer = Peer()
    assert peer.send(wire) == calls
    assert not peer.parser.in_command


def limits_for(wire):
    """Return limits that let lines of that length arrive in pieces."""
    if max(map(len, wire.split(b"\n"))) > LIMITS.line_length:
        return replace(LIMITS, line_length=10_000)  # closing has tests of its own
    return LIMITS


def byte_by_byte(wire, calls):
    peer = Peer(limits_for(wire))
    assert peer.send(*one_by_one(wire)) == calls
    assert not peer.parser.in_command


def in_two_pieces(wire, calls):
    """Wherever it is cut, in particular shortly before the end of a value."""
    for at in {*range(1, min(len(wire), 300)), *range(max(1, len(wire) - 5), len(wire))}:
        peer = Peer(limits_for(wire))
        assert peer.send(wire[:at], wire[at:]) == calls, at
        assert not peer.parser.in_command, at


def with_trailing_bytes(wire, calls):
    """A trailing command and the start of another change nothing; the first is carried out."""
    peer = Peer()
    assert peer.send(wire + b"gets next\r\nset n 0 0 1") == [*calls, ("gets", [b"next"])]
    assert peer.send(b"\r\nv\r\n")[-1] == ("set", b"n", 0, 0, b"v", False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_all_cases_in_one_stream(size):
    """One connection receives all cases in sequence, however they are chunked."""
    cases = [case for case in CASES if max(map(len, case[0].split(b"\n"))) < 2000]
    stream = b"".join(wire for wire, _ in cases)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert Peer().send(*chunks) == [call for _, calls in cases for call in calls]


def test_leading_zeros_do_not_make_a_number_long():
    peer = Peer()
    zeros = b"0" * 5000
    request = b"set a %b7 %b0 %b1\r\nx\r\nincr a %b5\r\n" % (zeros, zeros, zeros, zeros)
    assert [call[0] for call in peer.send(request)] == ["set", "incr"]


# in_command and in_value


@pytest.mark.parametrize(
    ("sent", "in_command", "in_value"),
    [
        (b"", False, False),
        (b"get", True, False),
        (b"get a\r", True, False),
        (b"get a\r\n", False, False),
        (b"set a 0 0 3\r", True, False),
        (b"set a 0 0 3\r\n", True, True),
        (b"set a 0 0 3\r\nxyz", True, True),
        (b"set a 0 0 3\r\nxyz\r", True, True),
        (b"set a 0 0 3\r\nxyz\r\n", False, False),
        (b"set a 0 0 0\r\n", True, True),
        (b"set a 0 0 3\r\nxyzzy", False, False),
        (b"set a x 0 3\r\nxyz", True, True),
        (b"set a x 0 3\r\nxyz\r\n", False, False),
        (b"set a 0 0 9999\r\nxyz", True, True),
        (b"set a 0 0 x\r\n", False, False),
        (b"get a\r\nget", True, False),
    ],
)
@pytest.mark.parametrize("cut", [lambda stream: [stream], one_by_one], ids=["whole", "bytes"])
def test_in_command_and_in_value(sent, in_command, in_value, cut):
    peer = Peer()
    peer.send(*cut(sent))
    assert (peer.parser.in_command, peer.parser.in_value) == (in_command, in_value)


# Input that is not memcached's protocol


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1", b"POST /x HTTP/1.0", b"a HTTP/", b" GET / HTTP/1.1"]
)
@pytest.mark.parametrize("cut", [lambda line: [line], one_by_one], ids=["whole", "bytes"])
def test_an_http_request_closes_the_connection(line, cut):
    peer = Peer()
    with pytest.raises(ProtocolViolation, match="HTTP"):
        peer.send(*cut(line + b"\r\nHost: here\r\n\r\n"))
    assert peer.calls == []


def test_an_http_request_after_a_command_closes_the_connection():
    peer = Peer()
    with pytest.raises(ProtocolViolation, match="HTTP"):
        peer.send(b"get a\r\nGET / HTTP/1.1\r\n")
    assert peer.calls == [("get", [b"a"])]


@pytest.mark.parametrize(
    ("line", "call"),
    [
        (b"\x80\n", reject(BAD_FORMAT)),
        (b"\x80\x00\x00\x01\r\n", admin(b"\x80\x00\x00\x01")),
        (b"\x80 some text\r\n", admin(b"\x80", b"some", b"text")),
        (b" \x80text\r\n", admin(b"\x80text")),
    ],
)
@pytest.mark.parametrize("cut", [lambda line: [line], one_by_one], ids=["whole", "bytes"])
def test_a_line_that_begins_like_a_binary_request_is_a_line(line, call, cut):
    peer = Peer()
    peer.send(*cut(line + b"get a\r\n"))
    assert peer.calls == [call, ("get", [b"a"])]


def test_an_http_request_that_looks_like_a_command_after_a_space():
    # memcached closes the connection after leading spaces, too.
    with pytest.raises(ProtocolViolation, match="HTTP"):
        Peer().send(b" get / HTTP/1.1\r\n")
