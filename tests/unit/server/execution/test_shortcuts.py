"""Commands have the same results with and without shortcuts."""

import random
import re
from unittest.mock import patch

import pytest

from memlite.config import Config
from memlite.core.clock import Clock
from memlite.engine.prefixes import PrefixStats
from memlite.memory.eviction import weigh
from memlite.memory.item import FULL, line_of
from memlite.protocol.packets import Opcode
from memlite.server.execution import runner
from memlite.server.server import Server
from memlite.telemetry.counters import Counters
from tests.support.packets import count, packet, replies, store, touch
from tests.unit.server.connections.test_fast_path import START, Loop, Transport

KEYS = (b"a", b"b", b"1", b"k" * 250)
VALUES = (b"", b"0", b"7", b"99", b"100", b"18446744073709551615", b"x" * 40, b"9 ", b"v" * 600)
# 30 days is the longest that counts from now; more than 2^31 - 1 is refused.
EXPTIMES = (0,) * 8 + (1, 1, 100, 100, -1, -1, 2592000, 2592001, 2**31 - 1, 2**31, 99999999999)
TEXT = (
    b"set K F E S\r\nV\r\n", b"add K F E S\r\nV\r\n", b"replace K F E S\r\nV\r\n",
    b"append K F E S\r\nV\r\n", b"prepend K F E S\r\nV\r\n", b"cas K F E S U\r\nV\r\n",
    b"cas K F E S 99999\r\nV\r\n", b"set K F E S noreply\r\nV\r\n",
    b"get K\r\n", b"gets K\r\n", b"get K absent\r\n", b"gat E K\r\n", b"gats E K\r\n",
    b"touch K E\r\n",
    b"delete K\r\n", b"incr K 1\r\n", b"decr K 1\r\n", b"incr K 99\r\n", b"incr K 90 noreply\r\n",
    b"get a K b\r\n", b"get K  K\r\n", b"incr K  1\r\n", b"incr K 18446744073709551615\r\n",
    b"delete  K\r\n", b"touch K\r\n", b"gat E\r\n", b"gat E K a\r\n", b"delete K 0\r\n",
    b"mg\r\n", b"mg K v v\r\n", b"ms K\r\n", b"ma K\r\n", b"ma\r\n", b"add K F E\r\n",
    b"mg K v\r\n", b"mg K\r\n", b"mg K s t f v k q\r\n", b"mg K v Oabc q\r\n", b"mg K c v\r\n",
    b"ms K S\r\nV\r\n", b"ms K S F5 c\r\nV\r\n", b"ms K S q T0\r\nV\r\n", b"md K\r\n",
    b"md K q\r\n",
    b"ma K v\r\n", b"ma K MD D5\r\n", b"ma K D1 k v\r\n", b"mn\r\n", b"mn\n", b"\r\n", b"\n",
    b"flush_all\r\n", b"TICK",
)  # fmt: skip


class Client:
    """A connection to a new server, with shortcuts or, because commands are counted, without.

    Args:
        shortcuts: whether the engine has shortcuts.
        config: the server's settings.
        native: whether commands are carried out in C, if the module is compiled.
        sampled: whether all reads are sampled, whose commands are parsed without shortcuts; else
            none is.
    """

    def __init__(self, *, shortcuts, sampled=False, native=True, config=None):
        self.monotonic = 0.0
        clock = Clock(lambda: self.monotonic, lambda: START)
        with patch.object(runner, "NATIVE", runner.NATIVE if native else None):
            self.server = Server(config or Config(), [], clock=clock)
        self.server.scheduler.loop = Loop()
        if not shortcuts:
            self.server.engine.observe(PrefixStats(), None)
        sampler = self.server.sampler
        sampler.interval, sampler._random = 1 if sampled else 2**40, lambda: 0.5
        self.server.counters.sample_after(sampler.next_read())
        self.server.counters.until_slow_sample = sampler.next_read()
        self.connection = self.server.connect()
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def send(self, data):
        """Send commands; return the replies, without cas uniques, which are numbered otherwise."""
        if data == b"TICK":
            self.monotonic += 1
            self.server.clock.tick()
            return b""
        self.connection.data_received(data)
        self.server.scheduler.loop.run()
        replies = b"".join(self.transport.written)
        self.transport.written.clear()
        return self.without_uniques(replies)

    def without_uniques(self, replies):
        replies = re.sub(rb"(VALUE \S+ \d+ \d+) \d+\r", rb"\1 U\r", replies)
        return re.sub(rb"((?:HD|VA)[^\r]*) c\d+", rb"\1 cU", replies)

    def unique(self, key):
        """Return the cas unique of an item without counting anything, 0 if there is none."""
        engine = self.server.engine
        item = engine.peek(key)
        return 0 if item is None else engine.unique(item)

    @property
    def state(self):
        """Return the items and all counters."""
        table = self.server.engine.table
        stored = sorted(table.scan())
        assert table.used == sum(weigh(line_of(key), item) for key, item in stored)
        # An item that once had a cas unique may keep it, which makes it a full item.
        items = [(key, item.wire, item.state & ~FULL, item.expires) for key, item in stored]
        # Cas uniques need not have as many digits.
        names = [name for name in Counters.NAMES if not name.startswith("bytes_")]
        counted = {name: getattr(self.server.counters, name) for name in names}
        return items, counted

    @property
    def places(self):
        """Return the table's and its policy's notes about items, in queue order."""
        table = self.server.engine.table
        policy = table._policy
        ghost = policy.ghost
        return {
            "used": table.used,
            "until measured": table._until_measured,
            "queues": [queue.list() for queue in (policy._small, policy._main)],
            "bytes": (policy._small_bytes, policy._main_bytes, policy._left_bytes),
            "left": policy._left,
            "ghost": (bytes(ghost._table), bytes(ghost._next), ghost.capacity),
            "states": {key: item.state for key, item in table.scan()},
            "extras": {key: getattr(item, "extra", None) for key, item in table.scan()},
            "version": self.server.engine._version,
        }


def command(choice):
    value = choice.choice(VALUES)
    form = choice.choice(TEXT)
    if form == b"TICK":
        return form
    head, end, rest = form.partition(b"\r\n")
    for letter, text in (
        (b" K", b" " + choice.choice(KEYS)),
        (b" F ", b" %d " % choice.choice((0, 0, 5))),
        (b" E", b" %d" % choice.choice(EXPTIMES)),
        (b" S", b" %d" % len(value)),
    ):
        head = head.replace(letter, text, 1)
    return head + end + rest.replace(b"V", value)


def with_unique(data, client):
    """Fill in the cas unique that the items of conditional stores have."""
    return re.sub(
        rb"cas (\S+) ([^\r]*) U\r",
        lambda found: b"cas %b %b %d\r" % (found[1], found[2], client.unique(found[1])),
        data,
    )


in_c = pytest.mark.skipif(runner.NATIVE is None, reason="the module in C is not compiled")
both = pytest.mark.parametrize(
    "native", [pytest.param(False, id="Python"), pytest.param(True, id="C", marks=in_c)]
)


@both
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_any_commands(seed, sampled, native):
    choice = random.Random(seed)
    with_shortcuts = Client(shortcuts=True, native=native)
    without = Client(shortcuts=False, sampled=sampled)
    for _ in range(300):
        commands = [command(choice) for _ in range(choice.choice((1, 3)))]
        data = b"".join(commands) if b"TICK" not in commands else b"TICK"
        replies = [one.send(with_unique(data, one)) for one in (with_shortcuts, without)]
        assert replies[0] == replies[1], data
        assert with_shortcuts.state == without.state, data


class BinaryClient(Client):
    """A client of the binary protocol."""

    def without_uniques(self, replies):
        parts = bytearray(replies)
        at = 0
        while at < len(parts):
            parts[at + 16 : at + 24] = bytes(8)
            at += 24 + int.from_bytes(parts[at + 8 : at + 12])
        return bytes(parts)


STORES = (Opcode.SET, Opcode.SETQ, Opcode.ADD, Opcode.REPLACE, Opcode.REPLACEQ)
JOINS = (Opcode.APPEND, Opcode.APPENDQ, Opcode.PREPEND, Opcode.PREPENDQ)
COUNTS = (Opcode.INCREMENT, Opcode.INCREMENTQ, Opcode.DECREMENT, Opcode.DECREMENTQ)
BY_KEY = (
    Opcode.GET, Opcode.GETQ, Opcode.GETK, Opcode.GETKQ, Opcode.DELETE, Opcode.DELETEQ,
)  # fmt: skip
TOUCHES = (Opcode.TOUCH, Opcode.GAT, Opcode.GATQ, Opcode.GATK, Opcode.GATKQ)
BINARY_EXPTIMES = (0, 0, 0, 1, 100)
BINARY_KEYS = (b"a", b"b", b"with space", b"line\n", b"k" * 250)


def binary_command(choice):
    """Return a function from a client to a packet."""
    key = choice.choice(BINARY_KEYS)
    value = choice.choice(VALUES)
    exptime = choice.choice(BINARY_EXPTIMES)
    delta = choice.choice((0, 1, 99, 2**64 - 1))
    conditional = choice.random() < 0.15
    opcode = choice.choice((*STORES, *JOINS, *COUNTS, *BY_KEY, *TOUCHES, Opcode.NOOP))
    flags = choice.choice((0, 0, 5))
    never = choice.choice((0, 0xFFFFFFFF))

    def make(client):
        cas = client.unique(key) if conditional else 0
        if opcode in STORES:
            return store(opcode, key, value, flags, exptime, cas=cas)
        if opcode in JOINS:
            return packet(opcode, key, b"", value, cas=cas)
        if opcode in COUNTS:
            return count(opcode, key, delta, 5, never, cas=cas)
        if opcode in TOUCHES:
            return touch(opcode, key, exptime)
        return packet(opcode) if opcode is Opcode.NOOP else packet(opcode, key)

    return make


@both
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_any_binary_commands(seed, sampled, native):
    choice = random.Random(seed)
    usual = BinaryClient(shortcuts=True, native=native)
    clients = usual, BinaryClient(shortcuts=False, sampled=sampled)
    for _ in range(300):
        makers = [binary_command(choice) for _ in range(choice.choice((1, 3)))]
        tick = choice.random() < 0.03
        data = [b"TICK" if tick else b"".join(make(one) for make in makers) for one in clients]
        replies = [one.send(packets) for one, packets in zip(clients, data, strict=True)]
        assert replies[0] == replies[1], data
        assert clients[0].state == clients[1].state, data


@pytest.mark.parametrize("line", [b"gex a b\r\n", b"geX aaa\r\n", b"ge\t a b\r\n", b"ge\0 a b\r\n"])
def test_a_word_like_get_is_no_get(line):
    client = Client(shortcuts=True)
    client.send(b"set a 0 0 1\r\nx\r\n")
    assert client.send(line) == b"ERROR\r\n"


def test_flags_of_an_item_whose_key_is_no_text():
    client = Client(shortcuts=True)
    client.send(store(Opcode.SET, b"long key 77", b"abcd 0 efgh", flags=5))
    (reply,) = replies(client.send(packet(Opcode.GET, b"long key 77")))
    assert (reply.extras, reply.value) == (b"\0\0\0\5", b"abcd 0 efgh")


@pytest.mark.parametrize("value", [b"7\r\n", b"7\r\nEND\r\n", b"7\r\n8", b"\r\n7", b"7\n", b""])
@pytest.mark.parametrize("command", [b"incr a 1\r\n", b"decr a 1\r\n", b"ma a v\r\n"])
def test_numbers_that_are_followed_by_other_bytes(command, value):
    data = b"set a 0 0 %d\r\n%b\r\n%bget a\r\n" % (len(value), value, command)
    assert Client(shortcuts=True).send(data) == Client(shortcuts=False).send(data)


def test_delete_of_the_key_noreply_has_no_reply():
    data = b"set noreply 0 0 1\r\nx\r\ndelete noreply\r\nmn\r\n"
    assert Client(shortcuts=True).send(data) == Client(shortcuts=False).send(data)
    assert Client(shortcuts=True).send(b"delete noreply\r\n") == b""
