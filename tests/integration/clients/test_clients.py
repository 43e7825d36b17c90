"""Real client libraries, over TCP and UNIX sockets, on both event loops."""

import asyncio
import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheServerError

from tests.support.servers import RunningServer, running


@pytest.fixture(
    scope="module",
    params=[("memlite", False), ("memlite", True), ("memlite-asyncio", False),
            ("memlite-asyncio", True)],
    ids=["uvloop-tcp", "uvloop-unix", "asyncio-tcp", "asyncio-unix"],
)  # fmt: skip
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    kind, unix = request.param
    with running(kind, unix=unix) as server:
        yield server


def test_pymemcache(server: RunningServer) -> None:
    address = server.path or ("127.0.0.1", server.port)
    with contextlib.closing(Client(address, timeout=60)) as client:
        assert client.flush_all()
        assert client.set("greeting", b"hello", noreply=False)
        assert client.get("greeting") == b"hello"
        assert client.get("nothing") is None
        assert client.add("greeting", b"x", noreply=False) is False
        assert client.replace("greeting", b"hi", noreply=False)
        assert client.append("greeting", b"!", noreply=False)
        assert client.prepend("greeting", b">", noreply=False)
        value, unique = client.gets("greeting")
        assert value == b">hi!"
        assert client.cas("greeting", b"new", unique) is True
        assert client.cas("greeting", b"newer", unique) is False
        assert client.cas("nothing", b"newer", unique) is None
        assert client.set_many({"a": b"1", "b": b"2"}, noreply=False) == []
        assert client.get_many(["a", "b", "c"]) == {"a": b"1", "b": b"2"}
        assert set(client.gets_many(["a", "b"])) == {"a", "b"}
        assert client.incr("a", 41) == 42
        assert client.decr("a", 2) == 40
        assert client.incr("nothing", 1) is None
        assert client.touch("a", 100, noreply=False)
        assert client.delete("a", noreply=False)
        assert client.delete("a", noreply=False) is False
        # Without noreply=False, these calls request no reply; later replies must not be shifted.
        client.set("silent", b"1")
        client.touch("silent", 5)
        client.delete("silent")
        assert client.get("silent") is None
        assert client.version() == client.stats()[b"version"]
        assert client.stats("settings")[b"item_size_max"] == 1024 * 1024
        assert client.cache_memlimit(64)
        client.quit()


def test_pymemcache_with_values_of_a_megabyte(server: RunningServer) -> None:
    address = server.path or ("127.0.0.1", server.port)
    with contextlib.closing(Client(address, timeout=60)) as client:
        value = bytes(range(256)) * 4000
        assert client.set("big", value, noreply=False)
        assert client.get("big") == value
        with pytest.raises(MemcacheServerError, match="object too large"):
            client.set("big", b"x" * 1_100_000, noreply=False)
        assert client.get("big") is None


def test_pymemcache_pool_and_hash_clients(server: RunningServer) -> None:
    address = server.path or ("127.0.0.1", server.port)
    with contextlib.closing(PooledClient(address, max_pool_size=4, timeout=60)) as pool:
        assert pool.set("pooled", b"1", noreply=False)
        assert pool.get("pooled") == b"1"
    with contextlib.closing(HashClient([address], timeout=60)) as client:
        assert client.set_many({f"k{n}": b"%d" % n for n in range(100)}, noreply=False) == []
        assert len(client.get_many([f"k{n}" for n in range(100)])) == 100


def test_python_memcached(server: RunningServer) -> None:
    memcache = pytest.importorskip("memcache")
    address = f"unix:{server.path}" if server.path else f"127.0.0.1:{server.port}"
    client = memcache.Client([address], socket_timeout=60, cache_cas=True)
    assert client.flush_all() is None
    assert client.set("name", "value")
    assert client.get("name") == "value"
    assert client.set("object", {"pickled": [1, 2]})
    assert client.get("object") == {"pickled": [1, 2]}
    assert client.set("long", "x" * 5000, min_compress_len=100)
    assert client.get("long") == "x" * 5000
    assert client.add("name", "other") == 0
    assert client.replace("name", "other")
    assert client.append("name", "!")
    assert client.get_multi(["name", "object", "nothing"]) == {
        "name": "other!",
        "object": {"pickled": [1, 2]},
    }
    assert client.gets("name") == "other!"
    assert client.cas("name", "again")
    assert client.set("count", 10)
    assert client.incr("count") == 11
    assert client.decr("count", 11) == 0
    assert client.touch("count", 100)
    assert client.delete("count")
    assert client.get_stats()
    client.disconnect_all()


def test_pylibmc(server: RunningServer) -> None:
    pylibmc = pytest.importorskip("pylibmc", reason="pylibmc is not installed, see .ci/run")
    address = server.path or f"127.0.0.1:{server.port}"
    client = pylibmc.Client([address], binary=False, behaviors={"cas": True})
    assert client.flush_all()
    assert client.set("name", "value")
    assert client.get("name") == "value"
    assert client.set_multi({"a": 1, "b": 2}) == []
    assert client.get_multi(["a", "b", "c"]) == {"a": 1, "b": 2}
    value, unique = client.gets("name")
    assert client.cas("name", value + "!", unique)
    assert client.incr("a") == 2
    assert client.delete("a")
    assert client.get_stats()
    client.disconnect_all()


def test_aiomcache(server: RunningServer) -> None:
    if server.path:
        pytest.skip("aiomcache supports only hosts and ports")
    aiomcache = pytest.importorskip("aiomcache")

    async def talk() -> None:
        client = aiomcache.Client("127.0.0.1", server.port, pool_size=4)
        assert await client.flush_all() is None
        assert await client.set(b"name", b"value", exptime=100)
        assert await client.get(b"name") == b"value"
        value, unique = await client.gets(b"name")
        assert await client.cas(b"name", value + b"!", unique)
        assert not await client.add(b"name", b"x")
        assert await client.append(b"name", b"?")
        assert await client.multi_get(b"name", b"nothing") == (b"value!?", None)
        assert await client.set(b"count", b"1")
        assert await client.incr(b"count", 5) == 6
        assert await client.touch(b"count", 10)
        assert await client.delete(b"count")
        # The commands of many tasks share four connections.
        await asyncio.gather(*(client.set(b"k%d" % n, b"%d" % n) for n in range(200)))
        values = await asyncio.gather(*(client.get(b"k%d" % n) for n in range(200)))
        assert values == [b"%d" % n for n in range(200)]
        assert (await client.stats())[b"curr_items"]
        await client.close()

    asyncio.run(talk())


def test_pylibmc_with_the_binary_protocol(server: RunningServer) -> None:
    pylibmc = pytest.importorskip("pylibmc", reason="pylibmc is not installed, see .ci/run")
    address = server.path or f"127.0.0.1:{server.port}"
    client = pylibmc.Client([address], binary=True, behaviors={"cas": True})
    assert client.flush_all()
    assert client.set("name", "value", time=100)
    assert client.get("name") == "value"
    assert client.get("nothing") is None
    assert not client.add("name", "other")
    assert client.replace("name", "value")
    assert client.set_multi({"a": 1, "b": 2}) == []
    assert client.get_multi(["a", "b", "c"]) == {"a": 1, "b": 2}
    value, unique = client.gets("name")
    assert client.cas("name", value + "!", unique)
    assert not client.cas("name", "late", unique)
    assert client.append("name", "?")
    assert client.prepend("name", "¿")
    assert client.get("name") == "¿value!?"
    assert client.incr("a") == 2
    assert client.decr("a", 5) == 0
    assert client.touch("b", 100)
    large = "x" * 900_000
    assert client.set("large", large)
    assert client.get("large") == large
    assert client.delete("a")
    assert not client.delete("a")
    assert client.get_stats()[0][1]["pid"]
    client.disconnect_all()


def test_python_binary_memcached(server: RunningServer) -> None:
    bmemcached = pytest.importorskip("bmemcached")
    address = server.path or f"127.0.0.1:{server.port}"
    client = bmemcached.Client([address], socket_timeout=60)
    assert client.flush_all()
    assert client.set("name", "value", time=100)
    assert client.get("name") == "value"
    assert client.get("nothing") is None
    assert not client.add("name", "other")
    value, unique = client.gets("name")
    assert client.cas("name", value + "!", unique)
    assert not client.cas("name", "late", unique)
    assert client.set("object", {"pickled": [1, 2]})
    assert client.get("object") == {"pickled": [1, 2]}
    assert client.set("long", "x" * 5000)
    assert client.get("long") == "x" * 5000
    many = {f"k{index}": str(index) for index in range(300)}
    assert client.set_multi(many) == []
    assert client.get_multi([*many, "nothing"]) == many
    assert client.delete_multi(list(many))
    assert client.incr("count", 5, default=10) == 10
    assert client.incr("count", 5) == 15
    assert client.decr("count", 20) == 0
    assert client.delete("name")
    assert client.get("name") is None
    assert next(iter(client.stats().values()))["curr_items"]
    client.disconnect_all()


def libmemcached(*programs: str) -> str:
    """Return the first of the programs that is installed, or skip the test."""
    found = next(filter(None, map(shutil.which, programs)), None)
    if found is None:
        pytest.skip(f"{programs[0]} is not installed (apt install libmemcached-tools)")
    return found


def test_libmemcached_conformance(server: RunningServer) -> None:
    """Run libmemcached's conformance tests of the text and the binary protocol."""
    if server.path:
        pytest.skip("memccapable supports only hosts and ports")
    program = libmemcached("memccapable", "memcapable")
    command = [program, "-h", "127.0.0.1", "-p", str(server.port), "-t", "10"]
    # Results of failed tests are written to stderr, and their names to stdout.
    run = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    failed = re.findall(r"^(.+?) +\[FAIL\]$", run.stdout, re.MULTILINE)
    assert failed == ["ascii delete", "ascii delete noreply"], run.stdout  # as with memcached
    assert run.stdout.count("[pass]") == 52


@pytest.mark.parametrize("names", [("memcstat", "memstat"), ("memcping", "memping")])
def test_libmemcached_accepts_the_version(server: RunningServer, names: tuple[str, str]) -> None:
    """libmemcached asks for the version first, and refuses a major version of 0."""
    if server.path:
        pytest.skip("one address is enough")
    command = [libmemcached(*names), f"--servers=127.0.0.1:{server.port}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
