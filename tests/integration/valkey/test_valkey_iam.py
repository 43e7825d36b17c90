"""Access tokens instead of a password, from a metadata server on this machine."""

import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import Backend, Record
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import ValkeyBackend, parse_options
from memlite.core.errors import ConfigError, StartError
from tests.support.certificates import Authority
from tests.support.ports import unused_port
from tests.support.stores import has_tls, store

needs_tls = pytest.mark.skipif(
    not has_tls(), reason="the store was built without TLS, or there is none"
)
PATH = "/computeMetadata/v1/instance/service-accounts/default/token"


class Metadata(ThreadingHTTPServer):
    """Hands out `token`, and counts the requests."""

    token = "first"
    seconds = 3600
    asked = 0

    @property
    def environment(self) -> dict[str, str]:
        return {"GCE_METADATA_HOST": f"127.0.0.1:{self.server_port}"}


class Handler(BaseHTTPRequestHandler):
    server: Metadata

    def do_GET(self) -> None:
        known = self.path == PATH and self.headers["Metadata-Flavor"] == "Google"
        self.server.asked += known
        self.send_response(200 if known else 403)
        self.end_headers()
        found = {"access_token": self.server.token, "expires_in": self.server.seconds}
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextlib.asynccontextmanager
async def opened(url: str, metadata: Metadata) -> AsyncIterator[Backend]:
    backend = ValkeyBackend(parse_options(parse_url(url), metadata.environment), Context())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@contextlib.contextmanager
def protected(folder: Path, token: str) -> Iterator[tuple[str, str]]:
    """Run a store whose password is a token; yield its URL with the option, and a plain one."""
    authority = Authority(folder)
    made = authority.issue("server")
    port = unused_port()
    files = {"cert": made.cert, "key": made.key, "ca-cert": authority.path}
    options = [text for kind, file in files.items() for text in (f"--tls-{kind}-file", str(file))]
    options += ["--tls-port", str(port), "--tls-auth-clients", "no", "--requirepass", token]
    with store(*options) as one:
        url = f"valkeys://127.0.0.1:{port}/p?ca_cert={authority.path}&iam=1"
        yield url, f"valkey://127.0.0.1:{one.port}/p"


@needs_tls
async def test_connections_share_a_token(tmp_path: Path, metadata: Metadata) -> None:
    with protected(tmp_path, "first") as (url, _):
        async with opened(url, metadata) as one:
            await one.put(Record(b"k", b"v"))
            found = await one.get_many([b"k"] * 200)  # over several connections
            assert {record and record.value for record in found} == {b"v"}
        assert metadata.asked == 1


@needs_tls
async def test_a_new_connection_gets_the_current_token(tmp_path: Path, metadata: Metadata) -> None:
    metadata.seconds = 60  # soon
    with protected(tmp_path, "first") as (url, plain):
        async with opened(url, metadata) as one:
            await one.put(Record(b"k", b"v"))
            metadata.token = "second"
            admin = ValkeyBackend(
                parse_options(parse_url(plain), {"MEMLITE_VALKEY_PASSWORD": "first"}), Context()
            )
            await admin.open()
            node = admin._topology.seed
            assert await node.send(("CONFIG", "SET", "requirepass", "second")) == b"OK"
            await node.send(("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
            await admin.close()
            record = await one.get(b"k")
            assert record is not None
            assert record.value == b"v"
        assert metadata.asked > 1


@needs_tls
async def test_a_token_that_is_refused(tmp_path: Path, metadata: Metadata) -> None:
    with protected(tmp_path, "other") as (url, _):
        backend = ValkeyBackend(parse_options(parse_url(url), metadata.environment), Context())
        with pytest.raises(StartError, match=r"the access token was rejected; .*dbConnectionUser"):
            await backend.open()


@needs_tls
async def test_without_a_metadata_server(tmp_path: Path) -> None:
    with protected(tmp_path, "first") as (url, _):
        where = {"GCE_METADATA_HOST": f"127.0.0.1:{unused_port()}"}
        backend = ValkeyBackend(parse_options(parse_url(url), where), Context())
        with pytest.raises(StartError, match="access token from the metadata server at 127"):
            await backend.open()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("valkey://h/p?iam=1", "iam requires valkeys://"),
        ("valkeys://h/p?iam=1&password_file=x", "iam cannot be combined with password_file"),
        ("valkeys://h/p?iam=2", "iam must be 0 or 1"),
    ],
)
def test_wrong_options(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_options(parse_url(url), {})
