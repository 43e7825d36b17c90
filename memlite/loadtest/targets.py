"""Servers to measure: those that run already, and those started for it."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from memlite.errors import ConfigError, StartError
from memlite.loadtest.login import Login, LoginRefusedError
from memlite.loadtest.results import TargetInfo
from memlite.loadtest.tls import TlsClient
from memlite.protocol import replies

__all__ = ["KINDS", "Fresh", "Running", "Target", "parse_address", "parse_backend"]

KINDS = ("memory", "file", "gcs")
"""Backends that a server is started on by this name alone."""

READ_LATENCY = "lognormal:median=15ms,p99=60ms"
WRITE_LATENCY = "lognormal:median=30ms,p99=120ms"
"""What the emulated bucket waits: what a bucket in the same region takes for small objects."""

_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_MEGABYTES = "1024"
_BUCKET = "memlite-bench"
_HOST = "127.0.0.1"


class Target:
    """Something that speaks memcached's protocol; a context manager, inside which it can be used.

    Attributes:
        name: for people.
        kind: as in `TargetInfo`.
        address: host and port, or a path; known inside.
        details: as in `TargetInfo`.
        login: who clients say they are; None for nobody.
        tls: how to speak it with the server; None for not.
        lite: whether to speak the lite dialect.
    """

    login: Login | None = None
    tls: TlsClient | None = None
    lite: bool = False

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.address: tuple[str, int] | str = ("", 0)
        self.details: dict[str, str] = {}
        self._process: psutil.Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        pass

    def info(self) -> TargetInfo:
        """Return what it is; it is asked for its version.

        Raises:
            StartError: it does not answer.
        """
        text = self.address if isinstance(self.address, str) else _join(*self.address)
        return TargetInfo(self.name, self.kind, text, self._version(), dict(self.details))

    def _version(self) -> str:
        try:
            reply = self._ask_version()
        except LoginRefusedError as error:
            raise StartError(f"bench: {self.name}: {error}") from None
        except OSError as error:
            text = self.address if isinstance(self.address, str) else _join(*self.address)
            reason = error.strerror or "no answer"
            raise StartError(f"bench: {text}: {reason}") from None
        if reply.startswith(replies.UNAUTHENTICATED):
            raise StartError(f"bench: {self.name} asks for a password: --user, --password-file")
        known = reply.startswith(b"VERSION ")
        if self.lite:
            if known:
                raise StartError(f"bench: {self.name} does not speak the lite dialect")
            return "memcached-lite"  # which has no word for its version
        if not known:
            hint = " (--dialect lite?)" if reply.startswith(replies.ERROR) else ""
            raise StartError(f"bench: {self.name} does not speak memcached's protocol{hint}")
        return reply[8:100].decode("latin-1").strip()

    def _ask_version(self) -> bytes:
        if isinstance(self.address, str):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(self.address)
        else:
            connection = socket.create_connection(self.address, _ANSWER_SECONDS)
            if self.tls:
                connection = self._encrypt(connection, self.address[0], self.tls)
        with connection, connection.makefile("rb") as lines:
            if self.login is not None:
                connection.sendall(self.login.request)
                self.login.check(lines.readline(1000))
            connection.sendall(b"version\r\n")
            line = lines.readline(1000)
        if not line:
            raise ConnectionResetError
        return line

    def _encrypt(self, connection: socket.socket, host: str, tls: TlsClient) -> ssl.SSLSocket:
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            encrypted = tls.context().wrap_socket(connection, server_hostname=host)
            stack.pop_all()
        cipher = encrypted.cipher()
        self.details["TLS"] = f"{encrypted.version()}, {cipher[0] if cipher else 'no cipher'}"
        return encrypted

    def usage(self) -> tuple[float, int] | None:
        """Return processor seconds and resident bytes of a local server; None for others."""
        if self._process is None:
            return None
        try:
            with self._process.oneshot():
                times = self._process.cpu_times()
                return times.user + times.system, self._process.memory_info().rss
        except psutil.Error:
            return None

    def check(self) -> None:
        """See that a server started for this has not died.

        Raises:
            StartError: it has.
        """


class Running(Target):
    """A server that runs already.

    Args:
        name: for people.
        address: host and port, or the path of a UNIX socket.
        login: see `Target`.
        tls: see `Target`.
        lite: see `Target`.
    """

    def __init__(
        self,
        name: str,
        address: tuple[str, int] | str,
        *,
        login: Login | None = None,
        tls: TlsClient | None = None,
        lite: bool = False,
    ) -> None:
        super().__init__(name, "server")
        self.login = login
        self.lite = lite
        if lite:
            self.details["dialect"] = "lite"
        self.address = address
        self.tls = tls

    def __enter__(self) -> Self:
        if not isinstance(self.address, str):
            self._process = _listener(*self.address)
        return self


@dataclass(frozen=True, slots=True)
class Fresh:
    """How servers are started.

    Attributes:
        folder: where files go.
        read_latency: of the emulated bucket, as ``memlite gcs-emulator`` takes it; empty for none.
        write_latency: likewise.
    """

    folder: Path
    read_latency: str = READ_LATENCY
    write_latency: str = WRITE_LATENCY


class Server(Target):
    """A memlite of this version, started for the measurement and stopped behind it.

    Args:
        name: for people.
        kind: one of `KINDS`, or a backend's URL.
        how: see there.
    """

    def __init__(self, name: str, kind: str, how: Fresh) -> None:
        super().__init__(name, "gcs" if kind.startswith(("gs:", "gcs:")) else kind)
        self._backend = kind
        self._how = how
        self._stack = contextlib.ExitStack()
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            scratch = Path(
                stack.enter_context(tempfile.TemporaryDirectory(dir=self._how.folder, prefix="."))
            )
            url = self._url(stack, scratch)
            ports = scratch / "ports"
            self._server = server = stack.enter_context(
                _process(
                    ["--backend", url, "-l", _HOST, "-p", "-1", "-c", "8192", "-m", _MEGABYTES],
                    {"MEMCACHED_PORT_FILENAME": str(ports)},
                )
            )
            deadline = time.monotonic() + _START_SECONDS
            while not self._answers(ports):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise StartError(f"bench: {self.name}: {_last_line(server)}")
                time.sleep(0.01)
            self._process = psutil.Process(server.pid)
            self._stack = stack.pop_all()
        return self

    def _answers(self, ports: Path) -> bool:
        if not ports.exists():
            return False
        self.address = (_HOST, int(ports.read_text().rpartition(":")[2]))
        try:
            self._ask_version()
        except OSError:
            return False
        return True

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def _url(self, stack: contextlib.ExitStack, scratch: Path) -> str:
        if self._backend == "memory":
            return "memory://"
        if self._backend == "file":
            self.details["durability"] = "always"
            self.details["disk"] = _file_system(scratch)
            return f"file://{scratch.resolve() / 'cache.json'}"
        if self._backend != "gcs":
            self.details["url"] = self._backend
            return self._backend
        how, latency = self._how, []
        for which, text in (("read", how.read_latency), ("write", how.write_latency)):
            if text:
                latency.append(f"--{which}-latency={text}")
            self.details[f"emulated {which} latency"] = text or "none"
        emulator = stack.enter_context(
            _process(["gcs-emulator", "--port", "0", "--bucket", _BUCKET, *latency], {})
        )
        line = emulator.stdout.readline() if emulator.stdout else ""
        if not line:
            raise StartError(f"bench: {self.name}: {_last_line(emulator)}")
        self.details["bucket"] = "emulated on this machine"
        return f"gs://{_BUCKET}/bench?endpoint={line.split()[0]}"

    def check(self) -> None:
        """See that it has not died."""
        if self._server is not None and self._server.poll() is not None:
            raise StartError(f"bench: {self.name} has ended: {_last_line(self._server)}")


@contextlib.contextmanager
def _process(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run memlite with these arguments; end it afterwards."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "memlite", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
            # Ctrl-C is not for it: it is stopped when the clients have.
            start_new_session=True,
        )
        process.errors = errors  # type: ignore[attr-defined]
        with process:
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _last_line(process: subprocess.Popen[str]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    errors = process.errors  # type: ignore[attr-defined]
    errors.seek(0)
    lines = errors.read().split("\n")
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("memlite: ") if said else "it does not answer"


def _listener(host: str, port: int) -> psutil.Process | None:
    """Return the local process that listens there, if that can be seen."""
    try:
        local = {info[4][0] for info in socket.getaddrinfo(host, port)}
        local |= {"0.0.0.0", "::"}  # noqa: S104 - to compare with, not to bind to
        for one in psutil.net_connections("tcp"):
            listens = one.status == psutil.CONN_LISTEN and one.laddr.port == port
            if listens and one.pid and one.laddr.ip in local:
                return psutil.Process(one.pid)
    except (psutil.Error, OSError):
        pass
    return None


def _file_system(path: Path) -> str:
    """Return the type of the file system that `path` is on."""
    best = ("", "unknown")
    for part in psutil.disk_partitions(all=True):
        if str(path.resolve()).startswith(part.mountpoint) and len(part.mountpoint) >= len(best[0]):
            best = (part.mountpoint, part.fstype)
    return best[1]


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(
    text: str, *, tls: TlsClient | None = None, login: Login | None = None, lite: bool = False
) -> Running:
    """Return the target of ``HOST:PORT``, ``HOST:PORT=name`` or ``/path/to/socket``.

    Args:
        text: that.
        login: who clients say they are to it; None for nobody.
        tls: how to speak it with the server; None for not.
        lite: whether to speak the lite dialect.

    Raises:
        ConfigError: it is none of them, or a path and to be spoken TLS with.
    """
    address, _, name = text.partition("=")
    if address.startswith("/"):
        if tls:
            raise ConfigError(f"bench: --tls is for HOST:PORT, not for a UNIX socket: {address}")
        return Running(name or address, address, login=login, lite=lite)
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"bench: --target must be HOST:PORT or HOST:PORT=name, not {text!r}")
    return Running(name or address, (host, int(port)), login=login, tls=tls, lite=lite)


def parse_backend(text: str, how: Fresh) -> Server:
    """Return the target of ``memory``, ``file``, ``gcs`` or a backend's URL, perhaps ``=name``.

    Raises:
        ConfigError: it is none of them.
    """
    kind, _, name = text.partition("=") if "://" not in text else (text, "", "")
    if kind not in KINDS and "://" not in kind:
        raise ConfigError(
            f"bench: --backends: unknown backend {kind!r}: {', '.join(KINDS)} or a URL such as "
            "gs://bucket/prefix"
        )
    return Server(name or kind, kind, how)
