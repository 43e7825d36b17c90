"""The fast path for a get of one key: it answers as the parser and the executor would.

These tests use a real server and connection on a transport that records its input; no loop runs.
"""

import logging
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlite.config import Config, ExtendedOptions
from memlite.core.clock import Clock
from memlite.server.execution import runner
from memlite.server.server import Server
from memlite.telemetry.counters import Counters
from tests.support.packets import NOOP

START = 1_800_000_000.0
K250 = b"k" * 250
K251 = b"k" * 251
END = b"END\r\n"
STORED = b"STORED\r\n"
BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n"
ERROR = b"ERROR\r\n"


def block(key, value, flags=0):
    return b"VALUE %b %d %d\r\n%b\r\n" % (key, flags, len(value), value)


K = block(b"k", b"v", 5)
K2 = block(b"k2", b"v2")

STORED_ITEMS = [
    # key, flags, exptime, value
    (b"k", 5, 0, b"v"),
    (b"k2", 0, 0, b"v2"),
    (b"get", 0, 0, b"g"),
    (b"a\rb", 0, 0, b"inner"),
    (b"cr\r", 0, 0, b"last"),
    (b"a\tb", 0, 0, b"tab"),
    (b"\xff\xfe\x00", 0, 0, b"high"),
    (K250, 0, 0, b"longest"),
    (b"expired", 0, 10, b"gone"),
    (b"lives", 0, 11, b"here"),
    (b"crlf", 0, 0, b"\r\nEND\r\n"),
    (b"none", 0, 0, b""),
    (b"u:1", 0, 0, b"p"),
    (b"1024", 0, 0, b"x" * 1024),
    (b"1025", 0, 0, b"x" * 1025),
]


class Transport:
    """Collects a connection's output; signals a full buffer when told to."""

    def __init__(self):
        self.written = []
        self.reading = True
        self.closing = False
        self.protocol = None

    def write(self, data):
        assert data
        self.written.append(bytes(data))

    def writelines(self, parts):
        self.written.append(b"".join(parts))

    def close(self):
        self.closing = True

    def is_closing(self):
        return self.closing

    def is_reading(self):
        return self.reading

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def get_write_buffer_size(self):
        return 0

    def get_extra_info(self, name, default=None):
        return default

    def get_protocol(self):
        return self.protocol

    def set_protocol(self, protocol):
        self.protocol = protocol


class Loop:
    """Collects scheduled calls."""

    def __init__(self):
        self.soon = []
        self.later = []

    def call_soon(self, function):
        self.soon.append(function)

    def call_later(self, delay, function):
        """Ignore timers: background work is not under test."""
        self.later.append((delay, function))

    def run(self):
        while self.soon:
            self.soon.pop(0)()


class Spy:
    """A connection's parser, which counts the reads it is given."""

    def __init__(self, parser):
        self._parser = parser
        self.reads = 0

    def __getattr__(self, name):
        return getattr(self._parser, name)

    def receive(self, data, handler, *served):
        self.reads += 1
        return self._parser.receive(data, handler, *served)


class Client:
    """Return a connection to a new server with `STORED_ITEMS`, ten seconds after they were stored.

    Args:
        path: "fast" permits the fast path, "native" also that in C, if it is compiled, "general"
            disables it for all reads, and "sampled" also measures all reads.
        protocol: what the client speaks.
        commands_per_turn: the commands after which other connections get their turn.
        extended: the server's extended options.
    """

    def __init__(self, path, protocol="ascii", commands_per_turn=20, **extended):
        self.path = path
        self.monotonic = 0.0
        clock = Clock(lambda: self.monotonic, lambda: START)
        config = Config(
            protocol=protocol,
            max_reqs_per_event=commands_per_turn,
            extended=ExtendedOptions(extended),
        )
        with patch.object(runner, "NATIVE", runner.NATIVE if path == "native" else None):
            self.server = Server(config, [], clock=clock)
        self.server.scheduler.loop = Loop()
        for key, flags, exptime, value in STORED_ITEMS:
            self.server.engine.set(key, flags, exptime, value)
        self.monotonic = 10.0
        self.server.sampler._random = lambda: 0.99  # the furthest from being sampled
        self._sample_after(self.server.sampler.next_read())
        self.connection = self.server.connect()
        self.parser = self.connection.parser = Spy(self.connection.parser)
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def _sample_after(self, reads):
        self.server.counters.sample_after(reads)
        self.server.counters.until_slow_sample = reads

    def read(self, data):
        """Feed input to the connection, and return its replies."""
        before = len(self.transport.written)
        if self.path == "general":
            self.connection.leave_fast_path()
        elif self.path == "sampled":
            self._sample_after(1)
        self.connection.data_received(data)
        self.server.scheduler.loop.run()
        return b"".join(self.transport.written[before:])

    @property
    def written(self):
        return b"".join(self.transport.written)

    @property
    def counted(self):
        return {name: getattr(self.server.counters, name) for name in Counters.NAMES}

    @property
    def state(self):
        """Return all state that a read may change."""
        items = [(key, i.wire, i.state, i.expires) for key, i in self.server.engine.table.scan()]
        return self.counted, items, self.server.prefixes.dump(), self.connection.state


@pytest.fixture(autouse=True)
def levels():
    """Restore the log levels that verbosity changes."""
    logger = logging.getLogger("memlite")
    before = logger.level
    yield
    logger.setLevel(before)


# The input, the reply, hits, misses, and the number of reads that take the fast path.
CASES = {
    "hit": ([b"get k\r\n"], K + END, 1, 0, 1),
    "twice": ([b"get k\r\n", b"get k2\r\n"], K + END + K2 + END, 2, 0, 2),
    "miss": ([b"get absent\r\n"], END, 0, 1, 1),
    "line feed": ([b"get k\n"], K + END, 1, 0, 0),
    "line end later": ([b"get k", b"\r\n"], K + END, 1, 0, 0),
    "line feed later": ([b"get k\r", b"\n"], K + END, 1, 0, 0),
    "fast again": ([b"get k", b"\r\n", b"get k\r\n"], 2 * (K + END), 2, 0, 1),
    "split in get": ([b"g", b"et k\r\n"], K + END, 1, 0, 0),
    "two spaces": ([b"get  k\r\n"], K + END, 1, 0, 0),
    "trailing space": ([b"get k \r\n"], K + END, 1, 0, 0),
    "leading space": ([b" get k\r\n"], ERROR, 0, 0, 0),
    "tab before the key": ([b"get \tk\r\n"], END, 0, 1, 1),
    "tab for the space": ([b"get\tk\r\n"], ERROR, 0, 0, 0),
    "two keys": ([b"get k k2\r\n"], K + K2 + END, 2, 0, 1),
    "a key twice": ([b"get k k\r\n"], K + K + END, 2, 0, 1),
    "key and miss": ([b"get k absent\r\n"], K + END, 1, 1, 1),
    "two misses": ([b"get x absent\r\n"], END, 0, 2, 1),
    "many keys": ([b"get%b\r\n" % (b" k k2 x" * 300)], (K + K2) * 300 + END, 600, 300, 1),
    "two keys in two lines": ([b"get k k2\r\nget k2 k\r\n"], K + K2 + END + K2 + K + END, 4, 0, 0),
    "two keys, line feed": ([b"get k k2\nget k2\r\n"], K + K2 + END + K2 + END, 3, 0, 0),
    "two keys, carriage return": ([b"get k k\rk2\r\n"], K + END, 1, 1, 0),
    "pipelined": ([b"get k\r\nget k2\r\n"], K + END + K2 + END, 2, 0, 0),
    "pipelined line feed": ([b"get k\nget k2\r\n"], K + END + K2 + END, 2, 0, 0),
    "trailing empty line": ([b"get k\r\n\r\n"], K + END + BAD_FORMAT, 1, 0, 0),
    "empty line after a line feed": ([b"get k\n\r\n"], K + END + BAD_FORMAT, 1, 0, 0),
    "more than one turn": ([b"get k\r\n" * 45], 45 * (K + END), 45, 0, 0),
    "more than one turn and on": (
        [b"get k\r\n" * 45, b"get k2\r\n"], 45 * (K + END) + K2 + END, 46, 0, 1,
    ),
    "gat": ([b"gat k\r\n"], BAD_FORMAT, 0, 0, 0),
    "gat with exptime": ([b"gat 0 k\r\n"], K + END, 0, 0, 0),
    "gets": ([b"gets k\r\n"], b"VALUE k 5 1 1\r\nv\r\n" + END, 1, 0, 0),
    "no key": ([b"get \r\n"], BAD_FORMAT, 0, 0, 0),
    "no space": ([b"get\r\n"], BAD_FORMAT, 0, 0, 0),
    "spaces alone": ([b"get   \r\n"], BAD_FORMAT, 0, 0, 0),
    "Get": ([b"Get k\r\n"], ERROR, 0, 0, 0),
    "GET": ([b"GET k\r\n"], ERROR, 0, 0, 0),
    "get": ([b"get get\r\n"], block(b"get", b"g") + END, 1, 0, 1),
    "noreply": ([b"get noreply\r\n"], END, 0, 1, 1),
    # Reads that belong to an incomplete command
    "value": (
        [b"set x 0 0 5\r\n", b"get k\r\n", b"get x\r\n"],
        STORED + block(b"x", b"get k") + END, 1, 0, 1,
    ),
    "value and line end": (
        [b"set x 0 0 7\r\n", b"get k\r\n", b"\r\n", b"get x\r\n"],
        STORED + block(b"x", b"get k\r\n") + END, 1, 0, 1,
    ),
    "value in two": (
        [b"set x 0 0 12\r\n", b"get k\r\n", b"get k\r\n", b"get x\r\n"],
        STORED + block(b"x", b"get k\r\nget k") + END, 1, 0, 1,
    ),
    "value's tail": (
        [b"set x 0 0 6\r\n!", b"get k\r\n", b"get x\r\n"],
        STORED + block(b"x", b"!get k") + END, 1, 0, 1,
    ),
    "value after a get": (
        [b"get k\r\nset x 0 0 5\r\n", b"get k\r\n", b"get k\r\n"],
        K + END + STORED + K + END, 2, 0, 1,
    ),
    "value without an end": (
        [b"set x 0 0 3\r\n", b"get k\r\n", b"get k\r\n"],
        b"CLIENT_ERROR bad data chunk\r\n" + BAD_FORMAT + K + END, 1, 0, 1,
    ),
    "refused value": (
        [b"set x bad 0 5\r\n", b"get k\r\n", b"get k\r\n"], BAD_FORMAT + K + END, 1, 0, 1,
    ),
    "too large value": (
        [b"set x 0 0 2000000\r\n", b"x" * 1_999_995, b"get k\r\n", b"get k\r\n"],
        b"SERVER_ERROR object too large for cache\r\n" + K + END, 1, 0, 1,
    ),
    "line of delete": ([b"delete ", b"get k\r\n"], b"DELETED\r\n", 0, 0, 0),
    "line of get": ([b"get ", b"get k\r\n"], block(b"get", b"g") + K + END, 2, 0, 0),
    "key of get": ([b"get k2", b"get k\r\n"], K + END, 1, 1, 0),
    "space alone": ([b" ", b"get k\r\n", b"get k\r\n"], ERROR + K + END, 1, 0, 1),
    "rest after a get": ([b"get k\r\nx", b"get k\r\n", b"get k\r\n"], K + END + ERROR + K + END,
                          2, 0, 1),
    "carriage return alone": ([b"\r", b"get k\r\n"], ERROR, 0, 0, 0),
    # Keys
    "inner carriage return": ([b"get a\rb\r\n"], block(b"a\rb", b"inner") + END, 1, 0, 1),
    "last carriage return": ([b"get cr\r\r\n"], block(b"cr\r", b"last") + END, 1, 0, 1),
    "which is the line's": ([b"get cr\r\n"], END, 0, 1, 1),
    "which is the key's": ([b"get k\r\r\n"], END, 0, 1, 1),
    "carriage return as key": ([b"get \r\r\n"], END, 0, 1, 1),
    "tab": ([b"get a\tb\r\n"], block(b"a\tb", b"tab") + END, 1, 0, 1),
    "high bytes": ([b"get \xff\xfe\x00\r\n"], block(b"\xff\xfe\x00", b"high") + END, 1, 0, 1),
    "trailing NUL": ([b"get k\x00\r\n"], END, 0, 1, 1),
    "250 bytes": ([b"get " + K250 + b"\r\n"], block(K250, b"longest") + END, 1, 0, 1),
    "251 bytes": ([b"get " + K251 + b"\r\n"], BAD_FORMAT, 0, 0, 0),
    "251 bytes and the line's end": ([b"get " + K250 + b"\r\r\n"], BAD_FORMAT, 0, 0, 0),
    # Items
    "expired": ([b"get expired\r\n"], END, 0, 1, 0),
    "expired twice": ([b"get expired\r\n"] * 2, END + END, 0, 2, 1),
    "about to expire": ([b"get lives\r\n"], block(b"lives", b"here") + END, 1, 0, 1),
    "line ends in the value": ([b"get crlf\r\n"], block(b"crlf", b"\r\nEND\r\n") + END, 1, 0, 1),
    "empty value": ([b"get none\r\n"], block(b"none", b"") + END, 1, 0, 1),
    "1024 bytes": ([b"get 1024\r\n"], block(b"1024", b"x" * 1024) + END, 1, 0, 1),
    "1025 bytes": ([b"get 1025\r\n"], block(b"1025", b"x" * 1025) + END, 1, 0, 1),
    "overwritten": (
        [b"set k 0 0 1\r\nw\r\n", b"get k\r\n"], STORED + block(b"k", b"w") + END, 1, 0, 1,
    ),
    "deleted": ([b"delete k\r\n", b"get k\r\n"], b"DELETED\r\n" + END, 0, 1, 1),
    "flushed": ([b"flush_all\r\n", b"get k\r\n"], b"OK\r\n" + END, 0, 1, 1),
    "stored after a flush": (
        [b"flush_all\r\nset k 0 0 1\r\nw\r\n", b"get k\r\n"],
        b"OK\r\n" + STORED + block(b"k", b"w") + END, 1, 0, 1,
    ),
    # Modes
    "stats detail on": (
        [b"stats detail on\r\n", b"get u:1\r\n", b"get u:2\r\n", b"stats detail dump\r\n"],
        b"OK\r\n" + block(b"u:1", b"p") + END + END
        + b"PREFIX u get 2 hit 1 set 0 del 0\r\n" + END, 1, 1, 0,
    ),
    "stats detail off again": (
        [b"stats detail on\r\n", b"stats detail off\r\n", b"get u:1\r\n", b"stats detail dump\r\n"],
        b"OK\r\nOK\r\n" + block(b"u:1", b"p") + END + END, 1, 0, 1,
    ),
    "verbosity 2": ([b"verbosity 2\r\n", b"get k\r\n"], b"OK\r\n" + K + END, 1, 0, 0),
    "verbosity 0 again": (
        [b"verbosity 2\r\n", b"verbosity 0\r\n", b"get k\r\n", b"get k\r\n"],
        b"OK\r\nOK\r\n" + K + END + K + END, 2, 0, 2),
}  # fmt: skip


@pytest.mark.parametrize("path", ["fast", "native", "general", "sampled"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reads_are_answered(path, case):
    reads, answer, hits, misses, fast = case
    client = Client(path)
    for data in reads:
        client.read(data)
    assert client.written == answer
    counted = client.counted
    assert (counted["get_hits"], counted["get_misses"]) == (hits, misses)
    assert counted["bytes_read"] == sum(map(len, reads))
    assert counted["bytes_written"] == len(answer)
    taken = len(reads) + client.counted["conn_yields"] - client.parser.reads
    if path == "native":
        assert taken >= fast
    else:
        assert taken == (fast if path == "fast" else 0)
    assert not client.transport.closing


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_paths_give_the_same_replies_and_state(case):
    clients = [Client(path) for path in ("fast", "native", "general", "sampled")]
    for data in case[0]:
        answers = {client.read(data) for client in clients}
        assert len(answers) == 1
        first, *others = [client.state for client in clients]
        for other in others:
            assert other == first


@pytest.mark.parametrize("path", ["fast", "general"])
def test_expired_items_are_removed_from_the_counts(path):
    client = Client(path)
    assert client.read(b"get expired\r\n") == END
    assert client.counted["get_expired"] == client.counted["expired_unfetched"] == 1
    assert client.server.engine.table.get(b"expired") is None
    client.monotonic = 10.999
    assert client.read(b"get lives\r\n") == block(b"lives", b"here") + END
    client.monotonic = 11.0
    assert client.read(b"get lives\r\n") == END
    assert client.counted["get_expired"] == 2
    assert client.counted["expired_unfetched"] == 1


# Clients that do not read


@pytest.mark.parametrize("path", ["fast", "general"])
def test_nothing_is_answered_while_the_client_does_not_read(path):
    client = Client(path)
    assert client.read(b"get k\r\n") == K + END
    client.connection.pause_writing()
    assert not client.transport.reading
    assert client.connection.busy
    for data in (b"get k\r\n", b"get k2\r\n", b"get ", b"get k\r\n"):
        assert client.read(data) == b""
    assert client.counted["get_hits"] == 1
    client.connection.resume_writing()
    assert client.written == K + END + K + END + K2 + END + block(b"get", b"g") + K + END
    assert client.transport.reading
    assert not client.connection.busy
    assert client.counted["get_hits"] == 5
    reads = client.parser.reads
    assert client.read(b"get k\r\n") == K + END
    assert client.parser.reads - reads == (path != "fast")


def test_a_client_that_stops_reading_at_the_last_pending_reply_is_not_served():
    client = Client("fast")
    big = b"x" * 100_000
    client.server.engine.set(b"big", 0, 0, big)
    write = client.transport.write

    def full(data):
        write(data)
        client.connection.pause_writing()

    client.transport.write = full
    for _ in range(3):
        client.read(b"get big\r\nget big\r\n")
        client.connection.resume_writing()  # this writes the last reply, and fills the buffer again
    assert not client.transport.reading
    hits = client.counted["get_hits"]
    assert client.read(b"get k\r\n") == b""
    assert client.counted["get_hits"] == hits
    client.transport.write = write
    while not client.transport.reading:
        client.connection.resume_writing()
    assert client.written.count(big) == 6
    assert client.written.endswith(K + END)


def test_binary_connections_leave_the_fast_path():
    server = Server(Config(), [], clock=Clock())
    server.scheduler.loop = Loop()
    server.engine.set(b"k", 5, 0, b"v")
    for first, fast in ((b"version\r\n", True), (NOOP, False)):
        connection, transport = server.connect(), Transport()
        connection.connection_made(transport)
        connection.data_received(first)
        transport.written.clear()
        connection.data_received(b"get k\r\n")
        assert (transport.written == [K + END]) == fast
        assert transport.closing != fast


def test_a_client_that_stops_reading_leaves_the_fast_path():
    client = Client("fast")
    write = client.transport.write

    def full(data):
        write(data)
        client.connection.pause_writing()

    client.transport.write = full
    assert client.read(b"get k\r\n") == K + END
    assert client.read(b"get k2\r\n") == b""
    client.connection.resume_writing()
    assert client.written == K + END + K2 + END
    assert client.counted["bytes_written"] == len(client.written)


def test_reads_queue_after_commands_that_wait_for_their_turn():
    client = Client("fast")
    client.connection.data_received(b"get k\r\n" * 30)
    assert client.written == 20 * (K + END)
    client.connection.data_received(b"get k2\r\n")
    assert client.written == 20 * (K + END)
    client.server.scheduler.loop.run()
    assert client.written == 30 * (K + END) + K2 + END


def test_an_incomplete_command_survives_a_pause():
    client = Client("fast")
    client.read(b"set x 0 0 5\r\n")
    client.connection.pause_writing()
    client.connection.resume_writing()
    assert client.read(b"get k\r\n") == STORED
    client.read(b"delete ")
    client.connection.pause_writing()
    client.connection.resume_writing()
    assert client.read(b"get x\r\n") == b"DELETED\r\n"
    assert client.server.engine.peek(b"get") is None
    assert client.read(b"get x\r\n") == block(b"x", b"get k") + END


# Resuming feeds the parser b"", here between the two bytes of the value's line ending.
def test_a_pause_within_a_values_line_ending_does_not_corrupt_it():
    client = Client("fast")
    client.read(b"get k\r\nset x 0 0 3\r\nabc\r")
    client.connection.pause_writing()
    client.connection.resume_writing()
    assert client.read(b"\n") == STORED
    assert client.read(b"get x\r\n") == block(b"x", b"abc") + END


# Tracing and sampling


def test_tracing_logs_reads_that_could_take_the_fast_path(caplog):
    client = Client("fast")
    assert client.read(b"get k\r\n") == K + END
    with caplog.at_level(logging.DEBUG, "memlite.trace"):
        other = client.server.connect()
        other.connection_made(Transport())
        other.data_received(b"verbosity 2\r\n")  # of another connection
        caplog.clear()
        for _ in range(2):
            assert client.read(b"get k\r\n") == K + END
    assert [record.getMessage() for record in caplog.records] == [
        "<-1 get k", ">-1 sending key k", ">-1 END"
    ] * 2  # fmt: skip
    assert client.counted["get_hits"] == 3


def test_tracing_shows_control_characters_as_escapes(caplog):
    client = Client("fast")
    with caplog.at_level(logging.DEBUG, "memlite.trace"):
        client.read(b"verbosity 2\r\n")
        caplog.clear()
        client.read(b"get \x1b[2J\x07\xff\\\r\n")
        client.read(b"\x00\x7f x\r\nset a b c d\r\n")
    text = caplog.text
    assert r"get \x1b[2J\x07\xff\\" in text
    assert r"\x00\x7f x" in text
    assert "reject CLIENT_ERROR bad command line format\n" in text
    assert "".join(text.split("\n")).isprintable()


def test_fast_path_reads_are_sampled():
    client = Client("fast")
    sampler = client.server.sampler
    sampler._random = Random(1).random
    for _ in range(100 * sampler.interval):
        assert client.read(b"get k\r\n") == K + END
    measured = sampler.histograms["get"].count
    assert 80 <= measured <= 120
    assert client.parser.reads == measured
    assert client.counted["get_hits"] == 100 * sampler.interval


# The continuations of a long pipeline are sampled like other reads.
def test_continuations_are_sampled():
    client = Client("fast")
    client.read(b"get k\r\n" * 20 * 128)
    assert client.counted["conn_yields"] == 127
    assert client.server.sampler.histograms["get"].count <= 20 * 3


@pytest.mark.parametrize("read", [b"get k\r\n", b"get absent\r\n", b"get ", b"get k\r\n" * 50])
def test_each_read_is_activity(read):
    client = Client("fast")
    connection = client.connection
    client.monotonic = 100.0
    client.server.clock.tick()
    before = connection.last_command
    client.read(read)
    assert connection.last_command == START + 100 > before
    assert connection.idle_since(int(START) + 101)
    assert not connection.idle_since(int(START) + 100)


@pytest.mark.parametrize("path", ["fast", "native"])
def test_hits_and_other_reads_are_sampled_alike(path):
    client = Client(path)
    sampler = client.server.sampler
    sampler._random = Random(1).random
    for _ in range(100 * sampler.interval):
        client.read(b"get k\r\n")
        client.read(b"touch k 0\r\n")
    assert 80 <= sampler.histograms["get"].count <= 120
    assert 80 <= sampler.histograms["touch"].count <= 120


def test_hits_are_counted_exactly_whatever_is_stored_or_reset_in_between():
    client = Client("fast")
    counters = client.server.counters
    for count in range(1, 40):
        client.read(b"get k\r\n")
        assert counters.get_hits == counters.cmd_get == count
        counters.sample_after(1 + count % 3)
        assert counters.get_hits == count
    taken = counters.take()
    assert taken["get_hits"] == 39
    assert counters.get_hits == 0
    client.read(b"get k\r\n")
    counters.add(taken)
    assert counters.get_hits == 40
    counters.reset()
    assert counters.get_hits == 0
    client.read(b"get k\r\n")
    assert counters.get_hits == 1


# Any sequence

pieces = st.sampled_from(
    [
        b"get k\r\n", b"get k\r\n", b"get k2\r\n", b"get x\r\n", b"get absent\r\n", b"get  k\r\n",
        b"get k x\r\n", b"get ", b"k", b"\r", b"\n", b"\r\n", b" ", b"gets k\r\n", b"delete k\r\n",
        b"set x 0 0 5\r\n", b"set k 0 0 7\r\n", b"set x 0 0 1\r\nv\r\n", b"set k bad 0 5\r\n",
        b"get 1025\r\n", b"get expired\r\n", b"flush_all\r\n", b"stats detail on\r\n",
        b"stats detail off\r\n", b"verbosity 2\r\n", b"verbosity 0\r\n", b"touch k 0\r\n",
        b"get k\r\n" * 21,
    ]
)  # fmt: skip
steps = st.sampled_from(["pause", "resume"]) | st.lists(pieces, min_size=1, max_size=3).map(
    b"".join
)


@given(st.lists(steps, max_size=12))
@example([b"set x 0 0 5\r\n", b"get k\r\n" * 21])  # the set and 19 gets are the first turn
def test_any_sequence_gets_the_same_replies(sequence):
    logger = logging.getLogger("memlite")
    before = logger.level
    clients = [Client(path) for path in ("fast", "native", "general", "sampled")]
    try:
        for client in clients:
            logger.setLevel(before)
            client.answers = []
            for step in sequence:
                if step == "pause":
                    client.connection.pause_writing()
                elif step == "resume":
                    client.connection.resume_writing()
                    client.server.scheduler.loop.run()
                else:
                    client.read(step)
                client.answers.append(client.written)
        first, *others = clients
        for other in others:
            assert other.answers == first.answers
            assert other.state == first.state
    finally:
        logger.setLevel(before)


@given(st.lists(st.lists(pieces, min_size=1, max_size=3).map(b"".join), min_size=1, max_size=12))
def test_any_sequence_is_answered_as_if_read_at_once(sequence):
    logger = logging.getLogger("memlite")
    before = logger.level
    clients = Client("fast"), Client("general")
    try:
        for data in sequence:
            clients[0].read(data)
        logger.setLevel(before)
        clients[1].read(b"".join(sequence))
        assert clients[0].written == clients[1].written
        assert clients[0].counted["get_hits"] == clients[1].counted["get_hits"]
        assert clients[0].counted["get_misses"] == clients[1].counted["get_misses"]
    finally:
        logger.setLevel(before)
