"""The unit allows the system calls that memlite makes, with each backend and all libraries."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymemcache.client.base import Client

from memlite.testing.gcs_emulator import emulator_process
from tests.deploy.test_unit import needs_systemd, unit_values
from tests.support.waiting import wait_until

PR_SET_MDWE = 65
PR_MDWE_REFUSE_EXEC_GAIN = 1

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="systemd exists only on Linux"),
]


def allowed() -> set[str]:
    """Return the system calls that SystemCallFilter= allows."""
    text = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    groups: dict[str, list[str]] = {}
    for line in re.sub(r"\x1b\[[\d;]*m", "", text).splitlines():
        if line.startswith("@"):
            members = groups.setdefault(line.strip(), [])
        elif line.startswith("    ") and not line.strip().startswith("#"):
            members.append(line.strip())

    def expanded(names: list[str]) -> set[str]:
        calls: set[str] = set()
        for name in names:
            calls |= expanded(groups[name]) if name.startswith("@") else {name}
        return calls

    calls = expanded(["@default"])  # always allowed by a list of allowed calls
    for line in unit_values("SystemCallFilter"):
        names = line.removeprefix("~").split()
        calls = calls - expanded(names) if line.startswith("~") else calls | expanded(names)
    return calls


@pytest.fixture
def bucket() -> Iterator[str]:
    with emulator_process("--bucket", "bucket") as url:
        yield url


def use(port: int) -> None:
    """Send the server the requests that clients send."""
    client = Client(("127.0.0.1", port), default_noreply=False)
    for number in range(300):
        assert client.set(f"key{number % 10}", b"v" * 100)
    assert client.get("key1") == b"v" * 100
    assert client.incr("none", 1) is None
    assert client.delete("key2")
    assert client.touch("key3", 100)
    assert client.add("large", b"v" * 500_000)
    assert len(client.get_many(["large", "key1"])) == 2
    assert client.stats()
    client.close()


BACKENDS = ["memory", "workers", "file", "bucket"]


def backend_of(name: str, folder: Path, request: pytest.FixtureRequest) -> list[str]:
    if name == "memory":
        return []
    if name == "workers":
        return ["-t", "2"]
    if name == "file":  # compacted every 20 kB
        return ["--backend", f"file://{folder}/cache.json?compact=20000"]
    url = request.getfixturevalue("bucket")
    return ["--backend", f"gs://bucket/p?endpoint={url}", "--near-cache", "1m", "--write-back"]


def can_trace() -> bool:
    """Return whether strace is installed and permitted; some containers forbid it."""
    return (
        bool(shutil.which("strace"))
        and subprocess.run(
            ["strace", "-qq", "-o", os.devnull, "true"], stderr=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    )


@needs_systemd
@pytest.mark.skipif(
    not can_trace(), reason="strace is not installed (apt install strace), or not permitted here"
)
@pytest.mark.parametrize("name", BACKENDS)
def test_the_unit_allows_all_system_calls(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    arguments = backend_of(name, tmp_path, request)
    log = tmp_path / "strace"
    ports = tmp_path / "ports"
    process = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", str(log), "--signal=none",
         sys.executable, "-m", "memlite", "-l", "127.0.0.1", "-p", "0", *arguments],
        # As under systemd, so that the notifications are traced too.
        env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports),
             "NOTIFY_SOCKET": str(tmp_path / "nowhere"), "WATCHDOG_USEC": "100000"},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert wait_until(ports.exists, seconds=60)
        use(int(ports.read_text().split()[2]))
    finally:
        pid = int(log.read_text().split(" ", 1)[0])
        os.kill(pid, signal.SIGTERM)
        assert process.wait(60) == 0
    calls = set(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))
    assert {"sendto", "accept4"} & calls
    if name == "file":
        assert {"fdatasync", "fsync"} & calls
        assert "cache.json" in log.read_text()
    calls -= {"execve"}  # called before systemd's filter applies, and allowed
    assert calls <= allowed(), calls - allowed()


# The effect of MemoryDenyWriteExecute= on Linux 6.3 and newer. It cannot be undone, so the test
# uses a separate process.
WITHOUT_EXECUTABLE_MEMORY = f"""
import ctypes, mmap, runpy, sys
if ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0):
    sys.exit("this kernel cannot")
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    pass
else:
    sys.exit("it was not refused")
import aiohttp, google.auth.transport.requests, google.cloud.storage, orjson, uvloop
runpy.run_module("memlite", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("name", BACKENDS)
def test_without_executable_memory(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    arguments = backend_of(name, tmp_path, request)
    ports = tmp_path / "ports"
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_EXECUTABLE_MEMORY,
         "-l", "127.0.0.1", "-p", "0", "--loop", "uvloop", *arguments],
        env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert wait_until(lambda: ports.exists() or process.poll() is not None, seconds=30)
        if not ports.exists():
            messages = process.communicate()[1]
            assert "this kernel cannot" in messages
            pytest.skip("needs Linux 6.3 or newer")
        use(int(ports.read_text().split()[2]))
        process.terminate()
        assert "Traceback" not in process.communicate(timeout=60)[1]
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
