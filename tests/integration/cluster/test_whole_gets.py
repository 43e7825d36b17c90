"""Gets of several keys that one node answers, as each node has all keys."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from memlite.cluster.topology import parse_nodes, read_topology
from memlite.core.errors import ConfigError
from tests.integration.cluster.test_proxy_differential import forwarded
from tests.integration.cluster.test_proxy_replicas import separate_uniques, without_delays
from tests.support.differential import Comparison, Generator
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, needs_memcached, running
from tests.support.waiting import wait_until

KINDS = [pytest.param("memcached", marks=needs_memcached), "memlite"]
NODES = 3
KEYS = [b"key:%d" % number for number in range(30)]
ALL = b"get %b\r\n" % b" ".join(KEYS)


@contextlib.contextmanager
def started(kind: str, *arguments: str) -> Iterator[tuple[list[RunningServer], RunningServer]]:
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(running(kind)) for _ in range(NODES)]
        options = ("--replicas", str(NODES), "--multi-gets", "whole", *arguments)
        front = stack.enter_context(proxy(nodes, *options))
        assert wait_until(lambda: all(node_stat(front, node, "state") == "up" for node in nodes))
        yield nodes, front


def requests(front: RunningServer, nodes: Sequence[RunningServer]) -> list[int]:
    return [int(node_stat(front, node, "requests")) for node in nodes]


def fill(wire: Wire) -> None:
    for key in KEYS:
        assert wire.ask(b"set %b 0 0 6\r\n%b\r\n" % (key, key[-6:].ljust(6))) == b"STORED\r\n"


def get(wire: Wire, request: bytes = ALL) -> bytes:
    wire.send(request)
    return wire.until(b"END\r\n")


@pytest.mark.parametrize("kind", KINDS)
def test_one_node_is_asked_for_all_keys_in_turn(kind: str) -> None:
    with started(kind) as (nodes, front), front.connect() as wire:
        fill(wire)
        before = requests(front, nodes)
        for _ in range(2 * NODES):
            reply = get(wire)
            assert [words.split()[1] for words in reply.split(b"VALUE")[1:]]
            assert reply.count(b"VALUE") == len(KEYS)
            assert reply.index(b"key:1 ") < reply.index(b"key:2 "), "in the order of the keys"
        after = requests(front, nodes)
        assert [two - one for one, two in zip(before, after, strict=True)] == [2] * NODES
        assert get(wire, b"get %b nothing %b\r\n" % (KEYS[0], KEYS[0])).count(b"VALUE") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_primaries_are_asked_for_what_the_node_lacks(kind: str) -> None:
    with started(kind) as (nodes, front), front.connect() as wire:
        fill(wire)
        for key in KEYS:  # drops the copies
            assert wire.ask(b"append %b 0 0 1\r\n!\r\n" % key) == b"STORED\r\n"

        def filled() -> bool:
            for _ in range(NODES):
                assert get(wire).count(b"!") == len(KEYS)
            return [held(node) for node in nodes] == [len(KEYS)] * NODES

        assert wait_until(filled)


def held(node: RunningServer) -> int:
    with node.connect() as wire:
        return get(wire).count(b"!\r\n")


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_is_down(kind: str) -> None:
    with started(kind, "--write", "majority") as (nodes, front), front.connect() as wire:
        fill(wire)
        nodes[0].process.kill()
        assert wait_until(lambda: node_stat(front, nodes[0], "state") == "down")
        for _ in range(NODES):
            assert get(wire).count(b"VALUE") == len(KEYS)
        for node in nodes[1:]:
            node.ask(b"flush_all\r\n")
        router = parse_nodes(",".join(f"127.0.0.1:{node.port}" for node in nodes)).router()
        lost = [key for key in KEYS if router.index(key) == 0]
        assert 0 < len(lost) < len(KEYS)
        failed = int(front.stats()["proxy_failed_shards"])
        assert get(wire) == b"END\r\n"
        assert int(front.stats()["proxy_failed_shards"]) > failed
        for node in nodes[1:]:
            node.process.kill()
        assert wait_until(lambda: node_stat(front, nodes[2], "state") == "down")
        assert wire.ask(ALL).startswith(b"SERVER_ERROR node ")


def test_a_get_fails_in_strict_mode_if_a_primary_fails() -> None:
    with started("memlite", "--strict") as (nodes, front), front.connect() as wire:
        nodes[0].process.kill()
        assert wait_until(lambda: node_stat(front, nodes[0], "state") == "down")
        assert wire.ask(ALL).startswith(b"SERVER_ERROR node ")


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 30), marks=pytest.mark.slow)], ids=["some", "more"]
)
def test_conversations(seeds: range) -> None:
    """Text and meta conversations get the same bytes as without a proxy."""
    with running("memlite", "-B", "ascii") as direct, started("memlite") as (nodes, front):
        separate_uniques(nodes)
        comparison = Comparison((direct, front))
        for seed in seeds:
            conversation = without_delays(forwarded(Generator(random.Random(seed)).conversation()))
            found = comparison.difference(conversation) if conversation else None
            assert found is None, f"seed {seed}, the node first:\n{comparison.shrink(found)}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "replicas = 2\n",
            'must be "sharded" unless each node has all keys, which requires replicas',
        ),
        ('replicas = 3\nread = "primary"\n', 'must be "sharded" with read = "primary"'),
        ('replicas = 3\nhot_keys = ["a"]\n', 'must be empty with multi_gets = "whole"'),
    ],
)
def test_whole_gets_are_refused_if_a_node_lacks_keys(
    settings: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.toml"
    nodes = "".join(f'[[nodes]]\naddress = "h:{number}"\n' for number in range(1, 4))
    path.write_text(f'multi_gets = "whole"\n{settings}{nodes}')
    with pytest.raises(ConfigError) as raised:
        read_topology(path)
    assert message in str(raised.value)
    path.write_text(f'multi_gets = "whole"\nreplicas = 3\n{nodes}')
    assert read_topology(path).multi_gets == "whole"
