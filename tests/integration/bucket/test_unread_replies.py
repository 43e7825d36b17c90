"""Clients that request large values from a bucket and do not read them: memory is bounded."""

import contextlib
from collections.abc import Iterator

import pytest

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

from memlite.testing.gcs_emulator import emulator_thread
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

MIB = 1024  # KiB
VALUE = b"x" * 1_000_000
# A client sends fewer gets than may be in progress at once, each for a different key.
CLIENTS, GETS = 12, 60


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with emulator_thread(["bucket"]) as emulator:
        # The emulator is slow with so much data if other processes use the processor, too.
        url = f"gs://bucket/p?endpoint={emulator.url}&timeout=60&deadline=600"
        with running("memlite", "--backend", url, "-m", "8") as server:
            yield server


def test_memory_is_bounded_and_others_are_served(server: RunningServer) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(CLIENTS + 1)]
        other = wires.pop()
        for number in range(GETS):
            other.send(b"set k%d 0 0 %d\r\n%b\r\n" % (number, len(VALUE), VALUE))
            assert other.line() == b"STORED\r\n"
        before = server.resident_kib()
        requests = b"".join(b"get k%d\r\n" % number for number in range(GETS))
        for wire in wires:
            wire.send(requests)
        # Every get is carried out and counted at once; values that did not fit were dropped.
        assert wait_until(lambda: int(server.stats()["cmd_get"]) == CLIENTS * GETS, 600)
        grown = server.resident_kib() - before
        # Each client may hold 8 MB and two more values; all values would take 720 MB.
        assert grown < 300 * MIB
        other.send(b"get k0\r\n")
        assert len(other.until(b"END\r\n")) > len(VALUE)
        for wire in wires:
            for number in range(GETS):
                assert wire.line() == b"VALUE k%d 0 %d\r\n" % (number, len(VALUE))
                assert wire.line() == VALUE + b"\r\n"
                assert wire.line() == b"END\r\n"
        assert int(server.stats()["get_hits"]) == CLIENTS * GETS + 1
