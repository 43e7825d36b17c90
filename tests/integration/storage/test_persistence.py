"""Store with a real client, restart the server, and read with a real client."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymemcache.client.base import Client

from tests.support.paths import BACKEND_PACKAGE
from tests.support.servers import RunningServer, running


@pytest.fixture
def url(scheme: str, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a store, which is the same for the whole test."""
    if scheme == "gs":
        pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
        from memlite.testing.gcs_emulator import emulator_thread

        with emulator_thread(["bucket"]) as emulator:
            yield f"gs://bucket/prefix?endpoint={emulator.url}"
    else:
        yield f"{scheme}://{tmp_path}/cache"


@contextlib.contextmanager
def serving(url: str, *arguments: str) -> Iterator[tuple[RunningServer, Client]]:
    environment = {"PYTHONPATH": str(BACKEND_PACKAGE)} if url.startswith("sqlite:") else {}
    with running("memlite", "--backend", url, *arguments, environment=environment) as server:
        client = Client(("127.0.0.1", server.port), timeout=60, default_noreply=False)
        yield server, client
        client.close()


NEAR = ("--near-cache", "8m")
ENDS = {
    "stopped": ((), signal.SIGTERM),
    "killed": ((), signal.SIGKILL),
    "near-stopped": (NEAR, signal.SIGTERM),
    "near-killed": (NEAR, signal.SIGKILL),
}
# Only the file's backend has something to write when a server stops, and a near cache never has.
FAST = {("file", "stopped"), ("file", "killed"), ("file", "near-killed"), ("sqlite", "killed")}


@pytest.mark.parametrize(
    ("scheme", "near", "number"),
    [
        pytest.param(
            scheme,
            *how,
            marks=[] if (scheme, end) in FAST else [pytest.mark.slow],
            id=f"{scheme}-{end}",
        )
        for scheme in ("file", "gs", "sqlite")
        for end, how in ENDS.items()
    ],
)
def test_stored_items_are_there_after_a_restart(
    url: str, near: tuple[str, ...], number: int
) -> None:
    large = bytes(range(256)) * 2000
    with serving(url, *near) as (server, client):
        assert client.set("text", "größe".encode(), expire=1000)
        assert client.set("bytes", large, flags=7)
        assert client.set_many({f"key{number}": str(number) for number in range(50)}) == []
        assert client.incr("key7", 100) == 107
        assert client.append("text", b"!")
        assert client.delete("key8")
        _, unique = client.gets("key9")
        assert client.cas("key9", "changed", unique)
        assert client.add("new", "1")
        assert not client.add("new", "2")
        assert client.replace("new", "3")
        assert client.touch("new", 500)
        server.stop(number)
    with serving(url, *near) as (server, client):
        assert client.get("text") == "größe!".encode()
        assert client.get("bytes") == large
        found = client.get_many([f"key{number}" for number in range(50)] + ["new"])
        expected = {f"key{number}": b"%d" % number for number in range(50)}
        expected |= {"key7": b"107", "key9": b"changed", "new": b"3"}
        del expected["key8"]
        assert found == expected
        assert client.flush_all()
        server.stop(number)
    with serving(url, *near) as (_, client):
        assert client.get_many(list(expected)) == {}
