"""The table of nodes by key."""

import asyncio
from dataclasses import replace

import pytest

from memlite.cluster.topology import HotKey
from memlite.protocol.discovery import CLUSTER_KEY
from memlite.proxy import known_nodes
from tests.unit.proxy.clusters import cluster_of


def test_a_node_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(3)
    known = cluster.known_nodes
    assert known.get(b"k") is None
    node = known[b"k"]
    assert node is known.get(b"k") is cluster.node_of(b"k")
    monkeypatch.setattr(known, "find", None)
    assert known[b"k"] is node


@pytest.mark.parametrize("key", [b"", b"a\nb", b"a\0b", b"k" * 251, CLUSTER_KEY, b"noreply"])
def test_words_that_are_not_ordinary_keys_have_no_node(key: bytes) -> None:
    cluster = cluster_of(3)
    assert cluster.known_nodes[key] is None
    assert not cluster.known_nodes


def test_no_key_has_a_node_while_requests_are_refused() -> None:
    cluster = cluster_of(3)
    assert cluster.known_nodes[b"before"] is not None
    cluster.suspend("for the test")
    assert cluster.known_nodes[b"before"] is None
    assert not cluster.known_nodes


async def test_the_router_alone_decides_until_something_changes() -> None:
    cluster = cluster_of(3, asyncio.get_running_loop())
    known = cluster.known_nodes
    before = known.find
    keys = [b"%d" % number for number in range(50)]
    nodes = [known[key] for key in keys]
    assert known.find != before
    assert nodes == [cluster.node_of(key) for key in keys]
    assert cluster.topology is not None
    hot = HotKey(keys[0], 1)
    cluster.change(replace(cluster.topology, hot_keys=(hot,)))
    assert known[keys[0]] is cluster.hot.of(keys[0]) is not None
    assert [known[key] for key in keys[1:]] == nodes[1:]
    cluster.suspend("for the test")
    assert [known[key] for key in keys] == [None] * 50
    cluster.change(replace(cluster.topology, hot_keys=()))
    cluster.change(replace(cluster.topology, nodes=cluster.topology.nodes[:2]))
    assert known[keys[0]] is cluster.hot.of(keys[0])  # it is demoted, which takes a while
    expected = [cluster.nodes[cluster._router.index(key)] for key in keys[1:]]
    assert [known[key] for key in keys[1:]] == expected
    cluster.stop()


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_nodes, "MAX_REMEMBERED", 10)
    known = cluster_of(3).known_nodes
    lengths = []
    for number in range(25):
        known[b"%d" % number]
        lengths.append(len(known))
    assert lengths == [*range(1, 11), *range(1, 11), *range(1, 6)]
