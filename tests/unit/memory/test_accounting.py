"""The bytes counted against ``-m`` match the stored items after any sequence of commands.

The tests use a real server and real connections, text and binary, over a transport that records
its input; no loop runs, and the tests advance the clock. ``MEMLITE_TEST_EXAMPLES`` is the number
of sequences in the slow test.
"""

import base64
import os
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memlite.config import Config
from memlite.core.clock import Clock
from memlite.memory.eviction import POLICIES, S3Fifo, cost
from memlite.memory.index import FEW
from memlite.memory.item import MAIN
from memlite.protocol.packets import Opcode
from memlite.server.server import Server
from tests.support import packets
from tests.unit.server.connections.test_fast_path import Loop, Transport

START = 1_800_000_000.0
# Bytes a store may evict beyond its own needs; the rest is left for later stores.
EVICTED_BESIDE = 16 * 1024
# The overhead in bytes of an index of many dicts that is almost empty.
MANY_DICTS = 60_000
# From this size, room is made in steps: meanwhile the table may exceed its limit by a 32nd.
LARGE = 64 * 1024
# Bytes that a command may add to an item that stays, with no room made for them: an expiry, a cas
# unique, meta_flags. Storing makes room.
ADDED = 256

keys = st.sampled_from([b"a", b"b", b"c", b"k" * 180, b"fill7"])
sizes = st.sampled_from([0, 1, 10, 1024, 1025, 5000, 70_000]) | st.integers(0, 3000)
values = sizes.map(b"x".__mul__) | st.sampled_from([b"7", b"99", b"%d" % (2**64 - 1)])
flags = st.sampled_from([0, 1, 2**32 - 1])
exptimes = st.sampled_from([0, 0, 0, 1, 5, 100, -1, 2_000_000_000])
ends = st.sampled_from([b"", b"", b" noreply"])
# Cas uniques are assigned in sequence, so small ones probably belong to some item.
uniques = st.integers(0, 12)


def meta_flags(*words):
    """A strategy for some of these flags, each letter at most once."""
    return st.lists(st.sampled_from(words), unique_by=lambda word: word[0], max_size=5).map(
        lambda chosen: b"".join(b" " + word.encode() for word in chosen)
    )


meta_keys = keys.map(lambda key: (key, b"")) | keys.map(lambda key: (base64.b64encode(key), b" b"))
GET_FLAGS = meta_flags(*"cfhklqstuv", "N0", "N30", "R50", "T0", "T100", "T-1", "E5", "O1")
SET_FLAGS = meta_flags(
    *"cfksqI", "C1", "C2", "C3", "E5", "F9", "T0", "T5", "T-1", "ME", "MA", "MP", "MR", "MS", "N0"
)
DELETE_FLAGS = meta_flags(*"kqIx", "C1", "C2", "E5", "F9", "T0", "T100", "T-1")
COUNT_FLAGS = meta_flags(
    *"ckqtv", "C1", "C2", "D1", "D99", "E5", "J7", "MD", "MI", "N0", "T0", "T9"
)
STORES = (Opcode.SET, Opcode.ADD, Opcode.REPLACE, Opcode.SETQ)
COUNTS = (Opcode.INCREMENT, Opcode.DECREMENT)
TOUCHES = (Opcode.TOUCH, Opcode.GAT, Opcode.GATKQ)
OF_A_KEY = (Opcode.GET, Opcode.GETKQ, Opcode.DELETE, Opcode.DELETEQ)
JOINS = (Opcode.APPEND, Opcode.PREPENDQ)


class Books(NamedTuple):
    """The memory a table reports and its number of items."""

    used: int
    overhead: int
    limit: int
    items: int

    @property
    def excess(self):
        return self.used + self.overhead - self.limit


class Accounting(RuleBasedStateMachine):
    """All actions of clients, on a table that is nearly always full."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        refuses=st.booleans(),
        room=st.sampled_from([500, 5_000, 20_000, 100_000]),
        few=st.sampled_from([0, 3, FEW]),
    )
    def start(self, policy, refuses, room, few):
        self.monotonic = 0.0
        config = Config(eviction=policy, disable_evictions=refuses)
        clock = Clock(lambda: self.monotonic, lambda: START)
        self.server = Server(config, [], clock=clock)
        self.server.scheduler.loop = Loop()
        self.server.upkeep.sweeper.wake = lambda: None  # see the rule `sweep`
        self.table = self.server.table
        self.table._few = few  # with more, the index has many dicts
        self.table.flush()
        self.evicts = not refuses
        self.empty = self.table.overhead
        self.table.shrink(self.empty + room + (MANY_DICTS if few < FEW else 0))
        self.text, self.binary = self.connect(), self.connect()
        self.ask(b"version\r\n")

    def connect(self):
        connection = self.server.connect()
        connection.connection_made(Transport())
        return connection

    def send(self, connection, request):
        """Deliver a request to a connection and return the reply."""
        written = connection._transport.written
        written.clear()
        connection.data_received(request)
        self.server.scheduler.loop.run()
        return b"".join(written)

    def ask(self, request):
        """Send a command that the server must understand; return the reply."""
        answer = self.send(self.text, request)
        assert not answer.startswith((b"ERROR", b"CLIENT_ERROR bad")), (request[:99], answer)
        assert bool(answer) or b"noreply" in request or b" q" in request
        return answer

    @property
    def books(self):
        table = self.table
        return Books(table.used, table.overhead, table.limit, len(table))

    def change(self, request, added):
        """Send a command that may add at most `added` bytes without making room."""
        before = self.books
        answer = self.ask(request)
        self.keeps_the_limit(before, added)
        return answer

    def keeps_the_limit(self, before, added):
        after = self.books
        grown = max(0, after.overhead - before.overhead)  # measured occasionally
        if any(cost(*one) > LARGE for one in self.table.scan()):
            added += max(0, before.limit) // 32
        assert after.excess <= max(0, before.excess) + grown + added
        if self.evicts and after.items and after.used > before.used + added:
            # A command that makes room makes enough, or as much as one command may.
            assert after.excess <= grown + added

    # Commands

    @rule(
        name=st.sampled_from([b"set", b"set", b"add", b"replace", b"append", b"prepend"]),
        key=keys | st.integers(0, 100).map(b"new%d".__mod__), value=values, flags=flags,
        exptime=exptimes, end=ends,
    )  # fmt: skip
    def store(self, name, key, value, flags, exptime, end):
        head = b"%b %b %d %d %d%b\r\n" % (name, key, flags, exptime, len(value), end)
        was_there, before = self.table.get(key) is not None, self.books
        answer = self.change(head + value + b"\r\n", 0)
        if answer == b"STORED\r\n" and not was_there and self.evicts:
            grown = max(0, self.books.overhead - before.overhead)
            freed = before.used - self.books.used
            assert self.books.excess <= grown or freed >= EVICTED_BESIDE

    @rule(key=keys, value=values, exptime=exptimes, unique=uniques, end=ends)
    def cas(self, key, value, exptime, unique, end):
        head = b"cas %b 0 %d %d %d%b\r\n" % (key, exptime, len(value), unique, end)
        self.change(head + value + b"\r\n", ADDED)

    @rule(name=st.sampled_from([b"incr", b"decr"]), key=keys, by=st.sampled_from([0, 1, 2**63]))
    def count(self, name, key, by):
        self.change(b"%b %b %d\r\n" % (name, key, by), 0)

    @rule(key=keys, end=ends)
    def delete(self, key, end):
        self.change(b"delete %b%b\r\n" % (key, end), 0)
        assert self.table.get(key) is None

    @rule(name=st.sampled_from([b"get", b"gets"]), keys=st.lists(keys, min_size=1, max_size=20))
    def get(self, name, keys):
        self.change(b"%b %b\r\n" % (name, b" ".join(keys)), len(keys) * ADDED * (name == b"gets"))

    @rule(
        name=st.sampled_from([b"gat", b"gats"]),
        exptime=exptimes,
        keys=st.lists(keys, min_size=1, max_size=5),
    )
    def get_and_touch(self, name, exptime, keys):
        self.change(b"%b %d %b\r\n" % (name, exptime, b" ".join(keys)), len(keys) * ADDED)

    @rule(key=keys, exptime=exptimes, end=ends)
    def touch(self, key, exptime, end):
        self.change(b"touch %b %d%b\r\n" % (key, exptime, end), ADDED)

    @rule(
        line=st.tuples(st.just(b"mg"), meta_keys, GET_FLAGS)
        | st.tuples(st.just(b"md"), meta_keys, DELETE_FLAGS)
        | st.tuples(st.just(b"ma"), meta_keys, COUNT_FLAGS)
    )
    def meta(self, line):
        name, (key, base64), words = line
        self.change(b"%b %b%b%b\r\n" % (name, key, base64, words), ADDED)

    @rule(key=meta_keys, words=SET_FLAGS, value=values)
    def meta_set(self, key, words, value):
        head = b"ms %b %d%b%b\r\n" % (key[0], len(value), key[1], words)
        self.change(head + value + b"\r\n", ADDED)

    @rule(
        request=st.builds(
            lambda opcode, *fields, cas: packets.store(opcode, *fields, cas=cas),
            st.sampled_from(STORES), keys, values, flags, exptimes.map(abs),
            cas=st.sampled_from([0, 0, 1, 2]),
        )
        | st.builds(
            packets.count, st.sampled_from(COUNTS), keys, st.sampled_from([0, 1, 2**63]),
            st.just(5), st.sampled_from([0, 5, 2**32 - 1]),
        )
        | st.builds(packets.touch, st.sampled_from(TOUCHES), keys, exptimes.map(abs))
        | st.builds(packets.packet, st.sampled_from(OF_A_KEY), keys)
        | st.builds(lambda *args: packets.packet(*args[:2], value=args[2]),
                    st.sampled_from(JOINS), keys, values)
    )  # fmt: skip
    def packet(self, request):
        before = self.books
        assert self.send(self.binary, request + packets.NOOP)
        self.keeps_the_limit(before, ADDED)

    @rule(
        count=st.sampled_from([10, 30, 300, 1100]),
        first=st.integers(0, 3000),
        size=sizes,
        uses=st.integers(0, 3),
    )
    def fill(self, count, first, size, uses):
        """Add many new keys, so that the dict and the policy grow."""
        set_ = b"set fill%d 0 0 %d noreply\r\n%b\r\n"
        value = b"x" * min(size, 1000)
        numbers = range(first, first + count)
        self.change(b"".join(set_ % (number, len(value), value) for number in numbers), 0)
        get = b"get %b\r\n" % b" ".join(b"fill%d" % number for number in numbers)
        for _ in range(uses):
            self.change(get, 0)

    @rule(exptime=st.sampled_from([0, 0, -1, 1, 5]), end=ends)
    def flush_all(self, exptime, end):
        self.ask(b"flush_all %d%b\r\n" % (exptime, end))
        if exptime <= 0:
            assert (self.table.used, len(self.table)) == (0, 0)

    @rule(what=st.sampled_from([b"on", b"off"]))
    def detail(self, what):
        """Watched commands take another code path."""
        self.ask(b"stats detail %b\r\n" % what)

    # Limits, time and background work

    @rule(megabytes=st.sampled_from([8, 64]))
    def cache_memlimit(self, megabytes):
        self.ask(b"cache_memlimit %d\r\n" % megabytes)
        assert self.table.limit == megabytes * 2**20

    @rule(room=st.sampled_from([-5_000, 0, 500, 5_000, 20_000, 100_000]))
    def shrink(self, room):
        """Set a limit below the memory in use, as cache_memlimit can."""
        before = self.books
        self.table.shrink(self.empty + room)
        assert before.items - self.books.items <= (100 if self.evicts else 0)

    @rule(seconds=st.sampled_from([0.5, 1, 2, 10, 200]))
    def wait(self, seconds):
        self.monotonic += seconds
        self.server.clock.tick()
        self.server.engine.tick()

    @rule()
    def crawl(self):
        self.server.engine.crawl()

    @rule()
    def compact(self):
        self.server.engine.compact()

    @rule(at_most=st.sampled_from([1, 7, 32]))
    def sweep(self, at_most):
        self.server.engine.sweep(at_most)

    @rule(crawl=st.booleans())
    def sweep_all(self, crawl):
        """Check that a table gets below its limit, given enough time."""
        if crawl:
            self.crawl()
        while self.server.engine.sweep(100):
            pass
        assert not self.evicts or not len(self.table) or self.books.excess <= 0

    # Invariants

    @invariant()
    def used_is_the_cost_of_the_items(self):
        items = dict(self.table.scan())
        assert len(self.table) == len(items)
        assert self.table.used == sum(cost(key, item) for key, item in items.items())

    @invariant()
    def the_policy_counts_the_same(self):
        policy = self.table._policy
        if isinstance(policy, S3Fifo):
            in_main = sum(cost(*one) for one in self.table.scan() if one[1].state & MAIN)
            assert (policy._small_bytes, policy._main_bytes) == (
                self.table.used - in_main,
                in_main,
            )

    @invariant()
    def stats_show_the_limit_and_the_use(self):
        table = self.table
        stats = self.ask(b"stats\r\n")
        assert b"STAT limit_maxbytes %d\r\n" % table.limit in stats
        assert b"STAT bytes %d\r\n" % table.used in stats
        assert b"STAT curr_items %d\r\n" % len(table) in stats

    def teardown(self):
        """Check that deleted items no longer count."""
        if hasattr(self, "table"):
            for key in self.table.list_keys():
                self.table.delete(key)
            self.used_is_the_cost_of_the_items()
            self.the_policy_counts_the_same()
            assert self.table.used == 0


class TestAnySequence(Accounting.TestCase):
    settings = settings(max_examples=50, stateful_step_count=50)


@pytest.mark.slow
class TestManySequences(Accounting.TestCase):
    settings = settings(
        max_examples=int(os.environ.get("MEMLITE_TEST_EXAMPLES", "75")), stateful_step_count=50
    )


def test_a_limit_below_the_size_of_the_dict_leaves_room_for_items():
    """A dict that has been filled keeps its slots, which may exceed a lower limit."""
    server = Server(Config(), [], clock=Clock())
    engine, table = server.engine, server.table
    for number in range(20_000):
        engine.set(b"key%d" % number, 0, 0, b"")
    table.shrink(table.overhead)
    table.shrink(table.overhead // 2)
    while engine.sweep(100):
        pass
    engine.set(b"a", 0, 0, b"1")
    assert engine.peek(b"a") is not None
    assert table.used + table.overhead <= table.limit


def test_an_item_that_expires_within_a_request_is_no_longer_counted():
    """It is given a cas unique for the first reply, and removed before the second."""
    state = Accounting()
    state.start(policy="lru", room=5000, refuses=False, few=FEW)
    assert state.ask(b"set k 0 100 1\r\n1\r\n") == b"STORED\r\n"
    reply = state.ask(b"gats -1 k k\r\n")
    assert reply.startswith(b"VALUE k 0 1 ")
    assert reply.endswith(b"\r\n1\r\nEND\r\n")
    state.used_is_the_cost_of_the_items()
    assert (len(state.table), state.table.used) == (0, 0)
