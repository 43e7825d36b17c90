"""Closed connections leave no reference cycles, because no garbage collector would free them.

The server exempts old objects from collection (`memlite.server.upkeep.collector`), and a connection
is old when it ends. In a reference cycle, it would stay in memory forever, with everything that it
refers to.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memlite.protocol.packets import Opcode
from tests.support import packets
from tests.support.certificates import Authority, client_context
from tests.support.paths import INSPECTED
from tests.support.servers import RunningServer, Wire, running

CLIENTS = 5
CONNECTIONS = (
    "memlite.server.connections.connection.Connection",
    "memlite.server.execution.pipelined.StoreExecutor",
    "memlite.server.connections.tls_transport.TlsTransport",
)
# asyncio's transport refers to itself through a method that it stores; uvloop's does not.
ASYNCIOS = {
    "asyncio.selector_events._SelectorSocketTransport", "asyncio.trsock.TransportSocket",
    "builtins.dict", "builtins.method", "builtins.tuple", "collections.deque", "socket.socket",
}  # fmt: skip
# Sampled measurements keep a reference to the last handler; with TLS, there are two.
KEPT = 2
NO_LINGER = struct.pack("ii", 1, 0)

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGUSR2"), reason="this platform has no SIGUSR2"
)


class Inspected:
    """A server process that reports its objects.

    Attributes:
        server: the process.
    """

    def __init__(self, server: RunningServer, file: Path) -> None:
        self.server = server
        self._file = file

    def look(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of objects of memlite's types, and of garbage objects, by type."""
        self._file.unlink(missing_ok=True)
        self.server.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + 60
        while not self._file.exists():
            assert self.server.process.poll() is None, self.server.log.read_text()
            assert time.monotonic() < deadline, "the server did not report its objects"
            time.sleep(0.005)
        told = json.loads(self._file.read_text())
        return told["live"], told["garbage"]


KINDS = [
    "memlite",
    "memlite-asyncio",
    pytest.param("memlite-near", marks=pytest.mark.slow),  # executes commands as a file does
    "memlite-file",
    "tls",
    pytest.param("tls-asyncio", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=KINDS)
def inspected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Inspected]:
    folder = tmp_path_factory.mktemp("inspected")
    file = folder / "told.json"
    here = str(INSPECTED)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    kind, options, tls = request.param, ["-c", "50"], None
    if kind.startswith("tls"):
        served = Authority(folder).issue("server")
        options += served.flags
        tls = client_context(served.ca)
        kind = kind.replace("tls", "memlite")
    environment = {"PYTHONPATH": path, "INSPECTED": str(file)}
    with running(kind, *options, environment=environment, tls=tls) as server:
        # Modules are imported when a client first uses their protocol. Half a packet followed
        # by a reset may or may not be read.
        wire = server.connect()
        wire.send(packets.NOOP)
        assert wire.sock.recv(24)
        wire.sock.close()
        yield Inspected(server, file)


# Actions of clients before they disconnect


def nothing(wire: Wire) -> None:
    """Connect and send nothing."""


def text(wire: Wire) -> None:
    wire.send(b"set a 0 0 1\r\n1\r\nget a\r\nget a b\r\ndelete a\r\nincr a 1\r\nversion\r\n")
    assert wire.until(b"\r\n")


def stats(wire: Wire) -> None:
    for group in ("", "settings", "conns", "items", "sizes", "latency", "hotkeys"):
        wire.send(b"stats %b\r\n" % group.encode())
        time.sleep(0.01)
    assert wire.sock.recv(1000)


def meta(wire: Wire) -> None:
    wire.send(b"ms m 1 T5 I\r\nx\r\nmg m v t c\r\nmd m I T9\r\nmg m v\r\nma n N0 J5\r\nmn\r\n")
    assert wire.sock.recv(1000)


def binary(wire: Wire) -> None:
    wire.send(packets.store(Opcode.SET, b"b", b"1") + packets.packet(Opcode.GET, b"b"))
    wire.send(packets.packet(Opcode.STAT) + packets.NOOP)
    assert wire.sock.recv(1000)


def half_a_line(wire: Wire) -> None:
    wire.send(b"get a")


def half_a_value(wire: Wire) -> None:
    wire.send(b"set a 0 0 1000000\r\n" + bytes(500_000))


def half_a_meta_value(wire: Wire) -> None:
    wire.send(b"ms a 100 T5 E7\r\n" + bytes(50))


def half_a_value_too_large(wire: Wire) -> None:
    wire.send(b"set a 0 0 9000000\r\n" + bytes(500_000))


def half_a_packet(wire: Wire) -> None:
    wire.send(packets.store(Opcode.SET, b"b", bytes(100_000))[:50_000])


def quits(wire: Wire) -> None:
    wire.send(b"get none\r\nquit\r\n")  # other clients may have left their keys
    assert wire.rest() in (b"END\r\n", b"ERROR\r\n", b"")


def breaks_the_rules(wire: Wire) -> None:
    wire.send(b"x" * 10_000)
    wire.rest()


def ends_its_half(wire: Wire) -> None:
    wire.send(b"get a\r\nget b\r\n")
    with contextlib.suppress(OSError, NotImplementedError):
        wire.sock.shutdown(socket.SHUT_WR)
    wire.rest()


def watches(wire: Wire) -> None:
    wire.send(b"watch fetchers mutations connevents\r\n")
    assert wire.sock.recv(100)


def reads_slowly(wire: Wire) -> None:
    """Request many times the capacity of the sockets; disconnect without reading the replies."""
    wire.send(b"set large 0 0 1000000\r\n%b\r\n" % bytes(1_000_000))
    wire.sock.recv(8)
    with contextlib.suppress(TimeoutError):
        wire.sock.settimeout(0.2)
        wire.send(b"get large\r\n" * 100)


def leaves_much_undone(wire: Wire) -> None:
    """Disconnect with commands in progress, some of which wait for a backend."""
    wire.send(b"set a 0 0 1\r\n1\r\nget a b c\r\nappend a 0 0 1\r\n2\r\n" * 300)


def dumps(wire: Wire) -> None:
    """Disconnect in the middle of a dump."""
    sets = (b"set dumped%d 0 0 1 noreply\r\n1\r\n" % number for number in range(3000))
    wire.send(b"".join(sets) + b"version\r\n")
    assert wire.sock.recv(100)
    wire.send(b"lru_crawler metadump all\r\n")
    assert wire.sock.recv(100)


WAYS = [
    nothing, text, stats, meta, binary, half_a_line, half_a_value, half_a_meta_value,
    half_a_value_too_large, half_a_packet, quits, breaks_the_rules, ends_its_half, watches,
    reads_slowly, leaves_much_undone, dumps,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_closed_connection_is_freed_without_the_collector(
    inspected: Inspected, way: Callable[[Wire], None]
) -> None:
    leave(inspected, way)  # creates the objects that are created only once
    before, _ = settled(inspected)
    leave(inspected, way)
    _, garbage = settled(inspected, before)
    assert not {name: count for name, count in garbage.items() if name not in ASYNCIOS}


def leave(inspected: Inspected, way: Callable[[Wire], None]) -> None:
    """Connect clients, let them act, and disconnect; every other client sends a reset."""
    wires = [inspected.server.connect() for _ in range(CLIENTS)]
    for wire in wires:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            way(wire)
    for number, wire in enumerate(wires):
        if number % 2:
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        wire.sock.close()


def settled(
    inspected: Inspected, before: dict[str, int] | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the objects after the clients have disconnected, and all garbage until then.

    Commands may continue after their client has disconnected. With `before`, wait until
    each type has fewer additional objects than there were clients.
    """
    deadline = time.monotonic() + 60
    garbage: Counter[str] = Counter()
    while True:
        live, more = inspected.look()
        garbage.update(more)
        allowed = {name: before.get(name, 0) + CLIENTS - 1 for name in live} if before else {}
        allowed |= dict.fromkeys(CONNECTIONS, KEPT)
        left = {
            name: count
            for name, count in live.items()
            if count > allowed.get(name, count) and "Item" not in name
        }
        if not left:
            return live, garbage
        assert time.monotonic() < deadline, f"objects that were not freed: {left}"
        time.sleep(0.02)


@pytest.mark.slow
def test_transports_that_asyncio_leaves_behind_are_collected(tmp_path: Path) -> None:
    """Otherwise, the transport of each closed connection would stay in memory forever."""
    file = tmp_path / "told.json"
    here = str(INSPECTED)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, "INSPECTED": str(file)}
    rounds, at_once = 30, 900  # which the collector ages together
    with running("memlite-asyncio", environment=environment) as server:
        for _ in range(rounds):
            come_and_go(server, at_once)
        inspected = Inspected(server, file)
        # Without collection, half of the transports are left.
        assert transports_left(inspected) < rounds * at_once / 3
        # Check that asyncio does leave transports behind and that the report shows them: after
        # the first report, the server collects nothing by itself.
        deadline = time.monotonic() + 60
        come_and_go(server, 1)
        while not transports_left(inspected):
            assert time.monotonic() < deadline, "asyncio left no transport behind"


def come_and_go(server: RunningServer, clients: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(clients):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))


def transports_left(inspected: Inspected) -> int:
    _, garbage = inspected.look()
    return garbage.get("asyncio.selector_events._SelectorSocketTransport", 0)
