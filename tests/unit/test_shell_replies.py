"""Replies to the shell, taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.errors import ProtocolViolation
from memlite.shell.replies import Item, Line, ReplyReader, Shape, is_error

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


@pytest.mark.parametrize(("shape", "data", "parts"), CASES)
def test_a_reply_whole_and_byte_by_byte(shape, data, parts):
    reader = ReplyReader(shape, 100)
    assert list(reader.feed(data)) == parts
    assert reader.done
    reader = ReplyReader(shape, 100)
    found = []
    for index in range(len(data)):
        assert not reader.done
        found += reader.feed(data[index : index + 1])
    assert found == parts
    assert reader.done


@pytest.mark.parametrize(("shape", "data", "parts"), CASES)
def test_what_comes_behind_a_reply_is_nobodys(shape, data, parts):
    reader = ReplyReader(shape, 100)
    if reader.spent or b"unauthenticated" in data:
        # The connection ends with it anyway.
        assert list(reader.feed(data + b"ERROR\r\n")) == parts
        assert reader.spent
        return
    with pytest.raises(ProtocolViolation, match="more than was asked for"):
        list(reader.feed(data + b"ERROR\r\n"))
    assert reader.done


def test_a_stream_goes_on():
    reader = ReplyReader(Shape.STREAM, 100)
    assert not reader.streaming
    assert list(reader.feed(b"OK\r\nts=1 gid=1 type=item_store\r\nnew words [x]\r\nts")) == [
        Line(b"OK"),
        Line(b"ts=1 gid=1 type=item_store"),
        Line(b"new words [x]"),
    ]
    assert reader.streaming
    assert not reader.done


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
def test_what_no_memcached_says(shape, data, said):
    with pytest.raises(ProtocolViolation) as caught:
        list(ReplyReader(shape, 100).feed(data))
    assert said in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("shape", "data", "said"),
    [
        (Shape.ITEMS, b"VALUE a 0 101\r\n", "a value of 101 bytes is more than the 100"),
        (Shape.META, b"VA 1073741824\r\n", "1,073,741,824 bytes"),
        (Shape.ITEMS, b"VALUE a 0 1\r\nxyz\r\nEND\r\n", "longer than announced"),
        (Shape.ITEMS, b"VALUE a 0 -1\r\n", "not memcached"),
        (Shape.ITEMS, b"VALUE a 0\r\n", "not memcached"),
        (Shape.ITEMS, b"VALUE a 0 1e9\r\n", "not memcached"),
        (Shape.ITEMS, b"VALUE a 0 " + b"9" * 5000 + b"\r\n", "not memcached"),
        (Shape.META, b"VA x\r\n", "not memcached"),
    ],
)
def test_values_that_are_none(shape, data, said):
    with pytest.raises(ProtocolViolation, match=said):
        list(ReplyReader(shape, 100).feed(data))


def test_parts_before_a_violation_are_seen():
    seen = []
    with pytest.raises(ProtocolViolation):
        for part in ReplyReader(Shape.ITEMS, 100).feed(b"VALUE a 0 1\r\nx\r\nhello?\r\n"):
            seen.append(part)  # noqa: PERF402 - it raises midway
    assert seen == [Item(b"VALUE a 0 1", b"x")]


@given(st.sampled_from(list(Shape)), st.lists(st.binary(max_size=30), max_size=6))
def test_nothing_but_a_violation_escapes(shape, pieces):
    reader = ReplyReader(shape, 100)
    try:
        for piece in pieces:
            if not reader.done:
                list(reader.feed(piece))
    except ProtocolViolation as error:
        assert str(error).isprintable()


def test_errors_are_told_from_answers():
    for text in (b"ERROR", b"ERROR Too many open connections", b"CLIENT_ERROR x", b"SERVER_ERROR x",
                 b"SERVER_ERROR: shutdown not enabled"):  # fmt: skip
        assert is_error(Line(text))
    for part in (Line(b"NOT_FOUND"), Line(b"EN"), Line(b"NS"), Item(b"VALUE a 0 5", b"ERROR")):
        assert not is_error(part)
