"""Keys on several nodes: the effect of each command, and the items left on the nodes."""

import contextlib
import random
import signal
from collections.abc import Iterator, Sequence

import pytest

from memlite.protocol.packets import Opcode
from tests.integration.cluster.test_proxy_differential import forwarded
from tests.support.differential import Batch, Comparison, Conversation, Generator
from tests.support.packets import NOOP, count, packet, replies, store
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, needs_memcached, running
from tests.support.waiting import wait_until

KINDS = [pytest.param("memcached", marks=needs_memcached), "memlite"]
NODES = 3


@contextlib.contextmanager
def started(kind: str, *arguments: str) -> Iterator[tuple[list[RunningServer], RunningServer]]:
    """Run nodes, which all have all keys, and a proxy."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(running(kind)) for _ in range(NODES)]
        options = ("--replicas", str(NODES), "--deadline", "0.5", *arguments)
        front = stack.enter_context(proxy(nodes, *options))
        assert wait_until(lambda: all(node_stat(front, node, "state") == "up" for node in nodes))
        yield nodes, front


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[list[RunningServer], RunningServer]]:
    with started(request.param) as parts:
        yield parts


def on_nodes(nodes: Sequence[RunningServer], key: bytes) -> list[bytes]:
    """Return each node's answer to a get."""
    answers = []
    for node in nodes:
        with node.connect() as wire:
            answers.append(get(wire, b"get %b\r\n" % key))
    return answers


def get(wire: Wire, request: bytes, end: bytes = b"END\r\n") -> bytes:
    """Return the whole reply to a retrieval."""
    wire.send(request)
    return wire.until(end)


def ask(wire: Wire, *requests: bytes) -> list[bytes]:
    return [wire.ask(request + b"\r\n") for request in requests]


MISS = b"END\r\n"
OLD = b"VALUE k 0 1\r\n5\r\nEND\r\n"
ROWS: list[tuple[bytes, bytes, int]] = [
    # a change of k, which is 5; its reply; the nodes that have an item afterwards
    (b"set k 7 100 3\r\nabc", b"STORED", 3),
    (b"set k 7 -1 3\r\nabc", b"STORED", 0),
    (b"add k 0 0 1\r\nx", b"NOT_STORED", 1),
    (b"add new 0 0 1\r\nx", b"STORED", 3),
    (b"replace k 0 0 1\r\nx", b"STORED", 3),
    (b"replace new 0 0 1\r\nx", b"NOT_STORED", 0),
    (b"append k 0 0 1\r\nx", b"STORED", 1),
    (b"prepend k 0 0 1\r\nx", b"STORED", 1),
    (b"cas k 0 0 1 999999999\r\nx", b"EXISTS", 1),
    (b"incr k 1", b"6", 1),
    (b"decr k 1", b"4", 1),
    (b"touch k 100", b"TOUCHED", 1),
    (b"gat 100 k", b"VALUE", 1),
    (b"gats 100 k", b"VALUE", 1),
    (b"delete k", b"DELETED", 0),
    (b"delete new", b"NOT_FOUND", 0),
    (b"ms k 1 F5 T50\r\nx", b"HD", 3),
    (b"ms k 1 MA\r\nx", b"HD", 1),
    (b"ms k 1 ME\r\nx", b"NS", 1),
    (b"ms bmV3 1 b\r\nx", b"HD", 3),
    (b"ms k 1 C9999999\r\nx", b"EX", 1),
    (b"md k", b"HD", 0),
    (b"md k I T30", b"HD", 1),
    (b"ma k", b"HD", 1),
    (b"ma new N0 J5", b"HD", 1),
    (b"mg k v T30", b"VA", 1),
    (b"mg new N30 v", b"VA", 1),
]


@pytest.mark.parametrize("request_, reply, copies", ROWS, ids=[str(row[0]) for row in ROWS])
def test_changes(
    cluster: tuple[list[RunningServer], RunningServer], request_: bytes, reply: bytes, copies: int
) -> None:
    """The primary decides; overwrites are copied, and other changes drop the copies."""
    nodes, front = cluster
    key = b"new" if b"new" in request_ or b"bmV3" in request_ else b"k"
    with front.connect() as wire:
        assert ask(wire, b"flush_all", b"set k 0 0 1\r\n5") == [b"OK\r\n", b"STORED\r\n"]
        wire.send(request_ + b"\r\nmn\r\n")
        assert wire.until(b"MN\r\n").startswith(reply)
        left = [answer for answer in on_nodes(nodes, key) if answer != MISS]
        assert len(left) == copies
        assert len(set(left)) <= 1
        # All reads agree, whichever node answers.
        answers = {get(wire, b"get %b\r\n" % key) for _ in range(NODES)}
        assert answers == ({left[0]} if left else {MISS})


def test_reads(cluster: tuple[list[RunningServer], RunningServer]) -> None:
    """Reads are spread, and a copy that is missing is filled."""
    nodes, front = cluster
    with front.connect() as wire:
        ask(wire, b"flush_all", b"set k 3 0 1\r\n5", b"incr k 1")
        assert len(set(on_nodes(nodes, b"k"))) == 2
        hit = b"VALUE k 3 1\r\n6\r\nEND\r\n"

        def all_filled() -> bool:
            assert get(wire, b"get k\r\n") == hit
            return on_nodes(nodes, b"k") == [hit] * NODES

        assert wait_until(all_filled)
        assert {get(wire, b"mg k v f\r\n", b"\r\n6\r\n") for _ in range(NODES)} == {
            b"VA 1 f3\r\n6\r\n"
        }
        ask(wire, b"set l 0 0 1\r\nl", b"incr k 1")
        expected = b"VALUE l 0 1\r\nl\r\nVALUE k 3 1\r\n7\r\nEND\r\n"
        assert {get(wire, b"get l none k\r\n") for _ in range(NODES)} == {expected}
        unique = get(wire, b"gets k\r\n").split()[4]
        assert wire.ask(b"cas k 3 0 1 %b\r\n8\r\n" % unique) == b"STORED\r\n"
        assert get(wire, b"gat 0 l k\r\n") == expected.replace(b"7\r\n", b"8\r\n")
        assert int(front.stats()["proxy_replica_reads"]) > 0
        assert int(front.stats()["proxy_fills"]) > 0


def test_a_delayed_flush_is_refused(cluster: tuple[list[RunningServer], RunningServer]) -> None:
    _, front = cluster
    with front.connect() as wire:
        refused = b"SERVER_ERROR a delayed flush_all is not possible with replicas\r\n"
        assert wire.ask(b"flush_all 10\r\n") == refused


def test_a_paused_replica(request: pytest.FixtureRequest) -> None:
    """Changes are refused, reads are not, and the replica serves nothing stale afterwards."""
    with started("memlite", "--write", "all") as (nodes, front), front.connect() as wire:
        ask(wire, b"set k 0 0 1\r\n1")
        owner = primary_of(nodes, front)
        paused = next(node for node in nodes if node is not owner)
        paused.pause()
        request.addfinalizer(lambda: paused.process.send_signal(signal.SIGCONT))
        error = wire.ask(b"set k 0 0 1\r\n2\r\n")
        assert error.startswith(b"SERVER_ERROR replica ")
        assert {get(wire, b"get k\r\n")[-8:-5] for _ in range(NODES)} == {b"1\r\n"}
        paused.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: wire.ask(b"set k 0 0 1\r\n3\r\n") == b"STORED\r\n")
        assert {get(wire, b"get k\r\n")[-8:-5] for _ in range(NODES)} == {b"3\r\n"}


def primary_of(nodes: Sequence[RunningServer], front: RunningServer) -> RunningServer:
    """Change k, and return the only node that still has it."""
    with front.connect() as wire:
        ask(wire, b"append k 0 0 0\r\n")
    having: list[RunningServer] = []

    def alone() -> bool:
        # With write = primary, the reply does not wait for the replicas.
        answers = on_nodes(nodes, b"k")
        having[:] = [node for node, its in zip(nodes, answers, strict=True) if its != MISS]
        return len(having) == 1

    assert wait_until(alone)
    return having[0]


def test_only_the_primary_is_left() -> None:
    with started("memlite", "--write", "primary") as (nodes, front), front.connect() as wire:
        ask(wire, b"set k 0 0 1\r\n1")
        owner = primary_of(nodes, front)
        for node in nodes:
            if node is not owner:
                node.process.kill()
                node.process.wait()
        assert wire.ask(b"set k 0 0 1\r\n2\r\n") == b"STORED\r\n"
        assert get(wire, b"get k\r\n") == b"VALUE k 0 1\r\n2\r\nEND\r\n"


def test_a_killed_primary() -> None:
    with started("memlite") as (nodes, front), front.connect() as wire:
        ask(wire, b"set k 0 0 1\r\n1")
        owner = primary_of(nodes, front)
        ask(wire, b"set k 0 0 1\r\n2")
        owner.process.kill()
        owner.process.wait()
        assert wait_until(lambda: node_stat(front, owner, "state") == "down")
        assert {get(wire, b"get k\r\n") for _ in range(NODES)} == {b"VALUE k 0 1\r\n2\r\nEND\r\n"}
        assert wire.ask(b"set k 0 0 1\r\n3\r\n").startswith(b"SERVER_ERROR node ")
        assert {get(wire, b"get k\r\n") for _ in range(NODES)} == {b"VALUE k 0 1\r\n2\r\nEND\r\n"}


def without_delays(conversation: Conversation) -> Conversation:
    """Return a conversation without delayed flushes."""
    batches = [
        Batch(
            batch.binary,
            tuple(unit for unit in batch.units if not unit.data.startswith(b"flush_all ")),
            batch.cuts,
            batch.last,
        )
        for batch in conversation
    ]
    return [batch for batch in batches if batch.units or batch.last]


def separate_uniques(nodes: Sequence[RunningServer]) -> None:
    """Set the nodes' counters of cas uniques so far apart that no two items get the same one.

    Each node counts its own, and two keys may have their primaries on different nodes. A unique
    chosen by a client raises the following ones.
    """
    for number, node in enumerate(nodes):
        node.ask(b"ms counted 0 T-1 E%d\r\n\r\n" % (number * UNIQUES + 1))
        with node.connect() as wire:
            shown = wire.ask(b"ms counted 0 c\r\n\r\n")
            assert shown == b"HD c%d\r\n" % (number * UNIQUES + 2)
            assert wire.ask(b"delete counted\r\n") == b"DELETED\r\n"


UNIQUES = 1_000_000  # more than one node assigns in the conversations of a test


@pytest.mark.parametrize(
    ("options", "seeds"),
    [
        ((), range(20)),
        pytest.param((), range(20, 40), marks=pytest.mark.slow),
        pytest.param(("--in-flight", "2"), range(40, 50), marks=pytest.mark.slow),
    ],
)
def test_conversations(options: tuple[str, ...], seeds: range) -> None:
    """With three replicas, text and meta conversations get the same bytes as without a proxy."""
    with (
        running("memlite", "-B", "ascii") as direct,
        started("memlite", *options) as (nodes, front),
    ):
        separate_uniques(nodes)
        comparison = Comparison((direct, front))
        for seed in seeds:
            conversation = without_delays(forwarded(Generator(random.Random(seed)).conversation()))
            found = comparison.difference(conversation) if conversation else None
            assert found is None, f"seed {seed}, the node first:\n{comparison.shrink(found)}"


def test_binary_clients(cluster: tuple[list[RunningServer], RunningServer]) -> None:
    """Binary changes and reads have the same effects as those in text."""
    nodes, front = cluster
    key = b"bin"
    stored = front.ask(store(Opcode.SET, key, b"5") + NOOP)
    assert replies(stored)[0].status == 0
    assert set(on_nodes(nodes, key)) == {b"VALUE bin 0 1\r\n5\r\nEND\r\n"}
    counted = replies(front.ask(count(Opcode.INCREMENT, key, 1, 0, 0) + NOOP))[0]
    assert int.from_bytes(counted.value) == 6
    assert on_nodes(nodes, key).count(MISS) == NODES - 1
    found = replies(front.ask(packet(Opcode.GET, key) + NOOP))[0]
    assert found.value == b"6"
