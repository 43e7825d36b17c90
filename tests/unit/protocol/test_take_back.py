"""Input that a text parser has kept, taken back with what follows it."""

from memlite.protocol import TextParser
from tests.unit.protocol.recorder import Peer


def begun(data: bytes) -> TextParser:
    """Return a parser that has received the beginning of a command."""
    peer = Peer()
    peer.send(data)
    return peer.parser


def test_a_line_is_taken_back_when_it_is_complete():
    parser = begun(b"get a")
    assert parser.take_back(b"b") == b""
    assert parser.in_command
    assert parser.take_back(b"b\r\n") == b"get ab\r\n"
    assert not parser.in_command


def test_a_small_value_is_taken_back_when_it_is_complete():
    parser = begun(b"set a 0 0 3\r\nx")
    assert parser.take_back(b"y") == b""
    assert parser.take_back(b"yz\r\n") == b"set a 0 0 3\r\nxyz\r\n"
    assert not parser.in_value


def test_a_skipped_value_is_not_taken_back():
    parser = begun(b"set a 0 0 5000\r\n" + b"x" * 5000)
    assert parser.take_back(b"\r\n") == b""
    assert parser.take_back(b"\r\nget b\r\n") == b"get b\r\n"
    assert not parser.in_value
