"""Commands have the same results with and without the shortcuts for plain items."""

import random

import pytest

from memlite.config import Config
from memlite.core.clock import Clock
from memlite.engine.prefixes import PrefixStats
from memlite.server.server import Server
from memlite.telemetry.counters import Counters
from tests.unit.server.connections.test_fast_path import START, Loop, Transport

KEYS = (b"a", b"b", b"1", b"k" * 250)
VALUES = (b"", b"0", b"7", b"99", b"100", b"18446744073709551615", b"x" * 40, b"9 ", b"v" * 600)
TEXT = (
    b"set K F E S\r\nV\r\n", b"add K F E S\r\nV\r\n", b"replace K F E S\r\nV\r\n",
    b"append K F E S\r\nV\r\n", b"prepend K F E S\r\nV\r\n", b"cas K F E S 1\r\nV\r\n",
    b"cas K F E S 2\r\nV\r\n", b"set K F E S noreply\r\nV\r\n",
    b"get K\r\n", b"gets K\r\n", b"get K absent\r\n", b"gat E K\r\n", b"touch K E\r\n",
    b"delete K\r\n", b"incr K 1\r\n", b"decr K 1\r\n", b"incr K 99\r\n", b"incr K 90 noreply\r\n",
    b"mg K v\r\n", b"mg K\r\n", b"mg K s t f v k q\r\n", b"mg K v Oabc q\r\n", b"mg K c v\r\n",
    b"ms K S\r\nV\r\n", b"ms K S F5 c\r\nV\r\n", b"ms K S q T0\r\nV\r\n", b"md K\r\n",
    b"md K q\r\n",
    b"ma K v\r\n", b"ma K MD D5\r\n", b"mn\r\n", b"flush_all\r\n", b"TICK",
)  # fmt: skip


class Client:
    """A connection to a new server, with shortcuts or, because commands are counted, without."""

    def __init__(self, *, shortcuts):
        self.monotonic = 0.0
        clock = Clock(lambda: self.monotonic, lambda: START)
        self.server = Server(Config(), [], clock=clock)
        self.server.scheduler.loop = Loop()
        if not shortcuts:
            self.server.engine.observe(PrefixStats(), None)
        self.connection = self.server.connect()
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def send(self, data):
        """Send commands; return the replies."""
        if data == b"TICK":
            self.monotonic += 1
            self.server.clock.tick()
            return b""
        self.connection.data_received(data)
        self.server.scheduler.loop.run()
        replies = b"".join(self.transport.written)
        self.transport.written.clear()
        return replies

    @property
    def state(self):
        """Return the items, and everything that is counted."""
        table = self.server.engine.table
        items = sorted(
            (key, item.wire, item.state, item.expires, item.version) for key, item in table.scan()
        )
        counted = [getattr(self.server.counters, name) for name in Counters.NAMES]
        return items, counted, table.used


def command(choice):
    value = choice.choice(VALUES)
    form = choice.choice(TEXT)
    if form == b"TICK":
        return form
    head, end, rest = form.partition(b"\r\n")
    for letter, text in (
        (b" K", b" " + choice.choice(KEYS)),
        (b" F ", b" %d " % choice.choice((0, 0, 5))),
        (b" E", b" %d" % choice.choice((0, 0, 0, 1, 100, -1))),
        (b" S", b" %d" % len(value)),
    ):
        head = head.replace(letter, text, 1)
    return head + end + rest.replace(b"V", value)


@pytest.mark.parametrize("seed", range(3))
def test_any_commands(seed):
    choice = random.Random(seed)
    with_shortcuts, without = Client(shortcuts=True), Client(shortcuts=False)
    for _ in range(400):
        commands = [command(choice) for _ in range(choice.choice((1, 3)))]
        data = b"".join(commands) if b"TICK" not in commands else b"TICK"
        assert with_shortcuts.send(data) == without.send(data), data
        assert with_shortcuts.state == without.state, data
