"""Histories of clients of two proxies are linearizable while nodes are added and drained.

``MEMLITE_TEST_MOVING_HISTORIES`` is the number recorded of each kind, and
``MEMLITE_TEST_HISTORY_OPERATIONS`` their minimum length.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.support.clusters import Cluster, cluster
from tests.support.linearizability import Operation, check_each
from tests.support.linearizability.clients import OPERATIONS, Recording, Target, record
from tests.support.linearizability.history import EVERY_KEY, NEVER
from tests.support.servers import RunningServer, needs_memcached
from tests.support.waiting import eventually, wait_until

HISTORIES = int(os.environ.get("MEMLITE_TEST_MOVING_HISTORIES", "1"))
ALL = {
    "get": 12, "set": 4, "add": 3, "replace": 1, "append": 1, "prepend": 1, "incr": 2, "delete": 2,
}  # fmt: skip
MIXES = (ALL | {"gets": 2, "cas": 3}, ALL | {"touch": 1, "gat": 2})
PAUSE = 0.04 if HISTORIES > 1 else 0.06
PHASES = ("prepare", "move", "settle")
COPIES = 2
REPLICATED = ("gather", *(PHASES if HISTORIES > 1 else ()), "spread")
KINDS = ["memlite", pytest.param("memcached", marks=needs_memcached)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 * HISTORIES)]


@pytest.fixture
def here() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def proxies(here: Cluster) -> list[RunningServer]:
    fronts = [here.proxy(), here.proxy()]
    count = len(here.document().members)
    for front in fronts:
        assert wait_until(lambda: front.stats().get("proxy_nodes_up") == str(count))  # noqa: B023 - called at once
    return fronts


def targets(fronts: Sequence[RunningServer], number: int) -> list[Target]:
    keys = [b"%b%d.%d" % (name, number, one) for name in (b"a", b"n") for one in range(4)]
    mix = MIXES[number % len(MIXES)]
    return [
        Target(name, lambda front=front: front.port, keys, mix, certain=False, pause=PAUSE)
        for name, front in zip("AB", fronts, strict=True)
    ]


def verify(history: Sequence[Operation], recording: Recording) -> None:
    violations = check_each(history)
    assert not violations, "\n\n".join(map(str, violations))
    assert len(recording.history) >= OPERATIONS
    assert not recording.bugs


def emptied(*names: str) -> list[Operation]:
    """Return operations by which each node may lose all its items, once and at any time."""
    return [
        Operation(f"{name} is lost", "flush_all", EVERY_KEY, 0.0, NEVER, None) for name in names
    ]


async def during(
    process: "subprocess.Popen[bytes]", asked: Sequence[Target], seed: str
) -> Recording:
    """Record until a process has ended, and check that it succeeded."""
    recording = await record(
        asked, seed, 1, least=OPERATIONS, going_on=lambda: process.poll() is None
    )
    assert process.returncode == 0
    return recording


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_come_and_go(here: Cluster, kind: str) -> None:
    assert here.run("add", *(here.start(name, kind) for name in "ab")).returncode == 0
    fronts = proxies(here)
    new = here.start("c", kind)
    for number in range(HISTORIES):
        for turn, command in enumerate(
            [("add", new), ("drain", "a"), ("add", "a"), ("remove", "c")]
        ):
            seed = 10 * number + turn
            recording = asyncio.run(
                during(here.begin(*command), targets(fronts, seed), f"{kind} {seed}")
            )
            assert not recording.errors
            verify(recording.history, recording)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_with_replicas_come_and_go(here: Cluster, kind: str) -> None:
    nodes = {name: here.start(name, kind) for name in "abcd"}
    assert here.run("add", *(nodes[name] for name in "abc")).returncode == 0
    fronts = proxies(here)
    first = [("replicas", str(COPIES)), ("add", nodes["d"]), ("drain", "a")]
    more = [("add", "a"), ("remove", "b"), ("add", nodes["b"]), ("drain", "a")]
    for number in range(HISTORIES):
        for turn, command in enumerate(more if number else first):
            seed = 10 * number + turn
            recording = asyncio.run(
                during(here.begin(*command), targets(fronts, seed), f"{kind} {seed}")
            )
            assert not recording.errors
            verify(recording.history, recording)
            compare(here, targets(fronts, seed)[0].keys)


def compare(here: Cluster, keys: Sequence[bytes]) -> None:
    """Check that all nodes that have a key have the same value, or a hold."""
    topology = here.document().topology()
    assert topology is not None
    assert topology.move is None
    router = topology.router()
    for key in keys:
        found = set()
        for place in router.replicas(key, topology.replicas):
            with here.nodes[topology.nodes[place].name].connect() as wire:
                wire.send(b"get %b\r\n" % key)
                found.add(wire.until(b"END\r\n"))
        values = {
            one for one in found if one != b"END\r\n" and b"a copy is being changed" not in one
        }
        assert len(values) <= 1


@pytest.mark.parametrize("phase", PHASES)
def test_the_mover_and_a_proxy_are_killed(here: Cluster, phase: str) -> None:
    for name in "ab":
        here.join(name)
    here.join("c", "--spare")
    kill_the_mover_and_a_proxy(here, phase)


@pytest.mark.parametrize("phase", REPLICATED)
def test_the_mover_and_a_proxy_are_killed_with_replicas(here: Cluster, phase: str) -> None:
    for name in "ab":
        here.join(name)
    assert here.run("replicas", str(COPIES)).returncode == 0
    here.join("c", "--spare")
    kill_the_mover_and_a_proxy(here, phase)


def kill_the_mover_and_a_proxy(here: Cluster, phase: str) -> None:
    fronts = proxies(here)
    killed, _kept = fronts

    async def scenario() -> Recording:
        mover = here.begin("add", "c")
        resumed: list[subprocess.Popen[bytes]] = []

        async def trouble() -> None:
            assert await eventually(lambda: here.phase == phase, 100)
            mover.kill()
            killed.process.kill()
            resumed.append(here.begin("add", "c"))

        troubled = asyncio.ensure_future(trouble())
        recording = await record(
            targets(fronts, 1),
            phase,
            1,
            going_on=lambda: not resumed or resumed[0].poll() is None,
        )
        await troubled
        assert resumed[0].returncode == 0
        return recording

    recording = asyncio.run(scenario())
    verify(recording.history, recording)
    assert here.places()["c"] == "member"


# In the first phase, the loss of a node ends the move, unless it is back before its lease expires.
@pytest.mark.parametrize("phase", PHASES[1:])
@pytest.mark.parametrize("name", ["b", "c"], ids=["a source", "the destination"])
def test_a_node_is_killed_and_comes_back(here: Cluster, phase: str, name: str) -> None:
    for one in "ab":
        here.join(one)
    here.join("c", "--spare")
    fronts = proxies(here)
    node = here.nodes[name]

    async def scenario() -> Recording:
        mover = here.begin("add", "c")

        async def trouble() -> None:
            assert await eventually(lambda: here.phase == phase, 100)
            node.process.kill()
            await asyncio.to_thread(here.join, name, "-p", str(node.port))

        troubled = asyncio.ensure_future(trouble())
        recording = await record(
            targets(fronts, 1),
            f"{name} {phase}",
            1,
            going_on=lambda: not troubled.done() or mover.poll() is None,
        )
        await troubled
        assert mover.returncode == 0
        return recording

    recording = asyncio.run(scenario())
    verify([*emptied(name), *recording.history], recording)
    assert here.places()["c"] == "member"


@pytest.mark.parametrize("number", range(HISTORIES))
@pytest.mark.parametrize("command", [("drain", "a"), ("add", "d", "e")], ids=" ".join)
def test_a_destination_is_killed_for_good(here: Cluster, command: list[str], number: int) -> None:
    for one in "abc":
        here.join(one)
    for one in "de":
        here.join(one, "--spare")
    fronts = proxies(here)
    gone = "b" if command[0] == "drain" else "e"

    async def scenario() -> Recording:
        mover = here.begin(*command)
        resumed: list[subprocess.Popen[bytes]] = []

        async def trouble() -> None:
            assert await eventually(lambda: here.phase == "move", 100)
            here.nodes[gone].process.kill()
            mover.kill()
            resumed.append(here.begin("resume", "--without", gone))

        troubled = asyncio.ensure_future(trouble())
        recording = await record(
            targets(fronts, number),
            f"{command} {number}",
            1,
            going_on=lambda: not resumed or resumed[0].poll() is None,
        )
        await troubled
        assert resumed[0].returncode == 0
        return recording

    recording = asyncio.run(scenario())
    verify([*emptied(gone), *recording.history], recording)
    members = [one.name for one in here.document().members]
    assert members == (["c"] if command[0] == "drain" else ["a", "b", "c", "d"])


# The command, the node that is killed for good and the phase, by the node's role. The last node is
# a spare at first.
LOSSES = {
    "a source of an add": (["add", "d"], "a", "move"),
    "a destination of a drain": (["drain", "a"], "b", "move"),
    "a destination of an add": (["add", "d"], "d", "move"),
}
MORE_LOSSES = {
    "a source of a drain": (["drain", "a"], "a", "move"),
    "a member, before": (["add", "d"], "a", "gather"),
    "a member, afterwards": (["drain", "a"], "c", "spread"),
}
if HISTORIES > 1:  # they are slow
    LOSSES |= MORE_LOSSES


@pytest.mark.parametrize("loss", LOSSES)
def test_replicated_items_survive_the_loss_of_a_node(here: Cluster, loss: str) -> None:
    command, gone, phase = LOSSES[loss]
    for one in "abc":
        here.join(one)
    here.join("d", "--spare")
    assert here.run("replicas", str(COPIES)).returncode == 0
    fronts = proxies(here)
    kept = dict.fromkeys((b"kept:%d" % number for number in range(200)), b"item")
    with fronts[0].connect() as wire:
        for key in kept:
            assert wire.ask(b"set %b 7 0 4\r\nitem\r\n" % key) == b"STORED\r\n"

    async def scenario() -> Recording:
        mover = here.begin(*command, "--rate", "50")
        ended: list[subprocess.Popen[bytes]] = []

        async def trouble() -> None:
            assert await eventually(lambda: here.phase == phase, 100)
            here.nodes[gone].process.kill()
            down = f"node:{gone}:state", "down"
            assert await eventually(lambda: down in fronts[0].stats().items(), 100)
            await asyncio.to_thread(change, fronts[0], kept)
            if gone == "d":  # the node to be added
                mover.kill()
                assert await eventually(lambda: here.run("cancel").returncode == 0, 100)
            assert await eventually(lambda: mover.poll() is not None, 200)
            ended.append(mover)
            assert await eventually(lambda: not here.phase and gone not in members(here), 100)

        troubled = asyncio.ensure_future(trouble())
        recording = await record(targets(fronts, 1), loss, 1, going_on=lambda: not troubled.done())
        await troubled
        return recording

    recording = asyncio.run(scenario())
    assert not here.phase
    verify([*emptied(gone), *recording.history], recording)
    for front in fronts:
        with front.connect() as wire:
            for key, value in kept.items():
                wire.send(b"get %b\r\n" % key)
                assert wire.until(b"END\r\n") == b"VALUE %b 7 4\r\n%b\r\nEND\r\n" % (key, value)


def change(front: RunningServer, kept: dict[bytes, bytes]) -> None:
    """Change every other item while a node is down; some of the changes are refused."""
    refused = 0
    with front.connect() as wire:
        for key in list(kept)[::2]:
            reply = wire.ask(b"set %b 7 0 4\r\nmore\r\n" % key)
            if reply == b"STORED\r\n":
                kept[key] = b"more"
            else:
                assert reply.startswith(b"SERVER_ERROR "), reply
                refused += 1
    assert refused


def members(here: Cluster) -> list[str]:
    return [one.name for one in here.document().members]
