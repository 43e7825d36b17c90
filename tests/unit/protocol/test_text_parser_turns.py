"""The text parser: hits, the commands per turn, and quit."""

from dataclasses import replace

import pytest

from memlite.protocol import TextParser
from tests.unit.protocol.recorder import (
    BAD_FORMAT,
    ERROR,
    K251,
    LIMITS,
    Peer,
    Recorder,
    admin,
    one_by_one,
    reject,
)


def test_hit_is_called_first_for_any_line_that_may_be_a_get():
    peer = Peer()
    asked = []

    def try_get(line):
        asked.append(line)
        return line in (b"get a\r\n", b"get b\r\r\n")

    peer.recorder.try_get = try_get
    peer.send(
        b"get a\r\nget b\r\r\nget a\nget c\r\nget  a\r\nget a \r\nget a a\r\nget \r\n"
        b"get\r\ngets a\r\ngat 0 a\r\n get a\r\nGet a\r\n"
        b"set x 0 0 5\r\nget a\r\nget " + K251 + b"\r\n"
    )
    assert asked == [
        b"get a\r\n", b"get b\r\r\n", b"get a\n", b"get c\r\n", b"get  a\r\n", b"get a \r\n",
        b"get a a\r\n", b"get \r\n", b"get\r\n", b"gets a\r\n", b"get " + K251 + b"\r\n",
    ]  # fmt: skip
    assert peer.calls == [
        ("get", [b"a"]),
        ("get", [b"c"]),
        ("get", [b"a"]),
        ("get", [b"a"]),
        ("get", [b"a", b"a"]),
        reject(BAD_FORMAT),
        reject(BAD_FORMAT),
        ("gets", [b"a"]),
        ("gat", 0, [b"a"]),
        reject(ERROR),
        admin(b"Get", b"a"),
        ("set", b"x", 0, 0, b"get a", False),
        reject(BAD_FORMAT),
    ]


def test_hit_is_also_called_for_a_line_that_arrives_alone():
    """The connection has tried it as a get of one key, but the line may name several."""
    peer = Peer()
    asked = []
    peer.recorder.try_get = lambda line: asked.append(line) or line == b"get a b\r\n"
    peer.send(b"get a b\r\n", b"get b", b"\r\n")
    assert asked == [b"get a b\r\n", b"get b\r\n"]
    assert peer.calls == [("get", [b"b"])]


def test_hits_count_towards_the_commands_per_turn():
    parser, recorder = TextParser(replace(LIMITS, commands_per_read=3)), Recorder()
    hits = []
    recorder.try_get = lambda line: hits.append(line) or True
    assert parser.receive(b"get a\r\n" * 4, recorder) is True
    assert len(hits) == 3
    assert parser.receive(b"", recorder) is False
    assert (len(hits), recorder.calls) == (4, [])


# Taking turns


SHARE = replace(LIMITS, commands_per_read=3)


def test_the_commands_per_turn_are_limited():
    parser, recorder = TextParser(SHARE), Recorder()
    stream = b"".join(b"get k%d\r\n" % number for number in range(8))
    expected = [("get", [b"k%d" % number]) for number in range(8)]
    assert parser.receive(stream, recorder) is True
    assert recorder.calls == expected[:3]
    assert parser.in_command
    assert parser.receive(b"", recorder) is True
    assert recorder.calls == expected[:6]
    assert parser.receive(b"", recorder) is False
    assert recorder.calls == expected
    assert not parser.in_command
    assert parser.receive(b"", recorder) is False


def test_a_full_turn_leaves_no_backlog():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3, recorder) is False
    assert not parser.in_command


def test_an_incomplete_line_after_a_full_turn_is_not_a_backlog():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3 + b"get b", recorder) is False
    assert parser.in_command
    assert parser.receive(b"\r\n", recorder) is False
    assert recorder.calls[3:] == [("get", [b"b"])]


@pytest.mark.parametrize(
    "command",
    [b"get a\r\n", b"set a 0 0 1\r\nx\r\n", b"delete a\r\n", b"get\r\n", b"\r\n",
     b"set a x 0 1\r\nv\r\n", b"set a 0 0 9999\r\n" + b"x" * 9999 + b"\r\n"],
    ids=lambda command: repr(command)[:20],
)  # fmt: skip
def test_every_kind_of_command_counts(command):
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(command * 4, recorder) is True
    assert len(recorder.calls) == 3
    assert parser.receive(b"", recorder) is False
    assert len(recorder.calls) == 4


def test_new_data_is_parsed_after_the_backlog():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3 + b"get b\r\nset c 0 0 5\r\nhe", recorder) is True
    assert parser.receive(b"llo\r\nget d\r\nget e\r\nget", recorder) is True
    assert recorder.calls[3:] == [
        ("get", [b"b"]),
        ("set", b"c", 0, 0, b"hello", False),
        ("get", [b"d"]),
    ]
    assert parser.receive(b" f\r\n", recorder) is False
    assert recorder.calls[6:] == [("get", [b"e"]), ("get", [b"f"])]


def test_values_arriving_after_a_full_turn_are_completed():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 2 + b"set c 0 0 5\r\nhe", recorder) is False
    assert parser.receive(b"llo\r\n" + b"get d\r\n" * 4, recorder) is True
    assert parser.receive(b"", recorder) is False
    assert [call[0] for call in recorder.calls] == ["get", "get", "set"] + ["get"] * 4


@pytest.mark.parametrize("cut", range(1, 16))
def test_a_command_that_arrives_in_pieces_counts_when_it_is_carried_out(cut):
    parser, recorder = TextParser(SHARE), Recorder()
    command = b"set a 0 0 1\r\nx\r\n"
    assert parser.receive(command * 2 + command[:cut], recorder) is False
    assert parser.receive(command[cut:] + command * 3, recorder) is True
    assert len(recorder.calls) == 5
    assert parser.receive(b"", recorder) is False
    assert len(recorder.calls) == 6


@pytest.mark.parametrize("command", [b"stats items\r\n", b"nonsense\r\n", b"flush_all\r\n"])
def test_an_administrative_command_ends_the_turn(command):
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(command * 2 + b"get a\r\n", recorder) is True
    assert len(recorder.calls) == 1
    assert parser.receive(b"", recorder) is True
    assert len(recorder.calls) == 2
    assert parser.receive(b"", recorder) is False
    assert recorder.calls[2:] == [("get", [b"a"])]


# Quitting


@pytest.mark.parametrize("line", [b"quit\r\n", b"quit\n", b"quit now\r\n", b"quit noreply\r\n"])
@pytest.mark.parametrize("trailing", [b"", b"get a\r\n", b"set a 0 0 100\r\nx", b"\x80", b"get"])
def test_quit_drops_later_input(line, trailing):
    peer = Peer()
    assert peer.send(b"get a\r\n" + line + trailing) == [("get", [b"a"]), ("quit",)]
    assert not peer.parser.in_command


def test_quit_byte_by_byte():
    assert Peer().send(*one_by_one(b"quit\r\n")) == [("quit",)]


def test_quit_drops_the_backlog_too():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3 + b"quit\r\n" + b"get b\r\n" * 9, recorder) is True
    assert parser.receive(b"", recorder) is False
    assert recorder.calls[3:] == [("quit",)]
