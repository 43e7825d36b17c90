"""meta-memcache, which uses only the meta protocol, on every backend and on memcached."""

import concurrent.futures
import contextlib
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("meta_memcache", reason="meta-memcache has no wheel for this Python")
from meta_memcache import (
    CacheApi,
    CacheClient,
    ConnectionPool,
    Key,
    LeasePolicy,
    MemcacheServerError,
    RecachePolicy,
    ServerAddress,
    SetMode,
    StalePolicy,
)

from tests.support.servers import RunningServer

Connect = Callable[..., CacheApi]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that creates clients; close their sockets, which clients cannot do."""
    with contextlib.ExitStack() as stack:

        def connect(server: RunningServer, password: str | None = None) -> CacheApi:
            def sock() -> socket.socket:
                wire = stack.enter_context(server.connect())
                if password is not None:
                    token = f"web {password}".encode()
                    reply = wire.ask(b"set login 0 0 %d\r\n%b\r\n" % (len(token), token))
                    if reply != b"STORED\r\n":
                        raise ConnectionError(reply)
                return wire.sock

            def pool(address: ServerAddress) -> ConnectionPool:
                return ConnectionPool(str(address), sock, initial_pool_size=1, max_pool_size=2)

            return CacheClient.cache_client_from_servers([ServerAddress("127.0.0.1", 0)], pool)

        yield connect


@pytest.fixture
def client(connect: Connect, server: RunningServer) -> CacheApi:
    assert server.ask(b"flush_all\r\n") == b"OK\r\n"
    return connect(server)


def test_values(client: CacheApi) -> None:
    assert client.get("nothing") is None
    for value in (
        "text",
        b"bytes",
        42,
        {"pickled": [1, 2]},
        "x" * 50_000,
        bytes(range(256)) * 3000,
    ):
        assert client.set("key", value, ttl=100)
        assert client.get("key") == value
    assert client.set("key", "silent", ttl=100, no_reply=True)
    assert client.get("key") == "silent"
    assert client.get_typed("key", str) == "silent"
    with pytest.raises(MemcacheServerError):
        client.set("key", random.randbytes(1_100_000), ttl=100)  # not to be compressed
    assert client.get("key") is None


def test_modes_of_storage_commands(client: CacheApi) -> None:
    assert not client.set("key", "one", ttl=100, set_mode=SetMode.REPLACE)
    assert not client.set("key", "one", ttl=100, set_mode=SetMode.APPEND)
    assert client.set("key", "one", ttl=100, set_mode=SetMode.ADD)
    assert not client.set("key", "two", ttl=100, set_mode=SetMode.ADD)
    assert not client.refill("key", "two", ttl=100)
    assert client.set("key", "!", ttl=100, set_mode=SetMode.APPEND)
    assert client.set("key", ">", ttl=100, set_mode=SetMode.PREPEND)
    assert client.get("key") == ">one!"
    assert client.set("key", "two", ttl=100, set_mode=SetMode.REPLACE)
    assert client.get("key") == "two"


def test_cas(client: CacheApi) -> None:
    unique = client.set_cas("key", "one", ttl=100)
    assert unique
    assert client.get_cas("key") == ("one", unique)
    assert client.set("key", "two", ttl=100, cas_token=unique)
    assert not client.set("key", "three", ttl=100, cas_token=unique)
    assert not client.delete("key", cas_token=unique)
    value, unique = client.get_cas("key")
    assert value == "two"
    assert client.delete("key", cas_token=unique)
    assert client.get_cas("key") == (None, None)


def test_touch_and_delete(client: CacheApi) -> None:
    assert not client.touch("key", ttl=100)
    assert client.set("key", "value", ttl=100)
    assert client.touch("key", ttl=50)
    assert client.get("key", touch_ttl=200) == "value"
    assert client.touch("key", ttl=int(time.time()) - 100)
    assert client.get("key") is None
    assert client.set("key", "value", ttl=100)
    assert client.delete("key")
    assert not client.delete("key")
    assert client.invalidate("key")


def test_counters(client: CacheApi) -> None:
    assert not client.delta("count", 1)
    assert client.delta_and_get("count", 1) is None
    assert client.delta_initialize_and_get("count", 5, initial_value=10, initial_ttl=100) == 10
    assert client.delta_initialize_and_get("count", 5, initial_value=10, initial_ttl=100) == 15
    assert client.delta_and_get("count", -3, refresh_ttl=100) == 12
    assert client.delta_and_get("count", -100) == 0
    assert client.delta("count", 7)
    assert client.delta_and_get("count", 0) == 7


@pytest.mark.parametrize("name", ["with a space", "schlüssel", "鍵" * 30, "x" * 250])
def test_keys_in_base64(client: CacheApi, name: str) -> None:
    """These keys are not valid in other protocols; meta-memcache sends base64 or a digest."""
    assert client.set(name, name, ttl=100)
    assert client.get(name) == name
    assert client.multi_get([name, "nothing"]) == {Key(name): name, Key("nothing"): None}
    assert client.delete(name)
    assert client.get(name) is None


def test_many_at_once(client: CacheApi) -> None:
    names = [f"key {number}" if number % 3 else f"key-{number}" for number in range(500)]
    for name in names:
        assert client.set(name, name, ttl=100, no_reply=True)
    expected: dict[Key, str | None] = {Key(name): name for name in names}
    assert client.multi_get([*names, "nothing"]) == {**expected, Key("nothing"): None}
    found = client.multi_get_cas(names)
    assert {key: value for key, (value, _) in found.items()} == expected
    assert len({unique for _, unique in found.values()}) == len(names)


def test_one_client_recaches_an_item_before_it_expires(client: CacheApi) -> None:
    """One client gets a miss and recreates the value; the other clients get the old value."""
    policy = RecachePolicy(ttl=30)
    assert client.set("key", "old", ttl=20)
    answers = [client.get("key", recache_policy=policy) for _ in range(5)]
    assert answers == [None, "old", "old", "old", "old"]
    assert client.set("key", "new", ttl=100)
    assert [client.get("key", recache_policy=policy) for _ in range(3)] == ["new"] * 3


def test_one_of_many_concurrent_clients_recaches(
    connect: Connect, server: RunningServer, client: CacheApi
) -> None:
    assert client.set("key", "old", ttl=20)
    clients = [connect(server) for _ in range(16)]
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as threads:
        answers = list(
            threads.map(lambda own: own.get("key", recache_policy=RecachePolicy(30)), clients)
        )
    assert sorted(answers, key=str) == [None, *["old"] * 15]


def test_deleted_items_are_stale_until_they_are_recached(client: CacheApi) -> None:
    policy = StalePolicy(mark_stale_on_deletion_ttl=30)
    assert client.set("key", "old", ttl=100)
    assert client.delete("key", stale_policy=policy)
    assert [client.get("key") for _ in range(3)] == [None, "old", "old"]
    # After another delete, another client wins.
    assert client.invalidate("key", stale_policy=policy)
    winner, unique = client.get_cas("key")
    assert (winner, client.get("key")) == (None, "old")
    assert client.set("key", "new", ttl=100, cas_token=unique)
    assert [client.get("key") for _ in range(3)] == ["new"] * 3


def test_a_value_deleted_while_it_was_recreated_is_stored_as_stale(client: CacheApi) -> None:
    stale = StalePolicy(mark_stale_on_deletion_ttl=30, mark_stale_on_cas_mismatch=True)
    assert client.set("key", "old", ttl=100)
    assert client.delete("key", stale_policy=stale)
    value, unique = client.get_cas("key")
    assert value is None
    assert client.delete("key", stale_policy=stale)  # in the meantime
    assert client.set("key", "late", ttl=100, cas_token=unique, stale_policy=stale)
    # Clients may use it, and one of them is told to recreate it.
    assert [client.get("key") for _ in range(3)] == [None, "late", "late"]


def test_one_client_fills_a_miss_while_others_wait(client: CacheApi) -> None:
    policy = LeasePolicy(ttl=30, miss_retries=3, miss_retry_wait=0.5)
    assert client.get_or_lease("key", policy) is None
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            assert client.set("key", "made", ttl=100)

    assert client.get_or_lease("key", policy, lease_wait_fn=wait) == "made"
    assert waits == [0.5, 0.6]
    assert client.get_or_lease("key", policy) == "made"


def test_a_client_fills_a_miss_with_the_cas_unique_of_its_lease(client: CacheApi) -> None:
    policy = LeasePolicy(ttl=30, miss_retries=1)
    value, unique = client.get_or_lease_cas("key", policy)
    assert value is None
    assert client.get_or_lease_cas("key", policy) == (None, unique)
    assert client.set("key", "made", ttl=100, cas_token=unique)
    assert not client.set("key", "late", ttl=100, cas_token=unique)
    assert client.get_or_lease("key", policy) == "made"


def test_with_a_password(
    connect: Connect, start: Callable[..., RunningServer], tmp_path: Path
) -> None:
    """A hook prepares each socket, here with a login as first request. (TLS is not possible.)"""
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("web:secret\n")
    server = start("-Y", str(users))
    client = connect(server, "secret")
    assert client.set("key", "value", ttl=100)
    assert client.multi_get(["key", "nothing"])[Key("key")] == "value"
    with pytest.raises(MemcacheServerError):
        connect(server, "wrong").get("key")
