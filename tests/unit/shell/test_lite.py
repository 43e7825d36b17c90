"""The lite dialect in the shell: requests, replies, help and completion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.client.replies import Item, Line, ReplyReader, Shape, is_error
from memlite.core.errors import ConfigError
from memlite.protocol import Limits
from memlite.protocol.lite import LiteParser
from memlite.shell.commands import COMMANDS as MEMCACHED
from memlite.shell.completion import candidates, hint
from memlite.shell.display import Style
from memlite.shell.help import overview, topic
from memlite.shell.lite import COMMANDS, read_line, read_words
from memlite.shell.options import parse
from memlite.shell.pretty import Pretty
from memlite.shell.raw import Raw
from memlite.shell.typed import Awaiting, Local, Request, TypedError
from tests.unit.protocol.recorder import Recorder

PIPE = Style(terminal=False, colour=False, width=80)


@pytest.mark.parametrize(
    ("line", "data", "shape"),
    [
        (b'set k "hello world"', b"set k 11\r\nhello world\r\n", Shape.LINE),
        (rb' set  k  "\n\x00" ', b"set k 2\r\n\n\0\r\n", Shape.LINE),
        (b"get k", b"get k\r\n", Shape.ITEM),
        (b" get  a b ", b"get  a b\r\n", Shape.ITEM),
        (b"get", b"get\r\n", Shape.ITEM),
        (b"version", b"version\r\n", Shape.LINE),
        (b"auth ada", b"auth ada\r\n", Shape.LINE),
        (b"set word letters", b"set word letters\r\n", Shape.LINE),
        (b"set word", b"set word\r\n", Shape.LINE),
        (b"set a\tb 5", b"set a b 5\r\n", Shape.LINE),
        (b"set k 0 0 5", b"set k 0 0 5\r\n", Shape.LINE),
        (b"set " + b"k" * 251 + b" 5", b"set " + b"k" * 251 + b" 5\r\n", Shape.LINE),
        (b"set k 2147483646", b"set k 2147483646\r\n", Shape.LINE),
    ],
)
def test_lines_become_requests(line, data, shape):
    typed = read_line(line)
    assert isinstance(typed, Request)
    assert (typed.data, typed.shape) == (data, shape)


def test_the_form_with_a_length_awaits_the_value():
    typed = read_line(b"set  k 5")
    assert isinstance(typed, Awaiting)
    assert typed.length == 5
    assert typed.request(b"hello").data == b"set k 5\r\nhello\r\n"
    assert read_line(b"set k 0000000000000000000000005").length == 5


def test_local_commands():
    assert read_line(b"") is None
    assert read_line(b"exit") == read_line(b"quit") == Local("quit")
    assert read_line(b"help set") == Local("help", ("set",))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'set k "x', "not closed"),
        (b'set k "x"y', "a space after"),
        (b'set k "x" 0', "usage: set KEY"),
        (b"set " + b"k" * 251 + b' "x"', "250 bytes"),
    ],
)
def test_rejected_lines(line, message):
    with pytest.raises(TypedError, match=message):
        read_line(line)


def test_words():
    assert read_words([b"set", b"k", b'a "b"']).data == b'set k 5\r\na "b"\r\n'
    assert read_words([b"set", b"k"], b"\r\n").data == b"set k 2\r\n\r\n\r\n"
    assert read_words([b"get", b"k"]).data == b"get k\r\n"
    assert read_words([b'set k "a b"']).data == b"set k 3\r\na b\r\n"
    assert read_words([b"set", b"k"]).data == b"set k\r\n"
    for words, value, message in (
        ([b"set", b"k", b"4"], None, "is 4 the value"),
        ([b"get", b"k"], b"x", "-x requires"),
        ([b"set"], b"x", "-x requires"),
        ([b"set", b"k", b"1"], b"x", "usage"),
        ([b"set", b"a b", b"x"], None, "must not contain spaces"),
    ):
        with pytest.raises(TypedError, match=message):
            read_words(words, value)


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b"set " + rest))
def test_every_line_gets_exactly_one_reply(line):
    """If server and shell disagreed on a line, the shell would hang or get two replies."""
    try:
        typed = read_line(line.replace(b"\n", b""))
    except TypedError:
        return
    if isinstance(typed, Awaiting):
        typed = typed.request(b"\n" * typed.length) if typed.length < 10_000 else None
    if isinstance(typed, Request) and typed.data[:1] != b"\x80":
        recorder, parser = Recorder(), LiteParser(Limits())
        parser.receive(typed.data, recorder)
        assert len(recorder.calls) == 1
        assert not parser.in_command


def shown(display, line, data):
    request = read_line(line)
    display.begin(request)
    (reply,) = ReplyReader(default=request.shape).feed(data)
    parts = reply.parts
    return b"".join([*(piece for part in parts for piece in display.part(part)), display.end()])


def test_replies():
    reply = b"VALUE k 5\r\nhello\r\nEND\r\n"
    assert shown(Pretty(PIPE), b"get k", reply) == b"k: 5 bytes\nhello\n"
    assert shown(Raw(terminal=False), b"get k", reply) == b"hello"
    assert shown(Pretty(PIPE), b"get k", b"END\r\n") == b"(not found)\n"
    assert shown(Pretty(PIPE), b"get", b"INVALID\r\n") == b"INVALID\n"
    assert shown(Pretty(PIPE), b"set a b", b"NOT_STORED\r\n") == b"NOT_STORED\n"
    assert is_error(Line(b"INVALID"))
    (read,) = ReplyReader(default=Shape.ITEM).feed(reply)
    assert list(read.parts) == [Item(b"VALUE k 5", b"hello"), Line(b"END")]


def test_help_and_completion():
    text = overview(PIPE, COMMANDS)
    assert 'set KEY "VALUE"' in text
    assert "stats" not in text
    assert "Meta" not in text
    assert "set KEY BYTES" in topic("set", PIPE, COMMANDS)
    assert "FLAGS" not in topic("set", PIPE, COMMANDS)
    assert topic("stats", PIPE, COMMANDS) == "no such command; 'help' lists them\n"
    assert [one.word for one in candidates("", COMMANDS)] == ["set", "get", "help", "quit"]
    assert candidates("stats ", COMMANDS) == []
    assert candidates("mg key ", COMMANDS) == []
    assert (hint("set k", COMMANDS), hint("mg k", COMMANDS)) == ('set KEY "VALUE"', "")
    assert MEMCACHED["set"].usage != COMMANDS["set"].usage


def test_options():
    assert parse([]).dialect == "memcached"
    assert parse(["--dialect", "lite"]).dialect == "lite"
    with pytest.raises(ConfigError, match="--dialect"):
        parse(["--dialect", "redis"])
    with pytest.raises(ConfigError, match="--user cannot be combined with --dialect lite"):
        parse(["--dialect", "lite", "--user", "ada"])
