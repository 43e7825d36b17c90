"""The servers to measure: already running, or launched for the measurement."""

import contextlib
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import psutil

from memlite.client import address as addresses
from memlite.client.login import LoginRefusedError, TextLogin
from memlite.client.tls import TlsSettings
from memlite.cluster.topology import Topology
from memlite.config.parsers import MEGABYTE
from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.defaults import READ_LATENCY, WRITE_LATENCY
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.launching import FILE, MEMCACHED, Launch, last_line
from memlite.loadtest.limits import (
    ClientRefusedError,
    at_the_limit,
    too_many_clients,
)
from memlite.loadtest.places import HERE, Place, Started, started
from memlite.loadtest.resp import DIRECT
from memlite.loadtest.results import TargetInfo
from memlite.loadtest.server_options import Given, memcached_flags, server_flags
from memlite.loadtest.tls import tls_context
from memlite.loadtest.usage import Counted
from memlite.loadtest.valkey import valkey_server
from memlite.protocol import replies

__all__ = [
    "BACKEND_NAMES",
    "LaunchSettings",
    "LaunchedServer",
    "RunningServer",
    "Target",
    "largest_item",
    "parse_address",
    "parse_backend",
]

BACKEND_NAMES = ("memory", "file", "gcs", "valkey", MEMCACHED, DIRECT)
"""Backends selected by name alone, without a URL; memcached instead of memlite; and a store without
memlite."""

_STOP_SECONDS = 30.0
# Space for an item's overhead, so that values of a megabyte can be measured.
_ITEM_OVERHEAD = 4096
_VERSION_TIMEOUT = 5.0  # seconds
_BUCKET = "memlite-bench"
_KINDS = {"gs": "gcs", **dict.fromkeys(("valkeys", "redis", "rediss"), "valkey")}


class Target:
    """A server to measure; a context manager that makes it available.

    Attributes:
        name: its display name.
        kind: as in `TargetInfo`.
        address: host and port, or the path of a UNIX socket; valid inside the context.
        details: as in `TargetInfo`.
        connection_limit: maximum number of connections; None if the server does not report it.
        processes: the server's processes, if their CPU use can be read; valid inside the context.
        processes_by_name: for a cluster, its processes by name; valid inside the context.
        proxies: for a cluster whose requests pass proxies, the addresses of the proxies; valid
            inside the context.
        helpers: other local processes that the server depends on, such as an emulated bucket.
        extra_addresses: for a cluster with several proxies, the addresses of the other proxies,
            over which clients are spread as well.
        topology: the nodes, for clients that know them; None for clients of one server.
        discovers_nodes: whether clients ask the server at `address` for the nodes.
        login: the clients' credentials; None for no login.
        tls: TLS settings; None for plain TCP.
        dialect: the protocol that the server speaks.
    """

    login: TextLogin | None = None
    tls: TlsSettings | None = None
    dialect: Dialect = Dialect.MEMCACHED
    topology: Topology | None = None
    discovers_nodes: bool = False

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.address: tuple[str, int] | str = ("", 0)
        self.extra_addresses: tuple[tuple[str, int] | str, ...] = ()
        self.details: dict[str, str] = {}
        self.connection_limit: int | None = None
        self.processes: list[Counted] = []
        self.processes_by_name: dict[str, Counted] = {}
        self.proxies: list[tuple[str, int] | str] = []
        self.helpers: list[psutil.Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    @property
    def connections_per_client(self) -> int:
        """Number of connections per client."""
        return 1

    def info(self) -> TargetInfo:
        """Describe the target, after asking the server for its version.

        Raises:
            StartError: the server cannot be reached, or does not answer as expected.
        """
        text = str(addresses.Address.of(self.address))
        return TargetInfo(self.name, self.kind, text, self._version(), dict(self.details))

    def _version(self) -> str:
        try:
            reply = self._ask_version()
        except LoginRefusedError as error:
            raise StartError(f"bench: {self.name}: {error}") from None
        except OSError as error:
            text = str(addresses.Address.of(self.address))
            reason = error.strerror or "no answer"
            raise StartError(f"bench: {text}: {reason}") from None
        if reply.startswith(replies.TOO_MANY_CONNECTIONS):
            raise StartError(
                f"bench: {self.name} has reached its connection limit: start it with a "
                "higher -c, or disconnect other clients"
            )
        if reply.startswith(replies.UNAUTHENTICATED):
            raise StartError(
                f"bench: {self.name} requires a password: use --user and --password-file"
            )
        known = reply.startswith(b"VERSION ")
        if self.dialect is Dialect.LITE:
            if known:
                raise StartError(f"bench: {self.name} does not speak the lite dialect")
            return "memcached-lite"  # the lite dialect has no version command
        if not known:
            hint = " (--dialect lite?)" if reply.startswith(replies.ERROR) else ""
            raise StartError(f"bench: {self.name} does not speak memcached's protocol{hint}")
        return reply[8:100].decode("latin-1").strip()

    def _ask_version(self) -> bytes:
        if isinstance(self.address, str):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_VERSION_TIMEOUT)
            connection.connect(self.address)
        else:
            connection = socket.create_connection(self.address, _VERSION_TIMEOUT)
            if self.tls:
                connection = self._encrypt(connection, self.address[0], self.tls)
        with connection, connection.makefile("rb") as lines:
            if self.login is not None:
                connection.sendall(self.login.request)
                self.login.check(lines.readline(1000))
            connection.sendall(b"version\r\n")
            line = lines.readline(1000)
            if line.startswith(b"VERSION ") and self.dialect is not Dialect.LITE:
                self.connection_limit = _connection_limit(connection, lines)
        if not line:
            raise ConnectionResetError
        return line

    def _encrypt(self, connection: socket.socket, host: str, tls: TlsSettings) -> ssl.SSLSocket:
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            encrypted = tls_context(tls).wrap_socket(connection, server_hostname=host)
            stack.pop_all()
        cipher = encrypted.cipher()
        self.details["TLS"] = f"{encrypted.version()}, {cipher[0] if cipher else 'no cipher'}"
        return encrypted

    def check_clients(self, clients: int) -> None:
        """Check that the server accepts `clients` connections, if its limit is known.

        Raises:
            TooManyClientsError: the limit is lower.
        """
        if self.connection_limit is not None and clients > self.connection_limit:
            raise too_many_clients(self.name, clients, self.connection_limit)

    def refusal(self, error: ClientRefusedError, clients: int) -> StartError:
        """Return the error to report if one of `clients` clients could not connect."""
        if at_the_limit(error, clients, self.connection_limit):
            return too_many_clients(self.name, clients, self.connection_limit)
        return StartError(f"bench: {self.name}: {error.reason}")

    def check(self) -> None:
        """Check that a launched server is still running.

        Raises:
            StartError: the server has died.
        """


class RunningServer(Target):
    """A server that is already running.

    Args:
        name: its display name.
        address: host and port, or the path of a UNIX socket.
        login: see `Target`.
        tls: see `Target`.
        dialect: see `Target`.
    """

    def __init__(
        self,
        name: str,
        address: tuple[str, int] | str,
        *,
        login: TextLogin | None = None,
        tls: TlsSettings | None = None,
        dialect: Dialect = Dialect.MEMCACHED,
    ) -> None:
        super().__init__(name, "server")
        self.login = login
        self.dialect = dialect
        if dialect is Dialect.LITE:
            self.details["dialect"] = "lite"
        self.address = address
        self.tls = tls

    def __enter__(self) -> Self:
        if not isinstance(self.address, str):
            self.processes = _listening_processes(*self.address)
        return self


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """How servers are launched.

    Attributes:
        folder: the parent directory of temporary files.
        read_latency: read latency of the emulated bucket, in the syntax of ``memlite
            gcs-emulator``; empty for none.
        write_latency: its write latency, in the same syntax.
        connections: maximum number of connections to the server.
        memory: memory limit of the server, in megabytes.
        item_size: maximum size of an item, in bytes.
        options: additional server options.
    """

    folder: Path
    read_latency: str = READ_LATENCY
    write_latency: str = WRITE_LATENCY
    connections: int = 1024
    memory: int = 1024
    item_size: int = MEGABYTE
    options: tuple[Given, ...] = ()


def largest_item(value_size: int) -> int:
    """Return an `item_size` for values of `value_size` bytes, or a megabyte if that is larger."""
    return max(MEGABYTE, value_size) + _ITEM_OVERHEAD


class LaunchedServer(Target):
    """This version of memlite, or memcached, launched for the measurement and stopped on exit.

    Args:
        name: its display name.
        backend: one of `BACKEND_NAMES`, or a backend's URL.
        settings: how to launch it.
        place: the machine on which to launch it; an emulated bucket always runs on this machine.

    Raises:
        ConfigError: the server does not support the options.
    """

    def __init__(
        self, name: str, backend: str, settings: LaunchSettings, place: Place = HERE
    ) -> None:
        scheme = backend.partition(":")[0]
        super().__init__(name, _KINDS.get(scheme, scheme))
        self._backend = backend
        self._settings = settings
        self._place = place
        flags = memcached_flags if backend == MEMCACHED else server_flags
        # Checking options asks the local memcached, which may not be installed.
        self._flags = flags(settings.options) if settings.options or place is HERE else []
        self._stack = contextlib.ExitStack()
        self._server: Started | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            launch = Launch(
                self.name,
                tuple(self._flags),
                self._url(stack),
                connections=self._settings.connections,
                item_size=self._settings.item_size,
                memory=self._settings.memory,
            )
            self._server = stack.enter_context(started(self._place, launch, self._settings.folder))
            if self._backend == FILE:
                self.details["disk"] = self._server.disk
            self.address = self._server.address
            self.processes = [self._server.process]
            if self._flags:
                self.details["options"] = " ".join(self._flags)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _url(self, stack: contextlib.ExitStack) -> str:
        """Return the backend for a `Launch`, after starting the store or emulator that it needs."""
        if self._backend == "memory":
            return "memory://"
        if self._backend == FILE:
            self.details["durability"] = dict(self._settings.options).get("durability", "always")
            return FILE
        if self._backend == "valkey":
            folder = tempfile.TemporaryDirectory(dir=self._settings.folder, prefix=".")
            store = stack.enter_context(valkey_server(Path(stack.enter_context(folder))))
            self.helpers = [psutil.Process(store.pid)]
            self.details["store"] = f"{store.version} on this machine, without persistence"
            return store.url
        if self._backend != "gcs":
            if self._backend != MEMCACHED:
                self.details["url"] = self._backend
            return self._backend
        settings, options = self._settings, []
        for which, latency in (("read", settings.read_latency), ("write", settings.write_latency)):
            if latency:
                options.append(f"--{which}-latency={latency}")
            self.details[f"emulated {which} latency"] = latency or "none"
        emulator = stack.enter_context(_emulator(["--port", "0", "--bucket", _BUCKET, *options]))
        self.helpers = [psutil.Process(emulator.pid)]
        line = emulator.stdout.readline() if emulator.stdout else ""
        if not line:
            raise StartError(f"bench: {self.name}: {_emulator_message(emulator)}")
        self.details["bucket"] = "emulated on this machine"
        return f"gs://{_BUCKET}/bench?endpoint={line.split()[0]}"

    def check(self) -> None:
        """Check that the server is still running."""
        if self._server is not None:
            self._server.check()


@contextlib.contextmanager
def _emulator(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run the bucket emulator with these arguments, and terminate it on exit."""
    with tempfile.TemporaryFile("w+") as errors:
        emulator = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "memlite", "gcs-emulator", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # Its own session shields it from Ctrl-C: it must outlive the clients.
            start_new_session=True,
        )
        emulator.errors = errors  # type: ignore[attr-defined]
        with emulator:
            try:
                yield emulator
            finally:
                emulator.terminate()
                try:
                    emulator.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    emulator.kill()


def _emulator_message(emulator: subprocess.Popen[str]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        emulator.wait(1)
    errors = emulator.errors  # type: ignore[attr-defined]
    errors.seek(0)
    return last_line(errors.read())


def _listening_processes(host: str, port: int) -> list[Counted]:
    """Return the local process that listens on an address, and its children, as far as known."""
    try:
        local = {info[4][0] for info in socket.getaddrinfo(host, port)}
        ours = {one.address for each in psutil.net_if_addrs().values() for one in each}
        if not any(one in ours or str(one).startswith("127.") for one in local):
            return []  # a remote server
        local |= {"0.0.0.0", "::"}  # noqa: S104 - to compare with, not to bind to
        for one in psutil.net_connections("tcp"):
            listens = one.status == psutil.CONN_LISTEN and one.laddr.port == port
            if listens and one.pid and one.laddr.ip in local:
                process = psutil.Process(one.pid)
                this = psutil.Process()
                tester = {this, *this.children(recursive=True)}
                return [process, *(set(process.children(recursive=True)) - tester)]
    except (psutil.Error, OSError):
        pass
    return []


def _connection_limit(connection: socket.socket, lines: BinaryIO) -> int | None:
    """Return a server's connection limit; None if its statistics do not include it."""
    try:
        connection.sendall(b"stats\r\n")
        found = None
        while (line := lines.readline(1000)).startswith(b"STAT "):
            _, name, value, *_ = *line.split(), b""
            if name == b"max_connections" and value.isdigit():
                found = int(value)
    except OSError:
        return None
    return found


def parse_address(
    text: str,
    *,
    tls: TlsSettings | None = None,
    login: TextLogin | None = None,
    dialect: Dialect = Dialect.MEMCACHED,
) -> RunningServer:
    """Parse ``HOST:PORT`` or the path of a UNIX socket, optionally followed by ``=NAME``.

    Args:
        text: the text to parse.
        login: the clients' credentials; None for no login.
        tls: TLS settings; None for plain TCP.
        dialect: the protocol that the server speaks.

    Raises:
        ConfigError: the text is malformed, or TLS was requested for a UNIX socket.
    """
    address, _, name = text.partition("=")
    if address.startswith("/"):
        if tls:
            raise ConfigError(f"bench: --tls cannot be combined with a UNIX socket: {address}")
        return RunningServer(name or address, address, login=login, dialect=dialect)
    try:
        where = addresses.parse_address(address, default_port=None)
        if where.path:
            raise ConfigError("a path")
    except ConfigError:
        raise ConfigError(
            f"bench: --target must be HOST:PORT or HOST:PORT=name, not {text!r}"
        ) from None
    return RunningServer(
        name or address, (where.host, where.port), login=login, tls=tls, dialect=dialect
    )


def parse_backend(text: str, settings: LaunchSettings) -> LaunchedServer:
    """Parse one of `BACKEND_NAMES`, optionally followed by ``=NAME``, or a backend's URL.

    Raises:
        ConfigError: the text is malformed.
    """
    backend, _, name = text.partition("=") if "://" not in text else (text, "", "")
    if backend not in BACKEND_NAMES and "://" not in backend:
        raise ConfigError(
            f"bench: --backends: unknown backend {backend!r}: use {', '.join(BACKEND_NAMES)} or a "
            "URL such as gs://bucket/prefix"
        )
    return LaunchedServer(name or backend, backend, settings)
