"""Real servers for the tests: memlite and memcached as processes, each on a free port."""

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

import memlite.testing
from tests.support.forked import fork_process
from tests.support.waiting import wait_until

PEER_VARIABLE = "MEMLITE_TEST_MEMCACHED"
START_SECONDS = 60


def memcached_path() -> str | None:
    """Return the memcached to compare with: the one the variable names, or the installed one."""
    return os.environ.get(PEER_VARIABLE) or shutil.which("memcached")


def memcached_version() -> tuple[int, ...]:
    """Return the version of memcached; (0,) if there is none."""
    path = memcached_path()
    if path is None:
        return (0,)
    text = subprocess.run([path, "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    assert found, text
    return tuple(int(part) for part in found.groups())


def memcached_has_tls() -> bool:
    """Return whether the memcached to compare with was built with TLS."""
    path = memcached_path()
    return (
        path is not None
        and "enable-ssl"
        in subprocess.run([path, "-h"], capture_output=True, text=True, check=False).stdout
    )


needs_memcached = pytest.mark.skipif(
    memcached_path() is None,
    reason=f"no memcached to compare with (apt install memcached, or set {PEER_VARIABLE})",
)


@dataclass
class RunningServer:
    """A server process that accepts connections."""

    kind: str
    process: subprocess.Popen[bytes]
    port: int = 0
    udp_port: int = 0
    further_ports: tuple[int, ...] = ()
    path: str = ""
    log: Path = Path(os.devnull)
    tls: ssl.SSLContext | None = None
    http_port: int = 0

    def pause(self) -> None:
        """Stop the process until it gets SIGCONT, and wait until all its threads have stopped."""
        self.process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        stopped = re.compile(r".*\) T", re.DOTALL)  # the name of a thread may be anything
        assert wait_until(
            lambda: all(stopped.match((one / "stat").read_text()) for one in threads.iterdir())
        )

    def connect(self, timeout: float = 60) -> "Wire":
        if self.path:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(timeout)
                sock.connect(self.path)
            except OSError:
                sock.close()
                raise
        else:
            sock = socket.create_connection(("127.0.0.1", self.port), timeout)
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_hostname="127.0.0.1")
        return Wire(sock)

    def ask(self, request: bytes) -> bytes:
        """Send on a new connection, and return everything until the server closes it."""
        with self.connect() as wire:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                wire.send(request)
            with contextlib.suppress(OSError):  # the server may have closed the connection already
                wire.sock.shutdown(socket.SHUT_WR)
            return wire.rest()

    def stats(self, group: str = "") -> dict[str, str]:
        with self.connect() as wire:
            return wire.stats(group)

    def resident_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found
        return int(found[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the server and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(20)


class Wire:
    """A client connection with methods for bytes, lines and stats."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def line(self) -> bytes:
        """Return the next line with its line end, or any data received before the server closed."""
        while b"\n" not in self._buffer:
            data = self.sock.recv(65536)
            if not data:
                break
            self._buffer += data
        line, end, self._buffer = self._buffer.partition(b"\n")
        return line + end

    def exactly(self, count: int) -> bytes:
        parts = [self._buffer]
        missing = count - len(self._buffer)
        while missing > 0:
            data = self.sock.recv(min(missing, 1 << 20))
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        data = b"".join(parts)
        self._buffer = data[count:]
        return data[:count]

    def until(self, end: bytes) -> bytes:
        while not self._buffer.endswith(end):
            data = self.sock.recv(1 << 20)
            assert data, f"closed after {self._buffer[-200:]!r}"
            self._buffer += data
        data, self._buffer = self._buffer, b""
        return data

    def rest(self) -> bytes:
        """Return everything until the server closes the connection."""
        parts = [self._buffer]
        self._buffer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := self.sock.recv(1 << 20):
                parts.append(data)
        return b"".join(parts)

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.line()

    def stats(self, group: str = "") -> dict[str, str]:
        self.send(b"stats %b\r\n" % group.encode() if group else b"stats\r\n")
        lines = self.until(b"END\r\n").decode().split("\r\n")
        return dict(line.split(" ", 2)[1:] for line in lines if line.startswith("STAT "))


@contextlib.contextmanager
def running(
    kind: str,
    *arguments: str,
    environment: dict[str, str] | None = None,
    unix: bool = False,
    tls: ssl.SSLContext | None = None,
) -> Iterator[RunningServer]:
    """Run one of `_KINDS`, or ``memcached``, with further arguments; `tls` is for the clients."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="memlite-test-"))
        process = stack.enter_context(
            memlite.testing.server(
                *(part.format(folder=folder) for part in _KINDS.get(kind, ())),
                *arguments,
                command=_memcached() if kind == "memcached" else None,
                unix_socket=unix,
                environment=_ENVIRONMENTS.get(kind, {}) | (environment or {}) or None,
                start_timeout=START_SECONDS,
                start=fork_process,
                # memcached's threads take up to two seconds to end after a signal.
                stop_timeout=0 if kind == "memcached" else 15,
            )
        )
        server = RunningServer(
            kind,
            process.process,
            process.port,
            process.udp_port,
            process.ports[1:],
            process.path,
            process.log,
            tls,
            process.http_port,
        )
        server.connect().sock.close()
        yield server


def _memcached() -> Sequence[str]:
    path = memcached_path()
    assert path is not None
    # memcached refuses to run as root unless told to.
    return [path, "-U", "0", *(["-u", "root"] if os.geteuid() == 0 else [])]


# With MEMLITE_TEST_THREADS=3, the tests run on three processes that act as one server.
_WORKERS = os.environ.get("MEMLITE_TEST_THREADS", "")
_KINDS = {
    "memlite": ("-t", _WORKERS) if _WORKERS else (),
    "memlite-workers": ("-t", "3"),
    # Also with Python in place of the C extensions.
    "memlite-asyncio": ("--loop", "asyncio"),
    # On backends that must be queried, commands go through the engine.
    "memlite-near": ("--near-cache", "64m"),
    "memlite-file": ("--backend", "file://{folder}/cache.json"),
}
_ENVIRONMENTS = {"memlite-asyncio": {"MEMLITE_NO_EXTENSIONS": "1"}}
