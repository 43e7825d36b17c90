"""Cases of replicated pools: several sets of replicas, noreply, sizes, expiry, a lost replica."""

import signal
from collections.abc import Iterator, Sequence

import pytest

from memlite.cluster.topology import parse_nodes
from tests.integration.cluster.test_proxy_replicas import (
    KINDS,
    MISS,
    NODES,
    ask,
    get,
    on_nodes,
    primary_of,
    started,
)
from tests.support.proxies import node_stat
from tests.support.servers import RunningServer, Wire, needs_memcached
from tests.support.waiting import wait_until

Cluster = tuple[list[RunningServer], RunningServer]
PATIENT = ("--deadline", "3")  # or a busy machine would be taken for a lost node
KEYS = [b"key:%d" % number for number in range(60)]


@pytest.fixture(scope="module", params=KINDS)
def pairs(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes, of which each key has two."""
    with started(request.param, "--replicas", "2", *PATIENT) as parts:
        yield parts


def places(nodes: Sequence[RunningServer], key: bytes) -> tuple[int, ...]:
    names = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    return tuple(parse_nodes(names).router().replicas(key, 2))


def item(key: bytes, value: bytes) -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\n" % (key, len(value), value)


def fill(wire: Wire, end: bytes = b"") -> bytes:
    """Store each key with itself as the value, and return the items."""
    assert ask(wire, *(b"set %b 0 0 %d\r\n%b" % (key, len(key), key) for key in KEYS)) == [
        b"STORED\r\n"
    ] * len(KEYS)
    return b"".join(item(key, key) for key in KEYS) + end


def test_each_key_is_only_on_its_two_nodes(pairs: Cluster) -> None:
    nodes, front = pairs
    with front.connect() as wire:
        fill(wire)
    assert {place for key in KEYS for place in places(nodes, key)} == set(range(NODES))
    for key in KEYS:
        hit = item(key, key) + b"END\r\n"
        expected = [hit if index in places(nodes, key) else MISS for index in range(NODES)]
        assert on_nodes(nodes, key) == expected


def test_a_get_of_many_keys_is_in_order_whichever_replicas_answer(pairs: Cluster) -> None:
    _, front = pairs
    with front.connect() as wire:
        expected = fill(wire, b"END\r\n")
        asked = b"get " + b" nothing ".join(KEYS) + b"\r\n"
        assert {get(wire, asked) for _ in range(2 * NODES)} == {expected}
        uniques = get(wire, b"gets " + b" ".join(KEYS) + b"\r\n")
        assert uniques.count(b"VALUE ") == len(KEYS)


def test_a_get_of_many_keys_survives_a_killed_node() -> None:
    with started("memlite", "--replicas", "2", *PATIENT) as (nodes, front), front.connect() as wire:
        expected = fill(wire, b"END\r\n")
        nodes[1].process.kill()
        nodes[1].process.wait()
        asked = b"get " + b" ".join(KEYS) + b"\r\n"
        assert wait_until(lambda: node_stat(front, nodes[1], "state") == "down")
        assert {get(wire, asked) for _ in range(2 * NODES)} == {expected}
        for node in (nodes[0], nodes[2]):
            node.process.kill()
            node.process.wait()
        assert wait_until(lambda: wire.stats()["proxy_nodes_up"] == "0")
        for request in (b"get %b\r\n" % KEYS[0], b"set %b 0 0 1\r\nx\r\n" % KEYS[0]):
            assert wire.ask(request).startswith(b"SERVER_ERROR ")


SILENT = [
    (b"set k 0 0 1 noreply\r\n2\r\n", b"2", 3),
    (b"append k 0 0 1 noreply\r\n2\r\n", b"12", 1),
    (b"incr k 4 noreply\r\n", b"5", 1),
    (b"delete k noreply\r\n", b"", 0),
    (b"touch k 100 noreply\r\n", b"1", 1),
    (b"ms k 1 q\r\n3\r\n", b"3", 3),
    (b"ma k q\r\n", b"2", 1),
    (b"md k q\r\n", b"", 0),
    (b"flush_all noreply\r\n", b"", 0),
]


@pytest.mark.parametrize("kind", KINDS)
def test_silent_changes_are_made_on_all_copies(kind: str) -> None:
    with started(kind, *PATIENT) as (nodes, front), front.connect() as wire:
        for request, value, copies in SILENT:
            ask(wire, b"flush_all", b"set k 0 0 1\r\n1")
            wire.send(request + b"mn\r\n")
            assert wire.line() == b"MN\r\n", request
            left = [answer for answer in on_nodes(nodes, b"k") if answer != MISS]
            assert left == [item(b"k", value) + MISS] * copies, request
            found = get(wire, b"get k\r\n")
            assert found == (item(b"k", value) if value else b"") + MISS


def test_large_values_are_copied_and_too_large_ones_remove_the_copies(pairs: Cluster) -> None:
    nodes, front = pairs
    value = bytes(range(256)) * 4000  # a megabyte, with all bytes
    with front.connect() as wire:
        assert ask(wire, b"set large 0 0 %d\r\n%b" % (len(value), value)) == [b"STORED\r\n"]
        assert on_nodes(nodes, b"large").count(item(b"large", value) + MISS) == 2
        assert {get(wire, b"get large\r\n", MISS) for _ in range(4)} == {
            item(b"large", value) + MISS
        }
        refused = ask(wire, b"set large 0 0 1100000\r\n%b" % bytes(1_100_000))
        assert refused == [b"SERVER_ERROR object too large for cache\r\n"]
        assert on_nodes(nodes, b"large") == [MISS] * NODES


def test_copies_expire_with_their_item(pairs: Cluster) -> None:
    """Both the copies that the change makes and those that a read fills expire."""
    nodes, front = pairs
    with front.connect() as wire:
        ask(
            wire, b"flush_all", b"set copied 0 2 1\r\nx", b"set filled 0 2 1\r\n1", b"incr filled 1"
        )
        reads = (b"get copied\r\n", b"get filled\r\n")
        assert wait_until(lambda: [get(wire, one) for one in reads] == [MISS, MISS])
        # A copy may expire a second after the item at the primary.
        for key in (b"copied", b"filled"):
            assert wait_until(lambda key=key: on_nodes(nodes, key) == [MISS] * NODES)


def test_a_pipeline_is_answered_in_order(pairs: Cluster) -> None:
    _, front = pairs
    with front.connect() as wire:
        ask(wire, b"flush_all")
        wire.send(
            b"".join(
                b"set %b 0 0 1\r\n1\r\nincr %b 1\r\nappend %b 0 0 1\r\nx\r\nget %b\r\ndelete %b\r\n"
                b"get %b\r\n" % ((key,) * 6)
                for key in KEYS
            )
            + b"mn\r\n"
        )
        each = b"STORED\r\n2\r\nSTORED\r\n" + item(b"%b", b"2x") + b"END\r\nDELETED\r\nEND\r\n"
        assert wire.until(b"MN\r\n") == b"".join(each % key for key in KEYS) + b"MN\r\n"


@needs_memcached
@pytest.mark.parametrize(
    ("write", "reply"), [("all", b"SERVER_ERROR replica "), ("primary", b"STORED")]
)
def test_a_replica_that_does_not_answer(write: str, reply: bytes) -> None:
    """The change is made without it or not at all; all nodes give the same value."""
    options = ("--write", write, *PATIENT)
    with started("memcached", *options) as (nodes, front), front.connect() as wire:
        ask(wire, b"set k 0 0 1\r\n1")
        owner = primary_of(nodes, front)
        ask(wire, b"set k 0 0 1\r\n1")
        stuck = next(node for node in nodes if node is not owner)
        stuck.pause()
        try:
            assert wire.ask(b"set k 0 0 1\r\n2\r\n").startswith(reply)
        finally:
            stuck.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: node_stat(front, stuck, "state") == "up")
        found = {get(wire, b"get k\r\n") for _ in range(2 * NODES)}
        assert len(found) == 1
        # No part of a refused change is visible.
        assert found == {item(b"k", b"1" if write == "all" else b"2") + MISS}
