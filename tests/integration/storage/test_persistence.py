"""Store with a real client, restart the server, and read with a real client."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymemcache.client.base import Client

from tests.support.paths import BACKEND_PACKAGE
from tests.support.servers import RunningServer, running


@pytest.fixture(params=["file", "gs", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a store, which is the same for the whole test."""
    if request.param == "gs":
        pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
        from memlite.testing.gcs_emulator import emulator_thread

        with emulator_thread(["bucket"]) as emulator:
            yield f"gs://bucket/prefix?endpoint={emulator.url}"
    else:
        yield f"{request.param}://{tmp_path}/cache"


@contextlib.contextmanager
def serving(url: str, *arguments: str) -> Iterator[tuple[RunningServer, Client]]:
    environment = {"PYTHONPATH": str(BACKEND_PACKAGE)}
    with running("memlite", "--backend", url, *arguments, environment=environment) as server:
        client = Client(("127.0.0.1", server.port), timeout=10, default_noreply=False)
        yield server, client
        client.close()


# A near cache has nothing to write when a server stops, so a kill shows the same of it.
@pytest.mark.parametrize(
    ("near", "number"),
    [
        ((), signal.SIGTERM),
        ((), signal.SIGKILL),
        pytest.param(("--near-cache", "8m"), signal.SIGTERM, marks=pytest.mark.slow),
        (("--near-cache", "8m"), signal.SIGKILL),
    ],
    ids=["stopped", "killed", "near-stopped", "near-killed"],
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
