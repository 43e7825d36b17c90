"""Several workers (``-t``) behind every kind of socket, and their one supervisor."""

import os
import shutil
import signal
import socket
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from memlite.config import load
from memlite.config.parsers import Automatic
from memlite.server.workers.supervisor import workers_of
from tests.support.certificates import Authority, client_context, common_name
from tests.support.program import run_forked
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WORKERS = 2


def answering(wire: Wire) -> str:
    return wire.stats("workers")["answering"]


def test_http_is_served_for_all() -> None:
    with (
        running("memlite", "-t", "2", "--http", "127.0.0.1:0") as server,
        server.connect() as first,
        server.connect() as second,
    ):
        assert {answering(first), answering(second)} == {"0", "1"}
        for number, wire in enumerate((first, second)):
            assert wire.ask(b"set k%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
        url = f"http://127.0.0.1:{server.http_port}"
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
            metrics = reply.read().decode()
        assert "\nmemlite_open_connections 2\n" in metrics
        assert "\nmemlite_items_stored_total 2\n" in metrics
        with urllib.request.urlopen(f"{url}/readyz", timeout=60) as reply:
            assert reply.status == 200


def test_a_unix_socket_and_the_pid_file_are_those_of_the_supervisor(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with running("memlite", "-t", "2", "-P", str(pid_file), unix=True) as server:
        with server.connect() as first, server.connect() as second:
            assert {answering(first), answering(second)} == {"0", "1"}
            assert first.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
            second.send(b"get a\r\n")
            assert second.until(b"END\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"
            assert first.stats()["pid"] == second.stats()["pid"] == pid_file.read_text().strip()
        path = Path(server.path)
        assert path.exists()
        assert server.stop() == 0
        assert not path.exists()
        assert not pid_file.exists()


@pytest.mark.parametrize("by_signal", [True, False], ids=["SIGHUP", "refresh_certs"])
def test_certificates_are_read_again_by_all(by_signal: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served, renewed = authority.issue("old"), authority.issue("new")
    with running("memlite", "-t", "2", *served.flags, tls=client_context(served.ca)) as server:

        def shown() -> dict[str, str]:
            # Usually two are enough; a worker that still has an earlier connection gets fewer.
            with ExitStack() as open_ones:
                found: dict[str, str] = {}
                for _ in range(20):
                    one = open_ones.enter_context(server.connect())
                    found[answering(one)] = common_name(one.sock)  # type: ignore[arg-type]
                    if len(found) == 2:
                        break
                return found

        assert shown() == {"0": "old", "1": "old"}
        shutil.copy(renewed.cert, served.cert)
        shutil.copy(renewed.key, served.key)
        if by_signal:
            server.process.send_signal(signal.SIGHUP)
            assert wait_until(lambda: shown() == {"0": "new", "1": "new"})
        else:
            with server.connect() as wire:
                assert wire.ask(b"refresh_certs\r\n") == b"OK\r\n"
            assert shown() == {"0": "new", "1": "new"}


def test_connections_that_fail_in_their_handshake_do_not_count_for_ever(tmp_path: Path) -> None:
    served = Authority(tmp_path).issue("served")
    with running(
        "memlite", "-t", "2", "-c", "10", *served.flags, tls=client_context(served.ca)
    ) as server:
        for _ in range(30):
            with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
                sock.sendall(b"no handshake\r\n\r\n")
                while sock.recv(100):
                    pass

        def is_served() -> bool:
            with server.connect() as wire:
                return wire.ask(b"mn\r\n") == b"MN\r\n"

        assert wait_until(is_served)


def test_a_daemon_is_ready_when_its_parent_ends(tmp_path: Path) -> None:
    pid_file, path = tmp_path / "pid", tmp_path / "socket"
    done = run_forked("-t", "2", "-d", "-P", str(pid_file), "-s", str(path))
    assert done.returncode == 0, done.stderr
    pid = int(pid_file.read_text())
    try:
        server = RunningServer("memlite", None, path=str(path))  # type: ignore[arg-type]
        with server.connect() as first, server.connect() as second:
            assert {answering(first), answering(second)} == {"0", "1"}
            assert first.stats()["pid"] == str(pid)
    finally:
        os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not pid_file.exists())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--backend", "file://{}/cache.json"], "only memory://, gs:// and valkey:// support"),
        (["--near-cache", "8m"], "--near-cache with several workers requires gs:// or valkey://"),
    ],
)
def test_settings_that_several_workers_cannot_have_are_served_by_one(
    arguments: list[str], why: str, tmp_path: Path
) -> None:
    given = [one.format(tmp_path) for one in arguments]
    with running("memlite", "-t", "2", *given) as server:
        assert f"-t: using one worker: {why}" in server.log.read_text()
        with server.connect() as wire:
            assert wire.stats()["threads"] == "1"
            assert "1:pid" not in wire.stats("workers")


def test_more_memory_than_there_is_is_an_error_at_start() -> None:
    done = run_forked("-t", "2", "-p", "0", "-m", "100000000")
    assert done.returncode == 71
    assert done.stderr.startswith("memlite: -m: 100000000 MiB exceeds the ")
    done = run_forked("-t", "40", "-p", "0", "-m", "8")
    assert done.returncode == 64
    assert "memlite: -t: 40 workers and items of 1048576 bytes (-I) need at least -m" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "least", "most"),
    [
        ((), 2, 64),
        (("-m", "1048576"), 1, 1),  # a terabyte
        (("-I", "8m", "-m", "40"), 1, 1),
        (("-I", "8m", "-m", "48"), 1, 2),
    ],
)
def test_auto_is_no_more_than_there_is_memory_for(
    arguments: tuple[str, ...], least: int, most: int
) -> None:
    settings = load(["-t", "auto", *arguments], {}).config
    settings = replace(settings, threads=Automatic(64))
    assert least <= workers_of(settings) <= most


def test_auto_is_a_worker_for_each_core() -> None:
    done = run_forked("-t", "auto", "--print-config")
    cores = min(64, len(os.sched_getaffinity(0)))
    assert f"\nthreads = {cores} " in done.stdout
    done = run_forked("-t", "many")
    assert done.returncode == 64
    assert "must be a whole number or auto, not 'many'" in done.stderr
