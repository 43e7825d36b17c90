"""Pipes and devices in place of files that are read at startup: none blocks it forever."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from tests.support.certificates import Authority
from tests.support.servers import running

COMMAND = [sys.executable, "-m", "memlite"]
SERVER = ("-p", "0", "-l", "127.0.0.1")


@pytest.mark.slow
def test_pipes_without_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    cases = [
        ([*SERVER, "--http", "0", "--http-token-file", str(pipe)], 71, "--http-token-file: "),
        ([*SERVER, "-Y", str(pipe)], 71, "-Y: "),
        ([*SERVER, "--config", str(pipe)], 64, "--config: "),
        ([*SERVER, "--backend", f"valkey://localhost?password_file={pipe}"], 64, "password_file "),
        (["proxy", "--topology", str(pipe)], 64, ""),
        (["top", "--user", "a", "--password-file", str(pipe)], 64, "top: --password-file "),
        (["shell", "--user", "a", "--password-file", str(pipe), "version"], 64, "--password-file "),
    ]
    started = [  # all at once, as each waits until the time limit for pipes
        subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
        for arguments, _, _ in cases
    ]
    for process, (arguments, code, begin) in zip(started, cases, strict=True):
        _, text = process.communicate(timeout=120)
        said = f"{begin}{pipe}: not a regular file, and no end of input within 10 s\n"
        assert text.endswith(said), (arguments, text)
        assert (process.returncode, text.count("\n")) == (code, 1)


@pytest.mark.parametrize("key", ["ssl_chain_cert", "ssl_key", "ssl_ca_cert"])
def test_pipes_in_place_of_certificates(tmp_path: Path, key: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    issued = Authority(tmp_path).issue("server")
    flags = [*issued.flags, "-o", f"{key}={pipe}"]
    done = subprocess.run(
        [*COMMAND, *SERVER, "-Z", *flags], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 64
    assert done.stderr.endswith(f"{pipe} : not a regular file, but a pipe, device or socket\n")
    assert done.stderr.count("\n") == 1


def test_the_output_of_a_command_is_read(tmp_path: Path) -> None:
    """As with a shell's ``<(command)``; not for files that are read more than once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        pipe.write_text("max-item-size = '2m'\n")

    writer = threading.Thread(target=write)
    writer.start()
    done = subprocess.run(
        [*COMMAND, "--config", str(pipe), "--print-config"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    writer.join()
    assert done.stderr == ""
    assert "max-item-size = 2097152  " in done.stdout


def test_a_pid_file_takes_the_place_of_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    os.mkfifo(path)
    with running("memlite", "-P", str(path)) as server:
        assert int(path.read_text()) == server.process.pid
