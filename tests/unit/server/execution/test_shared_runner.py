"""Commands that are carried out in C on a shared table have the results of those in Python."""

import itertools
import os
import random
import re
import select
import sys
import time
from unittest.mock import patch

import pytest

from memlite.config import MEGABYTE, Config
from memlite.core.clock import Clock
from memlite.engine.prefixes import PrefixStats
from memlite.memory.item import FETCHED, FREQUENCY
from memlite.memory.shared import Mapping
from memlite.protocol.packets import Opcode
from memlite.server.connections import native_receiver
from memlite.server.connections.shared import SharedConnection
from memlite.server.execution import records, runner
from memlite.server.execution.runner import BinaryFallback
from memlite.server.execution.shared_text import SharedTextCommands
from memlite.server.workers.board import Board
from memlite.server.workers.shared import Shared
from memlite.server.workers.worker import WorkerServer
from memlite.telemetry.counters import Counters
from tests.support.packets import count, packet, store, touch
from tests.unit.server.connections.test_fast_path import Loop, Transport
from tests.unit.server.execution import test_shortcuts
from tests.unit.server.execution.test_runs import ODD, reads
from tests.unit.server.execution.test_shortcuts import (
    Client,
    binary_command,
    command,
    with_unique,
)

pytestmark = pytest.mark.skipif(records.NATIVE is None, reason="the module in C is not compiled")

FAR = 2**40
# The table has its own clock, which cannot be stopped: nothing expires but at a tick.
TICK = 1001
EXPTIMES = (0,) * 8 + (1000, 1000, 100_000, -1, 2592000, 2592001, 2**31 - 1, 2**31, 99999999999)
SLACK = 600
ITEM = 16 * 1024


class Worker(Client):
    """A connection to a worker on a table.

    Attributes:
        bits: the bits of an item's state that are compared.

    Args:
        mapping: the table.
        board: the board of the workers, which do not communicate.
        native: whether commands are carried out in C.
        number: the worker's.
    """

    bits = FETCHED | FREQUENCY

    def __init__(self, mapping, board, *, native, number=0, cas=True):
        self.mapping, self.passed = mapping, 0
        clock = Clock(lambda: time.monotonic() + self.passed)
        config = Config(max_item_size=ITEM, disable_cas=not cas)
        with patch.object(records, "NATIVE", records.NATIVE if native else None):
            self.server = WorkerServer(
                config, [], Shared(mapping), board, number, None, tls=None, clock=clock
            )
        assert (self.server._connections.runner is not None) == native
        mapping.table.attach(number)
        self.server.scheduler.loop = Loop()
        self.server.counters.sample_after(FAR)
        self.server.counters.until_slow_sample = FAR
        self.connection = self.server.connect()
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def send(self, data):
        if data == b"TICK":
            self.passed += TICK
            self.server.clock.tick()
            return b""
        return super().send(data)

    def without_uniques(self, replies):
        """Keep the uniques, which are equal here; drop an item's remaining seconds."""
        return re.sub(rb" ([thl])\d+", rb" \1N", replies)

    @property
    def state(self):
        """Return the table's items without times, and everything that is counted."""
        table = self.mapping.table
        self.mapping.verify()
        items = {}
        for key in self.mapping.list_keys():
            stored = table.get(b"get %b\r\n" % key)
            if stored is None:  # it has been flushed
                items[key] = None
                continue
            wire, expires, unique, state, kind, extra = stored
            items[key] = wire, bool(expires), unique, state & self.bits, kind, extra
        counters = self.server.counters
        # A number of seconds need not have as many digits.
        counted = {
            name: getattr(counters, name) for name in Counters.NAMES if name != "bytes_written"
        }
        found = (
            table.evictions, table.evicted_unfetched, table.reclaimed, table.expired_unfetched,
            table.reinserted, self.mapping.used, len(self.mapping),
        )  # fmt: skip
        return items, counted, found

    @property
    def expiries(self):
        table, now = self.mapping.table, self.server.clock.now()
        found = [table.get(b"get %b\r\n" % key) for key in sorted(self.mapping.list_keys())]
        return [stored[1] and stored[1] - now for stored in found if stored is not None]


@pytest.fixture
def board():
    board = Board(2)
    yield board
    for bell in itertools.chain.from_iterable(board._bells):
        bell.close()


@pytest.fixture
def make(board):
    """Return a function that makes a worker alone on a table."""

    def make(*, megabytes=2, evicts=True, **settings):
        mapping = Mapping(megabytes * MEGABYTE, ITEM, 2, compiled=True)
        mapping.table.evicts = evicts
        return Worker(mapping, board, **settings)

    return make


@pytest.mark.skipif(native_receiver.NATIVE is None, reason="the module in C is not compiled")
@pytest.mark.parametrize("native", [True, False])
def test_input_passes_without_the_interpreter(make, native):
    in_python = []
    receive = SharedConnection.data_received

    def data_received(connection, data):
        in_python.append(data)
        receive(connection, data)

    commands = {
        b"get a\r\n": b"END\r\n",  # determines the protocol
        b"set a 0 0 1\r\nx\r\n": b"STORED\r\n",
        b"get a \r\n": b"VALUE a 0 1\r\nx\r\nEND\r\n",
        b"version\r\n": None,
        b"get a\r\n" * 2: b"VALUE a 0 1\r\nx\r\nEND\r\n" * 2,
    }
    with patch.object(SharedConnection, "data_received", data_received):
        worker = make(native=native)
        for command, reply in commands.items():
            found = worker.send(command)
            assert found == reply or reply is None
    assert in_python == (list(commands)[:1] if native else list(commands))


@pytest.fixture
def pair(make):
    """Return two workers, each alone on a table: in C, and in Python."""
    return [make(native=native) for native in (True, False)]


@pytest.fixture(autouse=True)
def times(monkeypatch):
    monkeypatch.setattr(test_shortcuts, "EXPTIMES", EXPTIMES)
    monkeypatch.setattr(test_shortcuts, "BINARY_EXPTIMES", (0, 0, 0, 1000, 100_000))


def compare(pair, data):
    """Send the same data to both; compare replies, items and counters."""
    first, second = [one.send(data) for one in pair]
    assert first == second, data
    for one, other in zip(*[one.state for one in pair], strict=True):
        assert one == other, data
    assert pair[0].expiries == pytest.approx(pair[1].expiries, abs=SLACK)
    return first


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_any_commands(pair, seed):
    choice = random.Random(seed)
    for _ in range(300):
        commands = [command(choice) for _ in range(choice.choice((1, 3)))]
        data = b"".join(commands) if b"TICK" not in commands else b"TICK"
        compare(pair, with_unique(data, pair[0]))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_commands_together(pair, seed):
    choice = random.Random(seed)
    for one in pair:
        # A gat without a shortcut counts as two uses; the cuts decide whether it has one.
        one.bits = FETCHED
    for _ in range(60):
        commands = [
            choice.choice(ODD) if choice.random() < 0.15 else command(choice)
            for _ in range(choice.choice((2, 5, 30)))
        ]
        data = with_unique(b"".join(one for one in commands if one != b"TICK"), pair[0])
        for read in reads(data, choice):
            compare(pair, read)
        compare(pair, b"\r\n" * 3)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_any_binary_commands(pair, seed):
    choice = random.Random(seed)
    for _ in range(300):
        makers = [binary_command(choice) for _ in range(choice.choice((1, 3)))]
        compare(pair, b"".join(make(pair[0]) for make in makers))
        if choice.random() < 0.03:
            compare(pair, b"TICK")


MANY = 8_000
"""A number of items for which runs look ahead."""


def fill(worker):
    stored = [b"set key%d 0 0 1 noreply\r\n1\r\n" % number for number in range(MANY)]
    for at in range(0, len(stored), 50):
        worker.send(b"".join(stored[at : at + 50]))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_commands_that_are_looked_for_in_advance(make, seed):
    choice = random.Random(seed)
    pair = [make(native=native, megabytes=4) for native in (True, False)]
    for one in pair:
        one.bits = FETCHED
        fill(one)
    for _ in range(40):
        data = []
        for _ in range(40):
            words = {
                b"k": b"key%d" % choice.randrange(2 * MANY),
                b"o": b"key%d" % choice.randrange(MANY),
            }
            data.append(choice.choice(AHEAD) % words)
        first, second = [one.send(b"".join(data)) for one in pair]
        assert first == second, data
    compare(pair, b"mn\r\n")


AHEAD = (
    b"get %(k)b\r\n", b"get %(o)b %(k)b missing %(o)b0 %(o)b\r\n", b"gets %(k)b\r\n", b"\r\n",
    b"set %(k)b 0 0 1\r\n2\r\n", b"set %(k)b 0 0 7\r\nget %(o)b\r\n", b"set get 0 0 1\r\n1\r\n",
    b"set %(k)b 0 0 3 noreply\r\n100\r\n", b"set %(k)b 0 0 nine\r\n", b"get %(k)b  %(o)b\r\n",
    b"add %(k)b 0 0 1\r\n1\r\n", b"incr %(o)b 1\r\n", b"delete %(k)b\r\n", b"mg %(k)b v k\r\n",
    b"ms %(k)b 1\r\n5\r\n", b"md %(k)b\r\n", b"ma %(o)b v\r\n", b"mn\r\n", b"nothing\r\n",
    b"append %(o)b 0 0 1\r\n1\r\n", b"touch %(o)b 0\r\n", b"get\r\n", b"gats 0 %(o)b\r\n",
    b"set %(k)b 0 -1 1\r\n1\r\n", b"incr %(o)b x\r\n", b"decr missing %(k)b\r\n",
    b"get " + b"key1 " * 99 + b"%(k)b\r\n",
)  # fmt: skip


def test_packets_that_are_looked_for_in_advance(make):
    choice = random.Random(3)
    pair = [make(native=native, megabytes=4) for native in (True, False)]
    for one in pair:
        stored = [store(Opcode.SETQ, b"key%d" % number, b"1") for number in range(MANY)]
        for at in range(0, MANY, 50):
            one.send(b"".join(stored[at : at + 50]))
    for _ in range(8):
        packets = []
        for _ in range(300):
            key = b"key%d" % choice.randrange(2 * MANY)
            packets.append(
                choice.choice((
                    store(Opcode.SET, key, b"1"), store(Opcode.SETQ, key, b"v" * 200),
                    packet(Opcode.GETKQ, key), packet(Opcode.NOOP), packet(Opcode.DELETE, key),
                    count(Opcode.INCREMENT, key, 1, 0), packet(Opcode.STAT, b"nothing"),
                ))
            )  # fmt: skip
        compare(pair, b"".join(packets))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_without_cas_uniques(make, seed):
    choice = random.Random(seed)
    pair = [make(native=native, cas=False) for native in (True, False)]
    for _ in range(150):
        compare(pair, with_unique(command(choice), pair[0]))
        compare(pair, binary_command(choice)(pair[0]))


SIZES = (10, 1000, 3000, 3000)
# In Python, others, and large values, may open a segment before they need it.
CHANGES = (
    *[b"set %(k)b 0 %(e)d %(s)d\r\n%(v)b\r\n"] * 8, b"add %(k)b 7 %(e)d %(s)d\r\n%(v)b\r\n",
    b"ms %(k)b %(s)d\r\n%(v)b\r\n",
    b"get %(k)b\r\n", b"get %(k)b\r\n", b"gets %(k)b\r\n", b"delete %(k)b\r\n", b"md %(k)b\r\n",
)  # fmt: skip


def change(choice):
    size = choice.choice(SIZES)
    return choice.choice(CHANGES) % {
        b"k": b"key%d" % choice.randrange(2000), b"e": choice.choice((0, 0, 1000, 100_000)),
        b"s": size, b"v": b"v" * size,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("evicts", [True, False], ids=["evicts", "is full"])
def test_memory_that_is_used_up(make, evicts):
    choice = random.Random(evicts)
    pair = [make(native=native, megabytes=1, evicts=evicts) for native in (True, False)]
    for _ in range(60):
        for at_once in (1, 15, 30):
            compare(pair, b"".join(change(choice) for _ in range(at_once)))
        if choice.random() < 0.1:
            compare(pair, b"TICK")
    if evicts:
        assert pair[0].mapping.table.evictions > 100
    else:
        assert pair[0].server.counters.store_no_memory > 10


@pytest.mark.parametrize("size", [0, 1, 199, 1023, 1024, 7000, 15_900, 16_200, 16_384, 16_385])
def test_values_of_any_size(pair, size):
    value = b"v" * size
    compare(pair, b"set a 7 0 %d\r\n%b\r\nset b 0 0 1\r\nx\r\n" % (size, value))
    compare(pair, b"get a\r\n")
    compare(pair, b"get a a b\r\nget b\r\nget a\r\nmg a s v f\r\ngets a\r\ngat 0 a\r\nmn\r\n")
    compare(pair, b"append a 0 0 3\r\nabc\r\nprepend a 0 0 2\r\nde\r\nmg a s v\r\n")
    compare(pair, b"set a 7 0 %d\r\n%b\r\n" % (size, value))
    compare(pair, b"get a b\r\n" * 19 + b"mn\r\n")
    compare(pair, b"get " + b"a " * 255 + b"b\r\nget a\r\n")
    compare(pair, b"get " + b"a " * 256 + b"b\r\nget a\r\n" * 30)


@pytest.mark.parametrize("length", [1, 249, 250, 251])
@pytest.mark.parametrize("flags", [b"", b" v k", b" k Oab q", b" b v k", b" s c t h l"])
def test_keys_of_any_length(pair, length, flags):
    key = b"k" * length
    for form in (b"mg K%b", b"md K%b", b"ma K%b", b"ms K 1%b\r\nx", b"mg K%b", b"me K%b"):
        compare(pair, form.replace(b"K", key) % flags + b"\r\nmn\r\n")


def test_items_that_expire_and_a_flush_that_is_pending(pair):
    for data in (
        b"set a 0 1000 1\r\n1\r\ntouch a 2000\r\nmg a t v\r\n", b"TICK", b"incr a 1\r\nmg a t\r\n",
        b"TICK", b"get a\r\nincr a 1\r\ntouch a 5000\r\n",
        b"set a 0 0 1\r\n1\r\nflush_all 2000\r\nget a\r\nmg a\r\n", b"TICK",
        b"get a\r\nincr a 1\r\n", b"TICK",
        b"get a b\r\nincr a 1\r\nset a 0 0 1\r\n1\r\nmg a v\r\n", b"flush_all\r\ndelete a\r\n",
        b"add a 0 0 1\r\n2\r\nget a\r\nflush_all\r\nset a 0 0 1\r\n3\r\nappend a 0 0 1\r\n4\r\n",
    ):  # fmt: skip
        compare(pair, data)


USUAL = (
    b"get a\r\n", b"get b a\r\n", b"get x\r\n", b"gets a x\r\n", b"set a 0 0 1\r\n7\r\n",
    b"set b 1 1000 1 noreply\r\n7\r\n", b"add a 0 0 1\r\n7\r\n", b"add x 0 0 1\r\n7\r\n",
    b"replace a 0 0 1\r\n7\r\n", b"replace x 0 1000 1\r\n7\r\n", b"append a 0 0 1\r\n7\r\n",
    b"prepend x 0 0 1\r\n7\r\n", b"cas a 0 0 1 5\r\n7\r\n", b"cas x 0 0 1 5\r\n7\r\n",
    b"cas a 0 0 1 U\r\n7\r\n", b"incr a 1\r\n", b"decr a 1 noreply\r\n", b"incr x 1\r\n",
    b"delete a\r\n", b"delete x\r\n", b"touch a 1000\r\n", b"touch x 0\r\n", b"gat 0 b\r\n",
    b"gat 1000 x\r\n", b"mg a s v t f k c Oabc\r\n", b"mg b t\r\n", b"mg x v\r\n",
    b"ms a 1\r\n7\r\n", b"ms x 1 F5 T0 Oabc k\r\n7\r\n", b"md a q\r\n", b"md x\r\n", b"ma a\r\n",
    b"ma a v\r\n", b"ma x v\r\n", b"ma a D5 MD q\r\n", b"ma a Oabc k v\r\n", b"mn\r\n",
)  # fmt: skip


@pytest.mark.parametrize("usual", USUAL)
def test_commands_that_need_no_python(make, usual):
    worker = make(native=True)
    worker.send(b"set a 0 0 2\r\n10\r\nset b 0 1000 1\r\nx\r\n")
    run = worker.server._connections.runner.text
    data = with_unique(usual, worker)
    with (
        patch.dict(runner.SHORTCUTS, clear=True),
        patch.object(SharedTextCommands, "try_get") as get,
    ):
        assert run(data, []) is not None
    assert not get.called


PACKETS = (
    packet(Opcode.GET, b"a"), packet(Opcode.GETK, b"b"), packet(Opcode.GETQ, b"x"),
    packet(Opcode.GETKQ, b"a"), store(Opcode.SET, b"a", b"7"), store(Opcode.SETQ, b"x", b"7"),
    store(Opcode.SET, b"b", b"7", exptime=1000), packet(Opcode.APPEND, b"a", b"", b"7"),
    packet(Opcode.PREPENDQ, b"a", b"", b"7"), count(Opcode.INCREMENT, b"a", 1, 0),
    count(Opcode.DECREMENTQ, b"a", 1, 0), packet(Opcode.DELETE, b"a"),
    packet(Opcode.DELETEQ, b"x"), touch(Opcode.TOUCH, b"a", 1000),
    touch(Opcode.TOUCH, b"b", 1000), packet(Opcode.NOOP),
)  # fmt: skip


@pytest.mark.parametrize("usual", PACKETS)
def test_packets_that_need_no_python(make, usual):
    worker = make(native=True)
    worker.send(store(Opcode.SET, b"a", b"10") + store(Opcode.SET, b"b", b"x", exptime=1000))
    with patch.object(BinaryFallback, "__call__") as counterpart:
        assert worker.server._connections.runner.binary(usual, []) is not None
    assert not counterpart.called


def test_commands_that_are_observed(pair):
    stats = [PrefixStats(), PrefixStats()]
    for one in pair:
        one.send(b"set p:a 0 0 1\r\n1\r\n")
    for worker, observer in zip(pair, stats, strict=True):
        worker.server.engine.observe(observer, None)
    compare(pair, b"get p:a\r\nincr p:a 1\r\nmg p:a v\r\nget p:a p:b\r\n" * 30)
    assert stats[0].counts() == stats[1].counts()
    assert stats[0].counts()[b"p"][0] > 0
    for worker in pair:
        worker.server.engine.observe(None, None)
    compare(pair, b"get p:a\r\nincr p:a 1\r\n" * 30)


def test_no_reference_is_lost(make):
    worker = make(native=True)
    choice = random.Random(3)
    lines = [command(choice) for _ in range(1000)]
    data = b"".join(one for one in lines if one != b"TICK" and b"U\r" not in one)
    usual = b"".join(one for one in USUAL if b"U\r" not in one)

    def rounds(number):
        for _ in range(number):
            worker.send(usual)
            worker.send(data)

    rounds(20)
    blocks = sys.getallocatedblocks()
    rounds(50)
    assert sys.getallocatedblocks() - blocks < 500


def test_other_objects_than_tables_are_refused(make):
    worker = make(native=True)
    engine = worker.server.engine
    with pytest.raises(TypeError):
        records.NATIVE.Runner(engine, engine, print, print, [], 20)
    with pytest.raises(TypeError):
        worker.server._connections.runner.__init__(engine, engine.table_in_c, print, print, [], 20)
    with pytest.raises(TypeError):
        records.NATIVE.Runner()


def test_two_processes(make, board):
    """One process in C, one in Python, on few keys: no change is lost, and no value is torn."""
    first = make(native=True)
    other = Worker(first.mapping, board, native=False, number=1)
    first.mapping.table.attach(0)
    rounds, keys = 400, 3
    start = b"".join(
        b"set n%d 0 0 6\r\n0     \r\nset j%d 0 0 0\r\n\r\n" % (n, n) for n in range(keys)
    )
    first.send(start)

    def work(worker, letter):
        choice = random.Random(letter)
        won = 0
        for number in range(rounds):
            n = choice.randrange(keys)
            size = choice.randrange(300)
            value = letter * size
            replies = worker.send(
                b"incr n%d 1\r\nappend j%d 0 0 1\r\n%b\r\nadd u%d 0 0 1\r\nx\r\n"
                b"set t 0 0 %d\r\n%b\r\nget t\r\nget t n0 t\r\n"
                % (n, n, letter, number, size, value)
            )
            won += replies.split(b"\r\n")[2] == b"STORED"
            for found in re.findall(rb"VALUE t 0 (\d+)\r\n(\w*)\r\n", replies):
                assert int(found[0]) == len(found[1])
                assert len(set(found[1])) <= 1
        return won

    child = os.fork()
    if not child:
        try:
            first.mapping.table.attach(1)
            os._exit(100 + (work(other, b"b") + rounds) % 100)
        finally:
            os._exit(1)
    first.mapping.table.attach(0)
    won = work(first, b"a")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code >= 100, "the other process has failed"
    assert (won + code - 100) % 100 == rounds % 100, "each key was added once"
    values = first.send(b"get " + b" ".join(b"n%d j%d" % (n, n) for n in range(keys)) + b"\r\n")
    numbers = re.findall(rb"VALUE n\d 0 6\r\n(\d+) *\r\n", values)
    joined = re.findall(rb"VALUE j\d 0 \d+\r\n(\w*)\r\n", values)
    assert sum(map(int, numbers)) == 2 * rounds
    assert sorted(b"".join(joined)) == sorted(b"ab" * rounds)
    first.mapping.verify()


@pytest.mark.parametrize(
    "change", [b"incr n 1\r\n", b"append n 0 0 0\r\n\r\n"], ids=["incr", "append"]
)
def test_a_touch_is_not_undone_by_a_change_in_another_process(make, board, change):
    """Half of the changes are made in C, half in Python; a few touches in a thousand meet one."""
    first = make(native=True)
    others = [Worker(first.mapping, board, native=native, number=1) for native in (True, False)]
    first.mapping.table.attach(0)
    first.send(b"set n 0 2000000000 10\r\n0         \r\n")
    table, line, lost = first.mapping.table, b"get n\r\n", 0
    going, gone = os.pipe()
    child = os.fork()
    if not child:
        try:
            table.attach(1)
            os.close(gone)
            ended = select.poll()
            ended.register(going)
            while not ended.poll(0):
                for other in others:
                    other.send(change * 50)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(going)
    for number in range(20_000):
        expires = 2000000001 + number
        assert first.send(b"touch n %d\r\n" % expires) == b"TOUCHED\r\n"
        lost += any(table.get(line)[1] != expires for _ in range(2))
    os.close(gone)
    _, status = os.waitpid(child, 0)
    assert (lost, os.waitstatus_to_exitcode(status)) == (0, 0)
