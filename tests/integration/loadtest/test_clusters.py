"""The load tester and clusters: clients that know the nodes, and ``bench compare --cluster``."""

import asyncio
import contextlib
import itertools
import signal
from collections import Counter
from time import perf_counter_ns

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

import memlite.testing
from memlite.cli.main import main
from memlite.client.address import Address
from memlite.cluster.topology import Node, Topology, parse_nodes
from memlite.core.version import __version__
from memlite.loadtest import scaling
from memlite.loadtest.clients.nodes import Nodes, ask
from memlite.loadtest.clients.pacing import arrivals
from memlite.loadtest.clients.routed import RoutedClients
from memlite.loadtest.clients.settings import Settings
from memlite.loadtest.clients.text import TextClients
from memlite.loadtest.files import load
from memlite.loadtest.operations import Operations
from memlite.loadtest.recorder import Recorder
from memlite.loadtest.results import ClusterInfo
from memlite.loadtest.spreading import spread
from memlite.loadtest.supply import Supply
from memlite.loadtest.workload import Keys, Load, Workload
from tests.support.bench import bench
from tests.support.proxies import proxy
from tests.support.servers import START_SECONDS, RunningServer, needs_memcached

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
    """Run a workload with its number of operations, and return the recorded measurements."""
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
        while recorder.counts.operations < 200:  # noqa: ASYNC110 - no event
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


@pytest.mark.parametrize(
    ("clients", "workers", "expected"),
    [(5, 1, (3, 2)), (5, 2, (3, 2)), (3, 3, (2, 1)), (4, 3, (2, 2)), (1, 1, (1, 0))],
)
def test_clients_of_all_workers_are_spread_evenly(clients, workers, expected):
    found = Counter()
    for count, addresses in spread(clients, workers, ["a", "b"]):
        found.update(itertools.islice(itertools.cycle(addresses), count))
    assert (found["a"], found["b"]) == expected


async def test_connections_go_to_several_proxies_in_turn(cluster):
    nodes, _ = cluster
    running = [RunningServer("memlite", one.process, one.port) for one in nodes]
    with proxy(running) as one, proxy(running) as other:
        settings = Settings(
            ("127.0.0.1", one.port), 5, extra_addresses=(("127.0.0.1", other.port),)
        )
        clients = TextClients(settings, lambda _: [], Recorder())
        await clients.connect()
        counts = [int(each.stats()["curr_connections"]) for each in (one, other)]
        await clients.close()
    # Reading the statistics takes a connection as well.
    assert counts == [3 + 1, 2 + 1]


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
            while "connection refused" not in errors:  # noqa: ASYNC110 - no event
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
            settings, supply.take, recorder, Nodes(topology), supply.plain, discovers_nodes=True
        )
        await clients.connect()
        before = front.stats()
        recorder.begin(perf_counter_ns())
        supply.begin()
        clients.start()
        while recorder.counts.operations < 200:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        clients.stop()
        await asyncio.wait_for(clients.drained(), 60)
        await clients.close()
        assert not recorder.counts.errors
        # Keys are placed by the proxy's names for the nodes; no request passed through the proxy.
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
        await ask(Settings(nodes[0].address, 1), Address.of(nodes[0].address))


@pytest.fixture
def handlers():
    """Restore the handlers of signals that a command replaces."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


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
            assert (one.proxies is not None) == ("proxied" in point.target)
            assert one.proxies is None or one.proxies.queue is None  # there is no limit
            total = sum(use.cpu_seconds for use in one.processes.values())
            assert one.server.cpu_seconds == pytest.approx(total, abs=0.05)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["memory", pytest.param("memcached", marks=needs_memcached)])
def test_clients_are_spread_over_several_proxies(tmp_path, backend):
    done = bench(
        "compare", "--servers", "2", "--proxies", "1,2", "--in-flight", "4", "--clients", "5",
        *QUICK, "--value-size", "100", "--backends", backend, "--proxy-option", "replicas=2",
        "--server-option", "memory-limit=70", "--verify", "--out", tmp_path, "--no-report",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    assert [(one.name, one.cluster) for one in results.targets] == [
        ("2 nodes, proxied", ClusterInfo(2, "proxied", 1, 4)),
        ("2 nodes, 2 proxies", ClusterInfo(2, "proxied", 2, 4)),
    ]
    for target in results.targets:
        assert target.details["nodes' options"] == "--memory-limit=70"
        assert target.details["proxies' options"] == "--replicas=2 --in-flight=4"
    for point, names in zip(results.points, (["proxy"], ["proxy-1", "proxy-2"]), strict=True):
        assert not point.errors
        for one in point.repetitions:
            assert one.operations
            # On a busy machine, a key may not have been stored within the proxies' deadline.
            assert one.misses <= one.hits / 4
            assert list(one.processes) == [*names, "node-1", "node-2"]
            assert list(one.proxies.nodes) == ["node-1", "node-2"]
            # A worker takes a request at once or from the queue, and waits for the nodes: for one,
            # or with a change for both, which counts twice in the nodes' means and once in its own.
            # The means are of different requests, so only their magnitude can be compared.
            assert 0 < min(one.proxies.nodes.values()) < 10 * one.proxies.service
            assert one.proxies.queue >= 0
            assert one.proxies.think > 0
            # Time in the queue and at work is part of the response time that clients measure.
            assert one.proxies.queue + one.proxies.service < 2 * one.response["all"].mean
    assert {row.proxy is not None for row in scaling.rows(results)} == {True}


@pytest.mark.slow
@needs_memcached
def test_memcached_is_compared(tmp_path):
    done = bench(
        "compare", "--backends", "memory,memcached", "--clients", "2", *QUICK, "--value-size", "1m",
        "--keys", "10", "--server-option", "threads=1", "--out", tmp_path, "--no-report",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    memlite, memcached = load(tmp_path).targets
    assert memlite.server.endswith("memlite-" + __version__)
    assert (memcached.kind, "memlite" in memcached.server) == ("memcached", False)


@pytest.mark.slow
def test_clients_that_ask_leave_the_proxy_alone(tmp_path):
    done = bench(
        "compare", "--cluster", "2", "--paths", "asked", "--clients", "5", *QUICK,
        "--value-size", "100", "--out", tmp_path, "--no-report",
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
        (["--cluster", "0"], "argument --cluster/--servers: must be 1 or more"),
        (["--cluster", "x"], "argument --cluster/--servers: not a number: 'x'"),
        (["--cluster", "65"], "--cluster: at most 64 nodes, not 65"),
        (["--paths", "direct"], "--paths requires --cluster"),
        (["--cluster", "2", "--paths", "around"], "'around' is not one of proxied, direct"),
        (
            ["--cluster", "2", "--backends", "gcs"],
            "one of --backends memory, file, memcached, for all",
        ),
        (["--cluster", "2", "--backends", "memory,file"], "for all nodes, not 'memory,file'"),
        (["--cluster", "2", "--client", "pymemcache"], "requires --paths proxied"),
        (["--proxies", "2"], "--proxies requires --cluster"),
        (["--in-flight", "2"], "--in-flight requires --cluster"),
        (["--cluster", "2", "--proxies", "17"], "--proxies: at most 16, not 17"),
        (
            ["--cluster", "2", "--proxies", "2", "--paths", "direct"],
            "use --paths proxied",
        ),
        (
            ["--cluster", "2", "--proxies", "2", "--client", "pymemcache"],
            "pymemcache supports only one proxy",
        ),
        (
            ["--cluster", "2", "--proxies", "2", "--proxy-option", "trace=x"],
            "--proxy-option trace requires --proxies 1",
        ),
        (["--cluster", "2", "--in-flight", "1000000"], "--in-flight: must be from 1 to 16384"),
        (
            ["--cluster", "2", "--paths", "proxied,direct", "--proxy-option", "replicas=2"],
            "with --paths direct each key would have one copy: use --paths proxied,asked",
        ),
        (
            ["--cluster", "2", "--paths", "proxied", "--proxy-option", "replicas=3"],
            "number of nodes, 2, not 3",
        ),
        (
            ["--cluster", "2", "--in-flight", "2", "--proxy-option", "in-flight=3"],
            "--proxy-option in-flight is given twice",
        ),
        (["--server-option", "durabilty=none"], "no such option, did you mean durability?"),
    ],
)
def test_errors_of_a_cluster_are_reported_in_one_line(
    arguments, message, tmp_path, capsys, handlers
):
    code = main(["bench", "compare", *arguments, "--out", str(tmp_path / "out")])
    text = capsys.readouterr().err
    assert code == 64, text
    assert message in text
    assert len(text.splitlines()) == 1
    assert not (tmp_path / "out").exists()
