"""Plain gets and sets: the workloads that use them, the requests, and unexpected replies."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from memlite.loadtest.clients.plain import PlainConnection
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.operations import Operations
from memlite.loadtest.plain import PlainOperations, is_plain
from memlite.loadtest.recorder import Recorder
from memlite.loadtest.workload import Keys, Load, Values, Workload

MIXED = Workload(mix={"get": 2.0, "set": 1.0}, keys=Keys(count=500, distribution="zipfian"))


def plain(workload=MIXED):
    operations = Operations(workload, seed=7, client=0, clients=1)
    return PlainOperations(operations, workload.values.size)


@pytest.mark.parametrize("count", [1, 5, 4_000, 9_000])
@pytest.mark.parametrize("size", [0, 100, 5_000])
@pytest.mark.parametrize("mix", [{"get": 2.0, "set": 1.0}, {"get": 1.0}, {"set": 1.0, "add": 0.0}])
def test_plain_operations_equal_the_general_ones(mix, size, count):
    workload = replace(MIXED, mix=mix, values=Values(size=size), ttl=60)
    others = Operations(workload, seed=7, client=0, clients=1)
    stream = plain(workload)
    for _ in range(3):
        some = others.take(count)
        requests, letters = stream.take(count)
        assert requests == b"".join(one.request for one in some)
        assert letters == b"".join(b"V" if one.kind == "get" else b"S" for one in some)


def test_the_number_of_operations_can_be_limited():
    stream = plain()
    stream.left = 5
    assert [len(stream.take(2)[1]) for _ in range(4)] == [2, 2, 1, 0]
    assert stream.take(1) == (b"", b"")
    stream.left = None
    assert len(stream.take(20_000)[1]) == 20_000


@pytest.mark.parametrize(
    "changes",
    [
        {"mix": {"get": 1.0, "delete": 1.0}},
        {"values": Values("lognormal")},
        {"trace": "x.csv"},
        {"kind": "concurrent"},
        {"load": Load(multiget=2)},
        {"load": Load(rate=1.0)},
        {"load": Load(noreply=True)},
        {"load": Load(think_time=0.1)},
    ],
)
def test_workloads_that_are_not_plain(changes):
    assert is_plain(MIXED)
    assert not is_plain(replace(MIXED, **changes))


class Clients:
    """A stand-in for the objects that a connection refers to."""

    def __init__(self, pipeline):
        self.settings = SimpleNamespace(pipeline=pipeline, dialect=Dialect.MEMCACHED)
        self.recorder = Recorder()
        self.stopped = False
        self.errors = []
        self.lost_ones = 0

    def failed(self, kind, count=1):
        self.errors += [kind] * count

    def gained(self, one):
        pass

    def lost(self, one):
        self.lost_ones += 1

    def idle(self):
        pass


class Wire:
    """A transport that records what is written."""

    def __init__(self):
        self.written = []
        self.aborted = False

    def write(self, data):
        self.written.append(data)

    def abort(self):
        self.aborted = True


@pytest.fixture
def connection():
    """Return a connection with four requests under way: get, get, set and get."""
    clients, wire = Clients(4), Wire()
    one = PlainConnection(clients, plain())
    one._take = lambda count: (b"...", b"VVSV")
    one.connection_made(wire)
    one.fill()
    one.clients, one.wire = clients, wire
    return one


HIT = b"VALUE key-1 0 100\r\n" + b"END\r\n" * 20 + b"\r\nEND\r\n"
MISS, STORED = b"END\r\n", b"STORED\r\n"


def counted(connection):
    counts, response = connection.clients.recorder.counts, connection.clients.recorder.response
    return (
        counts.operations, counts.hits, counts.misses, len(connection.clients.errors),
        sum(response["get"].values()), sum(response["set"].values()),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([HIT, HIT, STORED, HIT], (4, 3, 0, 0, 3, 1)),
        ([HIT, MISS, STORED, MISS], (4, 1, 2, 0, 3, 1)),
        ([HIT.replace(b"100", b"99").replace(b"END", b"EN", 1), MISS, STORED, MISS],
         (4, 1, 2, 0, 3, 1)),
        ([b"SERVER_ERROR x\r\n", HIT, b"SERVER_ERROR y\r\n", MISS], (2, 1, 1, 2, 2, 0)),
        # Replies that do not match their requests
        ([STORED, HIT, STORED, HIT], (3, 2, 0, 1, 2, 1)),
        ([HIT, HIT, MISS, HIT], (3, 3, 0, 1, 3, 0)),
        ([HIT.removesuffix(MISS) * 2 + MISS, HIT, STORED, HIT], (3, 2, 0, 1, 2, 1)),
    ],
)  # fmt: skip
def test_replies_in_whatever_pieces_they_arrive(connection, replies, expected):
    data = b"".join(replies)
    for times, cut in enumerate(range(len(data)), 1):
        for piece in (data[:cut], data[cut:]):
            if piece:
                connection.data_received(piece)
        assert counted(connection) == tuple(times * number for number in expected)
        assert len(connection.wire.written) == times + 1
        assert connection.busy
        assert not connection.wire.aborted


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (HIT * 2 + STORED + HIT * 2, "an unexpected reply"),
        (HIT * 2 + b"VALUE x\r\n", "not a memcached reply"),
    ],
)
def test_invalid_replies_end_the_connection(connection, data, said):
    connection.data_received(data)
    assert said in connection.clients.errors[0]
    assert connection.wire.aborted
    assert connection.clients.lost_ones == 1
    assert not connection.busy


def test_a_reply_without_a_request(connection):
    connection.clients.stopped = True
    connection.data_received(HIT * 2 + STORED + HIT)
    assert not connection.busy
    connection.data_received(MISS)
    assert connection.clients.errors == ["an unexpected reply"]


def test_lost_replies_are_counted(connection):
    connection.data_received(HIT)
    connection.connection_lost(None)
    assert connection.clients.errors == ["connection closed"] * 3
