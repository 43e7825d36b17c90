"""Server processes on a JSON file: full disks, invalid paths, two servers on one file, signals."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.program import run_forked
from tests.support.servers import RunningServer, Wire, running

SECONDS = 60
NOBODY = 65534
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can mount a file system or switch to another user"
)


def url(path: Path, options: str = "") -> tuple[str, str]:
    return "--backend", f"file://{path}{options}"


@contextlib.contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Mount a small file system, which is soon full."""
    folder = Path(tempfile.mkdtemp(prefix="memlite-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    try:
        if mounted.returncode:
            pytest.skip(f"cannot mount a file system: {mounted.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        folder.rmdir()


def fails_to_start(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the error line of a server that does not start."""
    done = run_forked("-l", "127.0.0.1", "-p", "0", *arguments)
    lines = done.stderr.splitlines()
    assert lines, done
    assert "Traceback" not in done.stderr, done.stderr
    assert [line for line in lines if not line.startswith("memlite: warning")] == lines[-1:]
    assert lines[-1].startswith("memlite: --backend: ")
    assert done.returncode in (64, 71)
    return done.returncode, lines[-1]


def store(wire: Wire, key: bytes, value: bytes) -> bytes:
    return wire.ask(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value))


def value_of(wire: Wire, key: bytes) -> bytes | None:
    wire.send(b"get %b\r\n" % key)
    head = wire.line()
    if head == b"END\r\n":
        return None
    assert head.startswith(b"VALUE "), head
    size = int(head.split()[3])
    return wire.exactly(size + len(b"\r\nEND\r\n"))[:size]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


def ready(server: RunningServer) -> RunningServer:
    """Wait until the files have been read; connections are accepted before that."""
    with server.connect(60) as wire:
        wire.stats()
    return server


def first_journal(path: Path) -> int:
    """Return the number of the first journal, which changes with each compaction."""
    return min(int(file.suffix[1:]) for file in path.parent.glob(f"{path.name}.journal.*"))


# Full disks


@needs_root
@pytest.mark.parametrize("durability", ["always", "everysec", "none"])
def test_a_full_disk(durability):
    options = ("--durability", durability)
    with small_disk("1m") as folder:
        path, filler = folder / "cache.json", folder / "filler"
        expected: dict[bytes, bytes | None] = {}
        with running("memlite", *url(path), *options) as server, server.connect() as wire:
            refused = 0
            for number in range(200):
                key, value = b"key%d" % number, b"%d" % number * 3000
                reply = store(wire, key, value)
                if reply == b"STORED\r\n":
                    expected[key] = value
                else:
                    assert reply == b"SERVER_ERROR not stored: No space left on device\r\n"
                    expected[key] = None
                    refused += 1
            assert refused > 10
            assert len(expected) - refused > 10
            # Overwriting a value fails too, and keeps the old one.
            assert store(wire, b"key0", b"x" * 900_000).startswith(b"SERVER_ERROR")
            for key, value in expected.items():
                assert value_of(wire, key) == value
            # Each message is logged only once in a while, however often the state changes.
            lines = re.sub(r" \(and \d+ more .*\)", "", server.log.read_text()).splitlines()
            assert lines[0] == f"memlite: error: {path}: No space left on device"
            assert set(lines[1:]) <= {lines[0], f"memlite: warning: {path}: writes succeed again"}
            assert len(lines) < refused
            server.process.kill()
            server.process.wait()
        # A server can start on a full disk, and serves the stored items.
        filler.touch()
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with running("memlite", *url(path), *options) as server, server.connect() as wire:
            for key, value in expected.items():
                assert value_of(wire, key) == value
            assert store(wire, b"key1", b"y" * 100_000).startswith(b"SERVER_ERROR")
            assert value_of(wire, b"key1") == expected[b"key1"]
            for key in list(expected)[2:40]:
                expected[key] = None
                if not wire.ask(b"delete %b\r\n" % key).startswith((b"DELETED", b"NOT_FOUND")):
                    expected[key] = value_of(wire, key)
            filler.unlink()
            assert store(wire, b"key1", b"z") == b"STORED\r\n"
            expected[b"key1"] = b"z"
            server.process.kill()
            server.process.wait()
        with running("memlite", *url(path), *options) as server, server.connect() as wire:
            for key, value in expected.items():
                assert value_of(wire, key) == value, key


@pytest.mark.slow
@needs_root
def test_a_disk_that_becomes_full_during_compaction():
    with small_disk("3m") as folder:
        path, filler = folder / "cache.json", folder / "filler"
        with running("memlite", *url(path, "?compact=1000")) as server, server.connect() as wire:
            expected = {b"key%d" % number: b"%d" % number * 2000 for number in range(100)}
            for key, value in expected.items():
                assert store(wire, key, value) == b"STORED\r\n"
            # There is room for more of the journal, but not for a snapshot.
            filler.write_bytes(b"x" * (_free(folder) - 40_000))
            deadline = time.monotonic() + SECONDS
            while "could not be compacted: No space" not in server.log.read_text():
                assert time.monotonic() < deadline
                # The server checks once a second, and may have compacted just before that.
                assert store(wire, b"small", b"1") == b"STORED\r\n"
                time.sleep(0.05)
            expected[b"small"] = b"1"
            wait_until(lambda: not (folder / "cache.json.tmp").exists())
            for number in range(20):
                key = b"after%d" % number
                assert store(wire, key, b"x" * 100) == b"STORED\r\n"
                expected[key] = b"x" * 100
            filler.unlink()
            wait_until(lambda: first_journal(path) > 1)
            assert len(list(folder.glob("*.journal.*"))) == 1
            assert "Traceback" not in server.log.read_text()
            server.process.kill()
            server.process.wait()
        with running("memlite", *url(path)) as server, server.connect() as wire:
            for key, value in expected.items():
                assert value_of(wire, key) == value


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


@needs_root
def test_a_disk_too_full_to_start():
    with small_disk("64k") as folder:
        (folder / "filler").write_bytes(b"x" * (_free(folder)))
        _, line = fails_to_start(*url(folder / "cache.json"))
        assert line.endswith("No space left on device")
        (folder / "filler").unlink()
        with running("memlite", *url(folder / "cache.json")) as server:
            assert server.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"


@needs_root
def test_a_disk_that_is_full_when_the_server_stops():
    """The final snapshot does not fit; the journal has all changes."""
    with small_disk("1m") as folder:
        path, filler = folder / "cache.json", folder / "filler"
        with running("memlite", *url(path)) as server, server.connect() as wire:
            assert store(wire, b"key", b"x" * 100_000) == b"STORED\r\n"
            filler.write_bytes(b"x" * _free(folder))
            assert server.stop() == 0
            assert "could not be compacted" in server.log.read_text()
            assert "Traceback" not in server.log.read_text()
        with running("memlite", *url(path)) as server, server.connect() as wire:
            assert value_of(wire, b"key") == b"x" * 100_000


# Invalid paths


def test_a_path_that_is_a_folder(tmp_path):
    code, line = fails_to_start(*url(tmp_path))
    assert (code, line) == (
        64, f"memlite: --backend: {tmp_path} is a directory; name a file in it"
    )  # fmt: skip


def test_a_missing_folder(tmp_path):
    code, line = fails_to_start(*url(tmp_path / "none" / "cache.json"))
    assert code == 71
    folder = tmp_path / "none"
    assert (
        line == f"memlite: --backend: directory {folder} does not exist; create it with: mkdir -p "
        f"{folder}"
    )


def test_a_path_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    _, line = fails_to_start(*url(tmp_path / "file" / "cache.json"))
    assert "Not a directory" in line


def test_a_path_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "cache.json")
    _, line = fails_to_start(*url(tmp_path / "cache.json"))
    assert line == f"memlite: --backend: {tmp_path}/cache.json is not a file"


def test_circular_links(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    fails_to_start(*url(tmp_path / "a"))


@pytest.mark.parametrize("name", ["x" * 300, "a%00b"])
def test_invalid_file_names(tmp_path, name):
    fails_to_start(*url(tmp_path / name))


def test_a_dangling_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to("real/cache.json")
    with running("memlite", *url(link)) as server:
        assert server.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert server.stop() == 0
    assert link.is_symlink()
    assert (tmp_path / "real" / "cache.json").is_file()
    assert list(tmp_path.glob("link.json.*")) == []
    (tmp_path / "real").rename(tmp_path / "away")
    _, line = fails_to_start(*url(link))
    assert f"directory {tmp_path}/real" in line


@needs_root
@pytest.mark.parametrize("which", ["folder", "snapshot", "journal", "lock", "not even to be seen"])
def test_files_that_another_user_may_not_access(which):
    with tempfile.TemporaryDirectory(prefix="memlite-test-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        inner = folder / "inner"
        inner.mkdir()
        inner.chmod(0o777)
        path = inner / "cache.json"
        with running("memlite", *url(path)) as server:
            assert server.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
            assert server.stop() == 0
        for file in [inner, *inner.iterdir()]:
            os.chown(file, NOBODY, NOBODY)
        match which:
            case "folder":
                for file in inner.iterdir():
                    file.unlink()
                inner.chmod(0o500)
            case "not even to be seen":
                inner.chmod(0)
            case _:
                part = {"snapshot": ".json", "journal": ".journal.*", "lock": ".lock"}[which]
                (victim,) = inner.glob(f"*{part}")
                os.chown(victim, 0, 0)
                victim.chmod(0o600)
        before = {file.name: file.read_bytes() for file in inner.iterdir()}
        before.pop("cache.json.lock", None)
        _, line = fails_to_start(*url(path), "-u", "nobody")
        assert "Permission denied" in line
        assert "cache.json" in line
        after = {file.name: file.read_bytes() for file in inner.iterdir()}
        after.pop("cache.json.lock", None)
        assert after == before


# Two servers


def test_a_second_server_fails_at_once(tmp_path):
    path = tmp_path / "cache.json"
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with running("memlite", *url(path)) as server, server.connect() as wire:
        assert store(wire, b"key", b"value") == b"STORED\r\n"
        for name in (path, link, tmp_path / "." / "cache.json"):
            started = time.monotonic()
            code, line = fails_to_start(*url(name))
            assert time.monotonic() - started < 30
            assert code == 71
            assert line == (
                f"memlite: --backend: {path} is in use by another server "
                f"(process {server.process.pid})"
            )
        code, line = fails_to_start("-d", *url(path))
        assert code == 71
        assert "is in use by another server" in line
        assert store(wire, b"key", b"changed") == b"STORED\r\n"
        assert value_of(wire, b"key") == b"changed"
        server.process.kill()
        server.process.wait()
    # The lock was released with the process, whose id is still in the file.
    assert (tmp_path / "cache.json.lock").exists()
    with running("memlite", *url(path)) as server, server.connect() as wire:
        assert value_of(wire, b"key") == b"changed"


def test_a_server_started_while_the_old_one_drains_is_refused(tmp_path):
    path = tmp_path / "cache.json"
    with running("memlite", *url(path)) as server, server.connect() as wire:
        assert store(wire, b"key", b"1") == b"STORED\r\n"
        wire.send(b"set key 0 0 5\r\nab")
        wait_until(lambda: "conn_nread" in str(server.stats("conns")))
        server.process.send_signal(signal.SIGUSR1)  # the server waits for the rest of the command
        _, line = fails_to_start(*url(path))
        assert "is in use by another server" in line
        wire.send(b"cde\r\n")
        assert wire.line() == b"STORED\r\n"
        assert server.process.wait(SECONDS) == 0
    with running("memlite", *url(path)) as server, server.connect() as wire:
        assert value_of(wire, b"key") == b"abcde"


def test_a_daemon_keeps_to_a_relative_path(tmp_path):
    environment = {"MEMCACHED_PORT_FILENAME": str(tmp_path / "ports")}
    subprocess.run(
        [
            sys.executable, "-m", "memlite", "-d", "-l", "127.0.0.1", "-p", "0",
            "-P", str(tmp_path / "pid"), "--backend", "file://./cache.json?compact=100",
        ],
        check=True,
        cwd=tmp_path,
        timeout=SECONDS,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    pid = int((tmp_path / "pid").read_text())
    try:
        port = int((tmp_path / "ports").read_text().rpartition(":")[2])
        daemon = RunningServer("memlite", None, port)  # type: ignore[arg-type]
        with daemon.connect() as wire:
            assert store(wire, b"key", b"x" * 1000) == b"STORED\r\n"
        wait_until(lambda: first_journal(tmp_path / "cache.json") > 1)
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not (tmp_path / "pid").exists())
    assert b"xxxx" in (tmp_path / "cache.json").read_bytes()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


# Compaction


def fill(server: RunningServer, first: int, count: int, size: int = 100) -> None:
    """Store the keys ``key<number>``, a thousand at a time."""
    value = b"x" * size
    with server.connect(60) as wire:
        for start in range(first, first + count, 1000):
            numbers = range(start, min(start + 1000, first + count))
            wire.send(b"".join(b"set key%d 0 0 %d\r\n%b\r\n" % (n, size, value) for n in numbers))
            assert wire.exactly(8 * len(numbers)) == b"STORED\r\n" * len(numbers)


@pytest.mark.slow
@pytest.mark.alone
def test_the_server_answers_during_compaction(tmp_path):
    path = tmp_path / "cache.json"
    count = 50_000
    with running("memlite", *url(path, "?compact=1000000000"), "-m", "1024") as server:
        fill(server, 0, count)
        server.process.kill()
        server.process.wait()
    longest = 0.0
    done = threading.Event()
    with running("memlite", *url(path, "?compact=1000"), "-m", "1024") as server:
        number = first_journal(path)
        ready(server)

        def client() -> None:
            nonlocal longest
            with server.connect() as wire:
                number = 0
                while not done.is_set():
                    started = time.monotonic()
                    number += 1
                    assert store(wire, b"key%d" % number, b"new") == b"STORED\r\n"
                    assert value_of(wire, b"key%d" % (number + 10_000)) == b"x" * 100
                    longest = max(longest, time.monotonic() - started)

        thread = threading.Thread(target=client)
        thread.start()
        try:
            wait_until(lambda: first_journal(path) > number)
        finally:
            done.set()
            thread.join(SECONDS)
        print(f"longest gap: {longest * 1000:.0f} ms")  # noqa: T201
        assert longest < 2.5
        expected = server.stats()["curr_items"]
        server.process.kill()
        server.process.wait()
    with running("memlite", *url(path), "-m", "1024") as server, server.connect() as wire:
        assert server.stats()["curr_items"] == expected == str(count)
        assert value_of(wire, b"key1") == b"new"


@pytest.fixture(scope="module")
def many_items(tmp_path_factory):
    """The folder of a file with 30,000 items, all of them in the journal."""
    folder = tmp_path_factory.mktemp("many")
    options = *url(folder / "cache.json", "?compact=1000000000"), "-m", "1024"
    with running("memlite", *options) as server:
        fill(server, 0, 30_000)
        server.process.kill()
        server.process.wait()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_during_compaction(tmp_path, many_items, number):
    shutil.copytree(many_items, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "cache.json"
    with (
        running("memlite", *url(path, "?compact=1000"), "-m", "1024") as server,
        server.connect() as wire,
    ):
        wait_until((tmp_path / "cache.json.tmp").exists)
        assert store(wire, b"key1", b"new") == b"STORED\r\n"
        started = time.monotonic()
        assert server.stop(number) == 0
        assert time.monotonic() - started < 30
        assert server.log.read_text() == ""
    assert not (tmp_path / "cache.json.tmp").exists()
    with running("memlite", *url(path), "-m", "1024") as server, server.connect() as wire:
        assert server.stats()["curr_items"] == "30000"
        assert value_of(wire, b"key1") == b"new"


# Memory


def test_a_start_with_less_memory_than_before(tmp_path):
    path = tmp_path / "cache.json"
    with running("memlite", *url(path), "-m", "64") as server:
        fill(server, 0, 300, 50_000)
        assert server.stop() == 0
    _, line = fails_to_start(*url(path), "-m", "8", "-M")
    assert "holds more than -m allows, and -M forbids dropping items; raise -m" in line
    with running("memlite", *url(path), "-m", "8") as server:
        assert "items, mostly the oldest" in ready(server).log.read_text()
        with server.connect() as wire:
            there = {number for number in range(300) if value_of(wire, b"key%d" % number)}
        assert 100 < len(there) < 200
        assert there == set(range(300 - len(there), 300))
        server.process.kill()
        server.process.wait()
    with running("memlite", *url(path), "-m", "64") as server, server.connect() as wire:
        assert {number for number in range(300) if value_of(wire, b"key%d" % number)} == there


def test_items_evicted_by_cache_memlimit_do_not_come_back(tmp_path):
    path = tmp_path / "cache.json"
    with running("memlite", *url(path), "-m", "64") as server:
        fill(server, 0, 300, 50_000)
        with server.connect() as wire:
            assert wire.ask(b"cache_memlimit 8\r\n") == b"OK\r\n"
            deadline = time.monotonic() + 60
            items, before = int(wire.stats()["curr_items"]), 0
            while items != before or items == 300:  # they are evicted step by step
                assert time.monotonic() < deadline
                time.sleep(0.3)
                items, before = int(wire.stats()["curr_items"]), items
            there = {number for number in range(300) if value_of(wire, b"key%d" % number)}
        assert 100 < len(there) < 200
        server.process.kill()
        server.process.wait()
    with running("memlite", *url(path), "-m", "64") as server, server.connect() as wire:
        assert {number for number in range(300) if value_of(wire, b"key%d" % number)} == there


# Connections


def test_clients_that_disconnect_in_the_middle_leave_nothing_behind(tmp_path):
    path = tmp_path / "cache.json"

    async def client(port: int, number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"set key%d 0 0 1000\r\n%b\r\nget key%d\r\n" % (number, b"x" * 1000, number))
        await asyncio.sleep(0.0005 * (number % 5))
        writer.transport.abort()

    async def clients(port: int) -> None:
        for _ in range(20):
            await asyncio.gather(*(client(port, number) for number in range(25)))

    with running("memlite", *url(path)) as server:
        with server.connect() as wire:
            assert store(wire, b"a", b"b") == b"STORED\r\n"
        descriptors = Path(f"/proc/{server.process.pid}/fd")
        before = len(list(descriptors.iterdir()))
        asyncio.run(clients(server.port))
        wait_until(lambda: len(list(descriptors.iterdir())) <= before)
        assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nb\r\nEND\r\n"
        assert server.stop() == 0
        assert server.log.read_text() == ""
