"""Parsers that keep each command's bytes, for handlers that forward commands."""

import pytest

from memlite.protocol import Limits, TextParser
from memlite.protocol.binary import BinaryParser
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.protocol.magic import MAGIC
from memlite.protocol.packets import HEADER, Opcode

LIMITS = Limits(item_size=1024 * 1024, commands_per_read=1_000_000)
LARGE = b"v" * 100_000


class Forwarder:
    """A handler that collects the bytes of each command it is called for."""

    shortcuts = NO_SHORTCUTS

    def __init__(self, parser):
        self.parser = parser
        self.requests = []

    def _forward(self, *arguments):
        self.requests.append(self.parser.request)

    execute = set = set_framed = reject = _forward

    def quit(self):
        """Do nothing: the binary parser also executes the command."""

    def try_get(self, line):
        return False


def packet(opcode, extras=b"", key=b"", value=b""):
    sizes = len(key).to_bytes(2) + len(extras).to_bytes(1) + bytes(3)
    head = bytes([MAGIC, opcode]) + sizes + len(extras + key + value).to_bytes(4) + bytes(12)
    assert len(head) == HEADER
    return head + extras + key + value


TEXT = [
    b"get a\r\n",
    b"get  a   b\r\n",
    b"gets a b\n",
    b"gat 10 a b\r\n",
    b"set a 0 0 5\r\nvalue\r\n",
    b"set a 007 0 5 noreply\r\nva\r\nu\r\n",
    b"set  a 0 0 0\r\n\r\n",
    b"set large 1 0 %d\r\n%b\r\n" % (len(LARGE), LARGE),
    b"append a 0 0 %d\r\n%b\r\n" % (len(LARGE), LARGE),
    b"cas a 0 0 1 17\r\nx\r\n",
    b"delete a 0\r\n",
    b"incr a 1 noreply\r\n",
    b"touch a 0\r\n",
    b"mg a v c O123\r\n",
    b"ms YQ== 3 b T0\r\nabc\r\n",
    b"mn\r\n",
    b"stats items\r\n",
    b"nonsense\r\n",
    b"incr a x\r\n",
]
BINARY = [
    packet(Opcode.GET, key=b"a"),
    packet(Opcode.SET, bytes(8), b"a", b"value"),
    packet(Opcode.SET, bytes(8), b"a", LARGE),
    packet(Opcode.APPEND, key=b"a", value=b"value"),
    packet(Opcode.INCREMENT, bytes(20), b"a"),
    packet(Opcode.STAT, key=b"items"),
    packet(Opcode.NOOP),
]


@pytest.mark.parametrize(("make", "requests"), [(TextParser, TEXT), (BinaryParser, BINARY)])
@pytest.mark.parametrize("size", [1, 7, 60_000, 1_000_000])
def test_requests_are_kept_unchanged(make, requests, size):
    parser = make(LIMITS, keep_requests=True)
    handler = Forwarder(parser)
    data = b"".join(requests)
    for start in range(0, len(data), size):
        more = parser.receive(data[start : start + size], handler)
        while more:
            more = parser.receive(b"", handler)
    assert handler.requests == requests


@pytest.mark.parametrize(("make", "requests"), [(TextParser, TEXT), (BinaryParser, BINARY)])
def test_requests_that_arrive_alone_are_kept(make, requests):
    for request in requests:
        parser = make(LIMITS, keep_requests=True)
        handler = Forwarder(parser)
        parser.receive(request, handler)
        assert handler.requests == [request]


@pytest.mark.parametrize(("make", "requests"), [(TextParser, TEXT), (BinaryParser, BINARY)])
def test_by_default_nothing_is_kept(make, requests):
    parser = make(LIMITS)
    handler = Forwarder(parser)
    for request in requests:
        parser.receive(request, handler)
    assert not any(handler.requests)
