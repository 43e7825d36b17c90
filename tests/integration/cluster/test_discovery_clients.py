"""Unmodified discovery clients at a proxy and at a node, and the request form of old clients.

pymemcache's client is in no release up to 4.0.0: ``MEMLITE_TEST_PYMEMCACHE`` names a folder with
a later version. The client of dalli needs Ruby with the gem dalli-elasticache.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pymemcache.client.hash import HashClient

from memlite.protocol.discovery import CLUSTER_KEY, CONFIG_GET
from memlite.protocol.packets import Opcode, Status
from tests.support.clusters import Cluster, cluster
from tests.support.packets import NOOP, Reply, packet, replies
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

KEYS = [f"key:{number}" for number in range(60)]
OLD = b"get %b\r\n" % CLUSTER_KEY

# Clients that store and read items, and print the nodes and whether all items were found.
PYMEMCACHE = """
import json, sys
from pymemcache.client.ext.aws_ec_client import AWSElastiCacheHashClient

client = AWSElastiCacheHashClient(sys.argv[1], timeout=60)
values = {key: "value of " + key for key in sys.argv[2:]}
assert client.set_many(values, noreply=False) == []
found = {key: value.decode() for key, value in client.get_many(list(values)).items()}
print(json.dumps([sorted(client.clients), found == values]))
"""
DALLI = """
require 'dalli-elasticache'

address, engine, *keys = ARGV
found = Dalli::ElastiCache.new(address)
found.endpoint.define_singleton_method(:engine_version) { engine } unless engine.empty?
client = found.client
keys.each { |key| client.set(key, "value of #{key}", nil, raw: true) }
puts found.servers.sort.inspect
puts keys.all? { |key| client.get(key) == "value of #{key}" }
"""


@pytest.fixture(scope="module")
def here() -> Iterator[Cluster]:
    with cluster() as running_:
        for name in "abc":
            running_.join(name)
        assert wait_until(lambda: all(len(listed(one)) == 3 for one in running_.nodes.values()))
        yield running_


@pytest.fixture(scope="module")
def front(here: Cluster) -> Iterator[RunningServer]:
    front = here.proxy()
    assert wait_until(lambda: len(listed(front)) == 3)
    yield front


@pytest.fixture(params=["proxy", "node"])
def asked(request: pytest.FixtureRequest, here: Cluster, front: RunningServer) -> RunningServer:
    """The server that the client asks for the nodes."""
    return front if request.param == "proxy" else here.nodes["b"]


def listed(server: RunningServer) -> list[bytes]:
    with server.connect() as wire:
        if not wire.ask(b"config get cluster\r\n").startswith(b"CONFIG "):
            return []
        return wire.until(b"END\r\n").split(b"\n")[1].split()


def addresses(here: Cluster) -> list[str]:
    return sorted(f"127.0.0.1:{node.port}" for node in here.nodes.values())


def with_pymemcache() -> dict[str, str]:
    folder = os.environ.get("MEMLITE_TEST_PYMEMCACHE", "")
    return {**os.environ, "PYTHONPATH": folder} if folder else dict(os.environ)


def has_pymemcache() -> bool:
    line = [sys.executable, "-c", "import pymemcache.client.ext.aws_ec_client"]
    return not subprocess.run(
        line, env=with_pymemcache(), capture_output=True, check=False
    ).returncode


def has_dalli() -> bool:
    ruby = shutil.which("ruby")
    if ruby is None:
        return False
    line = [ruby, "-e", "require 'dalli-elasticache'"]
    return not subprocess.run(line, capture_output=True, check=False).returncode


@pytest.mark.skipif(
    not has_pymemcache(),
    reason="no pymemcache with AWSElastiCacheHashClient (MEMLITE_TEST_PYMEMCACHE names its folder)",
)
def test_pymemcache(here: Cluster, asked: RunningServer) -> None:
    line = [sys.executable, "-c", PYMEMCACHE, f"127.0.0.1:{asked.port}", *KEYS]
    ran = subprocess.run(
        line, env=with_pymemcache(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [addresses(here), True]
    # It went to the nodes directly, and other clients find its items there.
    nodes = [("127.0.0.1", node.port) for node in here.nodes.values()]
    with contextlib.closing(HashClient(nodes, timeout=60)) as direct:
        assert direct.get_many(KEYS) == {key: f"value of {key}".encode() for key in KEYS}


@pytest.mark.skipif(not has_dalli(), reason="no ruby with the gem dalli-elasticache")
@pytest.mark.parametrize("engine", ["", "1.4.5"], ids=["config", "old form"])
def test_dalli(here: Cluster, asked: RunningServer, engine: str) -> None:
    ruby = shutil.which("ruby") or "ruby"
    line = [ruby, "-e", DALLI, f"127.0.0.1:{asked.port}", engine, *KEYS]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [json.dumps(addresses(here)), "true"]


# The old form, at nodes


Start = Callable[..., RunningServer]


@pytest.fixture
def start() -> Iterator[tuple[Cluster, Start]]:
    """A cluster without nodes, and a function that starts its only node."""
    with cluster() as alone:

        def start(*options: str) -> RunningServer:
            node = alone.join("a", *options)
            assert wait_until(lambda: len(listed(node)) == 1)
            return node

        yield alone, start


@pytest.mark.parametrize(
    "options",
    [(), ("--slow-log", "1s"), ("--backend", "file"), ("-o", "track_sizes")],
    ids=" ".join,
)
def test_nodes_answer_the_old_form(
    start: tuple[Cluster, Start], tmp_path: Path, options: tuple[str, ...]
) -> None:
    if "file" in options:
        options = ("--backend", f"file://{tmp_path}/cache.json")
    node = start[1](*options)
    with node.connect() as wire:
        wire.send(b"config get cluster\r\n")
        reply = wire.until(b"END\r\n")
        payload = reply.split(b"\r\n")[1]
        version = payload.split(b"\n")[0]
        size = b"%d" % len(payload)
        head = b"VALUE %b 0 %b" % (CLUSTER_KEY, size)
        old = b"%b\r\n%b\r\nEND\r\n" % (head, payload)
        unique = b"%b %b\r\n%b\r\nEND\r\n" % (head, version, payload)
        gets = OLD.replace(b"get", b"gets")
        wire.send(OLD)
        assert wire.exactly(len(old)) == old
        # Among other requests, alone in a read, and in pieces.
        wire.send(b"set x 0 0 1\r\nx\r\n" + OLD + b"get x\r\nget none\r\n" + gets + OLD + b"mn\r\n")
        one = b"VALUE x 0 1\r\nx\r\nEND\r\n"
        assert (
            wire.until(b"MN\r\n")
            == b"STORED\r\n" + old + one + b"END\r\n" + unique + old + b"MN\r\n"
        )
        for part in (OLD[:9], OLD[9:-1], OLD[-1:]):
            wire.send(part)
        assert wire.exactly(len(old)) == old
        # To other commands, and in a get of several keys, it is an ordinary key.
        for request in (b"mg %b v\r\n", b"get %b x2\r\n", b"delete %b\r\n", b"touch %b 1\r\n"):
            assert wire.ask(request % CLUSTER_KEY) in (b"EN\r\n", b"END\r\n", b"NOT_FOUND\r\n")
    found = replies(
        node.ask(
            packet(CONFIG_GET, b"cluster")
            + packet(Opcode.GET, CLUSTER_KEY)
            + packet(Opcode.GETKQ, CLUSTER_KEY)
            + NOOP
        )
    )
    plain = {"extras": bytes(4), "value": payload}
    assert found[:3] == [
        Reply(CONFIG_GET, **plain),
        Reply(Opcode.GET, **plain, cas=int(version)),
        Reply(Opcode.GETKQ, **plain, key=CLUSTER_KEY, cas=int(version)),
    ]


def test_an_item_with_this_key_is_served(start: tuple[Cluster, Start]) -> None:
    node = start[1]()
    with node.connect() as wire:
        assert wire.ask(b"set %b 0 0 4\r\nmine\r\n" % CLUSTER_KEY) == b"STORED\r\n"
        for _ in range(2):
            wire.send(OLD)
            assert wire.until(b"END\r\n") == b"VALUE %b 0 4\r\nmine\r\nEND\r\n" % CLUSTER_KEY
        assert wire.ask(b"delete %b\r\n" % CLUSTER_KEY) == b"DELETED\r\n"
        wire.send(OLD)
        assert b"127.0.0.1|127.0.0.1|%d\n" % node.port in wire.until(b"END\r\n")


@pytest.mark.parametrize("options", [(), ("-t", "2")], ids=" ".join)
def test_a_server_that_is_in_no_cluster_has_a_miss(options: tuple[str, ...]) -> None:
    with running("memlite", *options) as server:
        with server.connect() as wire:
            for request in (OLD, OLD + OLD, OLD.replace(b"get", b"gets")):
                wire.send(request + b"mn\r\n")
                assert wire.until(b"MN\r\n") == b"END\r\n" * request.count(b"\n") + b"MN\r\n"
        assert int(server.stats()["get_misses"]) == 4
        found = replies(
            server.ask(packet(Opcode.GET, CLUSTER_KEY) + packet(Opcode.GETQ, CLUSTER_KEY) + NOOP)
        )
        assert [one.status for one in found] == [Status.NOT_FOUND, Status.SUCCESS]


def test_nodes_refuse_the_old_form_as_the_new_one(start: tuple[Cluster, Start]) -> None:
    alone, _ = start
    assert alone.run("replicas", "2").returncode == 0
    node = alone.join("a", "--spare")
    refusal = b"SERVER_ERROR "

    def same() -> bool:
        with node.connect() as wire:
            new = wire.ask(b"config get cluster\r\n")
            return new.startswith(refusal) and wire.ask(OLD) == new

    assert wait_until(same)
