"""Notifications to systemd, sent by a real process to a socket that stands in for systemd's."""

import contextlib
import itertools
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from memlite.server.service import ServiceManager
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd exists only on Linux")

Start = Callable[..., subprocess.Popen[str]]


class Manager:
    """Receives notifications as systemd does, and records when they arrive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        self.sock.settimeout(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.sock.close()

    def next(self) -> str:
        return self.sock.recv(4096).decode()

    def waiting(self, seconds: float = 0) -> list[str]:
        """Return the notifications so far, or wait up to the given number of seconds for one."""
        messages = []
        deadline = time.monotonic() + seconds
        with contextlib.suppress(BlockingIOError, TimeoutError):
            while True:
                self.sock.settimeout(max(0, deadline - time.monotonic()))
                messages.append(self.next())
        self.sock.settimeout(60)
        return messages


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = tmp_path / "notify"
    with Manager(str(path) if request.param == "file" else f"@memlite-test{path}") as manager:
        yield manager


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts memlite without waiting until it accepts connections."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "memlite", "-l", "127.0.0.1", "-p", "0", *arguments],
                env={
                    **os.environ,
                    "MEMCACHED_PORT_FILENAME": str(tmp_path / "ports"),
                    **environment,
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start


def port_of(tmp_path: Path) -> int:
    found = re.search(r"TCP INET: (\d+)", (tmp_path / "ports").read_text())
    assert found
    return int(found[1])


@pytest.mark.parametrize(
    ("backend", "workers"),
    [("memory://", "1"), ("file://{}/cache.json", "1"), ("memory://", "2")],
    ids=["memory", "file", "workers"],
)
def test_ready_and_stopping(
    backend: str, workers: str, manager: Manager, start: Start, tmp_path: Path
) -> None:
    backend = backend.format(tmp_path)
    process = start("--backend", backend, "-t", workers, NOTIFY_SOCKET=manager.name)
    first = manager.next()
    port = port_of(tmp_path)
    assert first == f"READY=1\nSTATUS=Serving {backend} on tcp:127.0.0.1:{port}"
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(b"set a 0 0 1\r\n1\r\n")
        assert client.recv(100) == b"STORED\r\n"
        # The server drains for ten seconds. The notification about stopping is sent before it
        # exits.
        client.sendall(b"set a 0 0 10\r\n1")
        server = RunningServer("memlite", process, port)
        assert wait_until(lambda: "conn_nread" in server.stats("conns").values())
        process.send_signal(signal.SIGUSR1)
        assert manager.next() == "STOPPING=1\nSTATUS=Stopping"
        assert process.poll() is None
    assert process.wait(60) == 0
    assert manager.waiting() == []
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.slow
def test_ready_is_sent_after_the_file_is_loaded(
    manager: Manager, start: Start, tmp_path: Path
) -> None:
    backend = f"file://{tmp_path}/cache.json"
    with running("memlite", "--backend", backend) as server, server.connect() as wire:
        for number in range(30_000):
            wire.send(b"set key%d 0 0 100 noreply\r\n%0100d\r\n" % (number, number))
        assert wire.ask(b"delete none\r\n") == b"NOT_FOUND\r\n"
        server.stop()
    start("--backend", backend, NOTIFY_SOCKET=manager.name)
    assert manager.next().startswith("READY=1")
    server = RunningServer("memlite", None, port_of(tmp_path))  # type: ignore[arg-type]
    assert server.ask(b"get key29999\r\n").startswith(b"VALUE key29999 0 100\r\n")
    assert server.stats()["curr_items"] == "30000"


@pytest.mark.slow
@pytest.mark.alone
def test_the_watchdog_shows_that_the_event_loop_runs(manager: Manager, start: Start) -> None:
    process = start(NOTIFY_SOCKET=manager.name, WATCHDOG_USEC="400000")
    assert manager.next().startswith("READY=1")
    came = []
    for _ in range(8):
        assert manager.next() == "WATCHDOG=1"
        came.append(time.monotonic())
    gaps = [after - before for before, after in itertools.pairwise(came)]
    assert 0.15 < statistics.median(gaps) < 0.3
    process.send_signal(signal.SIGSTOP)  # simulates a loop that hangs
    time.sleep(0.1)
    manager.waiting()
    assert manager.waiting(1) == []
    process.send_signal(signal.SIGCONT)
    assert manager.next() == "WATCHDOG=1"


def test_the_supervisor_of_workers_answers_for_them(manager: Manager, start: Start) -> None:
    start("-t", "2", NOTIFY_SOCKET=manager.name, WATCHDOG_USEC="400000")
    assert manager.next().startswith("READY=1")
    assert [manager.next() for _ in range(3)] == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "watchdog",
    [{"WATCHDOG_USEC": "50000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {}],
    ids=["of another process", "no number", "none"],
)
def test_without_a_watchdog_for_this_process_no_pings_are_sent(
    watchdog: dict[str, str], manager: Manager, start: Start
) -> None:
    start(NOTIFY_SOCKET=manager.name, **watchdog)
    assert manager.next().startswith("READY=1")
    assert manager.waiting(0.5) == []


def test_a_watchdog_for_this_process_gets_pings(manager: Manager, tmp_path: Path) -> None:
    # systemd sets the variable to the process id that the service will have.
    program = (
        "import os, sys\n"
        "os.environ['WATCHDOG_PID'] = str(os.getpid())\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'memlite', '-p', '0'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "100000"},
    )
    try:
        assert manager.next().startswith("READY=1")
        assert manager.next() == "WATCHDOG=1"
        assert manager.next() == "WATCHDOG=1"
    finally:
        process.kill()
        process.wait()


def test_a_socket_without_a_listener_does_no_harm(start: Start, tmp_path: Path) -> None:
    process = start(NOTIFY_SOCKET=str(tmp_path / "nowhere"), WATCHDOG_USEC="20000")
    assert wait_until((tmp_path / "ports").exists)
    time.sleep(0.3)
    with socket.create_connection(("127.0.0.1", port_of(tmp_path)), 60) as client:
        client.sendall(b"get a\r\n")
        assert client.recv(100) == b"END\r\n"
    process.terminate()
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 0
    assert messages.count("\n") == 1
    assert "cannot notify the service manager: No such file or directory" in messages


@pytest.mark.parametrize(
    ("arguments", "code"), [(["-c", "none"], 64), (["-P", "/nowhere/pid"], 71)]
)
def test_a_failed_start_sends_nothing(
    arguments: list[str], code: int, manager: Manager, start: Start
) -> None:
    process = start(*arguments, NOTIFY_SOCKET=manager.name, WATCHDOG_USEC="20000")
    assert process.wait(60) == code
    assert manager.waiting() == []


# Tests of the class alone


class Loop:
    """Runs scheduled calls when the test asks for it."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay: float, call: Callable[..., object], *arguments: object) -> None:
        self.due.append((delay, lambda: call(*arguments)))


def test_the_variables_are_not_passed_to_child_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    for name in names:
        monkeypatch.setenv(name, "1")
    ServiceManager(os.environ)
    child = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    assert not any(name in child for name in names)


def test_ready_is_sent_again_if_systemd_is_busy(tmp_path: Path) -> None:
    loop = Loop()
    with Manager(str(tmp_path / "notify")) as manager:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    other.sendto(b"X=1", manager.name)
        service = ServiceManager({"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "2000000"})
        service.ready(loop, "one\nMAINPID=1")  # type: ignore[arg-type]
        assert set(manager.waiting()) == {"X=1"}
        ((_, again),) = loop.due
        again()
        assert manager.waiting() == ["READY=1\nSTATUS=one MAINPID=1", "WATCHDOG=1"]
        delay, watchdog = loop.due[1]
        assert delay == 1
        watchdog()
        assert manager.waiting() == ["WATCHDOG=1"]


def test_without_systemd_nothing_happens() -> None:
    loop = Loop()
    service = ServiceManager({"WATCHDOG_USEC": "2000000"})
    service.ready(loop, "status")  # type: ignore[arg-type]
    service.stopping()
    assert loop.due == []


@pytest.mark.parametrize("address", ["/" + "long" * 100, "/\udcff", "vsock:2:1234"])
def test_invalid_socket_addresses_are_ignored(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = ServiceManager({"NOTIFY_SOCKET": address})
    service.ready(Loop(), "\udcff")  # type: ignore[arg-type]
    service.stopping()
    assert caplog.text.count("cannot notify the service manager: ") == 1
