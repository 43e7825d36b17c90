"""A destination of moving keys is permanently lost, and the move continues without it."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from memlite.cluster.moving.answers import answer_of
from memlite.cluster.moving.marks import Kind, Marks, look
from tests.support.clusters import Cluster, cluster
from tests.support.servers import RunningServer, Wire
from tests.support.waiting import wait_until

KEYS = [b"key:%d" % number for number in range(300)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Finished = subprocess.CompletedProcess[str]


@pytest.fixture
def here() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.fixture
def front(here: Cluster) -> RunningServer:
    return here.proxy()


def kept(here: Cluster, *names: str) -> dict[bytes, bytes]:
    """Return the items that nodes have, by key."""
    move = here.document().move
    assert move is not None
    marks, found = Marks(move.nonce), {}
    for name in names:
        with here.nodes[name].connect() as wire:
            for key in KEYS:
                wire.send(look(key) + b"mn\r\n")
                answer = answer_of(wire.until(b"MN\r\n").removesuffix(b"MN\r\n"))
                one = marks.found(answer)
                if one.kind in (Kind.REAL, Kind.FROZEN):
                    found[key] = one.value
    return found


def get(wire: Wire, key: bytes) -> bytes | None:
    """Return a value, or None for a miss; the reply must come within a generous deadline."""
    began = time.monotonic()
    wire.send(b"mg %b v\r\nmn\r\n" % key)
    reply = wire.until(b"MN\r\n").removesuffix(b"MN\r\n")
    assert time.monotonic() - began < 30
    assert reply.startswith((b"VA ", b"EN", b"SERVER_ERROR ")), reply
    if reply.startswith(b"SERVER_ERROR "):
        raise ConnectionError(reply)
    return reply.split(b"\r\n")[1] if reply.startswith(b"VA ") else None


def fill(front: RunningServer) -> None:
    with front.connect() as wire:
        for key in KEYS:
            assert wire.ask(b"set %b 0 0 5\r\nfirst\r\n" % key) == b"STORED\r\n"


def write(front: RunningServer, values: dict[bytes, bytes]) -> int:
    """Change all keys that can be changed; return how many cannot."""
    failed = 0
    with front.connect() as wire:
        for key in KEYS:
            reply = wire.ask(b"set %b 0 0 6\r\nsecond\r\n" % key)
            if reply == b"STORED\r\n":
                values[key] = b"second"
            else:
                assert reply.startswith(b"SERVER_ERROR node ")
                failed += 1
    return failed


def check(front: RunningServer, values: dict[bytes, bytes]) -> None:
    """Check that all keys can be read, and have no other values than these."""
    with front.connect() as wire:
        read = {key: get(wire, key) for key in KEYS}
        assert {key: read[key] for key in values} == values
        assert {read[key] for key in KEYS if key not in values} <= {None}
        for key in KEYS:
            assert wire.ask(b"set %b 0 0 5\r\nthird\r\n" % key) == b"STORED\r\n"


def up(front: RunningServer, count: int) -> None:
    assert wait_until(lambda: front.stats().get("proxy_nodes_up") == str(count), 60)


def begin(here: Cluster, *command: str) -> "Future[Finished]":
    pool = ThreadPoolExecutor(1)
    mover = pool.submit(here.run, *command, "--rate", "40")
    pool.shutdown(wait=False)
    return mover


def test_keys_of_a_node_that_is_drained_go_to_others(here: Cluster, front: RunningServer) -> None:
    for name in "abc":
        here.join(name)
    up(front, 3)
    fill(front)
    mover = begin(here, "drain", "a")
    here.wait_for_phase("move")
    assert wait_until(lambda: here.items("a") < 60, 60)
    here.nodes["b"].process.kill()
    values = kept(here, "a", "c")
    assert 100 < len(values) < len(KEYS)
    assert write(front, values) > 30, "keys of the node that was killed"
    stopped = mover.result(200)
    assert stopped.returncode == 71
    assert "node b has failed; waiting for another one with its name" in stopped.stderr
    assert "to continue without it: memlite cluster resume --without b" in stopped.stderr
    refused = here.run("cancel")
    assert "items have moved to nodes that remain" in refused.stderr
    refused = here.run("resume", "--without", "c")
    assert "c is considered alive; resume without --without" in refused.stderr
    refused = here.run("resume", "--without", "b", "--without", "c")
    assert "without b, c, no node would be left" in refused.stderr
    resumed = begin(here, "resume", "--without", "b")
    while not resumed.done():
        write(front, values)
    assert resumed.result().returncode == 0, resumed.result().stderr
    assert here.places()["c"] == "member"
    assert here.document().members[0].name == "c"
    assert len(here.document().members) == 1
    assert wait_until(lambda: "b" not in here.places(), 60)
    up(front, 1)
    check(front, values)


def test_keys_stay_where_they_are_or_go_to_another_new_node(
    here: Cluster, front: RunningServer
) -> None:
    here.join("a")
    here.join("b")
    for name in "cd":
        here.join(name, "--spare")
    up(front, 2)
    fill(front)
    mover = begin(here, "add", "c", "d")
    here.wait_for_phase("move")
    assert wait_until(lambda: here.items("c") > 10 and here.items("d") > 10, 60)
    here.nodes["d"].process.kill()
    values = kept(here, "a", "b", "c")
    assert 100 < len(values) < len(KEYS)
    assert write(front, values) > 0
    assert mover.result(200).returncode == 71
    resumed = begin(here, "resume", "--without", "d")
    while not resumed.done():
        write(front, values)
    assert resumed.result().returncode == 0, resumed.result().stderr
    assert {name: here.places()[name] for name in "abc"} == dict.fromkeys("abc", "member")
    up(front, 3)
    check(front, values)
    assert here.items("c") > 30
