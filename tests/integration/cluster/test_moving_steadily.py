"""Clients of two proxies miss nothing while nodes are added and drained; items stay as they are."""

import asyncio
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from memlite.client import Connection, Shape, connect, parse_address
from tests.support.clusters import Cluster, cluster
from tests.support.servers import RunningServer, needs_memcached
from tests.support.waiting import wait_until

ITEMS = [b"item:%d" % number for number in range(600)]
COUNTERS = [b"counter:%d" % number for number in range(20)]
TTL = 10_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Seen:
    """Counts of the clients' reads and increments."""

    reads: int = 0
    misses: int = 0
    wrong: list[str] = field(default_factory=list)
    counts: dict[bytes, int] = field(default_factory=dict)  # acknowledged increments


@pytest.fixture
def here() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def value(number: int) -> bytes:
    return b"%06d" % number * 10


async def fill(connection: Connection) -> None:
    for number, key in enumerate(ITEMS):
        stored = await connection.request(
            b"ms %b 60 F%d T%d\r\n%b\r\n" % (key, number, TTL, value(number))
        )
        assert stored.line == b"HD"
    for key in COUNTERS:
        assert (await connection.request(b"set %b 0 0 1\r\n0\r\n" % key)).line == b"STORED"


async def read(connection: Connection, process: "subprocess.Popen[bytes]", seen: Seen) -> None:
    draw = random.Random(1)
    while process.poll() is None:
        number = draw.randrange(len(ITEMS))
        reply = await connection.request(b"mg %b v f\r\n" % ITEMS[number], Shape.META)
        seen.reads += 1
        if reply.line == b"EN":
            seen.misses += 1
        elif not reply.items or (reply.items[0].value, reply.items[0].flags) != (
            value(number),
            number,
        ):
            seen.wrong.append(f"{ITEMS[number]!r}: {reply}")
        await asyncio.sleep(0.01)


async def count(connection: Connection, process: "subprocess.Popen[bytes]", seen: Seen) -> None:
    draw = random.Random(2)
    while process.poll() is None:
        key = draw.choice(COUNTERS)
        reply = await connection.request(b"incr %b 1\r\n" % key)
        if reply.line.isdigit():
            # Another client increments too, so the number may exceed this client's count.
            seen.counts[key] = seen.counts.get(key, 0) + 1
        else:
            seen.wrong.append(f"{key!r}: {reply}")
        await asyncio.sleep(0.02)


async def remembered(connection: Connection) -> dict[bytes, tuple[bytes, ...]]:
    """Return flags, uniques and values of all items, and check their remaining times."""
    found = {}
    for key in ITEMS:
        reply = await connection.request(b"mg %b v f c t\r\n" % key, Shape.META)
        (item,) = reply.items
        assert TTL - 300 < int(item.token(b"t") or 0) <= TTL
        found[key] = (item.token(b"f") or b"", item.token(b"c") or b"", item.value)
    return found


async def scenario(
    here: Cluster, fronts: Sequence[RunningServer], commands: Sequence[Sequence[str]]
) -> Seen:
    addresses = [parse_address(f"127.0.0.1:{front.port}") for front in fronts]
    connections = [await connect(address, timeout=60) for address in addresses * 2]
    seen = Seen()
    try:
        await fill(connections[0])
        before = await remembered(connections[0])
        for command in commands:
            process = here.begin(*command)
            async with asyncio.TaskGroup() as group:
                for one in connections[:2]:
                    group.create_task(read(one, process, seen))
                for one in connections[2:]:
                    group.create_task(count(one, process, seen))
            assert process.returncode == 0
        assert await remembered(connections[1]) == before
        for key in COUNTERS:
            reply = await connections[1].request(b"get %b\r\n" % key, Shape.ITEMS)
            assert int(reply.items[0].value) == seen.counts.get(key, 0)
    finally:
        for one in connections:
            await one.close()
    return seen


@pytest.mark.parametrize("kind", ["memlite", pytest.param("memcached", marks=needs_memcached)])
def test_nothing_is_missed(here: Cluster, kind: str) -> None:
    assert here.run("add", *(here.start(name, kind) for name in "abc")).returncode == 0
    if not all(node.ask(b"mg x E1\r\n").startswith(b"EN") for node in here.nodes.values()):
        pytest.skip("this memcached cannot keep cas uniques")
    fronts = [here.proxy(), here.proxy()]
    for front in fronts:
        assert wait_until(lambda: front.stats().get("proxy_nodes_up") == "3")  # noqa: B023 - called at once
    added = [here.start(name, kind) for name in "de"]
    seen = asyncio.run(scenario(here, fronts, [("add", *added), ("drain", "d", "e")]))
    assert not seen.wrong
    assert not seen.misses
    assert seen.reads > 500
