"""TLS clients that stall, vanish, or violate the protocol do not affect other clients."""

import contextlib
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.support.certificates import Authority, Issued, client_context
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]
OURS = ("memlite", "memlite-asyncio")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("certificates")).issue("server")


@pytest.fixture(scope="module", params=OURS)
def server(request: pytest.FixtureRequest, served: Issued) -> Iterator[RunningServer]:
    """A server for the tests of a module, which must keep serving and log nothing."""
    with running(request.param, *served.flags, tls=client_context(served.ca)) as server:
        yield server
        assert server.stats()["curr_connections"] == "1"
        assert server.log.read_text() == ""


class Half:
    """A TLS client without a socket, so that its messages can be inspected before they are sent."""

    def __init__(self, port: int, served: Issued) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 60)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client_context(served.ca).wrap_bio(
            self._incoming, self._outgoing, server_hostname="127.0.0.1"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.sock.close()

    def until_done(self, step: Callable[[], object]) -> object:
        """Execute an operation that exchanges messages with the server."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self.send()
                data = self.sock.recv(65536)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self.send()
                return result

    def read(self) -> bytes:
        """Return the received data, once there is some."""
        data = self.until_done(lambda: self.tls.read(65536))
        assert isinstance(data, bytes)
        return data

    def send(self) -> None:
        """Send the pending output, if any."""
        if data := self.wanted():
            self.sock.sendall(data)

    def wanted(self) -> bytes:
        return self._outgoing.read()

    def hello(self) -> bytes:
        """Return the client's first message."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.wanted()

    def agree(self) -> Self:
        self.until_done(self.tls.do_handshake)
        return self


def hello(server: RunningServer, served: Issued) -> bytes:
    with Half(server.port, served) as half:
        return half.hello()


def errors(server: RunningServer) -> int:
    return int(server.stats()["ssl_handshake_errors"])


def closed(sock: socket.socket, within: float = 5) -> bool:
    """Return whether the server closes the connection within some seconds (handshakes have ten)."""
    sock.settimeout(within)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


# Handshakes


def test_plaintext_on_a_tls_port(server: RunningServer) -> None:
    before = errors(server)
    for request in (b"get foo\r\n", b"\x80" + bytes(23), b"GET / HTTP/1.1\r\n\r\n", b"\r\n" * 9000):
        with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
            sock.sendall(request)
            assert closed(sock)
    assert wait_until(lambda: errors(server) == before + 4)


def test_handshakes_that_end_at_any_point(server: RunningServer, served: Issued) -> None:
    whole = hello(server, served)
    before = errors(server)
    cuts = [0, 1, 2, 4, 5, 6, 50, len(whole) - 1, len(whole)]
    for cut in cuts:
        for reset in (False, True):
            with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
                sock.sendall(whole[:cut])
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert wait_until(lambda: errors(server) == before + 2 * len(cuts))
    assert wait_until(lambda: server.stats()["curr_connections"] == "1")


def test_handshakes_with_changed_bytes(server: RunningServer, served: Issued) -> None:
    whole = bytearray(hello(server, served))
    source = random.Random(7)
    for _ in range(150):
        changed = whole.copy()
        for _ in range(source.choice((1, 1, 3, 20))):
            changed[source.randrange(len(changed))] = source.randrange(256)
        with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
            sock.sendall(changed)
            sock.shutdown(socket.SHUT_WR)
            assert closed(sock)
    assert server.stats()["rejected_connections"] == "0"


def test_a_handshake_in_single_bytes(server: RunningServer, served: Issued) -> None:
    with Half(server.port, served) as half:
        for byte in half.hello():
            half.sock.sendall(bytes([byte]))
        half.agree()
        half.tls.write(b"version\r\n")
        assert half.read().startswith(b"VERSION ")


@pytest.mark.alone
@pytest.mark.slow
def test_a_thousand_unfinished_handshakes(start: Start, served: Issued) -> None:
    """Test both event loops at once, as the time limit of handshakes has to pass."""
    half = 500
    with contextlib.ExitStack() as stack:
        servers = [
            start(*served.flags, "-c", "2000", kind=kind, tls=client_context(served.ca))
            for kind in OURS
        ]
        begun = [hello(server, served)[:100] for server in servers]
        resident = [server.resident_kib() for server in servers]
        began = time.monotonic()
        silent, started = (
            [
                [
                    stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))
                    for _ in range(half)
                ]
                for server in servers
            ]
            for _ in range(2)
        )
        for some, first in zip(started, begun, strict=True):
            for sock in some:
                sock.sendall(first)
        for server, before in zip(servers, resident, strict=True):
            with server.connect() as wire:
                assert wire.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
                stats = wire.stats()
                assert stats["curr_connections"] == "1001"
                # This connection, and the one that checked that the server listens.
                assert stats["total_connections"] == "2"
                shown = wire.stats("conns")
                assert sum(key.endswith(":listen_addr") for key in shown) == 1001
            # 3 KB for each silent client; OpenSSL's buffers for the other clients.
            assert server.resident_kib() - before < 40_000
        for number, server in enumerate(servers):
            assert closed(silent[number][0], within=20)
            assert closed(started[number][-1], within=20)
            assert 9 < time.monotonic() - began < 20  # after the time limit of ten seconds
            assert wait_until(lambda: server.stats()["curr_connections"] == "1")  # noqa: B023 - called at once
            assert server.log.read_text() == ""


@pytest.mark.parametrize("kind", OURS)
def test_unfinished_handshakes_count_as_connections_and_the_oldest_gives_way(
    start: Start, served: Issued, kind: str
) -> None:
    server = start(*served.flags, "-c", "3", kind=kind, tls=client_context(served.ca))
    silent = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(3)]
    first = server.connect()
    assert closed(silent[0])
    second, third = server.connect(), server.connect()
    for wire in (first, second, third):
        assert wire.ask(b"version\r\n").startswith(b"VERSION ")
    assert all(closed(sock) for sock in silent)
    stats = first.stats()
    assert (stats["ssl_handshake_errors"], stats["rejected_connections"]) == ("3", "0")
    # Connections with a finished handshake do not give way. A client over the limit is told so,
    # as by memcached.
    with socket.create_connection(("127.0.0.1", server.port), 10) as sock:
        assert sock.recv(100) == b"ERROR Too many open connections\r\n"
        assert closed(sock)
    assert first.stats()["rejected_connections"] == "1"
    for one in (first, second, third, *silent):
        (one.sock if isinstance(one, Wire) else one).close()


@pytest.mark.parametrize("kind", OURS)
def test_tls_on_a_plaintext_port(start: Start, kind: str) -> None:
    server = start(kind=kind)
    with (
        socket.create_connection(("127.0.0.1", server.port), 0.5) as sock,
        pytest.raises((ssl.SSLError, TimeoutError)),
    ):
        ssl.create_default_context().wrap_socket(sock, server_hostname="127.0.0.1")
    assert wait_until(lambda: server.stats()["curr_connections"] == "1")
    assert server.log.read_text() == ""


# After the handshake


@pytest.mark.skipif(
    shutil.which("openssl") is None,
    reason="the openssl command, which can renegotiate, is not installed",
)
def test_renegotiation_is_refused(server: RunningServer) -> None:
    with subprocess.Popen(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"version\n")
        process.stdin.flush()
        while not (line := process.stdout.readline()).startswith(b"VERSION "):
            assert line
        process.stdin.write(b"R\n")
        process.stdin.flush()
        assert b"no renegotiation" in process.stdout.read()
    assert process.returncode != 0


def test_plaintext_after_the_handshake(server: RunningServer, served: Issued) -> None:
    before = int(server.stats()["ssl_proto_errors"])
    for garbage in (b"get foo\r\n", os.urandom(100_000), b"\x17\x03\x03\x00\x20" + bytes(32)):
        with Half(server.port, served).agree() as half:
            half.sock.sendall(garbage)
            assert closed(half.sock)
    assert wait_until(lambda: int(server.stats()["ssl_proto_errors"]) == before + 3)


def test_disconnecting_without_close_notify_is_not_an_error(
    server: RunningServer, served: Issued
) -> None:
    before = server.stats()
    for reset in (False, True):
        with Half(server.port, served).agree() as half:
            half.tls.write(b"version\r\n")
            half.read()
            if reset:
                half.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert wait_until(lambda: server.stats()["curr_connections"] == "1")
    after = server.stats()
    for name in ("ssl_proto_errors", "ssl_handshake_errors"):
        assert after[name] == before[name]


@pytest.mark.parametrize("kind", [*OURS, "memlite-file"])
def test_half_closed_connections_are_answered(start: Start, served: Issued, kind: str) -> None:
    server = start(*served.flags, kind=kind, tls=client_context(served.ca))
    request = b"".join(b"set k%d 0 0 1\r\n1\r\nget k%d\r\n" % (n, n) for n in range(100))
    expected = b"".join(b"STORED\r\nVALUE k%d 0 1\r\n1\r\nEND\r\n" % n for n in range(100))
    for politely in (True, False):
        with Half(server.port, served).agree() as half:
            half.tls.write(request)
            if politely:
                with pytest.raises(ssl.SSLWantReadError):
                    half.tls.unwrap()
            half.send()
            half.sock.shutdown(socket.SHUT_WR)
            received = b""
            while len(received) < len(expected):
                received += half.read()
            assert received == expected
            assert closed(half.sock)


@pytest.mark.parametrize("kind", OURS)
def test_a_client_that_does_not_read_does_not_fill_memory(
    start: Start, served: Issued, kind: str
) -> None:
    server = start(*served.flags, kind=kind, tls=client_context(served.ca))
    with server.connect() as wire:
        wire.ask(b"set k 0 0 1000000\r\n" + bytes(1_000_000) + b"\r\n")
    resident = server.resident_kib()
    wires = [server.connect() for _ in range(5)]
    for wire in wires:
        wire.send(b"get k\r\n" * 1000)
    with server.connect() as other:
        for _ in range(50):
            assert other.ask(b"version\r\n").startswith(b"VERSION ")
    assert server.resident_kib() - resident < 60_000
    expected = (b"VALUE k 0 1000000\r\n" + bytes(1_000_000) + b"\r\nEND\r\n") * 3
    assert wires[0].exactly(len(expected)) == expected
    for wire in wires:
        wire.sock.close()
    assert wait_until(lambda: server.stats()["curr_connections"] == "1")


@pytest.mark.parametrize("kind", OURS)
def test_idle_connections_are_closed(start: Start, served: Issued, kind: str) -> None:
    server = start(*served.flags, "-o", "idle_timeout=1", kind=kind, tls=client_context(served.ca))
    with server.connect() as wire:
        assert wire.ask(b"version\r\n").startswith(b"VERSION ")
        assert wire.line() == b""  # with a close_notify; otherwise this raises SSLEOFError
    assert server.stats()["idle_kicks"] == "1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("kind", OURS)
def test_a_server_stops_at_once(
    start: Start, served: Issued, kind: str, number: signal.Signals
) -> None:
    server = start(*served.flags, kind=kind, tls=client_context(served.ca))
    idle, begun = server.connect(), socket.create_connection(("127.0.0.1", server.port), 60)
    assert idle.ask(b"version\r\n").startswith(b"VERSION ")
    began = time.monotonic()
    assert server.stop(number) == 0
    if number == signal.SIGUSR1:  # a graceful stop could wait for ten seconds
        assert time.monotonic() - began < 5
    assert idle.line() == b""
    assert closed(begun)
    assert server.log.read_text() == ""
    idle.sock.close()
    begun.close()


@pytest.mark.parametrize("kind", OURS)
def test_a_failed_handshake_is_logged_with_v(start: Start, served: Issued, kind: str) -> None:
    server = start(*served.flags, "-v", kind=kind, tls=client_context(served.ca))
    with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
        sock.sendall(b"get foo\r\n")
        assert closed(sock)
    log: Path = server.log
    assert wait_until(lambda: "failed: [SSL" in log.read_text())
    assert "TLS handshake with tcp:127.0.0.1:" in log.read_text()
    assert "Traceback" not in log.read_text()
