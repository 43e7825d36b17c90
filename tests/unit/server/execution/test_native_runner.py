"""Commands that are carried out in C have the results of those in Python."""

import contextlib
import random
import sys
import time
from unittest.mock import patch

import pytest

from memlite.config import Config
from memlite.core.build import running_build
from memlite.engine.prefixes import PrefixStats
from memlite.protocol.packets import Opcode
from memlite.server.connections.intake import FULL_READ
from memlite.server.execution import runner
from tests.support.packets import count, packet, store
from tests.unit.server.execution.test_shortcuts import BinaryClient, Client, command, in_c

pytestmark = in_c

SMALL = Config(memory_limit=1)
FULL = Config(memory_limit=1, disable_evictions=True)


def clients(kind=Client, config=None):
    return [kind(shortcuts=True, native=native, config=config) for native in (True, False)]


def compare(pair, data):
    """Send the same data to both; compare replies, items and counters."""
    first, second = [one.send(data) for one in pair]
    assert first == second, data
    assert pair[0].state == pair[1].state, data
    assert pair[0].places == pair[1].places, data
    return first


def test_a_run_needs_no_parser():
    client = Client(shortcuts=True)
    client.send(b"set a 0 0 1\r\nx\r\n")

    def receive(*arguments):
        raise AssertionError(arguments)

    client.connection.parser = type("No", (), {"receive": receive, "in_command": False})()
    data = b"mg a v\r\nset a 0 0 1\r\ny\r\nget a b\r\nincr a 1\r\nms a 2\r\n10\r\n"
    assert client.send(data).endswith(b"HD\r\n")
    assert client.send(b"ma a v\r\ndelete b\r\nmn\r\n") == b"VA 2\r\n11\r\nNOT_FOUND\r\nMN\r\n"


@pytest.mark.parametrize("config", [SMALL, FULL], ids=["evicts", "is full"])
def test_memory_that_is_used_up(config):
    choice = random.Random(1)
    pair = clients(config=config)
    for _ in range(60):
        sizes = [choice.choice((10, 300, 5000, 20_000)) for _ in range(15)]
        keys = [b"key%d" % choice.randrange(150) for _ in sizes]
        stores = [
            b"%b %b 0 0 %d\r\n%b\r\n"
            % (choice.choice((b"set", b"append", b"add")), key, size, b"v" * size)
            for key, size in zip(keys, sizes, strict=True)
        ]
        compare(pair, b"".join(stores) + b"get " + b" ".join(keys) + b"\r\n")
    counters = pair[0].server.counters
    assert counters.evictions if config is SMALL else counters.store_no_memory


def change(choice):
    key = b"key%d" % choice.randrange(1500)
    size = choice.choice((10, 300, 1000, 3000))
    expiry = choice.choice((0, 0, 100, 3, 3_000_000))
    return choice.choice(CHANGES) % {b"k": key, b"e": expiry, b"s": size, b"v": b"v" * size}


CHANGES = (
    *[b"set %(k)b 0 %(e)d %(s)d\r\n%(v)b\r\n"] * 8, b"add %(k)b 7 %(e)d %(s)d\r\n%(v)b\r\n",
    b"replace %(k)b 0 %(e)d %(s)d\r\n%(v)b\r\n", b"ms %(k)b %(s)d\r\n%(v)b\r\n",
    b"get %(k)b\r\n", b"get %(k)b\r\n", b"gets %(k)b\r\n", b"delete %(k)b\r\n", b"md %(k)b\r\n",
    b"touch %(k)b %(e)d\r\n", b"gat %(e)d %(k)b\r\n", b"append %(k)b 0 0 1\r\nx\r\n",
)  # fmt: skip


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("full", [True, False])
def test_what_the_table_notes_while_it_evicts(seed, full):
    choice = random.Random(seed)
    pair = clients(config=Config(memory_limit=1 if full else 64))
    for _ in range(120):
        data = [change(choice) for _ in range(50)]
        # Each unique that is shown is one higher, in both; so is that of an evicted key.
        at_once = choice.choice((1, 15, 50))
        for at in range(0, 50, at_once):
            first, second = [one.send(b"".join(data[at : at + at_once])) for one in pair]
            assert first == second
        compare(pair, choice.choice((b"mn\r\n", b"TICK")))
    counters = pair[0].server.counters
    assert counters.evictions > 100 or not full
    assert counters.delete_hits > 100


EVICTED = (
    *[b"set %(k)b 0 0 %(s)d\r\n%(v)b\r\n"] * 6, b"set %(k)b %(f)d %(e)d %(s)d\r\n%(v)b\r\n",
    *[b"get %(k)b\r\n"] * 3, b"get %(k)b\r\nget %(k)b\r\nget %(k)b\r\n", b"delete %(k)b\r\n",
    b"ms %(k)b %(s)d T%(e)d F%(f)d\r\n%(v)b\r\n", b"md %(k)b I\r\n", b"mg %(k)b v N30\r\n",
    b"gets %(k)b\r\n", b"gat %(e)d %(k)b\r\n", b"add %(k)b 0 0 %(s)d\r\n%(v)b\r\n",
)  # fmt: skip


def evict(choice, keys, sizes):
    size = choice.choice(sizes)
    return choice.choice(EVICTED) % {
        b"k": b"key%d" % choice.randrange(keys), b"f": choice.choice((0, 1, 2**32 - 1)),
        b"e": choice.choice((0, 1, 2, 1000)), b"s": size, b"v": b"v" * size,
    }  # fmt: skip


class Watcher:
    wants_commands = False

    def __init__(self):
        self.gone = []
        self.fetched = self.stored = self.deleted = lambda *arguments: None

    def evicted(self, key, item):
        self.gone.append((key, item.wire, item.state))


@pytest.mark.parametrize(
    ("megabytes", "sizes"),
    [
        (1, (10, 300, 3000)),
        pytest.param(1, (9000, 40_000, 70_000), marks=pytest.mark.slow),
        pytest.param(32, (60_000,), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("watched", [False, True])
def test_evicted_items_are_the_same_ones_and_are_counted_and_shown(megabytes, sizes, watched):
    choice = random.Random(megabytes)
    pair = clients(config=Config(memory_limit=megabytes))
    watchers = [Watcher(), Watcher()]
    keys = 3 * megabytes * 2**20 // (sum(sizes) // len(sizes))
    size = sizes[-1]
    for at in range(0, megabytes * 2**20, 10 * size):  # until it is full
        fill = [
            b"set fill%d 0 0 %d\r\n%b\r\n" % (number, size, b"v" * size)
            for number in range(at, at + 10)
        ]
        compare(pair, b"".join(fill))
    for turn in range(60):
        data = b"".join([evict(choice, keys, sizes) for _ in range(choice.choice((1, 16, 40)))])
        if watched and turn == 20:
            for one, watcher in zip(pair, watchers, strict=True):
                one.server.engine.observe(None, watcher)
        first, second = [one.send(data) for one in pair]
        assert first == second, data
        compare(pair, choice.choice((b"mn\r\n", b"mn\r\n", b"TICK")))
        counts = [one.server.engine.sizes.evictions for one in pair]
        assert counts[0] == counts[1]
        assert watchers[0].gone == watchers[1].gone
        if turn == 40:
            for one in pair:
                one.server.engine.sizes.reset()
    assert pair[0].server.counters.evictions > 20
    assert bool(watchers[0].gone) is watched


without_aborts = pytest.mark.skipif(
    running_build() == "compiled", reason="code compiled by mypyc aborts when memory runs out"
)


@without_aborts
def test_memory_that_runs_out_while_something_is_evicted():
    testcapi = pytest.importorskip("_testcapi")
    choice = random.Random(5)
    client = Client(shortcuts=True, config=SMALL)
    table, run = client.server.engine.table, client.connection._services.runner.text
    policy, failed = table._policy, 0
    for number in range(1500):
        keys = [b"key%d" % choice.randrange(600) for _ in range(6)]
        data = b"".join([
            b"set %b 0 0 3000\r\n%b\r\nget %b\r\nget %b\r\n" % (keys[0], b"v" * 3000, *keys[1:3]),
            b"get %b %b\r\ndelete key%d\r\n" % (*keys[1:3], number % 600),
            b"".join(b"set %b 0 0 3000\r\n%b\r\n" % (key, b"w" * 3000) for key in keys),
        ])  # fmt: skip
        table._until_measured = 2**30  # measuring is left to Python
        out = []
        if number > 300:  # one of the first allocations fails
            testcapi.set_nomemory(number % 30 + 1, number % 30 + 2)
        try:
            run(data, out)
        except MemoryError:
            failed += 1
        finally:
            testcapi.remove_mem_hooks()
        places = [*policy._small.list(), *policy._main.list()]
        lines = [b"get %b\r\n" % key for key, _ in table.scan()]
        assert sorted(places) == sorted([*lines, *policy._left])
        client.send(b"mn\r\n")
        assert policy._small_bytes + policy._main_bytes == table.used
        assert client.state
    assert failed > 200  # on Python 3.14 there are fewer allocations: it keeps freed ints
    assert client.server.counters.evictions > 500


def test_evictions_need_no_python():
    client = Client(shortcuts=True, config=SMALL)
    stored = [b"set key%d 0 0 1000\r\n%b\r\n" % (n, b"v" * 1000) for n in range(2000)]
    for at in range(0, 1000, 16):
        client.send(b"".join(stored[at : at + 16]))
    counters = client.server.counters
    before = counters.evictions
    assert before
    table = client.server.engine.table
    table._until_measured = 2**30
    with patch.object(type(table), "put", side_effect=AssertionError):
        for at in range(1008, 1056, 16):
            client.send(b"".join(stored[at : at + 16]))
    assert counters.evictions >= before + 40


def test_a_table_that_evicts_loses_no_reference():
    client = Client(shortcuts=True, config=SMALL)
    choice = random.Random(5)

    def rounds(number):
        for _ in range(number):
            size = choice.choice((100, 900))
            commands = [
                b"set key%d 0 %d %d\r\n%b\r\nget key%d\r\n"
                % (choice.randrange(4000), choice.choice((0, 0, 9)), size, b"v" * size, key)
                for key in range(15)
            ]
            client.send(b"".join(commands))

    rounds(1200)
    table = client.server.engine.table
    objects = [sys.getallocatedblocks() - 4 * len(table)]
    assert client.server.counters.evictions
    rounds(1200)
    objects.append(sys.getallocatedblocks() - 4 * len(table))
    assert objects[1] - objects[0] < 3000


@pytest.mark.parametrize("seed", range(3))
def test_what_the_table_notes_of_binary_commands(seed):
    choice = random.Random(seed)
    pair = clients(BinaryClient, Config(memory_limit=1))
    for _ in range(60):
        packets = []
        for _ in range(50):
            key, value = b"key%d" % choice.randrange(1500), b"v" * choice.choice((10, 1000, 5000))
            packets.append(
                choice.choice((
                    store(Opcode.SET, key, value), store(Opcode.SETQ, key, value),
                    store(Opcode.SET, key, value), packet(Opcode.DELETE, key),
                    packet(Opcode.DELETEQ, key), packet(Opcode.GET, key),
                ))
            )  # fmt: skip
        compare(pair, b"".join(packets))
    assert pair[0].server.counters.evictions > 100


@pytest.mark.parametrize(
    "size", [0, 1, 199, 200, 201, 1023, 1024, 16_384, 16_385, 70_000, 140_000, 1_048_300]
)
def test_values_of_any_size(size):
    pair = clients()
    value = b"v" * size
    compare(pair, b"set a 7 0 %d\r\n%b\r\nset b 0 0 1\r\nx\r\n" % (size, value))
    compare(pair, b"get a\r\n")
    compare(pair, b"get a a b\r\nget b\r\nget a\r\nmg a s v f\r\ngets a\r\ngat 0 a\r\nmn\r\n")
    compare(pair, b"append a 0 0 3\r\nabc\r\nprepend a 0 0 2\r\nde\r\nmg a s v\r\n")
    compare(pair, b"get a b\r\n" * 19 + b"mn\r\n")
    compare(pair, b"set a 7 0 %d\r\n%b\r\n" % (size, value))


@pytest.mark.parametrize(
    ("value", "change", "stored"),
    [
        (b"100", b"incr a 1\r\n", b"101"),
        (b"100", b"decr a 1\r\n", b"99 "),
        (b"old", b"set a 0 0 3\r\nnew\r\n", b"new"),
        (b"old", b"ms a 3\r\nnew\r\n", b"new"),
        (b"old", b"replace a 0 0 3\r\nnew\r\n", b"new"),
    ],
)
@pytest.mark.parametrize("held", [False, True])
def test_sent_values_stay_when_the_item_changes_in_place(value, change, stored, held):
    one, _ = clients()
    one.send(b"set a 0 0 3\r\n%b\r\n" % value)
    before = one.server.engine.peek(b"a").wire
    sent = bytes(memoryview(before))
    address = id(before)
    if not held:
        del before
    one.send(change)
    after = one.server.engine.peek(b"a").wire
    assert after == sent.replace(value, stored)
    if held:
        assert before == sent
        assert after is not before
    else:
        assert id(after) == address


ENDS = (
    b"",
    b"ge",
    b"get a",
    b"version\r\n",
    b"set a 0 0 5\r\nab",
    b"quit\r\n",
    b"\n",
    b"get a\r\n",
)


@pytest.mark.parametrize("count", [19, 20, 21, 39, 40, 41, 100])
@pytest.mark.parametrize("end", ENDS)
def test_turns(count, end):
    pair = clients()
    data = b"set a 0 0 5\r\nvalue\r\n" + b"get a\r\n" * (count - 1) + end
    compare(pair, data)
    assert pair[0].server.counters.bytes_read == pair[1].server.counters.bytes_read
    assert pair[0].server._intake.held == pair[1].server._intake.held == 0
    if end != b"quit\r\n":
        compare(pair, b"get b\r\n")
        compare(pair, b"xyz\r\nget a\r\n" * 30)


@pytest.mark.parametrize("kind", [Client, BinaryClient])
def test_commands_after_one_in_two_reads_need_no_parser(kind):
    one = b"get key\r\n" if kind is Client else packet(Opcode.GET, b"key")
    for cut in range(1, len(one)):
        pair = clients(kind)
        compare(pair, one)
        compare(pair, one[:cut])
        compare(pair, one[cut:] + 5 * one)
        assert pair[0].connection._services.runner.served == 6


def compare_in_reads(pair, parts):
    for part in parts:
        compare(pair, part)
    first, second = [one.server for one in pair]
    assert first.counters.bytes_read == second.counters.bytes_read
    assert first._intake.held == second._intake.held == 0


@pytest.mark.parametrize("kind", [Client, BinaryClient])
def test_commands_in_two_reads(kind):
    data = b"".join([
        b"set a 0 0 4\r\ny\r\nz\r\nget a b\r\nmg a v\r\nnothing\r\nget a\r\n",
        b"set  b 7 0 2  noreply \nxy\r\nms a 3 F5 k\r\nabc\r\nset a 0 0 3\r\nab\r\n\n",
        b"add n 1 0 1 x\r\n2\r\nset a 0 0 2\r\nxyzget a\r\nms a 2 I\r\nxyzmn\r\n",
        b"append a 0 0 1\r\nx\r\ncas a 0 0 1 7\r\ny\r\nset a 0 0 x\r\n",
        b"ms a 2 q\r\nuv\r\nget b a\r\n",
    ])  # fmt: skip
    if kind is BinaryClient:
        data = b"".join([
            store(Opcode.SET, b"a", b"y"), packet(Opcode.GETK, b"a"), packet(Opcode.NOOP),
            store(Opcode.ADDQ, b"line\n", b"xyz"), packet(Opcode.APPEND, b"a", value=b"12"),
            store(Opcode.REPLACE, b"no", b"xyz"), packet(0x7E, b"a", value=b"unknown"),
            packet(Opcode.GETKQ, b"line\n"), packet(Opcode.GETK, b"a"),
        ])  # fmt: skip
    pair = clients(kind)
    for cut in range(1, len(data)):
        compare_in_reads(pair, (data[:cut], data[cut:]))


def stores_of(kind, size):
    """Return some stores of values of a size, and a retrieval of one."""
    if kind is BinaryClient:
        stores = [store(Opcode.SET, b"key%d" % number, b"v" * size) for number in range(3)]
        return b"".join(stores) + packet(Opcode.GETK, b"key1")
    stores = [b"set key%d 0 0 %d\r\n%b\r\n" % (number, size, b"v" * size) for number in range(2)]
    return b"".join(stores) + b"ms key2 %d\r\n%b\r\nget key1\r\n" % (size, b"v" * size)


@pytest.mark.parametrize("kind", [Client, BinaryClient])
@pytest.mark.parametrize("size", [100, 5000, 65_533, 65_536, 1024 * 1024 + 1])
def test_values_in_several_reads(kind, size):
    pair = clients(kind)
    data = stores_of(kind, size)
    for at_once in (size // 3 + 7, size + 1, size * 2):
        parts = [data[at : at + at_once] for at in range(0, len(data), at_once)]
        compare_in_reads(pair, parts)


@pytest.mark.parametrize("kind", [Client, BinaryClient])
@pytest.mark.parametrize("size", [100, 4000])
def test_stores_in_many_reads_need_no_parser(kind, size):
    """Only the beginnings of values need it."""
    client = kind(shortcuts=True)
    client.send(packet(Opcode.NOOP) if kind is BinaryClient else b"mn\r\n")
    data = stores_of(kind, size) * 100
    runner = client.connection._services.runner
    stored = []
    for at in range(0, len(data), 10_000):
        with patch.object(type(client.connection.executor), "execute") as execute:
            client.send(data[at : at + 10_000])
        stored += execute.call_args_list
        assert runner.served
    assert not stored
    assert client.server.counters.cmd_set == 300
    assert client.server.counters.hits == 100


def test_later_turns_need_no_parser():
    client = Client(shortcuts=True)
    client.send(b"set a 0 0 1\r\nx\r\n")
    parser = client.connection.parser
    with patch.object(type(parser), "receive", side_effect=AssertionError):
        assert client.send(b"get a\r\n" * 1000) == b"VALUE a 0 1\r\nx\r\nEND\r\n" * 1000
    assert client.server.counters.conn_yields == 49
    assert client.connection.parser is parser


@pytest.mark.parametrize("native", [True, False])
def test_between_two_turns(native):
    client = Client(shortcuts=True, native=native)
    client.send(b"set a 0 0 1\r\nx\r\n")
    connection, counters = client.connection, client.server.counters
    read = counters.bytes_read
    connection.data_received(b"get a\r\n" * 50 + b"mn\r\n")
    assert connection.busy
    assert client.server._intake.held == 50 * 7 + 4
    connection.data_received(b"mg a\r\n" * 50)  # input that arrives meanwhile follows it
    assert counters.bytes_read == read + 50 * 7 + 4 + 50 * 6
    connection.pause_writing()
    replies = client.send(b"md a\r\nget a\r\n")
    assert replies == b"VALUE a 0 1\r\nx\r\nEND\r\n" * 20
    connection.resume_writing()
    rest = client.send(b"mn\r\n")
    assert rest == (
        b"VALUE a 0 1\r\nx\r\nEND\r\n" * 30 + b"MN\r\n" + b"HD\r\n" * 51 + b"END\r\nMN\r\n"
    )
    assert client.server._intake.held == 0
    assert not connection.busy
    connection.data_received(b"get b\r\n" * 50)
    connection.connection_lost(None)
    client.server.scheduler.loop.run()
    assert client.server._intake.held == 0


def test_commands_that_are_observed_from_the_next_turn_on():
    client = Client(shortcuts=True)
    client.send(b"set p:a 0 0 1\r\nx\r\n")
    client.connection.data_received(b"get p:a\r\n" * 50)
    stats = PrefixStats()
    client.server.engine.observe(stats, None)
    client.send(b"get p:a\r\n" * 50)
    assert client.server.counters.hits == 100
    assert stats.counts() == {b"p": [80, 80, 0, 0]}


@pytest.mark.parametrize("length", [1, 249, 250, 251])
@pytest.mark.parametrize("flags", [b"", b" v k", b" k Oab q", b" b v k", b" s c t h l"])
def test_keys_of_any_length(length, flags):
    pair = clients()
    key = b"k" * length
    for form in (b"mg K%b", b"md K%b", b"ma K%b", b"ms K 1%b\r\nx", b"mg K%b", b"me K%b"):
        compare(pair, form.replace(b"K", key) % flags + b"\r\nmn\r\n")


def test_items_that_expire_and_a_flush_that_is_pending():
    pair = clients()
    for data in (
        b"set a 0 1 1\r\n1\r\ntouch a 2\r\nmg a t v\r\n", b"TICK", b"incr a 1\r\nmg a t\r\n",
        b"TICK", b"get a\r\nincr a 1\r\ntouch a 5\r\n",
        b"set a 0 0 1\r\n1\r\nflush_all 2\r\nget a\r\nmg a\r\n", b"TICK", b"get a\r\nincr a 1\r\n",
        b"TICK", b"get a b\r\nincr a 1\r\nset a 0 0 1\r\n1\r\nmg a v\r\n",
    ):  # fmt: skip
        compare(pair, data)


def test_no_reference_is_lost():
    client, binary = Client(shortcuts=True), BinaryClient(shortcuts=True)
    choice = random.Random(3)
    lines = [
        one
        for one in (command(choice) for _ in range(4000))
        if one != b"TICK" and b"U\r" not in one
    ]
    usual = b"".join([
        b"set n 0 0 2\r\n10\r\nincr n 1\r\ndecr n 1\r\nmg n s v f t k\r\nma n v\r\nget n x n\r\n",
        b"gets n\r\ntouch n 0\r\ngat 0 n\r\nadd n 0 0 1\r\nx\r\nreplace n 0 0 2\r\n77\r\n",
        b"ms n 2 F3 Oa k\r\n55\r\ncas n 0 0 1 3\r\nx\r\ndelete zz\r\nmd zz\r\nmn\r\n",
    ])  # fmt: skip
    packets = b"".join([
        store(Opcode.SET, b"n", b"10"), packet(Opcode.GET, b"n"), packet(Opcode.GETKQ, b"n"),
        count(Opcode.INCREMENT, b"n", 1, 0), packet(Opcode.GETK, b"zz"),
        packet(Opcode.APPEND, b"n"), packet(Opcode.DELETE, b"zz"), packet(Opcode.NOOP),
    ])  # fmt: skip

    def rounds(number):
        for _ in range(number):
            client.send(usual)
            binary.send(packets)
        for at in range(0, len(lines), 10):
            client.send(b"".join(lines[at : at + 10]))

    rounds(100)
    rounds(100)
    blocks = sys.getallocatedblocks()
    rounds(4000)
    assert sys.getallocatedblocks() - blocks < 500


@pytest.mark.parametrize("begin", [-1, 8, 2**70])
def test_a_position_beyond_the_input_is_refused(begin):
    found = Client(shortcuts=True).connection._services.runner
    with pytest.raises((ValueError, OverflowError)):
        found.text(b"get a\r\n", [], begin)
    assert found.text(b"get a\r\n", [], 7) == b""


@pytest.mark.parametrize(
    "arguments", [(), (b"get a\r\n",), ("get a\r\n", []), (bytearray(b"get a\r\n"), []), (b"", ())]
)
def test_other_types_of_input_are_refused(arguments):
    found = Client(shortcuts=True).connection._services.runner
    with pytest.raises(TypeError):
        found.text(*arguments)
    assert found.text(b"get a\r\n", []) == b"END\r\n"


def test_a_runner_is_made_once():
    found = Client(shortcuts=True).connection._services.runner
    with pytest.raises(TypeError):
        found.__init__(None)
    with pytest.raises(TypeError):
        runner.NATIVE.Runner()


def test_replies_of_a_failed_command_are_dropped():
    failing = Client(shortcuts=True)
    found = failing.connection._services.runner

    def fail(text, words, data, position):
        text.out.append(b"STORED\r\n")
        raise MemoryError

    with patch.dict(runner.SHORTCUTS, {b"verbosity": fail}), pytest.raises(MemoryError):
        found.text(b"mn\r\nverbosity 1\r\n", [])
    assert found.text(b"mn\r\n", []) == b"MN\r\n"


def test_a_run_within_a_run_is_refused():
    client = Client(shortcuts=True)
    found = client.connection._services.runner
    failures = []

    def again(text, words, data, position):
        with pytest.raises(RuntimeError) as failure:
            found.text(b"mn\r\n", [])
        failures.append(failure.value)
        return 0

    with patch.dict(runner.SHORTCUTS, {b"verbosity": again}):
        out = []
        assert found.text(b"mn\r\nverbosity 1\r\n", out) is None
    assert (len(failures), found.position, found.served, out) == (1, 4, 1, [b"MN\r\n"])


@pytest.mark.parametrize("native", [True, False])
def test_a_flooding_client_is_slowed_down_in_c_and_python(native):
    client = Client(shortcuts=True, native=native)
    slowed = []
    client.connection._services.intake.slow_down = slowed.append
    client.send(b"get a\r\n" * (FULL_READ // 7 + 1))
    assert slowed == [client.transport]


MORE = (
    b"get %(k)b %(k)b0 key1 missing key1 %(k)b\r\n", b"mg %(k)b s v q k\r\n", b"ma %(k)b v\r\n",
    b"gat 100 key1 %(k)b missing %(k)b key7 key8\r\n", b"gats 0 key%(k)b key2 key3 %(k)b\r\n",
    b"get %(k)b  key2\r\n", b"gats 10 %(k)b\r\n", b"set %(k)b 0 0 nine\r\n", b"nothing\r\n",
    b"set %(k)b 0 0 3\r\nabcde\r\n", b"set get 0 0 7\r\nget %(k)b\r\n", b"\r\n", b"mg  v\r\n",
    b"get " + b" ".join(b"key%d" % number for number in range(0, 1500, 11)) + b"\r\n",
)  # fmt: skip


MANY = 10_500
"""A number of items for which runs look ahead."""


@pytest.mark.parametrize("items", [MANY, 23_000], ids=["one dict", "many dicts"])
def test_commands_that_are_looked_for_in_advance(items):
    choice = random.Random(items)
    pair = clients()
    keys = [b"key%d" % number for number in range(items)]
    for at in range(0, items, 50):
        for one in pair:
            one.send(b"".join(b"set %b 0 0 1 noreply\r\n1\r\n" % key for key in keys[at : at + 50]))
    compare(pair, b"TICK")
    for _ in range(60):
        data = [
            change(choice) if choice.random() < 0.8
            else choice.choice(MORE) % {b"k": b"key%d" % choice.randrange(items)}
            for _ in range(40)
        ]  # fmt: skip
        first, second = [one.send(b"".join(data)) for one in pair]
        assert first == second
    compare(pair, b"mn\r\n")


def test_packets_that_are_looked_for_in_advance():
    choice = random.Random(3)
    pair = clients(BinaryClient)
    for one in pair:
        fill(one)
    for _ in range(8):
        packets = []
        for _ in range(400):
            key = b"key%d" % choice.randrange(2 * MANY)
            packets.append(
                choice.choice((
                    store(Opcode.SET, key, b"1"), store(Opcode.SETQ, key, b"v" * 200),
                    store(Opcode.SET, key, b"2"), packet(Opcode.GETKQ, key), packet(Opcode.NOOP),
                    packet(Opcode.DELETE, key), count(Opcode.INCREMENT, key, 1, 0),
                    packet(Opcode.STAT, b"nothing"),
                ))
            )  # fmt: skip
        compare(pair, b"".join(packets))


def test_objects_made_in_advance_are_not_kept():
    client = Client(shortcuts=True)
    fill(client)
    data = b"get a b c\r\nmg key1\r\n" * 9 + b"get a  b\r\n" + b"get d e\r\n" * 9
    client.send(data)
    before = sys.getallocatedblocks()
    for _ in range(50):
        client.send(data)
    assert sys.getallocatedblocks() - before < 100


def fill(client):
    stored = [b"set key%d 0 0 1 noreply\r\n1\r\n" % number for number in range(MANY)]
    if isinstance(client, BinaryClient):
        stored = [store(Opcode.SETQ, b"key%d" % number, b"1") for number in range(MANY)]
    for at in range(0, MANY, 50):
        client.send(b"".join(stored[at : at + 50]))


@pytest.mark.parametrize("kind", [Client, BinaryClient])
def test_commands_without_keys_are_looked_at_once(kind):
    client = kind(shortcuts=True, config=Config(max_reqs_per_event=20_000))
    fill(client)
    one = b"mn\r\n" if kind is Client else packet(Opcode.NOOP)

    def seconds(commands):
        began = time.thread_time()
        client.send(one * commands)
        return (time.thread_time() - began) / commands

    few, many = [min(seconds(commands) for _ in range(5)) for commands in (1_000, 16_000)]
    assert many < 8 * few  # 16 times as many when each command looked at all that follow


@without_aborts
def test_memory_that_runs_out_before_the_first_command():
    testcapi = pytest.importorskip("_testcapi")
    for first in range(1, 12):
        client = Client(shortcuts=True)
        fill(client)
        run = client.connection._services.runner.text
        data, out = b"get key1\r\nget key2\r\n" * 8, []
        with contextlib.suppress(MemoryError):
            try:
                testcapi.set_nomemory(first, first + 2)
                run(data, out)
            finally:
                testcapi.remove_mem_hooks()
