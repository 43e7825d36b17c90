"""The frame header of UDP datagrams."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.protocol import frames


def frame(request_id=7, sequence=0, total=1, reserved=0):
    return struct.pack(">HHHH", request_id, sequence, total, reserved)


@pytest.mark.parametrize("request_id", [0, 1, 255, 256, 65535])
def test_a_request(request_id):
    assert frames.unwrap(frame(request_id) + b"get a\r\n") == (request_id, b"get a\r\n")


def test_fields_that_memcached_ignores_are_ignored():
    assert frames.unwrap(frame(sequence=5, reserved=9) + b"get a\r\n") == (7, b"get a\r\n")


@pytest.mark.parametrize("size", range(9))
def test_too_short(size):
    assert frames.unwrap((frame() + b"g")[:size]) is None


@pytest.mark.parametrize("total", [0, 2, 256, 257, 65535])
def test_requests_of_several_datagrams_or_none_are_ignored(total):
    assert frames.unwrap(frame(total=total) + b"get a\r\n") is None


@pytest.mark.parametrize(
    "reply", [b"ERROR\r\n", b"CLIENT_ERROR x\r\n", b"END\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n", b"Z"]
)
def test_a_reply_is_not_a_request(reply):
    assert frames.unwrap(frame() + reply) is None


@pytest.mark.parametrize("first", [b"a", b"@", b"[", b"\x80", b"\0", b"\r", b"0"])
def test_any_other_first_byte_may_be_a_request(first):
    assert frames.unwrap(frame() + first) == (7, first)


@pytest.mark.parametrize(
    ("size", "total"),
    [(1, 1), (1391, 1), (1392, 1), (1393, 2), (2784, 2), (2785, 3), (20_000, 15)],
)
def test_a_reply_takes_as_many_datagrams_as_it_needs(size, total):
    reply = bytes(number % 251 for number in range(size))
    datagrams = list(frames.split(7, [reply]))
    assert [one[:8] for one in datagrams] == [frame(7, n, total) for n in range(total)]
    assert b"".join(one[8:] for one in datagrams) == reply
    assert all(len(one) == 1400 for one in datagrams[:-1])
    assert len(datagrams[-1]) <= 1400


@given(st.lists(st.integers(0, 3000), max_size=8).filter(any))
def test_datagrams_do_not_depend_on_the_parts(sizes):
    parts = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    whole = b"".join(parts)
    views = [memoryview(part) if index % 2 else part for index, part in enumerate(parts)]
    assert list(frames.split(3, views)) == list(frames.split(3, [whole]))


def test_the_longest_reply_is_numbered_to_the_end():
    block = bytes(1024 * 1024)
    whole, rest = divmod(frames.MESSAGE_SIZE, len(block))
    last = None
    for count, datagram in enumerate(frames.split(1, [block] * whole + [block[:rest]]), 1):  # noqa: B007
        last = datagram
    assert count == 65535
    assert last[:8] == frame(1, 65534, 65535)
    assert len(last) == 1400
