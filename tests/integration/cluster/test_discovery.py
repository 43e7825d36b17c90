"""Auto discovery: the node lists of proxies, and clients that go to the nodes directly."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymemcache.client.base import Client
from pymemcache.client.hash import HashClient

from memlite.protocol.discovery import CONFIG_GET
from memlite.protocol.packets import Opcode, Status
from tests.support.packets import NOOP, Reply, packet, replies
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, Wire, needs_memcached, running
from tests.support.waiting import wait_until

KEYS = [f"key:{number}" for number in range(60)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[RunningServer, ...]]:
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(running("memlite")) for _ in range(3))


@pytest.fixture(scope="module")
def front(nodes: tuple[RunningServer, ...]) -> Iterator[RunningServer]:
    with proxy(nodes, "--hash", "rendezvous") as front:
        yield front


def payload(wire: Wire, request: bytes, head: bytes) -> tuple[int, bytes]:
    """Check the form of the reply to a request; return its version and its second line."""
    wire.send(request)
    line = wire.line()
    assert line.startswith(head)
    size = int(line.split()[3])
    version, text, rest = wire.exactly(size).split(b"\n")
    assert rest == b""
    assert wire.exactly(7) == b"\r\nEND\r\n"
    return int(version), text


def listed(wire: Wire) -> tuple[int, bytes]:
    return payload(wire, b"config get cluster\r\n", b"CONFIG cluster 0 ")


def addresses(nodes: tuple[RunningServer, ...]) -> bytes:
    return b" ".join(b"127.0.0.1|127.0.0.1|%d" % node.port for node in nodes)


def test_all_forms_list_the_nodes(front: RunningServer, nodes: tuple[RunningServer, ...]) -> None:
    key = b"AmazonElastiCache:cluster"
    with front.connect() as wire:
        version, text = listed(wire)
        assert text == addresses(nodes)
        assert payload(wire, b"get %b\r\n" % key, b"VALUE %b 0 " % key) == (version, text)
        wire.send(b"gets %b\r\n" % key)
        assert wire.until(b"END\r\n").split(b"\r\n")[0].split()[4] == b"%d" % version


@pytest.mark.parametrize("options", [(), ("--in-flight", "1")], ids=str)
def test_binary_forms_list_the_nodes(
    nodes: tuple[RunningServer, ...], options: tuple[str, ...]
) -> None:
    with proxy(nodes, *options) as front:
        with front.connect() as wire:
            wire.send(b"config get cluster\r\n")
            payload = wire.until(b"END\r\n").split(b"\r\n")[1]
        key = b"AmazonElastiCache:cluster"
        requests = packet(CONFIG_GET, b"cluster") + packet(Opcode.GETK, key)
        found = replies(front.ask(requests + packet(CONFIG_GET, b"topology")))
        version = int(payload.split(b"\n")[0])
        assert found[:2] == [
            Reply(CONFIG_GET, extras=bytes(4), value=payload),
            Reply(Opcode.GETK, extras=bytes(4), key=key, value=payload, cas=version),
        ]
        assert json.loads(found[2].value.split(b"\n")[1])["hash"] == "ketama"


@pytest.mark.parametrize("key", [b"nodes", b"", b"cluster x"])
def test_other_keys_of_binary_clients_are_errors(front: RunningServer, key: bytes) -> None:
    (found,) = replies(front.ask(packet(CONFIG_GET, key)))
    assert found.status == Status.UNKNOWN_COMMAND


def test_the_key_is_an_ordinary_one_to_other_commands(front: RunningServer) -> None:
    key = b"AmazonElastiCache:cluster"
    with front.connect() as wire:
        assert wire.ask(b"mg %b v\r\n" % key) == b"EN\r\n"
        assert wire.ask(b"get %b other\r\n" % key) == b"END\r\n"
        assert wire.ask(b"delete %b\r\n" % key) == b"NOT_FOUND\r\n"


def test_the_topology_is_described(front: RunningServer, nodes: tuple[RunningServer, ...]) -> None:
    with front.connect() as wire:
        version, text = payload(wire, b"config get topology\r\n", b"CONFIG topology 0 ")
        assert version == listed(wire)[0]
    names = [f"127.0.0.1:{node.port}" for node in nodes]
    assert json.loads(text) == {
        "hash": "rendezvous",
        "hash_tag": "",
        "nodes": [{"name": name, "address": name, "weight": 1} for name in names],
    }


@pytest.mark.parametrize(
    "request_",
    [b"config", b"config get", b"config get nodes", b"config set cluster 0 1", b"config get  x"],
)
def test_other_words_are_errors(front: RunningServer, request_: bytes) -> None:
    with front.connect() as wire:
        assert wire.ask(request_ + b"\r\n") == b"ERROR\r\n"


@pytest.mark.parametrize("kind", ["memlite", pytest.param("memcached", marks=needs_memcached)])
def test_a_server_outside_a_cluster_answers_as_memcached(kind: str) -> None:
    with running(kind) as server, server.connect() as wire:
        for what in (b"cluster", b"topology"):
            assert wire.ask(b"config get %b\r\n" % what) == b"ERROR\r\n"
        assert wire.ask(b"get AmazonElastiCache:cluster\r\n") == b"END\r\n"


def test_a_server_outside_a_cluster_answers_binary_clients() -> None:
    with running("memlite") as server:
        requests = packet(CONFIG_GET, b"cluster") + packet(CONFIG_GET, b"cluster", value=b"x")
        found = replies(server.ask(requests + NOOP))
        assert [one.status for one in found] == [Status.UNKNOWN_COMMAND] * 2 + [Status.SUCCESS]


def test_the_version_rises_when_the_topology_changes(
    nodes: tuple[RunningServer, ...], tmp_path: Path
) -> None:
    path = tmp_path / "cluster.toml"
    tables = [f'[[nodes]]\naddress = "127.0.0.1:{node.port}"\n' for node in nodes]
    path.write_text("".join(tables), encoding="utf-8")
    with proxy(path) as front, front.connect() as wire:
        version, text = listed(wire)
        assert text == addresses(nodes)
        path.write_text("".join(tables[:2]), encoding="utf-8")
        assert wait_until(lambda: listed(wire)[1] == addresses(nodes[:2]))
        assert listed(wire)[0] > version
    with proxy(path) as again, again.connect() as wire:
        assert listed(wire)[0] > version


def test_the_address_of_a_node_that_is_known_by_its_name(
    nodes: tuple[RunningServer, ...], tmp_path: Path
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f'[[nodes]]\naddress = "localhost:{nodes[0].port}"\n', encoding="utf-8")
    expected = b"localhost|127.0.0.1|%d" % nodes[0].port
    with proxy(path) as front, front.connect() as wire:
        assert wait_until(lambda: listed(wire)[1] == expected)


def test_nodes_on_unix_sockets_are_not_listed(
    nodes: tuple[RunningServer, ...], tmp_path: Path
) -> None:
    path = tmp_path / "cluster.toml"
    tables = [f"127.0.0.1:{nodes[0].port}", str(tmp_path / "socket")]
    text = "".join(f'[[nodes]]\naddress = "{address}"\n' for address in tables)
    path.write_text(text, encoding="utf-8")
    refusal = b"SERVER_ERROR nodes on UNIX sockets cannot be listed\r\n"
    with proxy(path) as front, front.connect() as wire:
        assert wire.ask(b"config get cluster\r\n") == refusal
        assert wire.ask(b"get AmazonElastiCache:cluster\r\n") == refusal
        _, text = payload(wire, b"config get topology\r\n", b"CONFIG topology 0 ")
        assert [node["address"] for node in json.loads(text)["nodes"]] == tables


def test_nodes_with_replicas_are_not_listed(nodes: tuple[RunningServer, ...]) -> None:
    reason = b"nodes are not listed with replicas: changes must go through a proxy"
    refusal = b"SERVER_ERROR %b\r\n" % reason
    with proxy(nodes, "--replicas", "2") as front, front.connect() as wire:
        for form in (b"config get cluster", b"config get topology"):
            assert wire.ask(form + b"\r\n") == refusal
        assert wire.ask(b"get AmazonElastiCache:cluster\r\n") == refusal
        requests = packet(CONFIG_GET, b"cluster") + packet(Opcode.GET, b"AmazonElastiCache:cluster")
        text = refusal.removeprefix(b"SERVER_ERROR ").removesuffix(b"\r\n")
        assert [(one.status, one.value) for one in replies(front.ask(requests))] == [
            (Status.INTERNAL_ERROR, text)
        ] * 2


def discovered_by_pymemcache(front: RunningServer) -> HashClient:
    """Imitate pymemcache's AWSElastiCacheHashClient, which is not in any release yet."""
    with contextlib.closing(Client(("127.0.0.1", front.port), timeout=60)) as client:
        reply = client.raw_command(b"config get cluster", end_tokens=b"\n\r\nEND\r\n")
    nodes = [node.split("|") for node in reply.splitlines()[-1].decode().split(" ")]
    return HashClient([(ip, int(port)) for _, ip, port in nodes], timeout=60)


def test_pymemcache_reads_from_nodes_what_it_stored_through_the_proxy(
    front: RunningServer,
) -> None:
    values = {key: key.encode() for key in KEYS}
    with contextlib.closing(Client(("127.0.0.1", front.port), timeout=60)) as through:
        assert through.set_many(values, noreply=False) == []
    with contextlib.closing(discovered_by_pymemcache(front)) as direct:
        assert direct.get_many(KEYS) == values
