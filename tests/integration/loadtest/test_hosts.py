"""Servers and proxies on other machines: local addresses at which a real sshd listens."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

import psutil

from memlite.core.build import describe_build
from memlite.core.errors import StartError
from memlite.core.version import __version__
from memlite.loadtest.files import load
from memlite.loadtest.launching import Launch
from memlite.loadtest.multigets.measuring import complete
from memlite.loadtest.multigets.runs import Settings
from memlite.loadtest.pool import Pool
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.remote.machine import Access, RemoteMachine, reached
from memlite.loadtest.results import Placed
from memlite.loadtest.scaling import rows
from memlite.loadtest.study.design import QUICK, study
from memlite.loadtest.study.machines import placements
from memlite.loadtest.study.progress import StudyProgress
from memlite.loadtest.study.runs import Sweeps
from memlite.loadtest.usage import Counters, Reading, RemoteProcess
from tests.support.ports import unused_port
from tests.support.sshd import MACHINES, Sshd, needs_sshd, sshd
from tests.support.waiting import wait_until

pytestmark = needs_sshd

MEMORY = Launch("a server", backend="memory://", connections=100, memory=64)
# A load tester that will be killed; it prints the processes that it has started.
KILLED = """
import json, sys, time
from pathlib import Path
from memlite.loadtest.launching import Launch
from memlite.loadtest.remote.machine import Access, RemoteMachine
host, ssh, memlite, launch = json.loads(sys.argv[1])
machine = RemoteMachine(host, Access(tuple(ssh), tuple(memlite)))
with machine, machine.start(Launch(**launch), Path()) as started:
    print(started.process.pid, machine._connection._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running
        assert wait_until(lambda: not any(running.home.iterdir()))  # nothing is left behind


def access(there: Sshd) -> Access:
    return Access(tuple(there.ssh), tuple(shlex.split(there.memlite)))


@contextlib.contextmanager
def started(machine: RemoteMachine) -> Iterator[int]:
    """Start a server on a machine; yield its process id."""
    with machine.start(MEMORY, Path()) as server:
        assert isinstance(server.process, RemoteProcess)
        yield server.process.pid


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for_end(pid: int) -> None:
    assert wait_until(lambda: has_ended(pid), 120)


def test_a_remote_server_is_measured_on_its_machine(there: Sshd) -> None:
    machine = RemoteMachine(MACHINES[1], access(there))
    with machine, machine.start(MEMORY, Path()) as server:
        host, port = server.address
        assert host == MACHINES[1]
        assert machine.placed is not None
        assert machine.placed.machine == MACHINES[1]
        assert machine.placed.cores >= 1
        pid = server.process.pid
        with socket.create_connection((host, port)) as client:
            client.sendall(b"mn\r\n" * 50_000)
            received = 0
            while received < 50_000 * 4:
                received += len(client.recv(1 << 20))
        process = psutil.Process(pid)
        times, found = machine.counters([pid, 0])
        after = Counters.read(process)
        assert after is not None
        assert list(found) == [pid]  # and no process 0
        # The server is idle now, so both readings are the same but for a tick.
        assert found[pid].seconds == pytest.approx(after.seconds, abs=0.02)
        assert found[pid].seconds > 0
        assert found[pid].threads.keys() == after.threads.keys()
        assert found[pid].memory == pytest.approx(after.memory, rel=0.2)
        later = psutil.cpu_times()
        assert 0 < times.busy < times.total <= sum(later) + 0.005  # the times are in hundredths
        reading = Reading([server.process], (), {"node-1": server.process})
        use = Reading([server.process], (), {"node-1": server.process}).uses(reading, 1.0)
        assert use["node-1"].cpu_seconds < 0.1
        server.check()
        process.kill()
        wait_for_end(pid)
        assert machine.counters([pid])[1] == {}
        with pytest.raises(StartError, match="a server has exited"):
            server.check()


def test_ports_are_from_the_range_and_taken_ones_are_skipped(there: Sshd) -> None:
    with socket.create_server((MACHINES[0], unused_port())) as taken:
        port = taken.getsockname()[1]
        machine = RemoteMachine(MACHINES[0], replace(access(there), ports=(port, port + 1)))
        with machine, contextlib.ExitStack() as stack:
            try:
                first = stack.enter_context(machine.start(MEMORY, Path()))
            except StartError as error:
                pytest.skip(f"another process uses the next port: {error}")
            assert first.address == (MACHINES[0], port + 1)
            with pytest.raises(StartError, match=f"all from {port} to {port + 1} are in use"):
                stack.enter_context(machine.start(MEMORY, Path()))


@pytest.mark.parametrize(
    ("host", "changes", "said"),
    [
        ("127.0.0.9", {}, "127.0.0.9: ssh: connect to host 127.0.0.9 port .*refused"),
        (MACHINES[0], {"memlite": ("/nowhere/memlite",)}, r"nowhere.*\(specify memlite's path"),
        (MACHINES[0], {"memlite": ("echo", "hello")}, "expected a launcher's reply, got 'hello"),
        (MACHINES[0], {"memlite": ("false",)}, "the connection was lost"),
        (MACHINES[0], {"ssh": ("no-such-ssh",)}, "no-such-ssh: No such file"),
        (
            MACHINES[0],
            {"memlite": ("printf", "%s\\n", json.dumps({"memlite": "0.0.1"}))},
            r"memlite is version 0.0.1 \(unknown\) there and .* here; install the same",
        ),
        (
            MACHINES[0],
            {
                "memlite": (
                    "printf",
                    "%s\\n",
                    json.dumps({"memlite": __version__, "build": "other"}),
                )
            },
            rf"{re.escape(__version__)} \(other\) there and .* \({describe_build()}\) here",
        ),
    ],
    ids=[
        "unreachable",
        "missing",
        "other program",
        "ends",
        "no ssh",
        "other version",
        "other build",
    ],
)
def test_errors_are_reported_in_a_line(
    there: Sshd, host: str, changes: dict[str, tuple[str, ...]], said: str
) -> None:
    machine = RemoteMachine(host, replace(access(there), **changes))  # type: ignore[arg-type]
    with pytest.raises(StartError, match=said) as found, reached([machine]):
        pass
    assert "\n" not in str(found.value)
    assert str(found.value).startswith(f"bench: {host}: ")


@pytest.mark.slow
def test_nothing_is_left_when_the_load_tester_is_killed(there: Sshd) -> None:
    launch = {"name": "a server", "backend": "memory://", "connections": 100, "memory": 64}
    of = json.dumps([MACHINES[2], list(there.ssh), shlex.split(there.memlite), launch])
    with subprocess.Popen([sys.executable, "-c", KILLED, of], stdout=subprocess.PIPE) as tester:
        assert tester.stdout is not None
        server, ssh = map(int, tester.stdout.readline().split())
        assert not has_ended(server)
        tester.kill()
    wait_for_end(server)
    wait_for_end(ssh)


@pytest.mark.slow
def test_nothing_is_left_when_the_network_fails(there: Sshd) -> None:
    """A paused client sends nothing, like one that is cut off from the network."""
    machine = RemoteMachine(MACHINES[1], replace(access(there), patience=3.0))
    machine.connect()
    ssh = machine._connection._process
    with contextlib.suppress(StartError), machine, started(machine) as server:
        ssh.send_signal(signal.SIGSTOP)
        wait_for_end(server)
        ssh.kill()


@pytest.mark.slow
def test_a_lost_connection_is_reported(there: Sshd) -> None:
    machine = RemoteMachine(MACHINES[1], access(there))
    machine.connect()
    said = rf"^bench: {MACHINES[1]}: "
    with pytest.raises(StartError, match=said), machine, started(machine) as server:
        machine._connection._process.kill()
        machine.counters([server])
    wait_for_end(server)


@pytest.mark.slow
def test_a_cluster_on_several_machines(there: Sshd, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "memlite", "bench", "compare", "--cluster", "2"),
        *("--proxies", "2", "--clients", "4", "--operations", "8000", "--warm-up", "0s"),
        *("--repetitions", "1", "--keys", "100", "--workers", "1", "--out", str(tmp_path)),
        *("--no-report", *there.options(*MACHINES)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    (target,) = results.targets
    assert {name: one.machine for name, one in target.placed.items()} == {
        "node-1": MACHINES[0],
        "node-2": MACHINES[1],
        "proxy-1": MACHINES[2],
        "proxy-2": MACHINES[0],
    }
    assert f"node-1 on {MACHINES[0]}" in target.details["machines"]
    assert target.address.startswith(f"{MACHINES[2]}:")
    (repetition,) = results.points[0].repetitions
    assert repetition.processes.keys() == target.placed.keys()
    assert all(use.cpu_seconds > 0 for use in repetition.processes.values())
    (row,) = rows(results)
    shares = {name: use.cpu_share for name, use in repetition.processes.items()}
    busiest = max(shares["node-1"] + shares["proxy-2"], shares["node-2"], shares["proxy-1"])
    assert row.machine == pytest.approx(busiest / target.placed["node-1"].cores, abs=0.01)


@pytest.mark.slow
def test_an_interrupted_run_ends_all_remote_processes(there: Sshd, tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of the terminal, including ssh unless it is shielded."""
    command = [
        *(sys.executable, "-m", "memlite", "bench", "compare", "--cluster", "1"),
        *("--paths", "direct", "--clients", "1", "--duration", "60s", "--warm-up", "0s"),
        *("--repetitions", "1", "--keys", "10", "--workers", "1", "--out", str(tmp_path)),
        *("--no-report", *there.options(MACHINES[0])),
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as tester:
        assert tester.stderr is not None
        for line in tester.stderr:
            if b"1 client" in line:
                break
        assert any(there.home.iterdir())
        os.killpg(tester.pid, signal.SIGINT)
        said = tester.stderr.read()
        assert tester.wait() == 130, said
    assert b"connection" not in said
    assert not any(there.home.iterdir())


@pytest.mark.slow
def test_a_sweep_and_gets_of_several_keys_on_several_machines(there: Sshd, tmp_path: Path) -> None:
    scale = replace(QUICK, clients=(1, 3, 4), duration=0.1, warm_up=0.0, repetitions=1)
    options = ["--workers=1", "--keys=10", *there.options(*MACHINES)]
    wanted = study(scale, "memory", options, 1)
    machines = [RemoteMachine(host, access(there)) for host in MACHINES]
    with reached(machines):
        sweeps = Sweeps(replace(wanted, sweeps=wanted.sweeps[:1]), tmp_path, machines)
        connection = machines[0]._connection
        with Pool(1) as pool:
            measured = sweeps.measure(StudyProgress(ProgressDisplay()), pool)
        assert machines[0]._connection is connection  # one for the whole study
        found = placements(measured)
        assert {name: one.machine for name, one in found["2 nodes, direct"].items()} == {
            "node-1": MACHINES[0],
            "node-2": MACHINES[1],
        }
        assert isinstance(found["1 node, direct"]["node-1"], Placed)
        # The proxy's times come from its own clock, by way of its trace, which is fetched.
        gets = Settings((1, 2), 3, 3, 10, 10, 0.3, 1, 1)
        runs = complete(gets, tmp_path, ProgressDisplay(), machines)
    assert len(runs) == 4
    assert all(run.proxy is not None and run.proxy.count > 0 for run in runs)
