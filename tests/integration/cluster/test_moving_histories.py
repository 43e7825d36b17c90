"""Histories of clients of two proxies are linearizable while nodes are added and drained.

``MEMLITE_TEST_MOVING_HISTORIES`` is how many are recorded of each kind, and
``MEMLITE_TEST_HISTORY_OPERATIONS`` how long they are at least.
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
PAUSE = 0.04
PHASES = ("prepare", "move", "settle")
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
    """Return that nodes may have lost all that they held, once each and at any time."""
    return [
        Operation(f"{name} is lost", "flush_all", EVERY_KEY, 0.0, NEVER, None) for name in names
    ]


async def during(
    process: "subprocess.Popen[bytes]", asked: Sequence[Target], seed: str
) -> Recording:
    """Record until a process has ended, which it must have done well."""
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


@pytest.mark.parametrize("phase", PHASES)
def test_the_mover_and_a_proxy_are_killed(here: Cluster, phase: str) -> None:
    for name in "ab":
        here.join(name)
    here.join("c", "--spare")
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


# In the first phase a node that is gone ends the move, unless it is back before its lease runs out.
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
