"""Histories of clients of two proxies whose keys have replicas are linearizable.

``MEMLITE_TEST_REPLICA_HISTORIES`` is the number recorded of each kind, and
``MEMLITE_TEST_HISTORY_OPERATIONS`` their minimum length.
"""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass

import pytest

from memlite.cluster.topology import parse_nodes
from tests.support.linearizability import Operation, check_each
from tests.support.linearizability.clients import OPERATIONS, Recording, Target, record
from tests.support.linearizability.history import EVERY_KEY, NEVER
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, needs_memcached, running
from tests.support.waiting import wait_until

HISTORIES = int(os.environ.get("MEMLITE_TEST_REPLICA_HISTORIES", "1"))
# Used where seconds have to pass: without it, a fast machine would record and check far more.
PAUSE = 0.002
ALL = {
    "get": 12, "set": 4, "add": 3, "replace": 1, "append": 1, "prepend": 1, "incr": 2, "delete": 2,
}  # fmt: skip
# A touch leaves an item's cas unique as it is, but the checker takes a touch for a change.
MIXES = (ALL | {"gets": 2, "cas": 3}, ALL | {"touch": 1, "gat": 2})

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 8 * HISTORIES)]


@contextlib.contextmanager
def cluster(kind: str, *options: str) -> Iterator[tuple[list[RunningServer], list[RunningServer]]]:
    """Run three nodes and two proxies."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(running(kind)) for _ in range(3)]
        fronts = [stack.enter_context(proxy(nodes, *options)) for _ in range(2)]
        wait_until_up(fronts, nodes)
        yield nodes, fronts


def wait_until_up(fronts: Sequence[RunningServer], nodes: Sequence[RunningServer]) -> None:
    for front in fronts:
        assert wait_until(lambda: all(node_stat(front, one, "state") == "up" for one in nodes))  # noqa: B023 - called at once


def keys_of(number: int, more: int = 1) -> list[bytes]:
    return [
        b"%b%d.%d" % (name, number, another)
        for another in range(more)
        for name in (b"a", b"b", b"n", b"m")
    ]


def targets(
    fronts: Sequence[RunningServer], number: int, keys: Sequence[bytes], pause: float = 0.0
) -> list[Target]:
    mix = MIXES[number % len(MIXES)]
    return [
        Target(name, lambda port=front.port: port, keys, mix, certain=False, pause=pause)
        for name, front in zip("AB", fronts, strict=True)
    ]


def verify(recording: Recording, history: Sequence[Operation]) -> None:
    violations = check_each(history)
    assert not violations, "\n\n".join(map(str, violations))
    assert len(recording.history) >= OPERATIONS
    assert not recording.bugs


def compare(nodes: Sequence[RunningServer], keys: Sequence[bytes]) -> None:
    """Check that all nodes that have a key have the same value, or a hold."""
    for key in keys:
        found = set()
        for node in nodes:
            with node.connect() as wire:
                wire.send(b"get %b\r\n" % key)
                found.add(wire.until(b"END\r\n"))
        values = {
            one for one in found if one != b"END\r\n" and b"a copy is being changed" not in one
        }
        assert len(values) <= 1


@pytest.mark.parametrize("kind", [pytest.param("memcached", marks=needs_memcached), "memlite"])
@pytest.mark.parametrize(("replicas", "write"), [(2, "all"), (3, "majority"), (3, "primary")])
def test_two_proxies(kind: str, replicas: int, write: str) -> None:
    with cluster(kind, "--replicas", str(replicas), "--write", write) as (nodes, fronts):
        for number in range(HISTORIES):
            keys = keys_of(number)
            recording = asyncio.run(
                record(targets(fronts, number, keys), str(number), 0, least=OPERATIONS)
            )
            verify(recording, recording.history)
            assert not recording.errors
            compare(nodes, keys)
        assert all(int(front.stats()["proxy_replica_reads"]) for front in fronts)


@dataclass(frozen=True)
class Promise:
    """A configuration, and the keys that it promises to keep linearizable if a node fails.

    Attributes:
        replicas: see the option.
        write: likewise.
        read: likewise.
        at_replicas: whether the node that fails must not be the primary of the keys. If it were,
            replicas could answer with items that it has lost.
    """

    replicas: int
    write: str
    read: str
    at_replicas: bool = False

    def __str__(self) -> str:
        return f"{self.replicas}-{self.write}-{self.read}"

    def keys(self, nodes: Sequence[RunningServer], failing: int, number: int) -> list[bytes]:
        """Return keys of the failing node."""
        names = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        router = parse_nodes(names).router()
        found = []
        for key in keys_of(number, more=40):
            places = router.replicas(key, self.replicas)
            if failing in places and not (self.at_replicas and places[0] == failing):
                found.append(key)
        return found[:4]


PROMISES = (
    Promise(2, "all", "any", at_replicas=True),
    Promise(3, "all", "any", at_replicas=True),
    Promise(2, "all", "primary"),
    Promise(3, "majority", "primary"),
    Promise(3, "primary", "primary"),
)


@pytest.mark.parametrize("fault", ["pause", "kill"])
@pytest.mark.parametrize("kind", [pytest.param("memcached", marks=needs_memcached), "memlite"])
@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_a_node_fails(promise: Promise, kind: str, fault: str) -> None:
    """A node is paused for longer than the deadline, or killed and started again, empty."""
    options = (
        *("--replicas", str(promise.replicas), "--write", promise.write, "--read", promise.read),
        *("--deadline", "0.2"),
    )
    with cluster(kind, *options) as (nodes, fronts), contextlib.ExitStack() as stack:
        noticed = 0
        # A history may end before a proxy notices the fault: repeat until one has noticed.
        for number in range(4 * max(HISTORIES, len(nodes))):
            if number >= HISTORIES and noticed:
                break
            failing = number % len(nodes)
            keys = promise.keys(nodes, failing, number)
            losing = [
                node for node in nodes if not promise.at_replicas or node is not nodes[failing]
            ]
            before = flushes(fronts, losing)
            if fault == "pause":
                failure = pause(nodes[failing])
            else:
                failure = restart(kind, nodes, failing, stack)
            asked = targets(fronts, number, keys, PAUSE)
            recording = asyncio.run(during(failure, asked, str(number)))
            wait_until_up(fronts, nodes)
            # A proxy that has missed a change empties the node, at any time after the fault began.
            # Items that replicas lose are still at the primary.
            lost = flushes(fronts, losing) - before
            if lost and kind == "memcached":
                # For up to a second, it also removes what clients of the other proxy store.
                lost += most_changes(recording.history)
            lost += fault == "kill" and not promise.at_replicas
            emptied = [
                Operation(f"fault {one}", "flush_all", EVERY_KEY, 0.0, NEVER, None)
                for one in range(lost)
            ]
            verify(recording, [*emptied, *recording.history])
            compare(nodes, keys)
            noticed += bool(recording.errors)
        assert noticed


def flushes(fronts: Sequence[RunningServer], nodes: Sequence[RunningServer]) -> int:
    """Return how often the proxies have emptied nodes."""
    return sum(int(node_stat(front, one, "flushes")) for front in fronts for one in nodes)


def most_changes(history: Sequence[Operation]) -> int:
    """Return the number of changes of the key that was changed most often."""
    return max(Counter(one.key for one in history if not one.name.startswith("get")).values())


async def during(
    failure: Coroutine[None, None, None], asked: Sequence[Target], seed: str
) -> Recording:
    """Record what clients observe until some time after a fault."""
    failing = asyncio.ensure_future(failure)
    try:
        return await record(asked, seed, 1.2, least=OPERATIONS)
    finally:
        await failing


async def pause(node: RunningServer) -> None:
    """Pause a node for longer than the deadline."""
    await asyncio.sleep(0.2)
    node.pause()
    try:
        await asyncio.sleep(0.5)
    finally:
        node.process.send_signal(signal.SIGCONT)


async def restart(
    kind: str, nodes: list[RunningServer], index: int, stack: contextlib.ExitStack
) -> None:
    """Kill a node, and start another in its place."""
    await asyncio.sleep(0.2)
    node = nodes[index]
    node.process.kill()
    await asyncio.sleep(0.2)
    again = running(kind, "-p", str(node.port))
    nodes[index] = await asyncio.to_thread(stack.enter_context, again)
