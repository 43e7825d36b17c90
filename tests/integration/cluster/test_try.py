"""`memlite cluster try`: a cluster on this machine, and how it ends."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.support.waiting import wait_until

NODES = 2


def free_ports() -> int:
    """Return a free port, such that the NODES ports after it are free, too."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port: int = first.getsockname()[1]
            for number in range(1, NODES + 1):
                stack.enter_context(socket.create_server(("127.0.0.1", port + number)))
            return port


class Trial:
    """A running command.

    Attributes:
        process: the process.
        port: the proxy's port.
        pids: its processes by name.
    """

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port
        assert process.stdout is not None
        self.output = process.stdout
        self.pids: dict[str, int] = {}
        for line in self.output:
            if found := re.match(r"  (proxy|node \d) +127\.0\.0\.1:(\d+) +process (\d+)$", line):
                self.pids[found[1]] = int(found[3])
            if line.startswith("  memlite cluster route"):
                break

    def ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 60) as sock:
            sock.sendall(request)
            return sock.recv(1000)


def start() -> Trial:
    """Start the command on free ports; try again if another program takes one of them first."""
    for _ in range(5):
        port = free_ports()
        process = subprocess.Popen(
            [*(sys.executable, "-m", "memlite", "cluster", "try"), *("--nodes", str(NODES)),
             *("-p", str(port), "--", "-m", "32")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        trial = Trial(process, port)
        if trial.pids:
            return trial
        _, error = process.communicate(timeout=60)
        assert "Address already in use" in error, error
    raise AssertionError("no ports stay free")


@pytest.fixture
def trial() -> Iterator[Trial]:
    trial = start()
    with trial.process:
        try:
            yield trial
        finally:
            trial.process.terminate()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_a_cluster_serves_until_it_is_stopped(trial: Trial, number: int) -> None:
    assert sorted(trial.pids) == ["node 1", "node 2", "proxy"]
    assert trial.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert trial.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"
    trial.process.send_signal(number)
    output, error = trial.process.communicate(timeout=60)
    assert (trial.process.returncode, output, error) == (0, "", "")
    assert not any(map(psutil.pid_exists, trial.pids.values()))


def test_a_node_that_ends_is_reported_and_the_others_go_on(trial: Trial) -> None:
    os.kill(trial.pids["node 2"], signal.SIGKILL)
    line = trial.output.readline()
    assert line == f"node 2 (127.0.0.1:{trial.port + 2}) has exited: signal 9\n"
    assert wait_until(lambda: b"proxy_nodes_up 1" in trial.ask(b"stats\r\n"))


def test_without_the_proxy_it_ends(trial: Trial) -> None:
    os.kill(trial.pids["proxy"], signal.SIGKILL)
    _, error = trial.process.communicate(timeout=60)
    assert trial.process.returncode == 71
    assert error == "memlite: cluster: the proxy has exited: signal 9\n"
    assert not any(map(psutil.pid_exists, trial.pids.values()))


def test_a_port_that_is_taken(trial: Trial) -> None:
    again = subprocess.run(
        [sys.executable, "-m", "memlite", "cluster", "try", "-p", str(trial.port - 1)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (again.returncode, again.stdout) == (71, "")
    assert again.stderr == (
        f"memlite: cluster: node 1: failed to listen on TCP port {trial.port} of 127.0.0.1: "
        "Address already in use\n"
    )
