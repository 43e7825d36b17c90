"""The memory of a connection that is open and idle."""

import resource
import socket
import sys
from collections.abc import Callable

import pytest

from tests.support.servers import RunningServer

CONNECTIONS = 2_000
# Connections that are open before and during the measurement. Without them, it would depend on how
# much memory freed at startup the first connections can reuse: it varies by 500 bytes each.
OTHERS = 1_000
OPEN_FILES = OTHERS + CONNECTIONS + 500
# Measured: 2,025 and 2,500, most of which the event loop and Python use for each socket. An empty
# deque for each connection would add 640.
BYTES = {"uvloop": 2_400, "asyncio": 2_900}


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("loop", BYTES)
def test_an_idle_connection_takes_little_memory_even_after_use(
    start: Callable[..., RunningServer], loop: str
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES:
        pytest.skip(f"cannot open {OTHERS + CONNECTIONS} connections (ulimit -Hn is {hard})")
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, OPEN_FILES), hard))
    server = start("-c", str(OTHERS + CONNECTIONS + 100), "--loop", loop)
    others = open_connections(server, OTHERS)
    use(others)
    before = server.resident_kib()
    connections = open_connections(server, CONNECTIONS)
    use(connections)
    cost = (server.resident_kib() - before) * 1024 / CONNECTIONS
    assert server.stats()["curr_connections"] == str(OTHERS + CONNECTIONS + 1)
    close(others + connections)
    assert cost < BYTES[loop]


def open_connections(server: RunningServer, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(count)]


def use(connections: list[socket.socket]) -> None:
    """Send gets and sets, hits and misses, on each connection, one by one and pipelined."""
    for request, reply in (
        (b"set a 0 0 1\r\n1\r\n", b"STORED\r\n"),
        (b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n"),
        (b"get b\r\nget b\r\n", b"END\r\nEND\r\n"),
    ):
        for connection in connections:
            connection.sendall(request)
        for connection in connections:
            assert connection.recv(100) == reply


def close(connections: list[socket.socket]) -> None:
    for connection in connections:
        connection.close()
