"""The program as a process: exit codes, signals, files, log messages."""

import itertools
import json
import os
import pwd
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import patiently
from tests.support.program import run, run_forked
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]


# Refused starts


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backend", "foo://x"], "--backend: unknown scheme 'foo'"),
        (["--backend", "file:///no/a.json"], "directory /no does not exist; create it with: mkdir"),
        (["-q"], "option -q not recognized"),
        (["--conn-limits", "5"], "--conn-limits not recognized, did you mean --conn-limit?"),
        (["-c"], "option -c requires argument"),
        (["extra"], "unexpected argument 'extra'"),
        (["-c", "0"], "-c: must be at least 1, not 0"),
        (["-c", "-1"], "-c: must be at least 1, not -1"),
        (["-t", "0"], "-t: must be at least 1, not 0"),
        (["-I", "1000"], "-I: must be between 1k and 1g, not 1000"),
        (["-I", "2g"], "-I: must be between 1k and 1g, not 2g"),
        (["-I", "256m"], "-I: an item of 268435456 bytes would not fit into -m 64"),
        (["-B", "http"], "-B: must be one of auto, ascii, binary, not 'http'"),
        (["-l", "fooble"], "-l: cannot resolve 'fooble'"),
        (["-l", "no.such.host.invalid:11211"], "-l: cannot resolve 'no.such.host.invalid'"),
        (["-l", "127.0.0.1:x"], "-l: not a port: 'x'"),
        (["-p", "70000"], "-p: must be at most 65535, not 70000"),
        (["-o", "nonsense"], "-o: unknown option 'nonsense'"),
        (["-o", "idle_timout=3"], "did you mean 'idle_timeout'?"),
        (["-Z"], "-Z: TLS needs a certificate: -o ssl_chain_cert=FILE"),
        (
            ["-Z", "-o", "ssl_chain_cert=/nowhere"],
            "Error loading the certificate chain: /nowhere : No such file or directory",
        ),
        (
            ["-l", "notls:127.0.0.1"],
            "-l: 'notls' in 'notls:127.0.0.1' requires TLS (-Z)",
        ),
        (["-Y", "/nowhere/users"], "-Y: /nowhere/users: No such file or directory"),
        (["--config", "/nowhere/memlite.toml"], "/nowhere/memlite.toml: No such file"),
        (["-p", "0", "-u", "no-such-user"], "-u: can't find the user no-such-user"),
        (["-s", "/nowhere/socket"], "failed to listen on UNIX socket /nowhere/socket"),
        (["-p", "0", "-P", "/nowhere/pid"], "-P: could not write the pid file /nowhere/pid"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_reported_in_one_line(arguments: list[str], says: str) -> None:
    if "-u" in arguments and os.geteuid() != 0:
        pytest.skip("only root can switch to another user")
    result = run_forked(*arguments)
    assert result.returncode in (64, 71)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("memlite: ")
    assert says in result.stderr


def test_refuses_to_start_on_a_port_in_use(memlite: RunningServer) -> None:
    result = run_forked("-l", "127.0.0.1", "-p", str(memlite.port))
    assert result.returncode == 71
    assert result.stderr == (
        f"memlite: failed to listen on TCP port {memlite.port} of 127.0.0.1: "
        "Address already in use\n"
    )


def test_a_wrong_setting_is_reported_before_a_port_in_use(memlite: RunningServer) -> None:
    result = run_forked("-l", "127.0.0.1", "-p", str(memlite.port), "--backend", "gs://B")
    assert result.returncode == 64
    assert "invalid bucket name" in result.stderr


SERVICE_LINKS = {
    "MEMLITE_SERVICE_HOST": "10.0.0.1",
    "MEMLITE_SERVICE_PORT": "11211",
    "MEMLITE_SERVICE_PORT_MEMCACHED": "11211",
    "MEMLITE_PORT": "tcp://10.0.0.1:11211",
    "MEMLITE_PORT_11211_TCP": "tcp://10.0.0.1:11211",
    "MEMLITE_PORT_11211_TCP_PROTO": "tcp",
    "MEMLITE_PORT_11211_TCP_PORT": "11211",
    "MEMLITE_PORT_11211_TCP_ADDR": "10.0.0.1",
    "MEMLITE_READ_ONLY_PORT": "udp://10.0.0.2:11211",
    "MEMLITE_READ_ONLY_SERVICE_HOST": "10.0.0.2",
}


def test_the_variables_of_a_kubernetes_service_are_not_settings() -> None:
    """Kubernetes sets them in each pod if a Service is called memlite."""
    result = run_forked("-l", "127.0.0.1", "-p", "0", "-u", "no-such-user", **SERVICE_LINKS)
    assert result.stderr == (
        "memlite: warning: MEMLITE_PORT=tcp://10.0.0.1:11211 describes a Kubernetes Service and is "
        "ignored; set the port with -p\n"
        "memlite: -u: can't find the user no-such-user\n"
    )


@pytest.mark.parametrize("variable", ["MEMLITE_SERVICE", "MEMLITE_PORT_X", "MEMLITE_XPORT"])
def test_variables_that_only_look_like_those_are_refused(variable: str) -> None:
    assert run_forked(**{variable: "tcp://1.2.3.4:5"}).stderr == (
        f"memlite: unknown environment variable {variable}\n"
    )


def test_refuses_an_unknown_variable() -> None:
    result = run_forked(MEMLITE_CONLIMIT="5")
    assert result.returncode == 64
    assert result.stderr == "memlite: unknown environment variable MEMLITE_CONLIMIT\n"


def test_refuses_more_connections_than_file_descriptors() -> None:
    if os.geteuid() == 0:
        result = run_forked("-c", "2000000000", "-p", "0")
    else:
        result = run_forked("-c", "10000000", "-p", "0")
    assert result.returncode == 71
    assert "-c: cannot open" in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_and_version() -> None:
    result = run("-h")
    assert result.returncode == 0
    for word in ("unix-socket", "enable-ssl", "sasl", "--conn-limit", "idle_timeout"):
        assert word in result.stdout
    assert result.stderr == ""
    builds = "pure Python|with C modules|compiled"
    assert re.fullmatch(rf"memlite \d+\.\d+\.\d+ \(({builds})\)\n", run("-V").stdout)
    assert "Apache License" in run("-i").stdout


def test_print_config() -> None:
    result = run("-m128", "--print-config", MEMLITE_CONN_LIMIT="9")
    assert result.returncode == 0
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
    assert lines["memory-limit"][2:] == ["128", "#", "flag", "-m"]
    assert lines["conn-limit"][2:] == ["9", "#", "environment", "MEMLITE_CONN_LIMIT"]
    assert lines["port"][2:] == ["11211", "#", "default"]


# Stopping


def begin_a_value(server: RunningServer, wire: Wire) -> None:
    """Send part of a command, and wait until the server has received it."""
    wire.send(b"set a 0 0 10\r\nabc")
    with server.connect() as other:
        assert wait_until(lambda: "conn_nread" in other.stats("conns").values())


def refuses(server: RunningServer) -> bool:
    try:
        server.connect().sock.close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # the connection had not been accepted yet
    return False


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_stops_quickly_and_quietly(name: str, start: Start) -> None:
    server = start()
    with server.connect() as idle, server.connect() as half:
        idle.ask(b"get a\r\n")
        if name != "SIGUSR1":
            begin_a_value(server, half)  # never completed
        begin = time.monotonic()
        assert server.stop(getattr(signal, name)) == 0
        assert time.monotonic() - begin < 8
        assert idle.rest() == b""
    assert server.log.read_text() == ""


def test_a_second_signal_ends_the_wait(start: Start) -> None:
    server = start()
    with server.connect() as half:
        begin_a_value(server, half)
        server.process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        assert server.process.poll() is None
        begin = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - begin < 6


def test_a_graceful_stop_lets_commands_finish(start: Start) -> None:
    server = start()
    with server.connect() as half:
        begin_a_value(server, half)
        server.process.send_signal(signal.SIGUSR1)
        assert wait_until(lambda: refuses(server))
        half.send(b"defghij\r\n")
        assert half.line() == b"STORED\r\n"
        assert half.rest() == b""
    assert server.process.wait(60) == 0


def test_a_graceful_stop_sends_pending_replies(start: Start) -> None:
    drain(start(), signal.SIGUSR1)


@patiently  # the time limit is one second
def test_sigterm_sends_pending_replies(start: Start) -> None:
    drain(start(), signal.SIGTERM)


def drain(server: RunningServer, number: int) -> None:
    with server.connect() as wire:
        wire.send(b"set big 0 0 1000000\r\n" + b"v" * 1_000_000 + b"\r\n")
        wire.line()
        wire.send(b"get" + b" big" * 20 + b"\r\n")
        assert wire.line() == b"VALUE big 0 1000000\r\n"
        server.process.send_signal(number)
        data = wire.rest()
        assert data.count(b"VALUE") == 19
        assert data.endswith(b"END\r\n")
    assert server.process.wait(60) == 0


@pytest.mark.parametrize("loop", ["memlite", "memlite-asyncio"])
@pytest.mark.parametrize("pause", [0, 0.002])
def test_many_signals_do_not_kill_the_process(loop: str, pause: float, start: Start) -> None:
    server = start(kind=loop)
    with server.connect() as half:
        half.send(b"set a 0 0 10\r\nabc")
        numbers = itertools.cycle((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1))
        deadline = time.monotonic() + 60
        while server.process.poll() is None and time.monotonic() < deadline:
            server.process.send_signal(next(numbers))
            time.sleep(pause)
        assert server.process.poll() == 0
    assert server.log.read_text() == ""


def signals_in(pid: int, field: str) -> set[int]:
    """Return the signals in a mask of /proc/<pid>/status, such as SigBlk."""
    found = re.search(rf"{field}:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    mask = int(found[1], 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


def holds_or_handles(pid: int, number: int, ports: Path) -> bool:
    """Return whether the process blocks the signal, or has started and handles it."""
    return number in signals_in(pid, "SigBlk") or (
        ports.exists() and number in signals_in(pid, "SigCgt")
    )


@pytest.mark.parametrize("loop", ["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [
        "SIGINT",
        "SIGTERM",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("SIGUSR1", "SIGHUP")),
    ],
)
def test_signals_during_start_up(name: str, loop: str, tmp_path: Path) -> None:
    number = getattr(signal, name)
    # A start takes about a tenth of a second; the event loop is chosen in the second half of it.
    for delay in (0, 0.01, 0.03, 0.06, 0.1, 0.15) if loop == "uvloop" else (0.06, 0.1, 0.15):
        ports = tmp_path / f"ports-{delay}"
        process = subprocess.Popen(
            [sys.executable, "-m", "memlite", "--loop", loop, "-l", "127.0.0.1", "-p", "0"],
            env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)},
            stderr=subprocess.PIPE,
            text=True,
        )
        # Before Python executes the first line of the program, signals cannot be blocked.
        try:
            assert wait_until(lambda: holds_or_handles(process.pid, number, ports), every=0.0005)  # noqa: B023
            time.sleep(delay)
            process.send_signal(number)
            if name == "SIGHUP":
                assert wait_until(ports.exists)
                process.terminate()
            assert process.communicate(timeout=60)[1] == ""
            assert process.returncode == 0
        finally:
            process.kill()


def test_signals_are_blocked_before_slow_imports() -> None:
    program = (
        "import runpy, signal, sys; from memlite.core import signals\n"
        "signals.block = lambda: sys.exit(' '.join(sys.modules))\n"
        "runpy.run_module('memlite', run_name='__main__')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    loaded = set(result.stderr.split())
    assert "memlite.core.signals" in loaded
    assert not loaded & {
        "asyncio",
        "logging",
        "dataclasses",
        "memlite.cli.main",
        "memlite.config",
    }


def test_sighup_does_no_harm(start: Start) -> None:
    server = start()
    with server.connect() as wire:
        wire.ask(b"set a 0 0 1\r\n1\r\n")
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        wire.send(b"get a\r\n")
        assert wire.until(b"END\r\n") == b"VALUE a 0 1\r\n1\r\nEND\r\n"


@pytest.mark.parametrize("mode", ["", " graceful"])
def test_the_shutdown_command(mode: str, start: Start) -> None:
    server = start("-A")
    with server.connect() as wire:
        assert wire.ask(b"shutdown foo\r\n") == b"CLIENT_ERROR invalid shutdown mode\r\n"
        wire.send(b"shutdown%b\r\n" % mode.encode())
        assert wire.rest() == b""
    assert server.process.wait(60) == 0


# Files


def test_unix_socket_mode_and_removal(start: Start, tmp_path: Path) -> None:
    server = start("-a", "750", unix=True)
    mode = Path(server.path).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o750
    assert server.ask(b"get a\r\n") == b"END\r\n"
    assert server.stats("settings")["domain_socket"] == server.path
    conns = server.stats("conns")
    assert f"unix:{server.path}" in conns.values()
    assert server.stop() == 0
    assert not Path(server.path).exists()


def test_a_stale_unix_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    command = [sys.executable, "-m", "memlite", "-s", str(path)]
    process = subprocess.Popen(command)
    try:

        def answers() -> bool:
            with socket.socket(socket.AF_UNIX) as client:
                return client.connect_ex(str(path)) == 0

        assert wait_until(answers)
        second = run("-s", str(path))
        assert second.returncode == 71
        assert "another server is already listening there" in second.stderr
        assert answers()
        process.kill()  # SIGKILL leaves the socket file behind
        process.wait()
        assert path.exists()
        process = subprocess.Popen(command)
        assert wait_until(answers)
    finally:
        process.terminate()
        process.wait()
    assert not path.exists()
    path.write_text("precious")
    third = run("-s", str(path))
    assert third.returncode == 71
    assert "the file exists and is not a socket" in third.stderr
    assert path.read_text() == "precious"


@pytest.mark.parametrize("loop", ["memlite", "memlite-asyncio"])
def test_a_draining_server_does_not_remove_its_successors_files(
    loop: str, start: Start, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    old = start("-P", str(pid_file), kind=loop, unix=True)
    with old.connect() as half:
        assert half.ask(b"get a\r\n") == b"END\r\n"  # so it has started
        half.send(b"set a 0 0 1\r\n")
        time.sleep(0.1)
        old.process.send_signal(signal.SIGUSR1)
        path = Path(old.path)
        assert wait_until(lambda: not path.exists())
        new = subprocess.Popen(
            [sys.executable, "-m", "memlite", "-s", old.path, "-P", str(pid_file)],
            stderr=subprocess.DEVNULL,
        )
        try:
            assert wait_until(lambda: pid_file.read_text() == f"{new.pid}\n")
            assert old.process.poll() is None
            half.send(b"1\r\n")
            assert half.line() == b"STORED\r\n"
            assert old.process.wait(60) == 0
            assert pid_file.read_text() == f"{new.pid}\n"
            assert old.ask(b"get a\r\n") == b"END\r\n"  # the new server answers at this path
        finally:
            new.terminate()
            assert new.wait(60) == 0
    assert not path.exists()
    assert not pid_file.exists()


def test_a_daemon_writes_files_relative_to_the_folder_where_it_was_started(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "memlite", "-d", "-P", "pid", "-l", "127.0.0.1", "-p", "0"],
        cwd=tmp_path,
        env={
            **os.environ,
            "MEMCACHED_PORT_FILENAME": "ports",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    # The daemon is ready when the command returns, so the test need not wait for the files.
    pid = int((tmp_path / "pid").read_text())
    try:
        port = int((tmp_path / "ports").read_text().split(":")[1])
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.sendall(b"get a\r\n")
            assert client.recv(100) == b"END\r\n"
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert Path(f"/proc/{pid}/fd/2").readlink() == Path("/dev/null")
    finally:
        os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not (tmp_path / "pid").exists())


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["-P", "/nowhere/pid"], {}, "-P: could not write the pid file /nowhere/pid"),
        ([], {"MEMCACHED_PORT_FILENAME": "/nowhere/ports"}, "MEMCACHED_PORT_FILENAME: /nowhere"),
        (["--loop", "uvloop"], {"PYTHONPATH": "no-uvloop"}, "--loop: uvloop is not installed"),
    ],
    ids=["pid file", "port file", "loop"],
)
def test_a_daemon_reports_late_errors(
    arguments: list[str], environment: dict[str, str], says: str, tmp_path: Path
) -> None:
    if "PYTHONPATH" in environment:
        (tmp_path / "uvloop.py").write_text("raise ImportError")
        environment = {"PYTHONPATH": str(tmp_path)}
    result = run("-d", "-l", "127.0.0.1", "-p", "0", *arguments, **environment)
    assert result.returncode == 71
    assert result.stderr.startswith(f"memlite: {says}")
    assert result.stderr.count("\n") == 1


def test_a_daemon_that_dies_during_start_up_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("import os\ndef new_event_loop(): os.abort()\n")
    result = run("-d", "-l", "127.0.0.1", "-p", "0", "--loop", "uvloop", PYTHONPATH=str(tmp_path))
    assert result.returncode not in (0, None)


def test_daemon_and_pid_file(tmp_path: Path) -> None:
    pid_file, ports = tmp_path / "pid", tmp_path / "ports"
    result = run(
        "-d", "-P", str(pid_file), "-l", "127.0.0.1", "-p", "0",
        MEMCACHED_PORT_FILENAME=str(ports),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert wait_until(ports.exists)
    pid = int(pid_file.read_text())
    try:
        port = int(ports.read_text().split(":")[1])
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.sendall(b"stats\r\n")
            assert b"STAT pid %d\r\n" % pid in client.recv(65536)
        assert os.getsid(pid) == pid
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    finally:
        os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not pid_file.exists())
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_daemon_reports_a_port_in_use_before_it_detaches(memlite: RunningServer) -> None:
    result = run("-d", "-l", "127.0.0.1", "-p", str(memlite.port))
    assert result.returncode == 71
    assert "Address already in use" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")
def test_the_unix_socket_belongs_to_the_new_user(start: Start) -> None:
    server = start("-u", "nobody", unix=True)
    user = pwd.getpwnam("nobody")
    path = Path(server.path)
    server.ask(b"get a\r\n")  # so it has started
    assert (path.stat().st_uid, path.stat().st_gid) == (user.pw_uid, user.pw_gid)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    os.seteuid(user.pw_uid)
    try:
        assert server.ask(b"get a\r\n") == b"END\r\n"
    finally:
        os.seteuid(0)
    assert server.stop() == 0
    assert not path.exists()
    assert server.log.read_text() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")
def test_files_that_cannot_be_removed_are_reported(start: Start) -> None:
    server = start("-u", "nobody", unix=True)
    path = Path(server.path)
    server.ask(b"get a\r\n")  # so it has started
    # The folder belongs to root; the user nobody may not remove files from it.
    path.parent.chmod(0o755)
    assert server.stop() == 0
    assert path.exists()
    assert server.log.read_text() == (
        f"memlite: warning: -s: could not remove {path}: Permission denied\n"
    )


def test_starts_and_stops_without_standard_streams(tmp_path: Path) -> None:
    for loop in ("uvloop", "asyncio"):
        pid_file = tmp_path / loop
        command = f"exec {sys.executable} -m memlite --loop {loop} -l 127.0.0.1 -p 0 -P {pid_file}"
        process = subprocess.Popen(["sh", "-c", f"{command} <&- >&- 2>&-"])
        try:
            assert wait_until(pid_file.exists)
            for number in range(3):
                stream = Path(f"/proc/{process.pid}/fd/{number}")
                assert stream.readlink() == Path("/dev/null")
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    refused = subprocess.run(["sh", "-c", f"{sys.executable} -m memlite -c 0 2>&-"], check=False)
    assert refused.returncode == 64


def test_gives_up_root(start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can switch to another user")
    server = start("-u", "nobody")
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"Uid:\s+(\d+)\s+(\d+)", status)
    assert found
    assert {int(found[1]), int(found[2])} == {pwd.getpwnam("nobody").pw_uid}


# Addresses


def test_listens_on_loopback_by_default_and_warns_otherwise(start: Start, tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    process = subprocess.Popen(
        [sys.executable, "-m", "memlite", "-p", "0"],
        env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert wait_until(ports.exists)
        port = int(re.findall(r"INET: (\d+)", ports.read_text())[0])
        listening = subprocess.run(
            ["ss", "-ltnH", f"sport = :{port}"], capture_output=True, text=True, check=True
        ).stdout
        hosts = {line.split()[3].rsplit(":", 1)[0] for line in listening.splitlines()}
        assert hosts <= {"127.0.0.1", "[::1]"}
        assert "127.0.0.1" in hosts
    finally:
        process.terminate()
        assert process.communicate()[1] == ""
    with running("memlite", "-l", "0.0.0.0") as server:
        text = server.log.read_text()
    assert text.startswith("memlite: warning: listening on 0.0.0.0:")
    assert "without authentication" in text


def test_several_addresses(tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    process = subprocess.Popen(
        [sys.executable, "-m", "memlite", "-l", "127.0.0.1:0,127.0.0.2", "-l127.0.0.3:0", "-p0"],
        env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)},
    )
    try:
        assert wait_until(ports.exists)
        numbers = [int(text) for text in re.findall(r"TCP INET: (\d+)", ports.read_text())]
        assert len(numbers) == 3
        for number, port in enumerate(numbers, 1):
            with socket.create_connection((f"127.0.0.{number}", port), 60) as client:
                client.sendall(b"get a\r\n")
                assert client.recv(100) == b"END\r\n"
    finally:
        process.terminate()
        assert process.wait(60) == 0


# Log messages


def test_quiet_by_default_and_traces_with_vv(start: Start) -> None:
    request = (
        b"set secret 0 0 6\r\nhidden\r\nget secret\r\nnonsense\r\ngets secret\r\n"
        b"ms other 6 T60\r\nhidden\r\nmg other v\r\nmg \x1b[2J\x07 O\x9b v\r\n"
        b"set a\tlarge 7 0 70000\r\n" + b"hidden " * 10_000 + b"\r\nget a\tlarge\r\n"
    )
    quiet, informed, traced = start(), start("-v", "-L"), start("-vv")
    for server in (quiet, informed, traced):
        server.ask(request)
        assert server.stop() == 0
    assert quiet.log.read_text() == ""
    text = informed.log.read_text()
    assert "flag -L: has no effect in memlite" in text
    assert "server listening (tcp:127.0.0.1:" in text
    assert "secret" not in text
    assert "hidden" not in text
    text = traced.log.read_text()
    for line in ("set secret 0 0 6", "STORED", "get secret", "sending key secret", "END",
                 "nonsense", "ERROR", "gets secret", "meta_set other T60 6", "meta_get other v",
                 "VA 6", r"meta_get \\x1b\[2J\\x07 O\\x9b v", r"set a\\tlarge 7 0 70000",
                 r"sending key a\\tlarge", "connection closed."):  # fmt: skip
        assert re.search(rf"^[<>]\d+ {line}$", text, re.MULTILINE), line
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("arguments", "unix", "says"),
    [
        (["-v", "-p", "5000"], True, "flag -p: has no effect with -s"),
        (["-v", "-a", "700"], False, "flag -a: has no effect without -s"),
        (["-v", "-o", "no_lru_crawler,hashpower=20"], False, "-o hashpower: has no effect"),
    ],
)
def test_warns_about_settings_without_effect(
    arguments: list[str], unix: bool, says: str, start: Start
) -> None:
    server = start(*arguments, unix=unix)
    assert says in server.log.read_text()


def test_does_not_warn_about_settings_with_effect(start: Start) -> None:
    server = start("-v", "-f", "2", "-n", "100", "-a", "700", "-o", "no_lru_crawler", unix=True)
    assert "no effect" not in server.log.read_text()
    assert "lru_crawler_running" not in server.stats()
    server.ask(b"set a 0 0 1\r\n1\r\n")
    assert server.stats("slabs")["1:chunk_size"] == "152"


def test_the_verbosity_command_turns_on_traces(start: Start) -> None:
    server = start()
    with server.connect() as wire:
        wire.ask(b"get before\r\n")
        assert wire.ask(b"verbosity 2\r\n") == b"OK\r\n"
        wire.ask(b"get during\r\n")
        assert wire.ask(b"verbosity 0\r\n") == b"OK\r\n"
        wire.ask(b"get after\r\n")
    assert server.stop() == 0
    text = server.log.read_text()
    assert "get during" in text
    assert "get before" not in text
    assert "get after" not in text


def test_json_log_messages_and_the_statistics_line(start: Start) -> None:
    server = start("--stats-interval", "0.2", "--log-format", "json", "-v")
    server.ask(b"set a 0 0 1\r\n1\r\nget a b\r\n")

    def reported() -> bool:
        return '"hits":1' in server.log.read_text()

    assert wait_until(reported)
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    line = next(line for line in lines if line.get("hits"))
    assert line["misses"] == 1
    assert line["items"] == 1
    assert line["evictions"] == 0
    assert line["operations_per_second"] == 15
    assert line["bytes"] > 0
    assert "connections" in line


def test_the_statistics_line_as_text(start: Start) -> None:
    server = start("--stats-interval", "0.1")
    assert wait_until(lambda: "stats operations_per_second=0" in server.log.read_text())
    assert re.search(
        r"^stats operations_per_second=0.0 hits=0 misses=0 evictions=0 items=0 bytes=0 "
        r"connections=\d$",
        server.log.read_text(),
        re.MULTILINE,
    )


def test_settings_from_a_file_and_the_environment(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "memlite.toml"
    file.write_text("memory-limit = 32\nconn_limit = 7\n[extended]\nidle_timeout = 9\n")
    server = start("--config", str(file), environment={"MEMLITE_CONN_LIMIT": "8"})
    settings = server.stats("settings")
    assert settings["maxbytes"] == str(32 * 1024 * 1024)
    assert settings["maxconns"] == "8"
    assert settings["idle_timeout"] == "9"
