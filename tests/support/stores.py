"""Real Valkey or Redis servers on free ports of loopback, without persistence."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.support.ports import unused_port
from tests.support.waiting import wait_until

__all__ = ["PROGRAM", "Store", "cluster", "has_tls", "store"]

VARIABLE = "MEMLITE_TEST_VALKEY"
PROGRAM = os.environ.get(VARIABLE) or shutil.which("valkey-server") or shutil.which("redis-server")
SECONDS = 60


@dataclass
class Store:
    """A server of the store."""

    process: subprocess.Popen[bytes]
    port: int
    arguments: Sequence[str]

    def ask(self, *words: bytes | str | int) -> bytes:
        """Send a command without a password, and return the beginning of the reply as it came."""
        encoded = [str(word).encode() if not isinstance(word, bytes) else word for word in words]
        request = b"*%d\r\n" % len(encoded) + b"".join(
            b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded
        )
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as sock:
            sock.sendall(request)
            return sock.recv(65536)

    def pause(self) -> None:
        """Stop the process until `resume`."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start a server that was killed again, on the same port and without data."""
        self.process = subprocess.Popen(
            self.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        _wait(lambda: _answers(self.process, self.port))


@contextlib.contextmanager
def store(*options: str) -> Iterator[Store]:
    """Run a server; skip the test if there is none to run.

    Args:
        options: in addition to those for port and persistence.
    """
    if PROGRAM is None:
        pytest.skip(f"neither valkey-server nor redis-server is installed, nor {VARIABLE} set")
    port = unused_port()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [PROGRAM, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        arguments += ["--save", "", "--appendonly", "no", *options]
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        running = Store(process, port, arguments)
        try:
            _wait(lambda: _answers(process, port))
            yield running
        finally:
            running.process.kill()
            running.process.wait()


@contextlib.contextmanager
def cluster(masters: int = 3) -> Iterator[list[Store]]:
    """Run a cluster of masters without replicas, and yield them."""
    with contextlib.ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        stores = [
            # The second port is the first one plus 10,000 unless it is given.
            stack.enter_context(store(*options, "--cluster-port", str(unused_port())))
            for _ in range(masters)
        ]
        bounds = [16384 * number // masters for number in range(masters + 1)]
        for number, one in enumerate(stores):
            first, last = bounds[number], bounds[number + 1] - 1
            assert one.ask("CLUSTER", "ADDSLOTSRANGE", first, last) == b"+OK\r\n"
            assert one.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1) == b"+OK\r\n"
        for one in stores[1:]:
            bus = stores[0].arguments[-1]
            reply = one.ask("CLUSTER", "MEET", "127.0.0.1", stores[0].port, bus)
            assert reply == b"+OK\r\n"
        _wait(lambda: all(_knows(one, masters) for one in stores))
        yield stores


def has_tls() -> bool:
    """Return whether the server was built with TLS: otherwise it says that it cannot."""
    if PROGRAM is None:
        return False
    command = [PROGRAM, "--port", "0", "--tls-port", "1", "--tls-cert-file", "nowhere"]
    command += ["--tls-key-file", "nowhere"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    output = run.stdout + run.stderr
    return "Failed finding TLS support" not in output and "Bad directive" not in output


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, "the store has ended"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as sock:
        sock.sendall(b"PING\r\n")
        return sock.recv(100)[:1] in (b"+", b"-")  # it may require a password
    return False


def _knows(one: Store, masters: int) -> bool:
    info = one.ask("CLUSTER", "INFO")
    known = f"cluster_known_nodes:{masters}\r\n".encode()
    size = f"cluster_size:{masters}\r\n".encode()
    return b"cluster_state:ok" in info and known in info and size in info


def _wait(done: Callable[[], bool]) -> None:
    assert wait_until(done), "the store did not start"
