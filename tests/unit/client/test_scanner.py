"""The scanner finds replies without building objects, in whatever pieces they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.client import (
    Fault,
    ReplyError,
    ReplyReader,
    ReplyScanner,
    Shape,
    fixed_size_matcher,
    split_gets,
)

HIT = b"VALUE k 0 5\r\nvalue\r\nEND\r\n"
LITE = b"VALUE k 5\r\nvalue\r\nEND\r\n"

# Replies, and what the scanner reports about them
CASES = [
    ([b"STORED\r\n"], [b"STORED"]),
    ([b"END\r\n"], [0]),
    ([HIT], [1]),
    ([b"VALUE k 0 0\r\n\r\nEND\r\n"], [1]),
    ([b"VALUE a 0 5\r\nEND\r\n\r\nVALUE b 7 2\r\n\r\n\r\nEND\r\n"], [2]),
    ([HIT] * 3, [1, 1, 1]),
    ([b"5\r\n", b"NOT_FOUND\r\n"], [b"5", b"NOT_FOUND"]),
    ([b"ERROR\r\n", b"EXISTS\r\n", b"VERSION 1\r\n"], [b"ERROR", b"EXISTS", b"VERSION 1"]),
    (
        [b"VALUE k 0 1\r\nx\r\nSERVER_ERROR out of memory\r\n", b"END\r\n"],
        [b"SERVER_ERROR out of memory", 0],
    ),
    ([b"VALUE k 0 1 18446744073709551615\r\nx\r\nEND\r\n"], [1]),
    ([b"VALUE a 0 1 7\r\nx\r\nVALUE b 0 3 8\r\nxyz\r\nEND\r\n", HIT], [2, 1]),
    ([LITE, b"INVALID\r\n", LITE], [1, b"INVALID", 1]),
    ([b"VA 2 t60 c1\r\nhi\r\n", b"HD c7\r\n", b"EN\r\n", b"VA 0\r\n\r\n"], [1, b"HD c7", b"EN", 1]),
    ([b"VA 5\r\nEND\r\n\r\n", b"ME k la=1\r\n", b"MN\r\n"], [1, b"ME k la=1", b"MN"]),
]  # fmt: skip

replies_of_cases = st.lists(st.sampled_from(CASES), max_size=6).map(
    lambda cases: [reply for replies, _ in cases for reply in replies]
)


def outcomes(data):
    return ReplyScanner().feed(data)


@pytest.mark.parametrize(("replies", "expected"), CASES)
def test_in_one_piece_byte_by_byte_and_followed_by_more(replies, expected):
    data = b"".join(replies)
    assert ReplyScanner().feed(data) == expected
    assert ReplyScanner().split(data) == replies
    one, other = ReplyScanner(), ReplyScanner()
    assert [found for byte in data for found in one.feed(bytes([byte]))] == expected
    assert [found for byte in data for found in other.split(bytes([byte]))] == replies
    assert not one.in_reply
    assert one.feed(data + b"VAL") == expected
    assert one.in_reply
    assert one.feed(HIT[3:]) == [1]
    assert other.split(data + b"VAL") == replies
    assert other.split(HIT[3:] + b"E") == [HIT]


@given(replies_of_cases, st.data())
def test_split_anywhere(replies, data):
    whole = b"".join(replies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    scanner = ReplyScanner()
    assert [one for piece in pieces for one in scanner.feed(piece)] == outcomes(whole)
    scanner = ReplyScanner()
    assert [one for piece in pieces for one in scanner.split(piece)] == replies


# Replies to gets of one key

VALUES = st.one_of(
    st.binary(max_size=12),
    st.lists(
        st.sampled_from(
            [b"END\r\n", b"\r\n", b"VALUE k 0 5\r\n", b"VALUE k 0 1 5\r\n", b"x", b" 7"]
        ),
        max_size=6,
    ).map(b"".join),
    st.integers(95, 105).map(bytes),
    st.integers(995, 1005).map(bytes),
    st.integers(9995, 10_005).map(bytes),
)
ITEMS = st.builds(
    lambda key, flags, value: b"VALUE %b %d %d\r\n%b\r\n" % (key, flags, len(value), value),
    st.sampled_from([b"k", b"key", b"VALUE", b"END"]),
    st.integers(0, 9),
    VALUES,
)
UNIQUES = st.builds(
    lambda value, unique: b"VALUE k 0 %d %d\r\n%b\r\nEND\r\n" % (len(value), unique, value),
    VALUES,
    st.integers(0, 30),
)
GETS = st.one_of(ITEMS.map(lambda item: item + b"END\r\n"), st.just(b"END\r\n"))
OTHERS = st.one_of(
    UNIQUES,
    st.sampled_from([b"STORED\r\n", b"ERROR\r\n", b"VA 5\r\nEND\r\n\r\n", b"EN\r\n", LITE]),
    st.lists(ITEMS, min_size=2, max_size=3).map(lambda items: b"".join(items) + b"END\r\n"),
)


@given(st.lists(GETS, max_size=8), st.lists(st.one_of(OTHERS, GETS), max_size=4), st.integers(0, 9))
def test_gets_are_split_as_by_the_scanner(gets, others, missing):
    data = b"".join(gets + others)
    data = data[: max(len(b"".join(gets)), len(data) - missing)]  # the last reply may be incomplete
    found, end = split_gets(data)
    complete = ReplyScanner().split(data)
    assert [reply + b"END\r\n" for reply in found] == complete[: len(found)]
    assert end == sum(map(len, complete[: len(found)]))
    if len(found) < len(complete):
        left = complete[len(found)]  # another kind of reply, or a value that contains END
        assert len(found) >= len(gets) or left.count(b"END\r\n") > 1
        assert left in others or left.count(b"END\r\n") > 1


@pytest.mark.parametrize(
    "data",
    [
        b"VALUE k 0 5\r\nab\r\nEND\r\n",
        b"VALUE k 0 x\r\nab\r\nEND\r\n",
        b"VALUE k 0 -2\r\n\r\nEND\r\n",
        b"VALUE k 0 2\r\nabcdEND\r\n",
        b"VALUE k 0 2\r\nab\r\n",
        b"VALUE\r\nEND\r\n",
        b"VALUE k 0 2END\r\n",
        b"EN\r\n" + HIT,
        b"ERROR\r\n" + HIT,
        b"EXISTS\r\n" + HIT,
        b"E",
        b"",
    ],
)
def test_data_other_than_replies_to_gets_is_left(data):
    assert split_gets(data) == ([], 0)
    assert split_gets(HIT + data) == ([HIT[:-5]], len(HIT))


# Fragments of which a hostile node makes replies.
FRAGMENTS = [
    b"VALUE ", b"VA ", b"VALUE k 0 3\r\n", b"VALUE k 0 3 9\r\n", b"VA 3 t1\r\n", b"abc\r\n",
    b"END\r\n", b"STORED\r\n", b"END", b"V", b"k", b"3", b"-1", b"1_0", b"1000", b" ", b"\r", b"\n",
    b"\r\n", b"\0", b"\xff",
]  # fmt: skip
hostile = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=3), max_size=20).map(b"".join)


@given(hostile)
def test_gets_of_a_hostile_node(data):
    found, end = split_gets(data)
    assert b"".join(reply + b"END\r\n" for reply in found) == data[:end]


def split_in_pieces(scanner, split, data, size):
    """Return the replies in pieces of data up to the first refused one, and the refusal."""
    found = []
    for at in range(0, len(data), size):
        try:
            found += split(data[at : at + size])
        except ReplyError as error:
            return found, str(error), error.fault
    return found, None, scanner.in_reply


@given(hostile, st.integers(1, 80))
def test_the_fast_path_splits_as_the_general_one(data, size):
    fast, general = (ReplyScanner(value_length=999, line_length=40) for _ in range(2))
    assert split_in_pieces(fast, fast.split, data, size) == split_in_pieces(
        general, general._split_any, data, size
    )


@given(replies_of_cases)
def test_it_finds_the_same_replies_as_the_reader(replies):
    for reply in replies:
        shape = Shape.META if reply.startswith(b"VA ") else Shape.ITEMS
        if LITE in reply:
            shape = Shape.ITEM
        reader = ReplyReader(default=shape)
        (read,) = reader.feed(reply)
        (found,) = outcomes(reply)
        if isinstance(found, int):
            assert len(read.items) == found
        else:
            assert read.line == found


def test_large_values_are_not_searched_again_for_each_piece():
    value = b"\r\n" * 4_000_000
    data = b"VALUE k 0 %d\r\n%b\r\nEND\r\n" % (len(value), value)
    scanner = ReplyScanner()
    found = [one for at in range(0, len(data), 1000) for one in scanner.feed(data[at : at + 1000])]
    assert found == [1]


def test_many_large_values_are_not_copied_again_for_each_item():
    item = b"VALUE k 0 100000\r\n%b\r\n" % bytes(100_000)
    data = item * 200 + b"END\r\n"
    for read, expected in ((ReplyScanner().feed, 200), (ReplyScanner().split, data)):
        found = [one for at in range(0, len(data), 65_536) for one in read(data[at : at + 65_536])]
        assert found == [expected]


@pytest.mark.parametrize(
    "data",
    [
        b"VALUE k 0 x\r\n",
        b"VALUE k 0 -1\r\n\r\nEND\r\n",
        b"VALUE k 0 x 5\r\nvalue\r\nEND\r\n",
        b"VALUE k 0 3\r\nvalue\r\nEND\r\n",
        b"VALUE \r\n",
        b"VALUE k 0 " + b"9" * 5000 + b"\r\n",
        b"VA x\r\n",
        b"VA -1\r\n\r\n",
        b"VA 1\r\nxyz\r\n",
        b"x" * 70_000,
    ],
)
@pytest.mark.parametrize("pieces", [100_000, 1000])
def test_invalid_replies_are_refused(data, pieces):
    scanner = ReplyScanner()
    with pytest.raises(ReplyError, match="not a memcached reply") as caught:
        for at in range(0, len(data), pieces):
            scanner.feed(data[at : at + pieces])
    assert caught.value.fault is Fault.FOREIGN


@pytest.mark.parametrize("data", [b"VALUE k 0 101\r\n", b"VALUE k 0 101 1\r\n", b"VA 101\r\n"])
def test_the_length_of_values_is_limited(data):
    with pytest.raises(ReplyError, match="a value of 101 bytes exceeds the limit of 100") as caught:
        ReplyScanner(value_length=100).feed(data)
    assert caught.value.fault is Fault.TOO_LARGE


def test_the_length_of_lines_is_limited():
    assert ReplyScanner(line_length=10).feed(b"SERVER_ERR") == []
    with pytest.raises(ReplyError):
        ReplyScanner(line_length=10).feed(b"SERVER_ERRO")


@given(replies_of_cases, st.data())
def test_a_matcher_reports_the_same_as_the_scanner_or_nothing(replies, data):
    whole = b"".join(replies)
    whole = whole[: data.draw(st.integers(0, len(whole)))]
    letters = fixed_size_matcher(5)(whole)
    if b"" not in letters:
        said = {b"V": 1, b"E": 0, b"S": b"STORED"}
        assert outcomes(whole) == [said[letter] for letter in letters]


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
def test_matching(data, letters):
    assert fixed_size_matcher(5)(data) == letters


def test_matching_in_the_lite_dialect():
    assert fixed_size_matcher(5, lite=True)(LITE + b"STORED\r\nEND\r\n") == [b"V", b"S", b"E"]
    assert fixed_size_matcher(5, lite=True)(HIT) == [b""]
    assert fixed_size_matcher(5)(LITE) == [b""]
