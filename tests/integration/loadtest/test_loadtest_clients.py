"""The load tester's clients against servers with known behaviour."""

import asyncio
import contextlib
import itertools
from dataclasses import replace
from time import perf_counter_ns
from typing import ClassVar

import pytest
from pymemcache import Client

from memlite.loadtest.clients import text
from memlite.loadtest.clients.admission import RefusedError
from memlite.loadtest.clients.pacing import arrivals
from memlite.loadtest.clients.settings import Settings
from memlite.loadtest.clients.text import TextClients
from memlite.loadtest.operations import Operation, Operations
from memlite.loadtest.plain import PlainOperations
from memlite.loadtest.recorder import Recorder, Tally, percentile
from memlite.loadtest.workload import Keys, Load, Workload
from tests.support.patience import patiently


class ArtificialServer(asyncio.Protocol):
    """Answers each get after a service time, and answers nothing while it stalls.

    Attributes:
        service: the service time in seconds.
        stall: the start and end of the stall, in seconds of the loop's clock.
        replies: replies to send instead, by the number of the request.
        greeting: the reply to the first request of each connection.
        closes: whether connections are closed right after that.
        connections: the number of connections so far.
    """

    service = 0.001
    stall = (0.0, 0.0)
    replies: ClassVar[dict[int, bytes]] = {}
    greeting = b"VERSION 1\r\n"
    closes = False
    seen = 0
    connections = 0

    def connection_made(self, transport):
        self.transport = transport
        type(self).connections += 1
        self.transports.append(transport)

    def data_received(self, data):
        loop = asyncio.get_running_loop()
        for line in data.split(b"\r\n")[:-1]:
            number = type(self).seen
            type(self).seen += line != b"version"
            reply = self.replies.get(number, b"END\r\n")
            if line == b"version":
                reply = self.greeting
                if self.closes:
                    self.transport.write(reply)
                    self.transport.close()
                    return
            elif line.endswith(b"noreply") or not line.startswith((b"get", b"set")):
                reply = b""
            elif line.startswith(b"set"):
                reply = self.replies.get(number, b"STORED\r\n")
            at = loop.time() + self.service
            if self.stall[0] <= at < self.stall[1]:
                at = self.stall[1]
            if reply == b"close":
                self.transport.close()
            elif reply is not None:
                loop.call_at(at, self.answer, reply)

    def answer(self, reply):
        if not self.transport.is_closing():
            self.transport.write(reply)


@pytest.fixture
async def server():
    class Server(ArtificialServer):
        pass

    Server.transports = []
    listening = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    Server.address = listening.sockets[0].getsockname()[:2]
    yield Server
    listening.close()
    for transport in Server.transports:
        transport.abort()
    await asyncio.sleep(0)


def get(count):
    return [Operation(b"get k\r\n", "get", 1, 1, None)] * count


class Budget:
    def __init__(self, operations, make=get):
        self.left = operations
        self.make = make

    def __call__(self, count):
        count = min(count, self.left)
        self.left -= count
        return self.make(count) if count else []


def plain(left=None, **workload):
    """Return plain operations: gets of 10,000 keys, unless `workload` says otherwise."""
    workload = Workload(**({"mix": {"get": 1.0}} | workload))
    operations = PlainOperations(Operations(workload, seed=1, client=0, clients=1), 100)
    operations.left = left
    return operations


async def drive(
    server, *, take=get, seconds=None, rate=0.0, kind="constant", stall=None, **settings
):
    """Run clients and return their measurements; `stall` is in seconds from when they start."""
    recorder = Recorder()
    settings.setdefault("connections", 1)
    plain = take if isinstance(take, PlainOperations) else None
    clients = TextClients(Settings(server.address, **settings), take, recorder, plain)
    await clients.connect()
    if stall:
        now = asyncio.get_running_loop().time()
        server.stall = (now + stall[0], now + stall[1])
    began = perf_counter_ns()
    recorder.begin(began)
    if rate:
        clients.start_at(arrivals(rate, kind, 1), began)
    else:
        clients.start()
    if seconds is not None:
        await asyncio.sleep(seconds)
        clients.stop()
    await asyncio.wait_for(clients.drained(), 60)
    recording = recorder.end()
    await clients.close()
    return recording


both = pytest.mark.parametrize("budget", [Budget, plain])


def merged(tallies: dict[str, Tally]) -> Tally:
    total: Tally = {}
    for tally in tallies.values():
        for value, count in tally.items():
            total[value] = total.get(value, 0) + count
    return total


@pytest.mark.alone
@both
@patiently
async def test_a_known_service_time_is_measured(server, budget):
    server.service = 0.01
    recording = await drive(server, take=budget(200), connections=4)
    tally = recording.response["get"]
    assert recording.counts.operations == recording.counts.misses == 200
    assert sum(tally.values()) == 200
    assert 10_000 <= percentile(tally, 0.5) < 13_000
    seconds = (recording.ended - recording.began) / 1e9
    assert 0.5 <= seconds < 1.0  # 200 requests, 4 at once, 10 ms each


HALF_A_SECOND = (0.5, 1.0)


@pytest.mark.alone
@patiently
async def test_open_loop_measures_the_delay_of_requests_due_during_a_stall(server):
    recording = await drive(server, stall=HALF_A_SECOND, rate=400, seconds=2.0, connections=300)
    tally = recording.response["get"]
    assert sum(tally.values()) == pytest.approx(800, rel=0.05)  # the sleep may take longer
    # A quarter of the requests are due during the stall, and wait for the rest of it.
    assert percentile(tally, 0.5) < 10_000
    assert percentile(tally, 0.875) == pytest.approx(250_000, rel=0.2)
    assert percentile(tally, 0.99) == pytest.approx(480_000, rel=0.1)
    assert max(tally) == pytest.approx(500_000, rel=0.1)


@pytest.mark.alone
@patiently
async def test_open_loop_measures_the_wait_for_a_connection(server):
    recording = await drive(server, stall=HALF_A_SECOND, rate=400, seconds=2.0, connections=4)
    tally, service = recording.response["get"], recording.service["get"]
    assert percentile(tally, 0.875) > 200_000
    # The requests themselves took as long as the service time, except for four that met the stall.
    assert percentile(service, 0.98) < 20_000
    assert sum(count for value, count in service.items() if value > 100_000) == 4


async def test_open_loop_ends_although_requests_are_due_faster_than_they_are_recorded(server):
    server.replies = dict.fromkeys(range(10_000))  # none
    recorder = Recorder()
    clients = TextClients(Settings(server.address, 2, timeout=0.5), get, recorder)
    await clients.connect()
    began = perf_counter_ns()
    recorder.begin(began)
    due = iter(range(1_000_000))  # all are due by the time the first thousand are recorded
    clients.start_at(due, began)
    noted = next(due) - 1
    assert noted < 10_000, "the end is not checked for before all are recorded"
    clients.stop()
    await asyncio.wait_for(clients.drained(), 60)
    await clients.close()
    # Requests that could not be sent within the timeout have failed.
    assert recorder.counts.errors == {"timeout": noted}
    assert recorder.occupancy.number == 0


async def test_polling_for_arrivals_counts_as_the_processor_time_it_took(server, monkeypatch):
    """It is less than the elapsed time if another program had the core."""
    monkeypatch.setattr(text, "process_time_ns", itertools.count(0, 5).__next__)
    recorder = Recorder()
    clients = TextClients(Settings(server.address, 2), get, recorder)
    await clients.connect()
    recorder.begin(perf_counter_ns())
    clients.start_at(iter(range(0, 150_000_000, 1_500_000)), perf_counter_ns())
    await asyncio.wait_for(clients.drained(), 60)
    await clients.close()
    assert 0 < recorder.spun < recorder.polled


@pytest.mark.alone
@patiently
async def test_closed_loop_omits_requests_during_a_stall(server):
    """Coordinated omission: a client that waits for a reply sends no slow requests either."""
    recording = await drive(server, stall=HALF_A_SECOND, seconds=2.0, connections=1)
    tally = recording.response["get"]
    assert percentile(tally, 0.99) < 20_000
    assert sum(count for value, count in tally.items() if value > 100_000) == 1
    assert max(tally) == pytest.approx(500_000, rel=0.1)


@pytest.mark.alone
@patiently
async def test_poisson_arrivals(server):
    recording = await drive(server, rate=1000, kind="poisson", seconds=1.0, connections=50)
    assert recording.counts.operations == pytest.approx(1000, rel=0.15)
    assert percentile(recording.lateness, 0.5) < 10_000


def test_arrivals_are_evenly_spaced_or_exponential():
    constant = arrivals(1000, "constant", 1, 0.5)
    assert [next(constant) for _ in range(3)] == [500_000, 1_500_000, 2_500_000]
    poisson = arrivals(1000, "poisson", 1)
    times = [next(poisson) for _ in range(5000)]
    gaps = [after - before for before, after in zip([0, *times], times, strict=False)]
    assert times == sorted(times)
    assert sum(gaps) / len(gaps) == pytest.approx(1e6, rel=0.05)
    mean_of_squares = sum(gap * gap for gap in gaps) / len(gaps)
    assert mean_of_squares == pytest.approx(2e12, rel=0.15)  # as for exponential gaps


@both
@pytest.mark.parametrize("pipeline", [1, 7])
async def test_errors_are_counted_by_kind(server, pipeline, budget):
    server.replies = {
        3: b"SERVER_ERROR out of memory\r\n",
        5: b"CLIENT_ERROR bad data chunk\r\n",
        11: b"ERROR\r\n",
        15: b"SERVER_ERROR out of memory\r\n",
    }
    recording = await drive(server, take=budget(40), pipeline=pipeline)
    assert recording.counts.errors == {
        "SERVER_ERROR out of memory": 2,
        "CLIENT_ERROR bad data chunk": 1,
        "ERROR": 1,
    }
    assert recording.counts.operations == 36


@both
async def test_a_closed_connection_is_replaced(server, budget):
    server.replies = {5: b"close"}
    recording = await drive(server, take=budget(20), connections=2)
    assert recording.counts.errors == {"connection closed": 1}
    assert recording.counts.operations == 19
    assert server.connections == 3


@both
async def test_a_request_without_reply_times_out(server, budget):
    server.replies = {5: b""}
    recording = await drive(server, take=budget(20), connections=2, timeout=2)
    assert recording.counts.errors == {"timeout": 1}
    assert recording.counts.operations == 19
    assert server.connections == 3


@both
async def test_an_invalid_reply_is_counted(server, budget):
    server.replies = {5: b"VALUE k 0 -1\r\n"}
    recording = await drive(server, take=budget(20))
    (kind,) = recording.counts.errors
    assert kind.startswith("not a memcached reply")


@pytest.mark.parametrize("plain", [None, plain()])
async def test_a_server_that_stops_is_counted(server, plain):
    recorder = Recorder()
    clients = TextClients(Settings(server.address, 2), get, recorder, plain)
    await clients.connect()
    recorder.begin(perf_counter_ns())
    server.replies = dict.fromkeys(range(10000), b"close")
    clients.start()
    await asyncio.sleep(0.5)
    clients.stop()
    await asyncio.wait_for(clients.drained(), 60)
    await clients.close()
    assert recorder.end().counts.errors["connection closed"] >= 4


@both
async def test_connections_that_are_lost_before_they_are_used(server, budget):
    """Each is replaced once, and none is counted as a success."""
    server.closes = True
    recorder, failures = Recorder(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, details: failures.append(details))
    take = budget(100)
    clients = TextClients(
        Settings(server.address, 5), take, recorder, take if budget is plain else None
    )
    await clients.connect()
    while server.connections < 20:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.01)
    clients.stop()
    await asyncio.wait_for(clients.drained(), 60)
    await clients.close()
    assert failures == []
    assert recorder.counts.operations == 0
    assert set(recorder.counts.errors) == {"connection closed"}


async def test_a_client_that_is_refused(server):
    server.greeting = b"ERROR Too many open connections\r\n"
    with pytest.raises(RefusedError):
        await drive(server, take=Budget(1))
    server.greeting = b"close"
    with pytest.raises(ConnectionResetError):
        await drive(server, take=Budget(1))


async def test_noreply_is_measured_by_the_reply_to_the_next_command(server):
    silent = Operation(b"set k 0 0 1 noreply\r\nx\r\n", "set", 0, 0, None)

    def make(count):
        return [silent] * (count - 1) + get(1)

    recording = await drive(server, take=Budget(80, make), pipeline=8)
    assert sum(recording.response["set"].values()) == 70
    assert sum(recording.response["get"].values()) == 10
    assert recording.counts.operations == 80
    assert not recording.counts.errors


async def test_think_time(server):
    recording = await drive(server, take=Budget(10), think_time=0.05)
    assert (recording.ended - recording.began) / 1e9 > 0.45


@both
@pytest.mark.parametrize(("pipeline", "think"), [(1, 0.0), (4, 0.0), (4, 0.05)])
@patiently
async def test_response_and_think_times_add_up_to_the_elapsed_time(server, budget, pipeline, think):
    if think and budget is plain:
        pytest.skip("plain connections do not think")
    server.service = 0.01
    recording = await drive(server, take=budget(40), pipeline=pipeline, think_time=think)
    responses = sum(time * count * 1000 for time, count in recording.response["get"].items())
    elapsed = (recording.ended - recording.began) * pipeline
    assert responses + recording.thought == pytest.approx(elapsed, rel=0.02)
    if think:
        pauses = 40 - pipeline  # there is no pause after the last requests
        assert recording.thought / pauses / 1e9 > 0.045


@pytest.mark.parametrize("take", [get, plain()])
async def test_results_per_second(server, take):
    recording = await drive(server, take=take, seconds=2.2, connections=2)
    # Seconds without operations are left out; the machine may stall for that long.
    seconds = list(recording.intervals)
    assert seconds == sorted(set(seconds))
    assert seconds[0] == 0
    assert 2 <= seconds[-1] <= (recording.ended - recording.began) // 10**9
    assert sum(operations for _, operations, _ in recording.intervals.values()) == (
        recording.counts.operations
    )
    assert sum(merged(recording.response).values()) == recording.counts.operations


@pytest.mark.parametrize("pipeline", [1, 16])
async def test_plain_operations_are_counted_like_others(memlite, pipeline):
    class Server:
        address = ("127.0.0.1", memlite.port)

    workload = {"mix": {"get": 3.0, "set": 1.0}, "keys": Keys(count=1_000, prefix=f"p{pipeline}-")}
    operations = Operations(Workload(**workload), seed=1, client=0, clients=1)
    recordings = []
    for take in (Budget(2_000, operations.take), plain(2_000, **workload)):
        with contextlib.closing(Client(Server.address)) as client:
            client.flush_all()
        recordings.append(await drive(Server, take=take, pipeline=pipeline))
    one, other = (recording.counts for recording in recordings)
    assert one == other
    assert min(one.hits, one.misses) > 100
    assert one.operations == 2_000
    kinds = [
        {kind: sum(tally.values()) for kind, tally in recording.response.items()}
        for recording in recordings
    ]
    assert kinds[0] == kinds[1]
    assert one.hits + one.misses == kinds[0]["get"]


async def test_operations_of_every_kind(memlite):
    mix = dict.fromkeys(
        ("get", "gets", "set", "add", "replace", "append", "prepend", "cas", "delete", "incr",
         "decr", "touch", "insert", "scan", "rmw"),
        1.0,
    )  # fmt: skip
    workload = Workload(mix=mix)
    workload = replace(workload, keys=replace(workload.keys, count=100), load=Load(multiget=1))
    operations = Operations(workload, seed=1, client=0, clients=1)
    preload = operations.preload()

    class Server:
        address = ("127.0.0.1", memlite.port)

    def stored(count):
        return [one for one, _ in zip(preload, range(count), strict=False)]

    recording = await drive(Server, take=stored, pipeline=10)
    assert not recording.counts.errors
    recording = await drive(
        Server, take=Budget(3000, operations.take), connections=4, pipeline=3, keep=True
    )
    assert recording.counts.errors == {}
    assert set(recording.response) == set(mix)
