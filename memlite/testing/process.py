"""Runs a server as a process, for tests: ``with memlite.testing.server() as running``."""

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple

from memlite.config.keywords import flags
from memlite.core.errors import ConfigError, StartError

__all__ = ["ServerProcess", "ServerStartError", "TlsFiles", "server", "start_process"]

_LOOPBACK = "127.0.0.1"
_PORT_FILE = "MEMCACHED_PORT_FILENAME"
_POLL_SECONDS = 0.002


class ServerStartError(StartError):
    """A server process did not start. The message ends with the output of the process.

    Attributes:
        output: only the output.
    """

    def __init__(self, text: str, output: str) -> None:
        super().__init__(f"{text}\n{output.rstrip()}" if output.strip() else f"{text}: no output")
        self.output = output


class TlsFiles(NamedTuple):
    """Files for a server with TLS.

    Attributes:
        cert: its certificate chain (PEM).
        key: the key (PEM).
        ca: the certificate that clients trust; None for the server's own.
    """

    cert: str | os.PathLike[str]
    key: str | os.PathLike[str]
    ca: str | os.PathLike[str] | None = None


@dataclass
class ServerProcess:
    """A server process; created by `server`.

    Attributes:
        process: the process.
        folder: the directory of its temporary files; removed at the end.
        host: the address it listens on; empty for a UNIX socket.
        ports: its TCP ports.
        udp_port: its UDP port; 0 if it does not accept datagrams.
        http_port: the port of ``--http``; 0 without it.
        path: its UNIX socket; empty for TCP.
        tls_files: its TLS files; None without TLS.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    host: str = _LOOPBACK
    ports: tuple[int, ...] = ()
    udp_port: int = 0
    http_port: int = 0
    path: str = ""
    tls_files: TlsFiles | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        """Its first TCP port; 0 for a UNIX socket."""
        return self.ports[0] if self.ports else 0

    @property
    def address(self) -> tuple[str, int] | str:
        """The address that clients connect to: host and port, or the path of a UNIX socket."""
        return self.path or (self.host, self.port)

    @property
    def log(self) -> Path:
        """The file that receives its standard output and standard error."""
        return self.folder / "log"

    @property
    def output(self) -> str:
        """Its output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """An SSL context for clients; None without TLS. It does not check the host name."""
        if self.tls_files is None:
            return None
        context = ssl.create_default_context(cafile=self.tls_files.ca or self.tls_files.cert)
        context.check_hostname = False
        return context

    def connect(self, timeout: float = 10) -> socket.socket:
        """Return a new connection.

        Args:
            timeout: the socket's timeout, in seconds.

        Raises:
            OSError: the server does not accept it.
        """
        if not self.path:
            sock = socket.create_connection((self.host, self.port), timeout)
            return self.tls.wrap_socket(sock, server_hostname=self.host) if self.tls else sock
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout)
            sock.connect(self.path)
        except BaseException:
            sock.close()
            raise
        return sock

    def stop(self, number: int = signal.SIGTERM, timeout: float = 10) -> int:
        """Stop the process, and return its exit code; negative if a signal ended it.

        Args:
            number: the signal that asks it to stop.
            timeout: seconds after which it is killed.
        """
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


def start_process(
    line: Sequence[str], output: BinaryIO, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program.

    Args:
        line: the command line.
        output: the file that receives its standard output and standard error.
        environment: all of its environment variables.
    """
    return subprocess.Popen(  # noqa: S603 - what the caller asked for
        line,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        # Shielded from Ctrl-C: it must outlive the tests that use it.
        start_new_session=True,
    )


@contextlib.contextmanager
def server(
    *arguments: str,
    host: str = _LOOPBACK,
    port: int = 0,
    unix_socket: str | os.PathLike[str] | bool | None = None,
    tls: TlsFiles | None = None,
    command: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    start_timeout: float = 30,
    stop_timeout: float = 10,
    start: Callable[
        [Sequence[str], BinaryIO, Mapping[str, str]], subprocess.Popen[bytes]
    ] = start_process,
    **settings: object,
) -> Iterator[ServerProcess]:
    """Run a server as a process while the context lasts.

        with memlite.testing.server("-m", "128", backend="file:///tmp/cache.json") as running:
            client = Client(running.address)

    It runs with this interpreter, on any free port unless one is given. The caller's ``MEMLITE_*``
    variables are ignored, so that a test behaves the same everywhere.

    Args:
        arguments: further command-line arguments.
        host: the address to listen on.
        port: the TCP port; 0 for any free one.
        unix_socket: a path to listen at instead; True for a path among the temporary files.
        tls: enables TLS.
        command: a program with memcached's options to run instead of this memlite, such as
            ``["memcached"]``.
        environment: variables in addition to those of this process.
        start_timeout: seconds it may take to start.
        stop_timeout: seconds it may take to stop before it is killed.
        start: starts the process, such as `start_process`.
        settings: settings of `Config` by name, as for `memlite.serve`.

    Yields:
        The process, once it serves.

    Raises:
        ConfigError: a setting is unknown, or has the wrong type.
        ServerStartError: it did not start; the message shows its output.
    """
    if settings.get("daemon"):
        raise ConfigError("daemon: the process would detach and could not be stopped")
    with _temporary_folder() as folder:
        if settings.get("user") or "-u" in arguments:
            folder.chmod(0o777)  # the server's user writes the ports there
        path = str(folder / "socket") if unix_socket is True else os.fspath(unix_socket or "")
        line = list(command) if command else [sys.executable, "-P", "-m", "memlite"]
        # Options that memcached also accepts: hence no long options, and -1 for any port.
        line += ["-s", path] if path else ["-l", host, "-p", str(port or -1)]
        if tls is not None:
            line += [
                "-Z",
                "-o",
                f"ssl_chain_cert={os.fspath(tls.cert)},ssl_key={os.fspath(tls.key)}",
            ]
        line += [*flags(settings), *arguments]
        ports = folder / "ports"
        with (folder / "log").open("wb") as output:
            process = start(line, output, _environment(ports, environment or {}))
        running = ServerProcess(process, folder, "" if path else host, path=path, tls_files=tls)
        try:
            # Another server may not write a port file when it listens at a path.
            _wait_until_ready(running, None if command and path else ports, start_timeout)
            if not path:
                text = ports.read_text(encoding="utf-8")
                running.ports = tuple(map(int, re.findall(r"TCP INET6?: (\d+)", text)))
                running.udp_port = next(map(int, re.findall(r"UDP INET6?: (\d+)", text)), 0)
                running.http_port = next(map(int, re.findall(r"HTTP INET6?: (\d+)", text)), 0)
            yield running
        finally:
            running.stop(timeout=stop_timeout)


def _wait_until_ready(running: ServerProcess, ports: Path | None, timeout: float) -> None:
    """Return when the process serves.

    Args:
        running: the process.
        ports: the file it writes when ready; None to try connecting instead.
        timeout: seconds.

    Raises:
        ServerStartError: it ended, or the timeout has expired.
    """
    began = time.monotonic()
    while not (_accepts(running) if ports is None else ports.exists()):
        name = " ".join(map(str, running.process.args))  # type: ignore[arg-type]
        if (code := running.process.poll()) is not None:
            raise ServerStartError(f"{name}: exit code {code}", running.output)
        waited = time.monotonic() - began
        if waited > timeout:
            raise ServerStartError(f"{name}: did not start in {timeout:g} s", running.output)
        # On a busy machine, startup is slow, and frequent polling makes it slower.
        time.sleep(max(_POLL_SECONDS, waited / 20))


def _accepts(running: ServerProcess) -> bool:
    try:
        running.connect().close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def _environment(ports: Path, further: Mapping[str, str]) -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MEMLITE_")
    }
    # The caller's memlite, which may be a checkout that is not installed.
    root = Path(__file__).parents[2]
    if root.name not in ("site-packages", "dist-packages"):
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{before}{os.pathsep}{root}" if before else str(root)
    return {**environment, _PORT_FILE: str(ports), **further}


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="memlite-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
