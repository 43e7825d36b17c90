"""Clusters with replicas: the copies that real nodes hold."""

import json
from collections.abc import Iterator

import pytest

from tests.support.clusters import Cluster, cluster
from tests.support.servers import RunningServer
from tests.support.waiting import wait_until

KEYS = [b"key:%d" % number for number in range(200)]
LONG = 120.0
pytestmark = pytest.mark.slow


@pytest.fixture
def here() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def add(here: Cluster, names: str, replicas: int = 2) -> RunningServer:
    """Start nodes, and a proxy; return the proxy."""
    for name in names:
        here.join(name)
    made = here.run("replicas", str(replicas))
    assert made.returncode == 0, made.stderr
    front = here.proxy()
    assert wait_until(lambda: front.stats().get("proxy_nodes_up") == str(len(names)))
    return front


def fill(front: RunningServer) -> None:
    with front.connect() as wire:
        for key in KEYS:
            assert wire.ask(b"set %b 7 1000 %d\r\n%b\r\n" % (key, len(key), key)) == b"STORED\r\n"


def misses(front: RunningServer) -> int:
    count = 0
    with front.connect() as wire:
        for key in KEYS:
            wire.send(b"get %b\r\n" % key)
            reply = wire.until(b"END\r\n")
            if reply == b"END\r\n":
                count += 1
            else:
                assert reply == b"VALUE %b 7 %d\r\n%b\r\nEND\r\n" % (key, len(key), key)
    return count


def copies(here: Cluster) -> dict[bytes, set[str]]:
    """Return the nodes that have each key, and check that they agree."""
    found: dict[bytes, set[str]] = {}
    for key in KEYS:
        answers = {}
        for name, node in here.nodes.items():
            head = node.ask(b"mg %b f t\r\n" % key)
            if head.startswith(b"HD"):
                answers[name] = head.split()[1]
                assert 0 < int(head.split()[2][1:]) <= 1000
        assert set(answers.values()) == {b"f7"}
        found[key] = set(answers)
    return found


def owners(here: Cluster) -> dict[bytes, set[str]]:
    topology = here.document().topology()
    assert topology is not None
    router = topology.router()
    return {
        key: {topology.nodes[at].name for at in router.replicas(key, topology.replicas)}
        for key in KEYS
    }


def test_copies_are_where_they_belong_after_each_change(here: Cluster) -> None:
    for name in "abc":
        here.join(name)
    front = here.proxy()
    assert wait_until(lambda: front.stats().get("proxy_nodes_up") == "3")
    fill(front)
    assert all(len(one) == 1 for one in copies(here).values())
    shown = here.run("replicas", "2", "--json")
    assert shown.returncode == 0, shown.stderr
    assert here.show()["replicas"] == 2
    assert copies(here) == owners(here)
    here.join("d", "--spare")
    planned = json.loads(here.run("add", "d", "--dry-run", "--json").stdout)
    before = owners(here)
    assert here.run("add", "d").returncode == 0
    assert copies(here) == owners(here)
    arrived = sum(len(now - before[key]) for key, now in owners(here).items())
    # A node that had a copy and is now the primary gets the item as well.
    assert arrived == planned["moved"]["items"] == planned["nodes"][3]["arrive"]["items"]
    assert misses(front) == 0
    assert int(front.stats()["proxy_replica_reads"]) > 0


def test_a_node_that_is_killed_and_comes_back_is_a_spare(here: Cluster) -> None:
    front = add(here, "abc")
    fill(front)
    node = here.nodes["b"]
    node.process.kill()
    node.process.wait()
    here.join("b", "-p", str(node.port))
    assert here.places() == {"a": "member", "b": "spare", "c": "member"}
    assert wait_until(lambda: front.stats().get("proxy_nodes_up") == "2", LONG)
    assert wait_until(lambda: misses(front) == 0, LONG)
    assert here.run("add", "b").returncode == 0
    assert misses(front) == 0
    assert copies(here) == owners(here)


@pytest.mark.parametrize("phase", ["gather", "prepare"])
def test_a_move_is_cancelled_before_items_have_moved(here: Cluster, phase: str) -> None:
    front = add(here, "abc")
    fill(front)
    mover = here.begin("drain", "a")
    here.wait_for_phase(phase)
    mover.kill()
    mover.wait()
    with front.connect() as wire:
        assert wire.ask(b"delete %b\r\n" % KEYS[0]) == b"DELETED\r\n"
    cancelled = here.run("cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert here.places() == dict.fromkeys("abc", "member")
    assert [misses(front) for _ in range(3)] == [1, 1, 1]
    with front.connect() as wire:
        assert wire.ask(b"set %b 7 1000 1\r\n0\r\n" % KEYS[0]) == b"STORED\r\n"

    def copied() -> bool:
        """Reads fill a copy that the killed mover still held when the item was set."""
        with front.connect() as wire:
            for _ in range(4):
                wire.send(b"get %b\r\n" % KEYS[0])
                assert wire.until(b"END\r\n") == b"VALUE %b 7 1\r\n0\r\nEND\r\n" % KEYS[0]
        return copies(here) == owners(here)

    assert wait_until(copied, LONG)


def test_refused_commands(here: Cluster) -> None:
    front = add(here, "ab")
    for command, message in (
        (["replicas", "1"], "there are already 2; the number can only be raised"),
        (["replicas", "3"], "3 replicas require as many members, but there are 2"),
        (["replicas", "0"], "must be from 1 to 100, not '0'"),
    ):
        refused = here.run(*command)
        assert refused.returncode
        assert message in refused.stderr
    reason = b"nodes are not listed with replicas: changes must go through a proxy"
    expected = b"SERVER_ERROR %b\r\n" % reason
    assert front.ask(b"config get cluster\r\n") == expected
    assert wait_until(lambda: here.nodes["a"].ask(b"config get cluster\r\n") == expected, LONG)
    here.join("c")
    assert here.places()["c"] == "spare"
    mover = here.begin("add", "c")
    here.wait_for_phase("move")
    mover.kill()
    mover.wait()
    fill(front)
    assert front.ask(b"flush_all\r\n") == b"OK\r\n"
    assert misses(front) == len(KEYS)
    fill(front)
    refused = here.run("resume", "--without", "c")
    assert "--without: cannot be combined with replicas" in refused.stderr
    assert here.run("resume").returncode == 0
    assert here.places()["c"] == "member"
    assert misses(front) == 0
    assert copies(here) == owners(here)
