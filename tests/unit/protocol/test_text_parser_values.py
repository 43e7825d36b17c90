"""The text parser and values: the size limit, large values, and values in pieces."""

import sys
from dataclasses import replace

import pytest

from memlite.protocol import Limits
from memlite.protocol.limits import item_total
from tests.unit.protocol.recorder import (
    BAD_FORMAT,
    EVERY_BYTE,
    K250,
    LIMITS,
    Peer,
    bad_chunk,
    reject,
)


@pytest.mark.parametrize("cas", [True, False])
@pytest.mark.parametrize("flags", [0, 1])
@pytest.mark.parametrize("key", [b"k", K250])
def test_item_size_is_counted_to_the_byte(key, flags, cas):
    peer = Peer(replace(LIMITS, cas=cas))
    fits = LIMITS.item_size - item_total(len(key), flags, 0, cas=cas)
    for size, name in ((fits, "set"), (fits + 1, "too_large")):
        peer.send(b"set %b %d 0 %d\r\n" % (key, flags, size) + b"v" * size + b"\r\n")
        assert peer.calls[-1][0] == name
    assert len(peer.calls) == 2


def test_a_value_that_is_refused_is_skipped_whole():
    calls = Peer().send(b"ms a 2002\r\n" + b"x" * 2002 + b"\r\nget b\r\n")
    assert calls == [("too_large", b"ms", b"a", False), ("get", [b"b"])]
    calls = Peer().send(b"cas a 0 0 3 x\r\nxyz\r\nget b\r\n")
    assert calls == [reject(BAD_FORMAT), ("get", [b"b"])]


def test_a_value_must_end_with_a_line_feed():
    assert Peer().send(b"add a 0 0 3\r\nxyz\rQget b\r\n") == [bad_chunk(), ("get", [b"b"])]


def test_the_largest_length_is_refused_before_its_value_arrives():
    peer = Peer()
    assert peer.send(b"set a 0 0 2147483645\r\nget b\r\n") == [("too_large", b"set", b"a", False)]
    assert peer.parser.in_value


@pytest.mark.parametrize("end", [b"\r\n", b"\n\n", b"xy"])
@pytest.mark.parametrize("begun", [[0], [1], [1000, 1, 70_000], [100_000], [100_000, 1]])
def test_the_rest_of_a_large_value_may_be_read_into_place(begun, end):
    value = bytes(range(250)) * 400
    peer = Peer(replace(LIMITS, item_size=200_000))
    peer.send(b"get a\r\nset k 7 3 100000\r\n" + value[: begun[0]])
    position = begun[0]
    for size in begun[1:]:
        peer.send((value + end)[position : position + size])
        position += size
    missing = peer.parser.missing_of_large
    assert missing == max(len(value) - position, 0)
    if missing:
        peer.parser.reserve()[:] = value[position:]
        position = len(value)
        assert peer.parser.in_value
        assert not peer.parser.missing_of_large
    peer.send(b"", (value + end)[position:][:1], (value + end)[position:][1:] + b"get b\r\n")
    framed = b"VALUE k 7 100000\r\n" + value + b"\r\nEND\r\n"
    stored = ("set_framed", b"k", 3, framed, False)
    bad = bad_chunk(key=b"k")
    assert peer.calls[1:] == [stored if end == b"\r\n" else bad, ("get", [b"b"])]


@pytest.mark.parametrize("end", [b"\r\n", b"\n\n", b"xy"])
@pytest.mark.parametrize("begun", [[0], [1], [1000, 1, 70_000], [100_000], [100_000, 1]])
@pytest.mark.parametrize("head", [b"add k 7 3 100000\r\n", b"ms k 100000 F7 T3\r\n"])
def test_so_may_values_of_other_commands(head, begun, end):
    value = bytes(range(250)) * 400
    whole = Peer(replace(LIMITS, item_size=200_000))
    whole.send(head + value + end + b"get b\r\n")
    peer = Peer(replace(LIMITS, item_size=200_000))
    peer.send(head + value[: begun[0]])
    position = begun[0]
    for size in begun[1:]:
        peer.send((value + end)[position : position + size])
        position += size
    if peer.parser.missing_of_large:
        peer.parser.reserve()[:] = value[position:]
        position = len(value)
        assert peer.parser.in_value
        assert not peer.parser.missing_of_large
    peer.send(b"", (value + end)[position:][:1], (value + end)[position:][1:] + b"get b\r\n")
    assert repr(peer.calls) == repr(whole.calls)


# Values in pieces


class Counted(bytes):
    """Bytes that count how many of them are copied by slicing and concatenation."""

    copied = 0

    def __getitem__(self, index):
        part = super().__getitem__(index)
        if isinstance(part, int) or len(part) == len(self):  # CPython copies no whole slice
            return part
        Counted.copied += len(part)
        return Counted(part)

    def __add__(self, other):
        Counted.copied += len(self) + len(other)
        return Counted(super().__add__(other))

    def __radd__(self, other):
        if isinstance(other, bytearray):  # grows in place
            return NotImplemented
        Counted.copied += len(self) + len(other)
        return Counted(bytes(other) + bytes(self))


def joins_during(action):
    """Return how often `action` called a method named join."""
    joins = 0

    def profile(_frame, event, called):
        nonlocal joins
        joins += event == "c_call" and called.__name__ == "join"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return joins


@pytest.mark.parametrize(
    ("length", "chunk"), [(64 * 1024, 1), (1024 * 1024, 61), (1024 * 1024, 4093), (2**20, 2**16)]
)
def test_values_in_pieces_are_copied_a_bounded_number_of_times(length, chunk):
    peer = Peer(Limits(item_size=2 * 1024 * 1024))
    value = (EVERY_BYTE * (length // 256))[:length]
    peer.send(b"set a 0 0 %d\r\n" % length)
    stream = value + b"\r\nget a\r\n"
    chunks = [Counted(stream[at : at + chunk]) for at in range(0, len(stream), chunk)]
    Counted.copied = 0
    joins = joins_during(lambda: peer.send(*chunks))
    # A large value is joined with the reply lines around it.
    framed = b"VALUE a 0 %d\r\n%b\r\nEND\r\n" % (length, value)
    assert peer.calls == [("set_framed", b"a", 0, framed, False), ("get", [b"a"])]
    # Each chunk is joined once into a block of many, and the blocks once into the value.
    assert joins <= len(chunks) // 1000 + 1
    assert Counted.copied <= 3 * chunk + 100


def test_refused_values_in_pieces_are_not_kept():
    peer = Peer()
    peer.send(b"set a 0 0 699998\r\n")
    Counted.copied = 0
    chunks = [Counted(b"get b\r\n")] * 100_000
    assert joins_during(lambda: peer.send(*chunks)) == 0
    assert Counted.copied == 0
    assert peer.calls == [("too_large", b"set", b"a", False)]
    assert not peer.parser.in_value


# A connection calls receive(b"") once its peer has read replies, possibly between the two bytes of
# a value's line ending.
def test_continuing_within_a_values_line_ending_changes_nothing():
    peer = Peer()
    assert peer.send(b"set a 0 0 3\r\nabc\r", b"", b"\n") == [("set", b"a", 0, 0, b"abc", False)]


@pytest.mark.parametrize("noreply", [False, True])
@pytest.mark.parametrize("end", [b"\r\n", b"\n\r", b"xx"])
def test_a_large_set_is_framed_if_its_line_ending_is_right(noreply, end):
    peer = Peer(Limits(item_size=2 * 1024 * 1024))
    length = 100_000
    line = b"set a 7 60 %d%b\r\n" % (length, b" noreply" if noreply else b"")
    peer.send(line[:10], line[10:] + b"x" * 50_000, b"x" * 50_000 + end[:1], end[1:] + b"get b\r\n")
    if end == b"\r\n":
        framed = b"VALUE a 7 100000\r\n" + b"x" * length + b"\r\nEND\r\n"
        assert peer.calls == [("set_framed", b"a", 60, framed, noreply), ("get", [b"b"])]
    else:
        assert peer.calls[0] == ("bad_chunk", b"a", noreply)
