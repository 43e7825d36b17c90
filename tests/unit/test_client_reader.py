"""Replies of a server, however they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.errors import ProtocolViolation
from memlite.protocol.client import ReplyReader, Value, outliner

HIT = b"VALUE k 0 5\r\nvalue\r\nEND\r\n"

CASES = [
    (b"STORED\r\n", [b"STORED"], [b"STORED"]),
    (b"END\r\n", [0], [[]]),
    (HIT, [1], [[Value(b"k", b"value", None)]]),
    (b"VALUE k 0 0\r\n\r\nEND\r\n", [1], [[Value(b"k", b"", None)]]),
    (
        b"VALUE a 0 5\r\nEND\r\n\r\nVALUE b 7 2\r\n\r\n\r\nEND\r\n",
        [2],
        [[Value(b"a", b"END\r\n", None), Value(b"b", b"\r\n", None)]],
    ),
    (HIT * 3, [1, 1, 1], [[Value(b"k", b"value", None)]] * 3),
    (b"5\r\nNOT_FOUND\r\n", [b"5", b"NOT_FOUND"], [b"5", b"NOT_FOUND"]),
    (b"ERROR\r\nEXISTS\r\nVERSION 1\r\n", *([[b"ERROR", b"EXISTS", b"VERSION 1"]] * 2)),
    (
        b"VALUE k 0 1\r\nx\r\nSERVER_ERROR out of memory\r\nEND\r\n",
        [b"SERVER_ERROR out of memory", 0],
        [b"SERVER_ERROR out of memory", []],
    ),
]


@pytest.mark.parametrize(("data", "counted", "kept"), CASES)
def test_whole_byte_by_byte_and_with_more_behind(data, counted, kept):
    for keep, replies in ((False, counted), (True, kept)):
        assert ReplyReader(keep=keep).feed(data) == replies
        reader = ReplyReader(keep=keep)
        assert [one for byte in data for one in reader.feed(bytes([byte]))] == replies
        reader = ReplyReader(keep=keep)
        assert reader.feed(data + b"VAL") == replies
        assert reader.feed(HIT[3:]) == ([[Value(b"k", b"value", None)]] if keep else [1])


LITE = b"VALUE k 5\r\nvalue\r\nEND\r\n"


def test_the_lite_dialect():
    data = LITE + b"END\r\nSTORED\r\nINVALID\r\n" + LITE
    lines = [b"STORED", b"INVALID"]
    item = [Value(b"k", b"value", None)]
    for keep, replies in ((False, [1, 0, *lines, 1]), (True, [item, [], *lines, item])):
        assert ReplyReader(keep=keep, lite=True).feed(data) == replies
        reader = ReplyReader(keep=keep, lite=True)
        assert [one for byte in data for one in reader.feed(bytes([byte]))] == replies
    with pytest.raises(ProtocolViolation):
        ReplyReader(keep=True).feed(LITE)
    assert outliner(5, lite=True)(LITE + b"STORED\r\nEND\r\n") == [b"V", b"S", b"E"]
    assert outliner(5, lite=True)(HIT) == [b""]
    assert outliner(5)(LITE) == [b""]


def test_uniques():
    data = b"VALUE k 0 1 18446744073709551615\r\nx\r\nEND\r\n"
    assert ReplyReader(keep=True).feed(data) == [[Value(b"k", b"x", 2**64 - 1)]]


@given(st.lists(st.sampled_from([case[0] for case in CASES]), max_size=6), st.data())
def test_cut_anywhere(parts, data):
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    for keep in (False, True):
        reader = ReplyReader(keep=keep)
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        found = [one for piece in pieces for one in reader.feed(piece)]
        assert found == ReplyReader(keep=keep).feed(whole)


def test_a_large_value_is_not_looked_at_again_for_each_piece():
    value = b"\r\n" * 4_000_000
    data = b"VALUE k 0 %d\r\n%b\r\nEND\r\n" % (len(value), value)
    reader = ReplyReader()
    replies = [one for at in range(0, len(data), 1000) for one in reader.feed(data[at : at + 1000])]
    assert replies == [1]


@pytest.mark.parametrize(
    "data",
    [
        b"VALUE k 0 x\r\n",
        b"VALUE k 0 -1\r\n\r\nEND\r\n",
        b"VALUE k 0 3\r\nvalue\r\nEND\r\n",
        b"VALUE \r\n",
        b"x" * 70_000,
    ],
)
@pytest.mark.parametrize("keep", [False, True])
def test_what_no_server_sends(data, keep):
    with pytest.raises(ProtocolViolation, match="not a reply"):
        ReplyReader(keep=keep).feed(data)


@given(st.lists(st.sampled_from([case[0] for case in CASES]), max_size=6), st.data())
def test_an_outline_says_what_the_reader_says_or_nothing(parts, data):
    whole = b"".join(parts)
    whole = whole[: data.draw(st.integers(0, len(whole)))]
    letters = outliner(5)(whole)
    if b"" not in letters:
        replies = {b"V": 1, b"E": 0, b"S": b"STORED"}
        assert ReplyReader().feed(whole) == [replies[letter] for letter in letters]


@pytest.mark.parametrize(
    ("data", "letters"),
    [
        (b"", []),
        (HIT, [b"V"]),
        (HIT + b"STORED\r\nEND\r\n" + HIT, [b"V", b"S", b"E", b"V"]),
        (b"VALUE k 0 5 77\r\nvalue\r\nEND\r\n", [b""]),
        (b"VALUE k 0 6\r\nvalues\r\nEND\r\n", [b""]),
        (b"VALUE k 0 5\r\nEND\r\n\r\nEND\r\n", [b"V"]),
        (HIT + HIT[:-1], [b"V", b""]),
        (b"STORED\r\nNOT_STORED\r\nSTORED\r\n", [b"S", b""]),
        (b"VND\r\n", [b""]),
        (b"ETORED\r\n", [b""]),
    ],
)
def test_outlines(data, letters):
    assert outliner(5)(data) == letters
