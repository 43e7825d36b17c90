"""emcache, an asyncio client with pools and clusters, on every backend and on memcached."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.certificates import Authority, client_context
from tests.support.servers import RunningServer, running

emcache = pytest.importorskip("emcache", reason="emcache has no wheel for this Python")


@contextlib.asynccontextmanager
async def connected(server: RunningServer, **options: object) -> AsyncIterator["emcache.Client"]:
    address = (
        emcache.MemcachedUnixSocketPath(server.path)
        if server.path
        else emcache.MemcachedHostAddress("127.0.0.1", server.port)
    )
    client = await emcache.create_client([address], timeout=60, connection_timeout=60, **options)
    try:
        yield client
    finally:
        await client.close()


async def test_commands(server: RunningServer) -> None:
    address = emcache.MemcachedHostAddress("127.0.0.1", server.port)
    async with connected(server) as client:
        await client.flush_all(address)
        assert await client.get(b"nothing") is None
        await client.set(b"key", b"value", flags=7, exptime=100)
        item = await client.get(b"key", return_flags=True)
        assert (item.value, item.flags) == (b"value", 7)
        with pytest.raises(emcache.NotStoredStorageCommandError):
            await client.add(b"key", b"other")
        with pytest.raises(emcache.NotStoredStorageCommandError):
            await client.replace(b"nothing", b"other")
        await client.append(b"key", b"!")
        await client.prepend(b"key", b">")
        item = await client.gets(b"key")
        assert item.value == b">value!"
        await client.cas(b"key", b"swapped", item.cas)
        with pytest.raises(emcache.StorageCommandError):
            await client.cas(b"key", b"late", item.cas)
        await client.set(b"count", b"10")
        assert await client.increment(b"count", 5) == 15
        assert await client.decrement(b"count", 100) == 0
        with pytest.raises(emcache.NotFoundCommandError):
            await client.increment(b"nothing", 1)
        await client.touch(b"key", 50)
        assert (await client.gat(100, b"key")).value == b"swapped"
        assert (await client.gats(-1, b"key")).cas
        assert await client.get(b"key") is None
        with pytest.raises(emcache.NotFoundCommandError):
            await client.touch(b"key", 50)
        with pytest.raises(emcache.NotFoundCommandError):
            await client.delete(b"key")
        assert "." in await client.version(address)


async def test_many_keys(server: RunningServer) -> None:
    # A single connection ensures that values stored without a reply are stored before the reads.
    async with connected(server, max_connections=1) as client:
        keys = [b"many-%d" % number for number in range(300)]
        for key in keys:
            await client.set(key, key, noreply=True)
        await client.set(b"last", b"1")  # the reply implies that the values above are stored
        for found in (
            await client.get_many([*keys, b"nothing"]),
            await client.gets_many([*keys, b"nothing"]),
            await client.gat_many(100, [*keys, b"nothing"]),
            await client.gats_many(100, [*keys, b"nothing"]),
        ):
            assert {key: item.value for key, item in found.items()} == {key: key for key in keys}


async def test_tasks_that_share_connections(server: RunningServer) -> None:
    large = bytes(range(256)) * 3500
    async with connected(server, max_connections=4, autobatching=True) as client:
        keys = [b"task-%d" % number for number in range(500)]
        await asyncio.gather(*(client.set(key, key) for key in keys))
        items = await asyncio.gather(*(client.get(key) for key in keys))
        assert [item.value for item in items] == keys
        await asyncio.gather(*(client.set(b"large-%d" % number, large) for number in range(8)))
        found = await client.get_many([b"large-%d" % number for number in range(8)])
        assert [item.value for item in found.values()] == [large] * 8


async def test_values_that_are_too_large(server: RunningServer) -> None:
    async with connected(server) as client:
        with pytest.raises(emcache.StorageCommandError, match="too large"):
            await client.set(b"key", b"x" * 1_100_000)
        assert await client.get(b"key") is None


async def test_a_unix_socket() -> None:
    with running("memlite", unix=True) as server:
        async with connected(server) as client:
            await client.set(b"key", b"value")
            assert (await client.get(b"key")).value == b"value"


# Run in a separate process: emcache creates TLS contexts in a deprecated way, and does not close a
# refused connection.
_LOGIN = """
import asyncio, emcache, sys
from emcache.client_errors import AuthenticationError

async def login(password):
    client = await emcache.create_client(
        [emcache.MemcachedHostAddress("127.0.0.1", int(sys.argv[1]))],
        ssl=True, ssl_extra_ca=sys.argv[2], username="web", password=password,
        timeout=60, connection_timeout=60,
    )
    await client.set(b"key", b"value")
    assert (await client.get(b"key")).value == b"value"
    await client.close()

asyncio.run(login("secret"))
try:
    asyncio.run(login("wrong"))
except AuthenticationError as error:
    assert "authentication failure" in str(error), error
else:
    raise AssertionError("a wrong password was accepted")
"""


def test_over_tls_with_a_password(start: Callable[..., RunningServer], tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("server")
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("web:secret\n")
    server = start("-Y", str(users), *certificate.flags, tls=client_context(certificate.ca))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOGIN, str(server.port), str(certificate.ca)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
