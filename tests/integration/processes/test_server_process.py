"""``memlite.testing.server``: a server as a process, for tests."""

import resource
import time
from pathlib import Path

import pytest

import memlite.testing
from memlite.core.errors import ConfigError
from memlite.testing import ServerStartError, TlsFiles
from tests.support.certificates import Authority
from tests.support.servers import memcached_path, needs_memcached


def ask(running: memlite.testing.ServerProcess, request: bytes) -> bytes:
    with running.connect() as sock:
        sock.sendall(request)
        reply = b""
        while not reply.endswith(b"END\r\n" if request == b"stats\r\n" else b"\n"):
            reply += sock.recv(1000)
        return reply


def test_it_serves_and_stops() -> None:
    with memlite.testing.server("-vv", memory_limit=128) as running:
        assert running.address == ("127.0.0.1", running.port)
        assert ask(running, b"version\r\n").startswith(b"VERSION")
        assert b"STAT limit_maxbytes 134217728\r\n" in ask(running, b"stats\r\n")
        assert ">" in running.output
    assert running.process.returncode == 0
    assert not running.folder.exists()


def test_several_servers_at_once() -> None:
    with memlite.testing.server() as one, memlite.testing.server() as two:
        assert one.port != two.port
        assert one.stop() == 0
        assert ask(two, b"version\r\n").startswith(b"VERSION")


def test_on_a_unix_socket_of_its_own() -> None:
    with memlite.testing.server(unix_socket=True, udp_port=0) as running:
        assert running.address == running.path == str(running.folder / "socket")
        assert (running.port, running.ports, running.host) == (0, (), "")
        assert ask(running, b"version\r\n").startswith(b"VERSION")


def test_with_tls_and_udp(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("server")
    files = TlsFiles(issued.cert, issued.key, tmp_path / "ca.pem")
    with memlite.testing.server("-U", "-1", tls=files) as running:
        assert running.udp_port
        assert ask(running, b"version\r\n").startswith(b"VERSION")


def test_the_backend_is_open_when_it_is_ready(tmp_path: Path) -> None:
    with memlite.testing.server(backend=f"file://{tmp_path}/cache.json"):
        assert (tmp_path / "cache.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-m", "0"], 64, "memlite: -m: must be at least 1, not 0"),
        (["--backend", "file:///nowhere/cache.json"], 71, "directory /nowhere"),
    ],
)
def test_a_failed_start_shows_the_servers_messages(
    arguments: list[str], code: int, message: str
) -> None:
    with (
        pytest.raises(ServerStartError, match=f"exit code {code}\n.*{message}") as caught,
        memlite.testing.server(*arguments),
    ):
        pass
    assert message in caught.value.output


def test_a_server_that_never_accepts_connections() -> None:
    begin = time.monotonic()
    with (
        pytest.raises(ServerStartError, match=r"did not start in 0\.2 s: no output"),
        memlite.testing.server(command=["sh", "-c", "sleep 60"], start_timeout=0.2),
    ):
        pass
    assert time.monotonic() - begin < 10


def test_invalid_settings() -> None:
    for settings in ({"memory_limt": 1}, {"daemon": True}):
        with pytest.raises(ConfigError), memlite.testing.server(**settings):
            pass


def test_environment_variables_of_the_caller_have_no_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMLITE_MEMORY_LIMIT", "1024")
    with memlite.testing.server() as running:
        assert b"STAT limit_maxbytes 67108864\r\n" in ask(running, b"stats\r\n")
    with memlite.testing.server(environment={"MEMLITE_MEMORY_LIMIT": "1024"}) as running:
        assert b"STAT limit_maxbytes 1073741824\r\n" in ask(running, b"stats\r\n")


def test_modules_in_the_callers_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit('imported')")
    (tmp_path / "memlite.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    with memlite.testing.server() as running:
        assert ask(running, b"version\r\n").startswith(b"VERSION")


@needs_memcached
@pytest.mark.parametrize("unix", [False, True])
def test_it_can_run_memcached(unix: bool) -> None:
    command = [str(memcached_path()), "-u", "root"]
    with memlite.testing.server(
        command=command, unix_socket=unix or None, stop_timeout=0
    ) as running:
        assert ask(running, b"version\r\n").startswith(b"VERSION 1.")


@pytest.mark.alone
def test_it_starts_quickly() -> None:
    """It takes 130 ms, mostly processor time, on which other processes have little influence."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with memlite.testing.server():
            pass
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.4
