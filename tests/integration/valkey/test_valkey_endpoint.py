"""A name that points to another server after a failover, as those of managed stores do.

In these tests, an endpoint takes the place of the name: it directs new connections to another
server, while open connections stay where they are.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import Record
from memlite.backends.nearcache import NearCache
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import ValkeyBackend, make
from memlite.core.clock import Clock
from memlite.core.errors import StorageError
from tests.support.certificates import Authority
from tests.support.ports import unused_port
from tests.support.stores import Store, has_tls, store, with_replica
from tests.support.waiting import eventually


class Endpoint:
    """Leads connections to a port; can fall silent without closing them."""

    def __init__(self, port: int) -> None:
        self.leads_to = port
        self.speaks = asyncio.Event()
        self.speaks.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to, back = await asyncio.open_connection("127.0.0.1", self.leads_to)
        for source, target in ((reader, back), (to, writer)):
            task = asyncio.ensure_future(self._pass_on(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                while data := await source.read(65536):
                    await self.speaks.wait()
                    target.write(data)
            finally:
                target.close()


@contextlib.asynccontextmanager
async def opened(port: int, options: str) -> AsyncIterator[ValkeyBackend]:
    backend = make(parse_url(f"valkey://127.0.0.1:{port}/p?{options}"), Context())
    assert isinstance(backend, ValkeyBackend)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def swap(master: Store, replica: Store) -> None:
    assert replica.ask("REPLICAOF", "NO", "ONE") == b"+OK\r\n"
    assert master.ask("REPLICAOF", "127.0.0.1", replica.port) == b"+OK\r\n"


async def test_changes_go_to_the_new_master_once_the_name_points_to_it() -> None:
    with with_replica() as (master, replica):
        endpoint = Endpoint(master.port)
        async with endpoint.open() as port, opened(port, "timeout=20&deadline=60") as backend:
            await backend.put(Record(b"k", b"1"))
            assert await eventually(lambda: b"1" in replica.ask("GET", "p:k"))
            swap(master, replica)
            # The name still points to the old master, now a replica: the change is retried.
            changing = asyncio.ensure_future(backend.put(Record(b"k", b"2")))
            assert await eventually(lambda: backend.stats()["retries"] > 0)
            assert not changing.done()
            endpoint.leads_to = replica.port
            await changing
            # Reads do not go to the old master either.
            await backend.put(Record(b"other", b"3"))
            record = await backend.get(b"other")
            assert record is not None
            assert record.value == b"3"
            assert b"3" in replica.ask("GET", "p:other")


@pytest.mark.parametrize("with_copies", [False, True])
async def test_reads_go_to_the_new_master_even_if_nothing_is_changed(with_copies: bool) -> None:
    """A replica refuses only changes, so the server's role is checked once a second."""
    with with_replica() as (master, replica):
        endpoint = Endpoint(master.port)
        async with contextlib.AsyncExitStack() as stack:
            port = await stack.enter_async_context(endpoint.open())
            context = Context(clock=Clock())
            backend = make(parse_url(f"valkey://127.0.0.1:{port}/p?timeout=20"), context)
            if with_copies:
                backend = NearCache(backend, 1 << 20, ttl=3600.0, clock=context.clock)
            await backend.open()
            stack.push_async_callback(backend.close)
            await backend.put(Record(b"k", b"1"))
            if with_copies:
                assert isinstance(backend, NearCache)
                assert await kept(backend)
            assert await eventually(lambda: b"1" in replica.ask("GET", "p:k"))
            endpoint.leads_to = replica.port
            # The former master follows no server that receives changes.
            assert replica.ask("REPLICAOF", "NO", "ONE") == b"+OK\r\n"
            assert master.ask("REPLICAOF", "127.0.0.1", unused_port()) == b"+OK\r\n"
            async with opened(replica.port, "") as other:
                await other.put(Record(b"k", b"2"))
            while True:
                record = await backend.get_cached(b"k")
                assert record is not None
                if record.value == b"2":
                    break
                backend.tick()  # as the server does once a second
                await asyncio.sleep(0.02)


async def test_connections_stay_while_the_role_of_the_master_is_checked() -> None:
    with with_replica() as (master, _):
        async with opened(master.port, "") as backend:
            await backend.put(Record(b"k", b"1"))
            before, asked = connections(master), calls_of(master, b"info")
            for _ in range(20):
                backend.tick()
                await eventually(lambda: False, 0.02)
            assert calls_of(master, b"info") > asked + 5
            assert connections(master) == before + 3  # the connections of these queries


def connections(one: Store) -> int:
    """Return how many connections a server has accepted, including the one of this query."""
    return int(re.findall(rb"total_connections_received:(\d+)", one.ask("INFO", "stats"))[0])


def calls_of(one: Store, command: bytes) -> int:
    return int(re.findall(rb"cmdstat_%b:calls=(\d+)" % command, one.ask("INFO", "ALL"))[0])


async def test_a_name_that_keeps_pointing_to_a_replica() -> None:
    """Clients get the reason in bounded time."""
    with with_replica() as (master, replica):
        async with opened(master.port, "timeout=0.5&deadline=0.5") as backend:
            await backend.put(Record(b"k", b"1"))
            swap(master, replica)
            with pytest.raises(StorageError) as caught:
                await backend.put(Record(b"k", b"2"))
            assert str(caught.value) == (
                "store: the server is a read-only replica (READONLY); gave up retrying after 0.5 s"
            )


@pytest.mark.skipif(not has_tls(), reason="the store was built without TLS, or there is none")
async def test_a_connection_with_tls_that_falls_silent_is_noticed(tmp_path: Path) -> None:
    """Otherwise copies would be served until they are too old, which they never are here."""
    authority = Authority(tmp_path)
    made = authority.issue("server")
    port = unused_port()
    files = {"cert": made.cert, "key": made.key, "ca-cert": authority.path}
    options = [text for kind, file in files.items() for text in (f"--tls-{kind}-file", str(file))]
    with store("--tls-port", str(port), "--tls-auth-clients", "no", *options) as one:
        endpoint = Endpoint(port)
        async with endpoint.open() as through:
            url = (
                f"valkeys://127.0.0.1:{through}/p?ca_cert={authority.path}&timeout=0.5&deadline=20"
            )
            context = Context(clock=Clock())
            inner = make(parse_url(url), context)
            backend = NearCache(inner, 1 << 20, ttl=3600.0, clock=context.clock)
            await backend.open()
            try:
                assert await eventually(lambda: backend.stats()["servers_tracked"] == 1)
                await backend.put(Record(b"k", b"1"))
                assert await kept(backend)
                endpoint.speaks.clear()
                assert await eventually(lambda: backend.stats()["servers_tracked"] == 0)
                assert backend.stats()["near_items"] == 0
                assert one.ask("DEL", "p:k") == b":1\r\n"
                endpoint.speaks.set()
                assert await eventually(lambda: backend.stats()["servers_tracked"] == 1)
                assert await backend.get_cached(b"k") is None
            finally:
                endpoint.speaks.set()
                await backend.close()


async def kept(backend: NearCache) -> bool:
    """Return whether a copy is kept after the message about this server's own change."""
    for _ in range(3000):
        await backend.get_cached(b"k")
        await asyncio.sleep(0.01)
        if backend.stats()["near_items"]:
            return True
    return False
