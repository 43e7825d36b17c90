"""Nodes that register themselves, and a proxy that follows them."""

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from memlite.client import ClusterClient
from memlite.protocol.discovery import CONFIG_GET
from memlite.testing.gcs_emulator import emulator_thread
from tests.support import stores
from tests.support.packets import packet, replies
from tests.support.program import run_forked as run
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

KEYS = [b"key:%d" % number for number in range(60)]
# Well above the sum of the lease and the intervals, as this machine may be busy.
LONG = 90.0


@pytest.fixture
def store(start: Callable[..., RunningServer]) -> RunningServer:
    return start()


@pytest.fixture
def url(store: RunningServer) -> str:
    return f"memcached://127.0.0.1:{store.port}/test"


@pytest.fixture
def join(start: Callable[..., RunningServer], url: str) -> Callable[..., RunningServer]:
    """Return a function that starts a node and waits until it has joined."""

    def join(name: str, *arguments: str) -> RunningServer:
        node = start("--join", url, "--name", name, *arguments)
        assert wait_until(lambda: name in members(url) and serves(node))
        return node

    return join


def members(url: str, **environment: str) -> dict[str, str]:
    """Return the addresses of the members by name."""
    shown = run("cluster", "show", url, "--json", **environment)
    assert shown.returncode == 0, shown.stderr
    return {one["name"]: one["address"] for one in json.loads(shown.stdout)["members"]}


def serves(node: RunningServer) -> bool:
    with contextlib.suppress(OSError), node.connect() as wire:
        return wire.ask(b"mn\r\n") == b"MN\r\n"
    return False


def nodes_up(front: RunningServer) -> int:
    with front.connect() as wire:
        return int(wire.stats()["proxy_nodes_up"])


def set_all(front: RunningServer) -> None:
    with front.connect() as wire:
        for key in KEYS:
            assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % key) == b"STORED\r\n"


def test_a_proxy_follows_the_nodes_that_join(url: str, join: Callable[..., RunningServer]) -> None:
    with proxy(url) as front:
        with front.connect() as wire:
            refused = wire.ask(b"get key\r\n")
        assert refused.startswith(
            (b"SERVER_ERROR the cluster has no nodes", b"SERVER_ERROR the no")
        )
        nodes = [join(name) for name in ("one", "two", "three")]
        assert wait_until(lambda: nodes_up(front) == len(nodes))
        set_all(front)
        held = [int(node.stats()["curr_items"]) for node in nodes]
        assert sum(held) == len(KEYS)
        assert all(held)
        placed = run("cluster", "route", "--json", KEYS[0].decode(), "--cluster", url)
        address = json.loads(placed.stdout)["address"]
        owner = next(node for node in nodes if address == f"127.0.0.1:{node.port}")
        assert owner.ask(b"get %b\r\n" % KEYS[0]).startswith(b"VALUE")


@pytest.mark.slow
def test_a_node_leaves_before_it_stops(url: str, join: Callable[..., RunningServer]) -> None:
    nodes = [join("one"), join("two")]
    replies: set[bytes] = set()
    stopped = threading.Event()
    with proxy(url) as front:
        assert wait_until(lambda: nodes_up(front) == len(nodes))
        set_all(front)

        def ask() -> None:
            with front.connect() as wire:
                while not stopped.is_set():
                    for key in KEYS:
                        replies.add(wire.ask(b"mg %b\r\n" % key))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            assert nodes[0].stop() == 0
        finally:
            stopped.set()
            asking.join()
    assert replies <= {b"HD\r\n", b"EN\r\n"}
    assert list(members(url)) == ["two"]


def test_a_node_joins_without_the_items_it_had(
    url: str, join: Callable[..., RunningServer], tmp_path: Path
) -> None:
    backend = ("--backend", f"file://{tmp_path}/cache.json")
    with running("memlite", *backend) as before:
        assert before.ask(b"set old 0 0 1\r\n1\r\n") == b"STORED\r\n"
        before.stop()
    assert join("one", *backend).ask(b"get old\r\n") == b"END\r\n"


def test_cas_uniques_of_an_earlier_node_are_not_given_out_again(
    join: Callable[..., RunningServer],
) -> None:
    uniques = []
    for name in ("first", "later"):
        node = join(name)
        for _ in range(3):  # as many changes in each
            assert node.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
            (head, *_) = node.ask(b"gets k\r\n").splitlines()
            uniques.append(int(head.split()[-1]))
    assert uniques == sorted(set(uniques))


def test_a_node_that_was_killed_joins_again_at_once(
    url: str, join: Callable[..., RunningServer], start: Callable[..., RunningServer]
) -> None:
    node = join("one")
    node.stop(signal.SIGKILL)
    again = start("--advertise", f"127.0.0.1:{node.port}", "--join", url, "--name", "one")
    assert wait_until(lambda: serves(again))
    assert not again.log.read_text(), "it has waited for the lease"


@pytest.mark.slow
def test_a_name_in_use_is_refused(url: str, join: Callable[..., RunningServer]) -> None:
    node = join("one")
    second = run("-p", "0", "--join", url, "--name", "one")
    assert second.returncode == 71
    text = f"memlite: --name: the name one is in use by the node at 127.0.0.1:{node.port}\n"
    assert second.stderr.splitlines(keepends=True)[-1] == text
    assert serves(node)


def test_a_store_that_cannot_be_used_ends_the_start() -> None:
    for command in (["-p", "0", "--join"], ["proxy", "-p", "0", "--cluster"], ["cluster", "show"]):
        ended = run(*command, "memcached://127.0.0.1:1/x")
        assert ended.returncode == 71, command
        assert "memcached://127.0.0.1:1: Connection refused" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--join", "http://x"], "--join: must be gs://bucket/prefix, valkey://host:port/prefix"),
        (["--join", "valkey://h?wait=x"], "--join: valkey: wait must be a number"),
        (
            ["--join", "gs://b", "--backend", "valkey://h"],
            "--join: cannot be combined with valkey://h",
        ),
        (["--join", "memcached://h:p/x"], "--join: not HOST:PORT"),
        (["--join", "memcached://h/a b"], "--join: prefix must have at most 100 bytes and no"),
        (["--name", "one"], "--name: applies only to nodes of a cluster; it requires --join"),
        (["--join", "gs://b", "--backend", "gs://b/p"], "--join: cannot be combined with gs://b/p"),
        (["--join", "gs://b", "-s", "/tmp/s"], "--join: other machines cannot reach a UNIX socket"),
        (["--join", "gs://b", "--name", "a b"], "--name: must have 1 to 100 bytes and no spaces"),
        (
            ["--join", "memcached://h", "-p", "0", "-l", "0.0.0.0"],
            "--advertise: required with -l 0.0.0.0, which does not say where to reach this node",
        ),
        (
            ["--join", "memcached://h", "--advertise", "/a"],
            "--advertise: must be HOST or HOST:PORT",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_settings_are_refused_in_one_line(arguments: list[str], text: str) -> None:
    ended = run("-p", "0", *arguments)
    assert ended.returncode == 64
    assert ended.stderr.splitlines()[-1].startswith(f"memlite: {text}")
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_nodes_register_in_a_bucket() -> None:
    with emulator_thread(["bucket"]) as emulator:
        check_registration("gs://bucket/cluster", {"STORAGE_EMULATOR_HOST": emulator.url})


@pytest.mark.slow
@pytest.mark.parametrize("clustered", [False, True], ids=["single", "cluster"])
def test_nodes_register_in_valkey(clustered: bool) -> None:
    pytest.importorskip("redis", reason="needs memlite-cache[valkey]")
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(stores.cluster())[0] if clustered else None
        port = (one or stack.enter_context(stores.store())).port
        environment = {"MEMLITE_VALKEY_PASSWORD": ""}
        check_registration(f"valkey://127.0.0.1:{port}/cluster", environment)


def check_registration(url: str, environment: Mapping[str, str]) -> None:
    """Check that nodes join and leave, and that a proxy follows."""
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(
                running("memlite", "--join", url, "--name", name, environment=environment)
            )
            for name in ("one", "two")
        ]
        with proxy(url, environment=environment) as front:
            assert wait_until(lambda: nodes_up(front) == len(nodes))
            set_all(front)
            nodes[0].stop()
            assert list(members(url, **environment)) == ["two"]


# These wait for a lease to run out


@pytest.mark.slow
def test_a_node_that_is_killed_is_removed(url: str, join: Callable[..., RunningServer]) -> None:
    nodes = [join(name) for name in ("one", "two", "three")]
    with proxy(url) as front:
        assert wait_until(lambda: nodes_up(front) == len(nodes))
        nodes[1].stop(signal.SIGKILL)
        assert wait_until(lambda: list(members(url)) == ["one", "three"], LONG, 0.5)
        assert wait_until(lambda: front.stats()["proxy_nodes"] == "2")
        set_all(front)


@pytest.mark.slow
def test_a_node_that_was_stopped_does_not_serve_what_it_held(
    url: str, join: Callable[..., RunningServer]
) -> None:
    node, _ = join("one"), join("two")
    with node.connect() as wire, node.connect() as second:
        assert wire.ask(b"set key 0 0 3\r\nold\r\n") == b"STORED\r\n"
        node.pause()
        try:
            assert wait_until(lambda: list(members(url)) == ["two"], LONG, 0.5)
            wire.send(b"get key\r\n")
            second.send(b"mn\r\n")
        finally:
            node.process.send_signal(signal.SIGCONT)
        assert wire.rest().startswith(b"SERVER_ERROR this node is not in its cluster")
    assert wait_until(lambda: list(members(url)) == ["one", "two"] and serves(node))
    assert node.ask(b"get key\r\n") == b"END\r\n"


@pytest.mark.slow
def test_without_its_store_a_node_stops_serving_when_its_lease_runs_out(
    store: RunningServer, url: str, join: Callable[..., RunningServer]
) -> None:
    node = join("one")
    with proxy(url) as front:
        assert wait_until(lambda: nodes_up(front) == 1)
        set_all(front)
        store.pause()
        try:
            assert serves(node)
            assert wait_until(lambda: not serves(node), LONG, 0.5)
            refused = b"SERVER_ERROR the cluster's store cannot be read: no reply in 2 s\r\n"
            assert wait_until(lambda: asked(front) == refused, LONG, 0.5)
        finally:
            store.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: serves(node))
        # No other node has taken its place, so it still has its items.
        assert wait_until(lambda: asked(front).startswith(b"HD"), LONG, 0.5)


def asked(front: RunningServer) -> bytes:
    with front.connect() as wire:
        return wire.ask(b"mg %b\r\n" % KEYS[0])


async def test_clients_discover_nodes_that_have_joined(
    url: str, join: Callable[..., RunningServer]
) -> None:
    with proxy(url) as front:
        for request in (b"config get cluster\r\n", b"config get topology\r\n"):
            with front.connect() as wire:
                assert wire.ask(request).startswith(b"SERVER_ERROR the ")
        nodes = [join(name) for name in ("one", "two")]
        assert wait_until(lambda: nodes_up(front) == 2)
        set_all(front)
        async with ClusterClient(f"127.0.0.1:{front.port}") as cluster:
            assert {node.name for node in cluster.map.nodes} == {"one", "two"}
            assert len(await cluster.get_many(KEYS)) == len(KEYS)
        # A node lists the same nodes as the proxy. The last to join knows the others at once.
        assert listed(nodes[1]) == [f"127.0.0.1|127.0.0.1|{node.port}" for node in nodes]
        (found,) = replies(nodes[1].ask(packet(CONFIG_GET, b"cluster")))
        assert found.value.split(b"\n")[1].decode().split() == listed(nodes[1])
        async with ClusterClient(f"127.0.0.1:{nodes[1].port}") as cluster:
            assert {node.name for node in cluster.map.nodes} == {"one", "two"}
            assert len(await cluster.get_many(KEYS)) == len(KEYS)
        for request in (b"config\r\n", b"config get\r\n", b"config set cluster\r\n"):
            with nodes[1].connect() as wire:
                assert wire.ask(request) == b"ERROR\r\n"


def test_nodes_list_ip_addresses_of_host_names(join: Callable[..., RunningServer]) -> None:
    node = join("one", "--advertise", "localhost")
    # It is looked up after the node has joined.
    assert wait_until(lambda: listed(node) == [f"localhost|127.0.0.1|{node.port}"])


def listed(node: RunningServer) -> list[str]:
    """Return the nodes that a node lists."""
    with node.connect() as wire:
        wire.send(b"config get cluster\r\n")
        reply = wire.until(b"END\r\n")
    assert reply.startswith(b"CONFIG cluster 0 "), reply
    return reply.split(b"\n")[2].decode().split()
