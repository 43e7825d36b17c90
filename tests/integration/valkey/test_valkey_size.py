"""A store with many items, and gets of large ones: neither is held in memory."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from tests.support.ports import unused_port
from tests.support.servers import running
from tests.support.stores import Store, store
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ITEMS = 1_000_000
# A script that writes items in memlite's format inside the store.
FILL = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local head = string.format('m1 %016x 0 0 1796049000 0 - -', number)
  redis.call('SET', 'p:key' .. number, head .. '\\nvalue' .. number)
end
return 1
"""
STARTS = 3

MIB = 1024  # KiB
VALUE = b"x" * 1_000_000
KEYS, GETS = 20, 10_000


def fill(one: Store) -> None:
    for first in range(0, ITEMS, 50_000):
        assert one.ask("EVAL", FILL, 0, first, first + 49_999) == b":1\r\n"
    # There may also be the epoch, written by a server that was started before.
    assert int(re.findall(rb"\d+", one.ask("DBSIZE"))[0]) >= ITEMS


def start_seconds(url: str) -> float:
    """Return the processor time of a server that is stopped after its first reply."""
    port = unused_port()
    command = [sys.executable, "-P", "-m", "memlite", "-l", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen([*command, "--backend", url], stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: replies(port))
    finally:
        process.terminate()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def replies(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(b"get key7\r\n")
        return sock.recv(100)[:1] in (b"V", b"E")
    return False


def sent(one: Store) -> int:
    """Return how many bytes a store has sent."""
    return int(re.findall(rb"total_net_output_bytes:(\d+)", one.ask("INFO", "stats"))[0])


def test_a_server_starts_as_fast_on_a_million_items_as_on_none() -> None:
    with store() as empty, store() as full:
        fill(full)
        before = sent(full)
        times: dict[int, list[float]] = {empty.port: [], full.port: []}
        for _ in range(STARTS):
            for one in (empty, full):
                times[one.port].append(start_seconds(f"valkey://127.0.0.1:{one.port}/p"))
        # Reading all items would take tens of seconds. Python's own start takes most of a second.
        assert min(times[full.port]) < 3 * min(times[empty.port])
        # The names alone are 10 MB.
        assert sent(full) - before < STARTS * 50_000
        url = f"valkey://127.0.0.1:{full.port}/p"
        with running("memlite", "--backend", url) as server, server.connect() as wire:
            wire.send(b"get key999999\r\n")
            assert wire.line() == b"VALUE key999999 0 11\r\n"
            assert wire.line() == b"value999999\r\n"


@pytest.fixture
def url() -> Iterator[str]:
    with store() as one:
        yield f"valkey://127.0.0.1:{one.port}/p"


@pytest.mark.parametrize("clients", [1, 10])
def test_memory_is_bounded_while_replies_are_not_read(url: str, clients: int) -> None:
    """All values would be 10 GB."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running("memlite", "--backend", url, "-m", "8"))
        wires = [stack.enter_context(server.connect()) for _ in range(clients + 1)]
        other = wires.pop()
        for number in range(KEYS):
            other.send(b"set k%d 0 0 %d\r\n%b\r\n" % (number, len(VALUE), VALUE))
            assert other.line() == b"STORED\r\n"
        before = server.resident_kib()
        requests = b"".join(b"get k%d\r\n" % (number % KEYS) for number in range(GETS // clients))
        for wire in wires:
            wire.send(requests)
        carried_out = int(server.stats()["cmd_get"])

        def at_rest() -> bool:
            nonlocal carried_out
            earlier, carried_out = carried_out, int(server.stats()["cmd_get"])
            return 0 < carried_out == earlier

        assert wait_until(at_rest, every=0.5)
        assert carried_out < GETS
        grown = server.resident_kib() - before
        # Each client may have 8 MB and two more values, and some are in transit from the store.
        assert grown < 300 * MIB
        for wire in wires:
            for number in range(100):
                assert wire.line() == b"VALUE k%d 0 %d\r\n" % (number % KEYS, len(VALUE))
                assert wire.line() == VALUE + b"\r\n"
                assert wire.line() == b"END\r\n"
        assert server.resident_kib() - before < 300 * MIB
