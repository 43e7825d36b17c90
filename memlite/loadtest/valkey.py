"""A Valkey or Redis on this machine, started as memlite's store for a measurement."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from memlite.core.errors import ConfigError, StartError

__all__ = ["ValkeyServer", "program", "valkey_server"]

_PROGRAMS = ("valkey-server", "redis-server")
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ValkeyServer:
    """A running server.

    Attributes:
        pid: its process ID.
        url: its URL, for ``--backend``.
        version: its reported version, such as ``Redis server v=7.0.15``.
    """

    pid: int
    url: str
    version: str


def program() -> str:
    """Return the path of the server program.

    Raises:
        ConfigError: neither Valkey nor Redis is installed.
    """
    for name in _PROGRAMS:
        if path := shutil.which(name):
            return path
    raise ConfigError(
        "bench: --backends: neither valkey-server nor redis-server is on the PATH "
        "(apt install redis-server)"
    )


@contextlib.contextmanager
def valkey_server(folder: Path) -> Iterator[ValkeyServer]:
    """Run a server on loopback without persistence, and stop it on exit.

    Args:
        folder: its working directory, where it writes a log.

    Raises:
        ConfigError: neither Valkey nor Redis is installed.
        StartError: the server does not start.
    """
    path = program()
    folder = folder.resolve()
    log = folder / "valkey.log"
    port = _free_port()
    command = [path, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no", "--logfile", str(log)]
    # Its own session shields it from Ctrl-C: it must outlive the clients.
    server = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - as found
    try:
        _await(server, port, log)
        yield ValkeyServer(server.pid, f"valkey://127.0.0.1:{port}/bench", _version(path))
    finally:
        server.terminate()
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def _await(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = monotonic() + _START_SECONDS
    while True:
        if server.poll() is not None:
            lines = log.read_text(errors="replace").split("\n") if log.exists() else []
            reason = next((line for line in reversed(lines) if line), "it exited immediately")
            raise StartError(f"bench: valkey: {reason}")
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        if monotonic() > end:
            raise StartError("bench: valkey: the server is not accepting connections")
        sleep(0.02)


def _version(path: str) -> str:
    run = subprocess.run(  # noqa: S603 - as found
        [path, "--version"], capture_output=True, text=True, check=False, timeout=_START_SECONDS
    )
    return run.stdout.partition(" sha=")[0].strip() or Path(path).name
