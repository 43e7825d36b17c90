"""Replies parsed into values, in whatever pieces they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.client.replies import (
    END,
    Fault,
    Item,
    Line,
    Reply,
    ReplyError,
    ReplyReader,
    Shape,
    is_error,
)

CASES = [
    (Shape.LINE, b"STORED\r\n", [Line(b"STORED")]),
    (Shape.LINE, b"42\r\n", [Line(b"42")]),
    (Shape.LINE, b"42   \r\n", [Line(b"42   ")]),
    (Shape.LINE, b"ERROR\n", [Line(b"ERROR")]),
    (Shape.LINE, b"SERVER_ERROR: shutdown not enabled\r\n",
     [Line(b"SERVER_ERROR: shutdown not enabled")]),
    (Shape.ITEMS, b"END\r\n", [Line(b"END")]),
    (Shape.ITEMS, b"VALUE a 0 5\r\nEND\r\n\r\nEND\r\n",
     [Item(b"VALUE a 0 5", b"END\r\n"), Line(b"END")]),
    (Shape.ITEMS, b"VALUE a 0 0 7\r\n\r\nVALUE b 0 1 8\r\nx\r\nEND\r\n",
     [Item(b"VALUE a 0 0 7", b""), Item(b"VALUE b 0 1 8", b"x"), Line(b"END")]),
    (Shape.ITEMS, b"CLIENT_ERROR bad command line format\r\n",
     [Line(b"CLIENT_ERROR bad command line format")]),
    (Shape.META, b"VA 2 t60 c1\r\nhi\r\n", [Item(b"VA 2 t60 c1", b"hi")]),
    (Shape.META, b"VA 0 W\r\n\r\n", [Item(b"VA 0 W", b"")]),
    (Shape.META, b"HD c1\r\n", [Line(b"HD c1")]),
    (Shape.META, b"ME a exp=-1 la=2\r\n", [Line(b"ME a exp=-1 la=2")]),
    (Shape.ROWS, b"STAT a 1\r\nSTAT b 2\r\nEND\r\n",
     [Line(b"STAT a 1"), Line(b"STAT b 2"), Line(b"END")]),
    (Shape.ROWS, b"RESET\r\n", [Line(b"RESET")]),
    (Shape.ROWS, b"OK\r\n", [Line(b"OK")]),
    (Shape.ROWS, b"PREFIX a get 1\r\nEND\r\n", [Line(b"PREFIX a get 1"), Line(b"END")]),
    (Shape.DUMP, b"OK\r\nkey=a exp=-1\nkey=b exp=-1\r\nEND\r\n",
     [Line(b"OK"), Line(b"key=a exp=-1"), Line(b"key=b exp=-1"), Line(b"END")]),
    (Shape.DUMP, b"key=a exp=-1\r\nEND\r\n", [Line(b"key=a exp=-1"), Line(b"END")]),
    (Shape.DUMP, b"OK\r\nmg a\r\nEN\r\n", [Line(b"OK"), Line(b"mg a"), Line(b"EN")]),
    (Shape.DUMP, b"BUSY currently processing crawler request\r\n",
     [Line(b"BUSY currently processing crawler request")]),
    (Shape.FENCED, b"VERSION 1.6.45\r\n", []),
    (Shape.FENCED, b"STORED\r\nVERSION 1\r\n", [Line(b"STORED")]),
    (Shape.FENCED, b"VALUE a 0 11\r\nVERSION 1\r\n\r\nEND\r\nVERSION 1\r\n",
     [Item(b"VALUE a 0 11", b"VERSION 1\r\n"), Line(b"END")]),
    (Shape.FENCED, b"VA 1\r\nx\r\nVERSION 1\r\n", [Item(b"VA 1", b"x")]),
    (Shape.FENCED, b"CLIENT_ERROR bad\r\nERROR\r\nVERSION 1\r\n",
     [Line(b"CLIENT_ERROR bad"), Line(b"ERROR")]),
    (Shape.FENCED, b"CLIENT_ERROR unauthenticated\r\n", [Line(b"CLIENT_ERROR unauthenticated")]),
    (Shape.STREAM, b"ERROR\r\n", [Line(b"ERROR")]),
]  # fmt: skip


def reader_of(*shapes, **limits):
    reader = ReplyReader(**{"value_length": 100} | limits)
    for shape in shapes:
        reader.expect(shape)
    return reader


def parts_of(reader, pieces):
    """Return the parts as a stream yields them, including those of an incomplete reply."""
    found = []
    for piece in pieces:
        for reply in reader.feed(piece):
            found += reply.parts
        found += reader.take_parts()
    return found


def bytes_of(data):
    return [data[index : index + 1] for index in range(len(data))]


@pytest.mark.parametrize(("shape", "data", "parts"), CASES)
def test_a_reply_in_one_piece_and_byte_by_byte(shape, data, parts):
    reader = reader_of(shape)
    assert list(reader.feed(data)) == [Reply(tuple(parts))]
    assert not reader.in_reply
    reader = reader_of(shape)
    found = []
    for byte in bytes_of(data):
        assert not found
        found += reader.feed(byte)
    assert found == [Reply(tuple(parts))]
    assert not reader.in_reply
    assert parts_of(reader_of(shape), bytes_of(data)) == parts


@pytest.mark.parametrize(("shape", "data", "parts"), CASES)
def test_data_after_the_reply_is_refused(shape, data, parts):
    reader = reader_of(shape)
    replies = reader.feed(data + b"ERROR\r\n")
    assert next(replies) == Reply(tuple(parts))
    if reader.spent:
        # The connection ends after this reply anyway.
        assert list(replies) == []
        return
    with pytest.raises(ReplyError, match="unexpected data after the reply") as caught:
        list(replies)
    assert caught.value.fault is Fault.EXCESS


@given(st.lists(st.sampled_from(CASES), max_size=6), st.data())
def test_pipelined_replies_split_anywhere(cases, data):
    cases = [case for case in cases if case[0] is not Shape.STREAM and b"unauth" not in case[1]]
    whole = b"".join(reply for _, reply, _ in cases)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    reader = reader_of(*(shape for shape, _, _ in cases))
    found = [reply for piece in pieces for reply in reader.feed(piece)]
    assert found == [Reply(tuple(parts)) for _, _, parts in cases]


def test_a_default_shape_parses_unannounced_replies():
    reader = reader_of(Shape.LINE, default=Shape.ITEMS)
    replies = list(reader.feed(b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nNOT_FOUND\r\n"))
    assert [reply.line for reply in replies] == [b"STORED", b"END", b"NOT_FOUND"]
    assert replies[1].items == [Item(b"VALUE a 0 1", b"x")]


@pytest.mark.parametrize("shape", [Shape.ITEMS, Shape.ITEM, Shape.ROWS, Shape.LINE])
def test_the_end_is_always_the_same_object(shape):
    for pieces in ([b"END\r\n"], bytes_of(b"END\r\n")):
        (end,) = parts_of(reader_of(shape), pieces)
        assert end is END


def test_a_stream_continues():
    reader = reader_of(Shape.STREAM)
    assert not reader.streaming
    assert list(reader.feed(b"OK\r\nts=1 gid=1 type=item_store\r\nnew words [x]\r\nts")) == []
    assert reader.take_parts() == [
        Line(b"OK"),
        Line(b"ts=1 gid=1 type=item_store"),
        Line(b"new words [x]"),
    ]
    assert reader.streaming
    assert reader.in_reply


def test_large_values_are_not_searched_again_for_each_piece():
    value = b"\r\n" * 4_000_000
    data = b"VALUE k 0 %d\r\n%b\r\nEND\r\n" % (len(value), value)
    reader = reader_of(Shape.ITEMS, value_length=len(value))
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    assert not reader.in_value
    assert parts_of(reader, pieces[:100]) == []
    assert reader.in_value
    assert parts_of(reader, pieces[100:]) == [
        Item(b"VALUE k 0 8000000", value),
        Line(b"END"),
    ]


# The contents of parts


@pytest.mark.parametrize(
    ("item", "key", "flags", "unique", "tokens"),
    [
        (Item(b"VALUE k 3 1", b"x"), b"k", 3, None, ()),
        (Item(b"VALUE k 4294967295 1 18446744073709551615", b"x"), b"k", 2**32 - 1, 2**64 - 1, ()),
        (Item(b"VALUE k 1", b"x"), b"k", 0, None, ()),
        (Item(b"VA 1", b"x"), None, 0, None, ()),
        (Item(b"VA 1 kk f7 c12 t-1 W", b"x"), b"k", 7, 12, (b"kk", b"f7", b"c12", b"t-1", b"W")),
    ],
)
def test_items(item, key, flags, unique, tokens):
    assert (item.key, item.flags, item.unique, item.tokens) == (key, flags, unique, tokens)


key = st.binary(min_size=1, max_size=20).map(
    lambda key: key.translate(None, bytes(range(33)) + b"\x7f") or b"k"
)


@given(
    key, st.integers(0, 2**32 - 1), st.binary(max_size=100), st.none() | st.integers(0, 2**64 - 1)
)
def test_items_round_trip(key, flags, value, unique):
    end = b"" if unique is None else b" %d" % unique
    data = b"VALUE %b %d %d%b\r\n%b\r\nEND\r\n" % (key, flags, len(value), end, value)
    (reply,) = reader_of(Shape.ITEMS).feed(data)
    (item,) = reply.items
    assert (item.key, item.flags, item.value, item.unique) == (key, flags, value, unique)
    meta = [b"k" + key, b"f%d" % flags, *([] if unique is None else [b"c%d" % unique]), b"W"]
    data = b"VA %d %b\r\n%b\r\n" % (len(value), b" ".join(meta), value)
    (reply,) = reader_of(Shape.META).feed(data)
    (item,) = reply.items
    assert (item.key, item.flags, item.value, item.unique) == (key, flags, value, unique)
    assert item.tokens == tuple(meta)


def test_lines_and_replies():
    line = Line(b"HD c7 t-1")
    assert (line.word, line.tokens) == (b"HD", (b"c7", b"t-1"))
    item = Item(b"VALUE a 0 1", b"x")
    found = Reply((item, Line(b"END")))
    assert (found.items, found.line, found.error) == ([item], b"END", None)
    failed = Reply((item, Line(b"SERVER_ERROR out of memory")))
    assert failed.error == failed.line == b"SERVER_ERROR out of memory"
    assert (Reply(()).items, Reply(()).line, Reply(()).error) == ([], b"", None)


# Invalid replies


@pytest.mark.parametrize("shape", [Shape.LINE, Shape.ITEMS, Shape.META, Shape.ROWS, Shape.FENCED,
                                   Shape.DUMP, Shape.STREAM, Shape.LAST])  # fmt: skip
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "web server"),
        (b"<!DOCTYPE html>\n", "web server"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not memcached"),
        (b"-ERR unknown command\r\n", "not memcached"),
        (b"220 mail.example.com ESMTP\r\n", "not memcached"),
        (b"\x15\x03\x03\x00\x02\x02\x0a\n", "speaks TLS"),
        (b"\x1b[31mred\r\n", r"\x1b"),
        (b"x" * 70_000, "not memcached"),
    ],
)
def test_invalid_replies_are_refused(shape, data, said):
    with pytest.raises(ReplyError) as caught:
        list(reader_of(shape).feed(data))
    assert said in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("shape", "data", "said"),
    [
        (Shape.ITEMS, b"VALUE a 0 101\r\n", "a value of 101 bytes exceeds the limit of 100"),
        (Shape.META, b"VA 1073741824\r\n", "1,073,741,824 bytes"),
        (Shape.ITEMS, b"VALUE a 0 1\r\nxyz\r\nEND\r\n", "longer than announced"),
        (Shape.ITEMS, b"VALUE a 0 -1\r\n", "not memcached"),
        (Shape.ITEMS, b"VALUE a 0\r\n", "not memcached"),
        (Shape.ITEMS, b"VALUE a 0 1e9\r\n", "not memcached"),
        (Shape.ITEMS, b"VALUE a 0 " + b"9" * 5000 + b"\r\n", "not memcached"),
        (Shape.META, b"VA x\r\n", "not memcached"),
    ],
)
def test_invalid_values_are_refused(shape, data, said):
    with pytest.raises(ReplyError, match=said):
        list(reader_of(shape).feed(data))


def test_parts_before_a_violation_are_returned():
    reader = reader_of(Shape.LINE, Shape.ITEMS)
    replies = reader.feed(b"STORED\r\nVALUE a 0 1\r\nx\r\nhello?\r\n")
    assert next(replies).line == b"STORED"
    with pytest.raises(ReplyError):
        next(replies)
    assert reader.take_parts() == [Item(b"VALUE a 0 1", b"x")]


@given(st.sampled_from(list(Shape)), st.lists(st.binary(max_size=30), max_size=6))
def test_only_violations_are_raised(shape, pieces):
    reader = reader_of(shape)
    try:
        for piece in pieces:
            list(reader.feed(piece))
    except ReplyError as error:
        assert str(error).isprintable()


def test_errors_are_distinguished_from_other_replies():
    for text in (b"ERROR", b"ERROR Too many open connections", b"CLIENT_ERROR x", b"SERVER_ERROR x",
                 b"SERVER_ERROR: shutdown not enabled"):  # fmt: skip
        assert is_error(Line(text))
    for part in (Line(b"NOT_FOUND"), Line(b"EN"), Line(b"NS"), Item(b"VALUE a 0 5", b"ERROR")):
        assert not is_error(part)


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        (Shape.ROWS, b"STAT a 1\r\n"),
        (Shape.FENCED, b"STAT a 1\r\n"),
        (Shape.ITEMS, b"VALUE a 0 1\r\nx\r\n"),
        (Shape.DUMP, b"key=a\n"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_reply_of_many_parts_is_limited(shape, part, whole):
    data = part * 100
    assert list(reader_of(shape, reply_length=len(data)).feed(data)) == []
    reader = reader_of(shape, reply_length=len(data) // 2)
    with pytest.raises(ReplyError, match=r"a reply exceeds the limit of [0-9]+ bytes") as caught:
        for piece in [data] if whole else bytes_of(data):
            list(reader.feed(piece))
    assert caught.value.fault is Fault.TOO_LARGE


def test_the_limit_applies_to_each_reply():
    reader = reader_of(*[Shape.ROWS] * 100, reply_length=30)
    assert len(list(reader.feed(b"STAT a 1\r\nEND\r\n" * 100))) == 100
    stream = reader_of(Shape.STREAM, reply_length=30)
    assert len(parts_of(stream, [b"OK\r\n", *[b"ts=1 gid=1\r\n"] * 100])) == 101
