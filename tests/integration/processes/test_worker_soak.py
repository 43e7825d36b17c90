"""Several workers (``-t``) under load, with connections that come and go.

``MEMLITE_TEST_SOAK_SECONDS`` is the duration: 600 before a release.
"""

import asyncio
import os
import random
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

SECONDS = float(os.environ.get("MEMLITE_TEST_SOAK_SECONDS", "8"))
WORKERS = 3
CLIENTS = 60
KEYS = 20_000
MEBIBYTE = 1 << 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * SECONDS + 300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running("memlite", "-t", str(WORKERS), "-m", "32") as server:
        yield server


def value(chance: random.Random, key: int) -> bytes:
    body = b"%d-" % key + chance.randbytes(chance.choice([10, 100, 100, 1000, 30_000]))
    return b"%08x%b" % (zlib.crc32(body), body)


class Client:
    """Sends commands, most of them on few keys, and checks each value that it gets."""

    def __init__(self, server: RunningServer, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self.connections = self.operations = self.hits = 0

    async def run(self, until: float) -> None:
        while time.monotonic() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
            self.connections += 1
            for _ in range(self._chance.choice([0, 1, 5, 50, 500])):
                if time.monotonic() > until:
                    break
                await self._operate(reader, writer)
            if self._chance.random() < 0.3:  # in the middle of a command
                writer.write(b"set half 0 0 100\r\n" + bytes(self._chance.randrange(100)))
            if self._chance.random() < 0.3:
                writer.transport.abort()
            writer.close()

    async def _operate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = int(KEYS * self._chance.random() ** 3)
        command = self._chance.choice(["get", "get", "get", "set", "set", "delete", "touch", "mg"])
        self.operations += 1
        if command == "set":
            new = value(self._chance, key)
            writer.write(b"set k%d 0 %d %d\r\n%b\r\n" % (key, key % 3 * 100, len(new), new))
            assert await reader.readline() == b"STORED\r\n"
        elif command == "delete":
            writer.write(b"delete k%d\r\n" % key)
            assert await reader.readline() in (b"DELETED\r\n", b"NOT_FOUND\r\n")
        elif command == "touch":
            writer.write(b"touch k%d 100\r\n" % key)
            assert await reader.readline() in (b"TOUCHED\r\n", b"NOT_FOUND\r\n")
        else:
            writer.write(b"mg k%d s v\r\n" % key if command == "mg" else b"get k%d\r\n" % key)
            line = await reader.readline()
            if line in (b"END\r\n", b"EN\r\n"):
                return
            word, *more = line.split()
            size = more[0] if word == b"VA" else more[-1]
            found = await reader.readexactly(int(size) + 2)
            self.hits += 1
            assert found[:8] == b"%08x" % zlib.crc32(found[8:-2]), key
            assert found[8:].startswith(b"%d-" % key)
            if word == b"VALUE":
                assert await reader.readline() == b"END\r\n"


def processes(server: RunningServer) -> list[int]:
    pid = server.process.pid
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def private_bytes(pid: int) -> int:
    """Return the private memory of a process, which excludes the mapping."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: line.split()[1] for line in lines[1:]}
    return 1024 * int(sizes["Private_Dirty:"])


def files(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


async def load(server: RunningServer, seconds: float, seed: int) -> list[Client]:
    clients = [Client(server, seed + number) for number in range(CLIENTS)]
    until = time.monotonic() + seconds
    await asyncio.gather(*(one.run(until) for one in clients))
    return clients


def wait_until_disconnected(wire: Wire) -> None:
    """Wait until all workers have closed the connections of the load."""
    assert wait_until(lambda: wire.stats()["curr_connections"] == "1")


async def test_connections_come_and_go(server: RunningServer) -> None:
    await load(server, SECONDS / 4, 1000)
    with server.connect() as wire:
        wait_until_disconnected(wire)
    before = processes(server)
    memory, opened = [[measure(pid) for pid in before] for measure in (private_bytes, files)]
    clients = await load(server, SECONDS * 3 / 4, 1)
    assert processes(server) == before, "none had to be replaced"
    with server.connect() as wire:
        wait_until_disconnected(wire)
        shown, stats = wire.stats("workers"), wire.stats()
    assert int(stats["evictions"]) > 0 or SECONDS < 20
    assert sum(one.hits for one in clients) > 0
    taken = [int(shown[f"{number}:total_connections"]) for number in range(WORKERS)]
    assert max(taken) <= 1.2 * sum(taken) / WORKERS
    assert [files(pid) for pid in before] == pytest.approx(opened, abs=3)
    for earlier, later in zip(memory, map(private_bytes, before), strict=True):
        assert later < earlier + 4 * MEBIBYTE + earlier // 4
    assert "killing" not in server.log.read_text()
    print(  # noqa: T201
        f"{sum(one.connections for one in clients)} connections,"
        f" {sum(one.operations for one in clients)} operations; memory {memory},"
        f" {[private_bytes(pid) for pid in before]}; accepted {taken}"
    )
