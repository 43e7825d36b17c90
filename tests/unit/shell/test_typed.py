"""Typed lines and the bytes sent for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.client.replies import Shape
from memlite.shell.typed import Awaiting, Local, Request, TypedError, read_line, read_words


def sent(line):
    typed = read_line(line)
    assert isinstance(typed, Request)
    return typed.data


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b'set k "hello world"', b"set k 0 0 11\r\nhello world\r\nversion\r\n"),
        (b'  set  k   "a"  7  60 ', b"set k 7 60 1\r\na\r\nversion\r\n"),
        (b'add k "" 7', b"add k 7 0 0\r\n\r\nversion\r\n"),
        (b'set k "x" noreply', b"set k 0 0 1 noreply\r\nx\r\nversion\r\n"),
        (b'set k "x" 1 2 noreply', b"set k 1 2 1 noreply\r\nx\r\nversion\r\n"),
        (b'set k "x" 0 -1', b"set k 0 -1 1\r\nx\r\nversion\r\n"),
        (b'cas k "x" 12', b"cas k 0 0 1 12\r\nx\r\nversion\r\n"),
        (b'cas k "x" 3 60 12', b"cas k 3 60 1 12\r\nx\r\nversion\r\n"),
        (b'ms k "value" T60 c', b"ms k 5 T60 c\r\nvalue\r\nversion\r\n"),
        (rb'set k "\n\r\t\0\\\"\x41\xff"', b'set k 0 0 8\r\n\n\r\t\0\\"A\xff\r\nversion\r\n'),
        (rb"set k '{\"a\": \"\x41\"}'", rb"set k 0 0 17" + b"\r\n" + rb'{\"a\": \"\x41\"}' + b"\r\n"
         b"version\r\n"),
        (rb"set k 'it\'s \\'", b"set k 0 0 6\r\nit's \\\r\nversion\r\n"),
        (b"set k 'say \"hi\"'", b'set k 0 0 8\r\nsay "hi"\r\nversion\r\n'),
        ('set k "é"'.encode(), "set k 0 0 2\r\né\r\nversion\r\n".encode()),
    ],
)  # fmt: skip
def test_the_length_of_a_quoted_value_is_counted(line, data):
    assert sent(line) == data
    assert read_line(line).shape is Shape.FENCED


@pytest.mark.parametrize(
    ("line", "length"),
    [
        (b"set k 0 0 5", 5),
        (b"set k 4294967295 -1 0 noreply", 0),
        (b"cas k 0 0 5 18446744073709551615", 5),
        (b"cas k 0 0 5 1 noreply", 5),
        (b"ms k 5", 5),
        (b"ms k 2 T60 c", 2),
    ],
)
def test_memcacheds_form_awaits_the_value(line, length):
    typed = read_line(line)
    assert isinstance(typed, Awaiting)
    assert typed.length == length
    value = b"\r" * length
    assert typed.request(value).data == line + b"\r\n" + value + b"\r\nversion\r\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"set", "usage: set KEY"),
        (b"set k", "usage: set KEY"),
        (b"set greeting hello", "usage: set KEY"),
        (b"set k 0 0", "usage: set KEY"),
        (b"set k 0 0 5 6", "usage: set KEY"),
        (b"set k 0 0 -5", "negative length"),
        (b"set k 0 0 five", "usage: set KEY"),
        (b"cas k 0 0 5", "usage: cas KEY"),
        (b'cas k "x"', "usage: cas KEY"),
        (b'cas k "x" 1 2', "usage: cas KEY"),
        (b'set k "x" 1 2 3', "usage: set KEY"),
        (b'set k "x" one', "usage: set KEY"),
        (b"ms k", "usage: ms KEY"),
        (b"ms k T60", "usage: ms KEY"),
        (b'set k "x', "the quote is not closed"),
        (b'set k "x\\', "unknown escape"),
        (b'set k "x"y', "a space after the closing quote"),
        (rb'set k "\q"', r"unknown escape \q"),
        (rb'set k "\x4"', r"unknown escape \x"),
        (b'set %b "x"' % (b"k" * 251), "1 to 250 bytes, not 251"),
        (b"set %b 0 0 1" % (b"k" * 251), "1 to 250 bytes, not 251"),
        (b'set k\x7f "x"', "must not contain spaces or control characters"),
        (b'set k "x" 4294967296', "flags must be from 0 to 4294967295"),
        (b'set k "x" -1', "flags must be"),
        (b"set k 0 99999999999 1", "exptime must be"),
        (b'cas k "x" 18446744073709551616', "the cas unique must be"),
        (b"ms k 999999999999999999999", "too long"),
    ],
)
def test_lines_whose_value_could_be_read_as_commands_are_rejected(line, message):
    with pytest.raises(TypedError) as caught:
        read_line(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        (b"get a b", Shape.ITEMS),
        (b"gat 60 a", Shape.ITEMS),
        (b"incr n 1", Shape.LINE),
        (b"delete k", Shape.LINE),
        (b"mg k v", Shape.META),
        (b"mn", Shape.META),
        (b"stats items", Shape.ROWS),
        (b"lru_crawler metadump all", Shape.DUMP),
        (b"lru_crawler mgdump hash", Shape.DUMP),
        (b"lru_crawler enable", Shape.LINE),
        (b"watch fetchers", Shape.STREAM),
        (b"shutdown", Shape.LAST),
    ],
)
def test_a_known_command_is_sent_unchanged(line, shape):
    typed = read_line(line)
    assert (typed.data, typed.shape) == (line + b"\r\n", shape)


@pytest.mark.parametrize(
    "line",
    [
        b"delete k noreply",
        b"incr n 1 noreply",
        b"mg k v q",
        b"md k q",
        b"GET k",
        b"foo  bar",
        b"\xff",
    ],
)
def test_a_fence_follows_commands_whose_reply_has_no_recognisable_end(line):
    typed = read_line(line)
    assert (typed.data, typed.shape) == (line + b"\r\nversion\r\n", Shape.FENCED)


def test_local_commands():
    assert read_line(b"") is None
    assert read_line(b" \t") is None
    assert read_line(b"exit") == read_line(b"quit") == Local("quit")
    assert read_line(b" help set ") == Local("help", ("set",))


# One command as words


def test_words_need_no_quotes():
    assert read_words([b"set", b"k", b'a "b" \\n', b"1", b"60"]).data == (
        b'set k 1 60 8\r\na "b" \\n\r\nversion\r\n'
    )
    assert read_words([b"set", b"k", b"5"]).data == b"set k 0 0 1\r\n5\r\nversion\r\n"
    assert read_words([b"get", b"a", b"b"]).data == b"get a b\r\n"
    assert read_words([b"ms", b"k", b"v", b"T60"]).data == b"ms k 1 T60\r\nv\r\nversion\r\n"
    assert read_words([b"set", b"k", b"7"], b"\0\r\n").data == (
        b"set k 7 0 3\r\n\0\r\n\r\nversion\r\n"
    )
    assert read_words([b"cas", b"k", b"5", b"12"]).data.startswith(b"cas k 0 0 1 12\r\n5\r\n")


def test_one_word_with_spaces_is_a_line():
    assert read_words([b'set k "a b" 1']).data == b"set k 1 0 3\r\na b\r\nversion\r\n"


@pytest.mark.parametrize(
    ("words", "value", "message"),
    [
        ([b"set", b"k", b"0", b"0", b"5"], None, "is 0 the value?"),
        ([b"cas", b"k", b"0", b"0", b"5", b"1"], None, "is 0 the value?"),
        ([b"ms", b"k", b"5"], None, "is 5 the value?"),
        ([b"set", b"k"], None, "usage: set"),
        ([b"set"], b"x", "usage: set"),
        ([b"get", b"k"], b"x", "takes no value"),
        ([b"set", b"a b", b"x"], None, "must not contain spaces"),
        ([b"set", b"", b"x"], None, "1 to 250 bytes"),
    ],
)
def test_ambiguous_or_invalid_words(words, value, message):
    with pytest.raises(TypedError, match=message.replace("?", r"\?")):
        read_words(words, value)


# Any bytes


@given(st.binary(max_size=60))
def test_any_line_is_one_request_or_rejected(line):
    line = line.replace(b"\n", b"")
    try:
        typed = read_line(line)
    except TypedError as error:
        assert str(error)
        return
    if isinstance(typed, Request) and typed.words[0] not in (b"set", b"ms"):
        assert typed.data.count(b"\n") == 1 + (typed.shape is Shape.FENCED)


@given(st.binary(max_size=60))
def test_any_value_can_be_quoted(value):
    escaped = "".join(f"\\x{byte:02x}" for byte in value).encode()
    assert sent(b'set k "%b"' % escaped) == b"set k 0 0 %d\r\n%b\r\nversion\r\n" % (
        len(value),
        value,
    )
