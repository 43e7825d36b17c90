"""Items that a file keeps (``-e``) while no server runs."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.program import run_forked
from tests.support.servers import running


def value(wire_reply: bytes) -> bytes:
    return wire_reply.partition(b"\r\n")[2]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", ["TERM", "USR1", "shutdown graceful"])
def test_items_outlive_an_orderly_stop(tmp_path: Path, workers: str, how: str) -> None:
    options = ("-t", workers, "-A", "-e", str(tmp_path / "items"), "-m", "16")
    with running("memlite", *options) as server, server.connect() as wire:
        assert wire.stats("settings")["memory_file"] == str(tmp_path / "items")
        assert wire.ask(b"set a 5 0 1\r\nx\r\n") == b"STORED\r\n"
        assert wire.ask(b"ms b 2 T100 F3\r\nyy\r\n") == b"HD\r\n"
        assert wire.ask(b"set gone 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert wire.ask(b"delete gone\r\n") == b"DELETED\r\n"
        unique = int(wire.ask(b"mg a c\r\n").split(b"c")[1])
        if how == "shutdown graceful":
            wire.send(b"shutdown graceful\r\n")
            assert server.process.wait(20) == 0
        else:
            assert server.stop(getattr(signal, f"SIG{how}")) == 0
    with running("memlite", *options) as server, server.connect() as wire:
        wire.send(b"get a\r\n")
        assert wire.until(b"END\r\n") == b"VALUE a 5 1\r\nx\r\nEND\r\n"
        assert wire.ask(b"mn\r\n") == b"MN\r\n"
        flags = wire.ask(b"mg b t f s\r\n").split()
        assert flags[0] == b"HD"
        assert 0 < int(flags[1][1:]) <= 100
        assert flags[2:] == [b"f3", b"s2"]
        wire.send(b"get gone\r\n")
        assert wire.until(b"END\r\n") == b"END\r\n"
        assert int(wire.ask(b"mg a c\r\n").split(b"c")[1]) == unique
        assert wire.ask(b"set a 0 0 1\r\nz\r\n") == b"STORED\r\n"
        assert int(wire.ask(b"mg a c\r\n").split(b"c")[1]) > unique
        assert wire.stats()["curr_items"] == "2"
        ages = wire.ask(b"me b\r\n").decode()
        assert 0 <= int(ages.split("la=")[1].split()[0]) < 100


def test_a_server_that_was_killed_leaves_nothing(tmp_path: Path) -> None:
    options = ("-t", "2", "-e", str(tmp_path / "items"), "-m", "16")
    with running("memlite", *options) as server, server.connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        workers = [int(wire.stats("workers")[f"{one}:pid"]) for one in range(2)]
        for pid in (server.process.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        server.process.wait(20)
    with running("memlite", *options) as server, server.connect() as wire:
        wire.send(b"get a\r\n")
        assert wire.until(b"END\r\n") == b"END\r\n"
        said = server.log.read_text()
        assert ": the server that used it was killed; starting empty" in said


def test_items_outlive_a_killed_worker(tmp_path: Path) -> None:
    options = ("-t", "2", "-e", str(tmp_path / "items"), "-m", "16")
    with running("memlite", *options) as server, server.connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        os.kill(int(wire.stats("workers")["0:pid"]), signal.SIGKILL)
        os.kill(int(server.stats("workers")["1:pid"]), signal.SIGKILL)
        assert server.stop() == 0
    with running("memlite", *options) as server, server.connect() as wire:
        wire.send(b"get a\r\n")
        assert wire.until(b"END\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_two_servers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "items"
    with running("memlite", "-e", str(path), "-m", "16"):
        done = run_forked("-p", "0", "-e", str(path), "-m", "16")
        assert done.returncode == 71
        assert done.stderr.splitlines()[-1].endswith(f"-e: {path}: in use by another server")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ("--backend", "file:///nowhere/x.json"),
            "only memory://, gs:// and valkey:// support several workers",
        ),
        (("--near-cache", "1m"), "--near-cache with several workers requires gs:// or valkey://"),
        (("--backend", "valkey://127.0.0.1:1/p"), "the store keeps the items"),
    ],
)
def test_settings_that_cannot_be_kept(tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    done = run_forked("-p", "0", "-e", str(tmp_path / "items"), "-m", "16", *options)
    assert done.returncode == 64
    assert f"-e: requires a table shared by workers; {why}" in done.stderr
