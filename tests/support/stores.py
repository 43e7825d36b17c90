"""Real Valkey or Redis servers on free ports of loopback, without persistence."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ports import unused_port
from tests.support.waiting import wait_until

__all__ = [
    "MASTER",
    "PROGRAM",
    "Store",
    "cluster",
    "has_tls",
    "move_slot",
    "replicated_cluster",
    "sentinel",
    "sentinels",
    "store",
    "with_replica",
]

VARIABLE = "MEMLITE_TEST_VALKEY"
PROGRAM = os.environ.get(VARIABLE) or shutil.which("valkey-server") or shutil.which("redis-server")
SECONDS = 60
MASTER = "mymaster"
"""The name of the master for Sentinels."""
# Otherwise, a master waits 5 s for further replicas before it sends its data to the first.
_SOON = ("--repl-diskless-sync-delay", "0")


@dataclass
class Store:
    """A server of the store."""

    process: subprocess.Popen[bytes]
    port: int
    arguments: Sequence[str]

    def ask(self, *words: bytes | str | int) -> bytes:
        """Send a command without a password, and return the beginning of the raw reply."""
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
        """Restart a killed server, on the same port and without data."""
        self.process = subprocess.Popen(
            self.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        _wait(lambda: _answers(self.process, self.port))


@contextlib.contextmanager
def store(*options: str) -> Iterator[Store]:
    """Run a server; skip the test if none is installed.

    Args:
        options: options in addition to those for port and persistence.
    """
    if PROGRAM is None:
        pytest.skip(f"neither valkey-server nor redis-server is installed, nor {VARIABLE} set")
    port = unused_port()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [PROGRAM, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        arguments += ["--save", "", "--appendonly", "no", *options]
        with _started(arguments, port) as running:
            yield running


@contextlib.contextmanager
def _started(arguments: Sequence[str], port: int) -> Iterator[Store]:
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    running = Store(process, port, arguments)
    try:
        _wait(lambda: _answers(process, port))
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@contextlib.contextmanager
def with_replica(*options: str) -> Iterator[tuple[Store, Store]]:
    """Run a server and its replica."""
    with store(*_SOON, *options) as master, store(*options) as replica:
        assert replica.ask("REPLICAOF", "127.0.0.1", master.port) == b"+OK\r\n"
        _wait(lambda: _follows(replica))
        yield master, replica


@contextlib.contextmanager
def sentinels(master: Store, count: int = 3) -> Iterator[list[Store]]:
    """Run Sentinels that watch a server and promote its replica soon after the server fails."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(sentinel(master, count // 2 + 1)) for _ in range(count)]
        others = f"num-other-sentinels\r\n${len(str(count - 1))}\r\n{count - 1}\r\n".encode()
        for one in found:
            _wait(lambda one=one: others in one.ask("SENTINEL", "MASTER", MASTER))
            _wait(lambda one=one: b"ip" in one.ask("SENTINEL", "REPLICAS", MASTER))
        yield found


@contextlib.contextmanager
def sentinel(master: Store, quorum: int = 1, password: str = "") -> Iterator[Store]:
    """Run a Sentinel."""
    if PROGRAM is None:
        pytest.skip("there is no server to run")
    port = unused_port()
    with tempfile.TemporaryDirectory() as folder:
        # Sentinel writes its findings to this file.
        configuration = Path(folder) / "sentinel.conf"
        configuration.write_text(
            f"bind 127.0.0.1\nport {port}\ndir {folder}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds {MASTER} 3000\n"
            f"sentinel failover-timeout {MASTER} 6000\n"
            + (f"requirepass {password}\n" if password else "")
        )
        with _started([PROGRAM, str(configuration), "--sentinel"], port) as running:
            yield running


def _follows(replica: Store) -> bool:
    return b"master_link_status:up" in replica.ask("INFO", "replication")


@contextlib.contextmanager
def replicated_cluster(masters: int = 3) -> Iterator[tuple[list[Store], list[Store]]]:
    """Run a cluster of masters, each with a replica; yield both, in the same order."""
    with cluster(masters, *_SOON) as stores, contextlib.ExitStack() as stack:
        replicas = [stack.enter_context(_member(*_SOON)) for _ in stores]
        for one in replicas:
            _meet(stores[0], one)
        everyone = [*stores, *replicas]
        _wait(lambda: all(_knows(one, masters, len(everyone)) for one in everyone))
        for master, replica in zip(stores, replicas, strict=True):
            name = master.ask("CLUSTER", "MYID").split()[1]
            assert replica.ask("CLUSTER", "REPLICATE", name) == b"+OK\r\n"
        for replica in replicas:
            _wait(lambda replica=replica: _follows(replica))
        # A master does not hand over to a replica that it does not know yet.
        _wait(lambda: all(_knows_replicas(one, len(replicas)) for one in everyone))
        yield stores, replicas


@contextlib.contextmanager
def cluster(masters: int = 3, *options: str) -> Iterator[list[Store]]:
    """Run a cluster of masters without replicas, and yield them."""
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(_member(*options)) for _ in range(masters)]
        bounds = [16384 * number // masters for number in range(masters + 1)]
        for number, one in enumerate(stores):
            first, last = bounds[number], bounds[number + 1] - 1
            assert one.ask("CLUSTER", "ADDSLOTSRANGE", first, last) == b"+OK\r\n"
            assert one.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1) == b"+OK\r\n"
        for one in stores[1:]:
            _meet(stores[0], one)
        _wait(lambda: all(_knows(one, masters, masters) for one in stores))
        yield stores


def _member(*options: str) -> contextlib.AbstractContextManager[Store]:
    """Return a server of a cluster that does not know any other server yet."""
    common = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", *options)
    # The bus port is the first port plus 10,000 unless it is given.
    return store(*common, "--cluster-port", str(unused_port()))


def _meet(one: Store, other: Store) -> None:
    bus = one.arguments[-1]
    assert other.ask("CLUSTER", "MEET", "127.0.0.1", one.port, bus) == b"+OK\r\n"


def move_slot(masters: Sequence[Store], slot: int, source: Store, target: Store) -> None:
    """Move a slot and its keys from one master to another, as redis-cli does."""
    of_source, of_target = (one.ask("CLUSTER", "MYID").split()[1] for one in (source, target))
    assert target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", of_source) == b"+OK\r\n"
    assert source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", of_target) == b"+OK\r\n"
    while names := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 10).split(b"\r\n")[2::2]:
        for name in names:
            reply = source.ask("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
            assert reply in (b"+OK\r\n", b"+NOKEY\r\n")
    # The target first: otherwise, clients would ask it before it owns the slot.
    for one in sorted(masters, key=lambda one: (one is not target, one is not source)):
        assert one.ask("CLUSTER", "SETSLOT", slot, "NODE", of_target) == b"+OK\r\n"


def _knows_replicas(one: Store, replicas: int) -> bool:
    return len(re.findall(rb"[ ,]slave ", one.ask("CLUSTER", "NODES"))) == replicas


def has_tls() -> bool:
    """Return whether the server was built with TLS: otherwise it reports an error."""
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


def _knows(one: Store, masters: int, servers: int) -> bool:
    info = one.ask("CLUSTER", "INFO")
    known = f"cluster_known_nodes:{servers}\r\n".encode()
    size = f"cluster_size:{masters}\r\n".encode()
    return b"cluster_state:ok" in info and known in info and size in info


def _wait(done: Callable[[], bool]) -> None:
    assert wait_until(done), "the store did not start"
