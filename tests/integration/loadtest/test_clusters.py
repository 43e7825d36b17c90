"""The load tester and clusters: clients that know the nodes, and ``bench compare --cluster``."""

import asyncio
import contextlib
import itertools
import signal
import subprocess
import sys
from time import perf_counter_ns

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

import memlite.testing
from memlite.cli.main import main
from memlite.client.address import Address
from memlite.cluster.topology import Node, Topology, parse_nodes
from memlite.loadtest.clients.nodes import Nodes, ask
from memlite.loadtest.clients.pacing import arrivals
from memlite.loadtest.clients.routed import RoutedClients
from memlite.loadtest.clients.settings import Settings
from memlite.loadtest.files import load
from memlite.loadtest.operations import Operations
from memlite.loadtest.recorder import Recorder
from memlite.loadtest.supply import Supply
from memlite.loadtest.workload import Keys, Load, Workload
from tests.support.proxies import proxy
from tests.support.servers import START_SECONDS, RunningServer

KEYS = 300
QUICK = ["--duration", "300ms", "--warm-up", "20ms", "--repetitions", "2", "--keys", "200"]


@pytest.fixture(scope="module")
def cluster():
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(memlite.testing.server(start_timeout=START_SECONDS))
            for _ in range(3)
        ]
        topology = Topology(
            tuple(
                Node(f"node-{number}", Address.of(node.address))
                for number, node in enumerate(nodes, 1)
            )
        )
        yield nodes, topology


def held(node, keys):
    with node.connect() as connection, connection.makefile("rb") as lines:
        found = set()
        for key in keys:
            connection.sendall(b"get %b\r\n" % key)
            line = lines.readline()
            if line.startswith(b"VALUE"):
                found.add(key)
                lines.read(int(line.split()[3]) + 2)
                line = lines.readline()
            assert line == b"END\r\n"
        return found


async def preload(topology, workload):
    recorder = Recorder()
    operations = Operations(workload, seed=1, client=0, clients=1, verify=True).preload()

    def take(count):
        return list(itertools.islice(operations, count))

    clients = RoutedClients(Settings(("", 0), 2, 4), take, recorder, Nodes(topology))
    await clients.connect()
    clients.start()
    await asyncio.wait_for(clients.drained(), 60)
    await clients.close()
    assert not recorder.counts.errors


async def drive(topology, workload, *, verify=False, connections=2):
    """Run a workload with as many operations as it says, and return what was recorded."""
    supply = Supply(workload, worker=0, workers=1, seed=1, verify=verify)
    recorder = Recorder()
    settings = Settings(
        ("", 0), connections, workload.load.pipeline, check=supply.check, keep=supply.keep_values
    )
    clients = RoutedClients(settings, supply.take, recorder, Nodes(topology), supply.plain)
    await clients.connect()
    began = perf_counter_ns()
    recorder.begin(began)
    supply.begin()
    if workload.load.rate:
        clients.start_at(arrivals(workload.load.rate, "constant", 1), began)
        while recorder.counts.operations < 200:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        clients.stop()
    else:
        clients.start()
    await asyncio.wait_for(clients.drained(), 60)
    await clients.close()
    return recorder.end()


async def test_each_key_is_stored_where_the_router_says(cluster):
    nodes, topology = cluster
    await preload(topology, Workload(keys=Keys(count=KEYS, prefix="where:")))
    keys = [b"where:%d" % number for number in range(KEYS)]
    router = topology.router()
    for number, node in enumerate(nodes):
        expected = {key for key in keys if router.index(key) == number}
        assert expected
        assert held(node, keys) == expected


MIXES = {
    "plain": ({"get": 10.0, "set": 1.0}, {}),
    "plain, pipelined": ({"get": 10.0, "set": 1.0}, {"pipeline": 7}),
    "two steps": ({"get": 1.0, "cas": 1.0, "rmw": 1.0, "gets": 1.0}, {"pipeline": 3}),
    "multiget": ({"get": 3.0, "set": 1.0}, {"multiget": 10}),
    "multiget, pipelined": ({"get": 3.0, "set": 1.0}, {"multiget": 10, "pipeline": 4}),
    "noreply": ({"get": 1.0, "set": 1.0}, {"noreply": True, "pipeline": 4}),
    "everything": ({"incr": 1.0, "append": 1.0, "touch": 1.0, "add": 1.0, "scan": 1.0}, {}),
}


@pytest.mark.parametrize("name", MIXES)
async def test_every_kind_of_operation_reaches_its_node(cluster, name):
    _, topology = cluster
    mix, how = MIXES[name]
    keys = Keys(count=KEYS, prefix=f"{name.replace(' ', '-')}:")
    workload = Workload(mix=mix, keys=keys, load=Load(operations=600, **how))
    await preload(topology, workload)
    recording = await drive(topology, workload, verify="append" not in mix)
    counts = recording.counts
    assert not counts.errors
    assert counts.misses == 0
    # An operation of several keys is timed once, and counts as many.
    assert sum(sum(tally.values()) for tally in recording.response.values()) == 600
    multiget = how.get("multiget", 1)
    gets = sum(recording.response.get("get", {}).values())
    if "scan" not in mix:
        assert counts.operations == 600 + gets * (multiget - 1)


async def test_open_loop(cluster):
    _, topology = cluster
    keys = Keys(count=KEYS, prefix="open:")
    workload = Workload(keys=keys, load=Load(rate=2000.0, multiget=5), mix={"get": 1.0})
    await preload(topology, workload)
    recording = await drive(topology, workload)
    assert not recording.counts.errors
    assert recording.counts.misses == 0
    assert set(recording.service) == {"get"}


async def test_a_node_that_dies_is_counted_and_the_clients_go_on_trying():
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(memlite.testing.server(start_timeout=START_SECONDS))
            for _ in range(2)
        ]
        topology = Topology(tuple(Node(f"{node.port}", Address.of(node.address)) for node in nodes))
        workload = Workload(keys=Keys(count=KEYS), mix={"get": 1.0})
        supply = Supply(workload, worker=0, workers=1, seed=1, verify=False)
        recorder = Recorder()
        settings = Settings(("", 0), 3)
        clients = RoutedClients(settings, supply.take, recorder, Nodes(topology), supply.plain)
        await clients.connect()
        recorder.begin(perf_counter_ns())
        supply.begin()
        clients.start()
        nodes[0].process.kill()
        errors = recorder.counts.errors
        async with asyncio.timeout(60):
            while "connection refused" not in errors:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        clients.stop()
        await asyncio.wait_for(clients.drained(), 60)
        await clients.close()
        assert errors.get("connection closed", 0) + errors.get("connection reset", 0) >= 1


async def test_clients_that_ask_a_proxy_go_to_the_nodes_it_lists(cluster):
    nodes, topology = cluster
    workload = Workload(keys=Keys(count=KEYS, prefix="asked:"), mix={"set": 1.0, "get": 1.0})
    with proxy([RunningServer("memlite", one.process, one.port) for one in nodes]) as front:
        supply = Supply(workload, worker=0, workers=1, seed=1, verify=False)
        recorder = Recorder()
        settings = Settings(("127.0.0.1", front.port), 3)
        clients = RoutedClients(
            settings, supply.take, recorder, Nodes(topology), supply.plain, asks=True
        )
        await clients.connect()
        before = front.stats()
        recorder.begin(perf_counter_ns())
        supply.begin()
        clients.start()
        while recorder.counts.operations < 200:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        clients.stop()
        await asyncio.wait_for(clients.drained(), 60)
        await clients.close()
        assert not recorder.counts.errors
        # The names that the proxy gives the nodes are hashed, and nothing has passed the proxy.
        keys = [b"asked:%d" % number for number in range(KEYS)]
        index = parse_nodes(",".join(f"127.0.0.1:{one.port}" for one in nodes)).router().index
        stored = [held(node, keys) for node in nodes]
        assert sum(map(len, stored)) > 20
        for number, found in enumerate(stored):
            assert all(index(key) == number for key in found)
        after = front.stats()
        for one in nodes:
            name = f"node:127.0.0.1:{one.port}:requests"
            assert after[name] == before[name]
    with pytest.raises(OSError, match="it lists no nodes"):
        await ask(Settings(nodes[0].address, 1))


@pytest.fixture
def handlers():
    """Restore the handlers of signals that a command replaces."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def bench(*arguments, timeout=200):
    return subprocess.run(
        [sys.executable, "-m", "memlite", "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.slow
def test_clusters_are_compared(tmp_path):
    done = bench(
        "compare", "--cluster", "1,2", "--paths", "proxied,direct", "--clients", "2", *QUICK,
        "--verify", "--value-size", "100,1m", "--keys", "20", "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    assert [(one.name, one.cluster.nodes, one.cluster.path) for one in results.targets] == [
        ("1 node, proxied", 1, "proxied"),
        ("1 node, direct", 1, "direct"),
        ("2 nodes, proxied", 2, "proxied"),
        ("2 nodes, direct", 2, "direct"),
    ]
    assert {(one.target, one.value_size) for one in results.points} == {
        (target.name, size) for target in results.targets for size in (100, 1024**2)
    }
    assert not results.bursts
    for point in results.points:
        assert not point.errors
        for one in point.repetitions:
            assert one.operations
            assert one.misses == 0
            names = [f"node-{number}" for number in range(1, int(point.target[0]) + 1)]
            assert list(one.processes) == ["proxy"] * ("proxied" in point.target) + names
            total = sum(use.cpu_seconds for use in one.processes.values())
            assert one.server.cpu_seconds == pytest.approx(total, abs=0.05)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_clients_that_ask_leave_the_proxy_alone(tmp_path):
    done = bench(
        "compare", "--cluster", "2", "--paths", "asked", "--clients", "5", *QUICK,
        "--value-size", "100", "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (point,) = load(tmp_path).points
    assert not point.errors
    for one in point.repetitions:
        assert one.operations
        assert list(one.processes) == ["proxy", "node-1", "node-2"]
        nodes = min(one.processes[name].cpu_seconds for name in ("node-1", "node-2"))
        assert one.processes["proxy"].cpu_seconds < max(0.02, nodes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster", "0"], "argument --cluster: must be 1 or more"),
        (["--cluster", "x"], "argument --cluster: not a number: 'x'"),
        (["--cluster", "65"], "--cluster: at most 64 nodes, not 65"),
        (["--paths", "direct"], "--paths is for clusters: use --cluster as well"),
        (["--cluster", "2", "--paths", "around"], "'around' is not one of proxied, direct"),
        (["--cluster", "2", "--backends", "gcs"], "--cluster takes one of --backends memory or f"),
        (["--cluster", "2", "--backends", "memory,file"], "for all nodes, not 'memory,file'"),
        (["--cluster", "2", "--client", "pymemcache"], "use --paths proxied"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_said_in_one_line(
    arguments, message, tmp_path, capsys, handlers
):
    code = main(["bench", "compare", *arguments, "--out", str(tmp_path / "out")])
    text = capsys.readouterr().err
    assert code == 64, text
    assert message in text
    assert len(text.splitlines()) == 1
    assert not (tmp_path / "out").exists()
