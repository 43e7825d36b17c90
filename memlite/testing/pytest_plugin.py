"""Fixtures for tests against a real server, found by pytest wherever memlite is installed.

`memlite_server` is a server process for the test session, on a free port. `memlite` is the same
server, emptied before each test, with a client. ``docs/how-to/test-against-memlite.md`` is about
them.

Every run of pytest imports this module, so the fixtures import their dependencies on use.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import ssl

    from memlite.testing.process import ServerProcess, TlsFiles

__all__ = ["Memlite", "memlite", "memlite_server", "pytest_addoption"]

_BACKEND = "URL of the backend; {tmp} stands for a temporary folder (default: memory)"
_ARGS = "additional arguments for the server's command line"
_CERT = "the server's certificate chain (PEM); enables TLS"
_KEY = "the certificate's private key (PEM; default: in the same file)"
_CA = "CA certificate that clients trust (PEM; default: the server's own)"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and those of the configuration file."""
    group = parser.getgroup("memlite", "memlite: a cache server for tests")
    for name, text in (
        ("backend", _BACKEND),
        ("tls-cert", _CERT),
        ("tls-key", _KEY),
        ("tls-ca", _CA),
    ):
        group.addoption(f"--memlite-{name}", metavar="TEXT", help=text)
        parser.addini(f"memlite_{name.replace('-', '_')}", text)
    group.addoption("--memlite-args", metavar="TEXT", help=f"{_ARGS}, after those of the file")
    parser.addini("memlite_args", _ARGS, type="args")


class Memlite:
    """A server for one test, empty at its start.

    Attributes:
        host: its host.
        port: its TCP port.
        tls: an SSL context for clients; None without TLS.
    """

    def __init__(self, server: "ServerProcess") -> None:
        self.host = server.host
        self.port = server.port
        self.tls: ssl.SSLContext | None = server.tls
        self._server = server
        self._client: Any = None
        self._advanced = 0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    @property
    def client(self) -> Any:
        """A `pymemcache.client.base.Client`, created on first use.

        It waits for the reply to each command, as other connections must see its writes.
        """
        if self._client is None:
            try:
                from pymemcache.client.base import Client
            except ModuleNotFoundError:
                pytest.fail(
                    "memlite.client needs pymemcache: pip install pymemcache", pytrace=False
                )
            self._client = Client(self.address, default_noreply=False, tls_context=self.tls)
        return self._client

    def flush(self) -> None:
        """Remove all items."""
        self._command("flush_all")

    def advance(self, seconds: int) -> None:
        """Move the server's clock forward until the test ends: items expire without waiting."""
        self._command(f"debugtime {seconds}")
        self._advanced += seconds

    def close(self) -> None:
        """Close the client, and reset the clock."""
        if self._client is not None:
            self._client.close()
        if self._advanced:
            self.advance(-self._advanced)

    def _command(self, line: str) -> None:
        try:
            with self._server.connect() as sock:
                sock.sendall(f"{line}\r\n".encode())
                reply = sock.recv(1000)
        except OSError as error:
            output = self._server.output
            pytest.fail(f"memlite: {line}: {error}\n{output}".rstrip(), pytrace=False)
        if reply != b"OK\r\n":
            text = reply.decode("latin-1").strip() or "connection closed"
            pytest.fail(f"memlite: {line}: {text}", pytrace=False)


@pytest.fixture(scope="session")
def memlite_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[ServerProcess]":
    """A memcached-compatible server for the whole session: host, port, address."""
    from memlite.testing.process import server

    backend = _setting(pytestconfig, "backend")
    if "{tmp}" in backend:
        backend = backend.replace("{tmp}", str(tmp_path_factory.mktemp("memlite")))
    arguments = [
        *pytestconfig.getini("memlite_args"),
        *shlex.split(pytestconfig.getoption("--memlite-args") or ""),
    ]
    with server(
        *arguments, backend=backend or None, debug_commands=True, tls=_tls(pytestconfig)
    ) as running:
        yield running


@pytest.fixture
def memlite(memlite_server: "ServerProcess") -> Iterator[Memlite]:
    """The session's server, without items: host, port, address, client."""
    cache = Memlite(memlite_server)
    cache.flush()
    yield cache
    cache.close()


def _setting(config: pytest.Config, name: str) -> str:
    value = config.getoption(f"--memlite-{name}")
    return str(value or config.getini(f"memlite_{name.replace('-', '_')}") or "")


def _tls(config: pytest.Config) -> "TlsFiles | None":
    from memlite.testing.process import TlsFiles

    cert, key, ca = (_file(config, f"tls-{name}") for name in ("cert", "key", "ca"))
    return TlsFiles(cert, key or cert, ca) if cert else None


def _file(config: pytest.Config, name: str) -> Path | None:
    """Return the file a setting names; relative paths are from pytest's root directory."""
    value = _setting(config, name)
    return config.rootpath / value if value else None
