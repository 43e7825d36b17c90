"""Input that a parser has kept, taken back with what follows it."""

from dataclasses import replace

import pytest

from memlite.protocol import Limits, TextParser
from memlite.protocol.binary import BinaryParser
from memlite.protocol.packets import Opcode
from tests.support.packets import NOOP, packet, store
from tests.unit.protocol.recorder import LIMITS, Peer, Recorder

LARGE = bytes(range(250)) * 400


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


@pytest.mark.parametrize("line", [b"add k 0 0 100000\r\n", b"ms k 100000\r\n"])
@pytest.mark.parametrize("following", [b"", b"get b\r\nget c"])
@pytest.mark.parametrize("parsed", [True, False])
def test_a_large_value_is_taken_back_if_it_has_memory(line, following, parsed):
    parser = Peer(replace(LIMITS, item_size=200_000)).parser
    if parsed:
        parser.receive(line + LARGE[:10], Recorder())
    else:
        parser.keep_unparsed(line + LARGE[:10], len(LARGE) - 10 + 2)
    assert parser.in_value
    assert parser.missing_of_large == len(LARGE) - 10
    parser.reserve()[:] = LARGE[10:]
    assert parser.take_back(b"\r") == b""
    assert parser.in_value
    assert parser.take_back(b"\r\n" + following) == line + LARGE + b"\r\n" + following
    assert not parser.in_value
    assert not parser.in_command


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_command_kept_without_parsing_is_parsed_when_it_is_complete(has_memory):
    peer = Peer(replace(LIMITS, item_size=200_000))
    peer.parser.keep_unparsed(b"add k 7 0 100000\r\n" + LARGE[:10], len(LARGE) - 10 + 2)
    if has_memory:
        peer.parser.reserve()[:] = LARGE[10:]
    else:
        peer.send(LARGE[10:])
    peer.send(b"\r")
    assert peer.calls == []
    peer.send(b"\nget b\r\n")
    assert peer.calls == [("add", b"k", 7, 0, LARGE, False), ("get", [b"b"])]


@pytest.mark.parametrize("has_memory", [True, False])
@pytest.mark.parametrize("taken_back", [True, False])
def test_a_packet_kept_without_parsing(has_memory, taken_back):
    parser = BinaryParser(Limits(item_size=200_000))
    request = store(Opcode.ADD, b"k", LARGE, flags=7)
    parser.keep_unparsed(request[:50], len(request) - 50)
    assert parser.in_command
    assert parser.in_value
    handler = Recorder()
    if has_memory:
        assert parser.missing_of_large == len(request) - 50 - 2
        parser.reserve()[:] = request[50:-2]
    else:
        parser.receive(request[50:-2], handler)
    following = request[-2:] + NOOP
    if taken_back:
        following = parser.take_back(following)
        assert following == request + NOOP
    parser.receive(following, handler)
    assert [call[0] for call in handler.calls] == ["binary_store", "binary_admin"]
    assert handler.calls[0][1].value == LARGE
    assert not parser.in_command
    assert not parser.in_value


def test_a_parsed_packet_is_taken_back_if_it_has_memory():
    parser = BinaryParser(Limits(item_size=200_000))
    request = packet(Opcode.APPEND, b"k", value=LARGE)
    parser.receive(request[:50], Recorder())
    parser.reserve()[:] = request[50:-2]
    assert parser.take_back(request[-2:-1]) == b""
    assert parser.take_back(request[-2:]) == request
