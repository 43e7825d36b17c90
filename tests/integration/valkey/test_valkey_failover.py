"""A master fails, or hands over, and a replica becomes master."""

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import Record
from memlite.backends.registry import Context, parse_url
from memlite.backends.remote.call import TimeLimits
from memlite.backends.valkey import make
from memlite.backends.valkey.connections import connection_of
from memlite.backends.valkey.node import Confirmation, Node
from memlite.backends.valkey.options import parse_options
from memlite.cluster.membership.store import Stored, StoreUnavailableError
from memlite.cluster.membership.url import store_of
from memlite.core.errors import StorageError, UnconfirmedError, VersionConflict
from tests.support.stores import (
    MASTER,
    Store,
    replicated_cluster,
    sentinels,
    store,
    with_replica,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

KEYS = [b"count%d" % number for number in range(12)]
WAIT = "wait=1&timeout=2&deadline=20"


@contextlib.asynccontextmanager
async def opened(servers: str, options: str) -> AsyncIterator:
    backend = make(parse_url(f"valkey://{servers}/p?{options}"), Context())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def at(*stores: Store) -> str:
    return ",".join(f"127.0.0.1:{one.port}" for one in stores)


@dataclasses.dataclass
class Count:
    """The number of increments of a key: acknowledged, and uncertain."""

    acknowledged: int = 0
    uncertain: int = 0


class Counting:
    """Clients of several backends that increment counters, whatever happens."""

    def __init__(self, *backends) -> None:
        self._backends = backends
        self.counts = {key: Count() for key in KEYS}
        self._ended = asyncio.Event()
        self.errors: list[str] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for key in KEYS:
            await self._backends[0].put(Record(key, b"0"))
        tasks = [
            asyncio.ensure_future(self._count(backend, key))
            for key in KEYS
            for backend in self._backends
        ]
        try:
            await self.progress()
            yield
            await self.progress()
        finally:
            self._ended.set()
            await asyncio.gather(*tasks)

    async def progress(self) -> None:
        """Wait until all counters have been incremented a few more times."""
        before = {key: count.acknowledged for key, count in self.counts.items()}
        assert await eventually(
            lambda: all(self.counts[key].acknowledged >= before[key] + 3 for key in KEYS)
        )

    async def _count(self, backend, key: bytes) -> None:
        count = self.counts[key]
        while not self._ended.is_set():
            try:
                found = await backend.get(key)
            except StorageError as error:
                self.errors.append(str(error))
                continue
            value = b"%d" % (int(found.value) + 1)
            try:
                await backend.put(Record(key, value), found)
            except VersionConflict:
                continue
            except StorageError as error:
                self.errors.append(str(error))
                # A change that was made, or may have been, may or may not survive a failover.
                count.uncertain += 1
            else:
                count.acknowledged += 1

    async def check(self, backend) -> None:
        """Check that nothing acknowledged is lost, and nothing was done twice."""
        for key, count in self.counts.items():
            value = int((await backend.get(key)).value)
            assert count.acknowledged <= value <= count.acknowledged + count.uncertain


@pytest.fixture(scope="module")
def stores() -> Iterator[tuple[list[Store], list[Store]]]:
    with replicated_cluster() as found:
        yield found


async def test_replicas_that_take_over_in_order_lose_nothing(stores) -> None:
    """A master that hands over waits until its replica has all data; no confirmation is needed."""
    masters, replicas = stores
    options = "timeout=5&deadline=30"
    async with opened(at(masters[0]), options) as one, opened(at(replicas[1]), options) as two:
        counting = Counting(one, two)
        async with counting.running():
            for replica in replicas:
                reply = await asyncio.to_thread(replica.ask, "CLUSTER", "FAILOVER")
                assert reply == b"+OK\r\n"
                assert await eventually(lambda one=replica: b"role:master" in role_of(one))
                await counting.progress()
        await counting.check(one)
        await counting.check(two)
    assert not counting.errors


def role_of(one: Store) -> bytes:
    with contextlib.suppress(OSError):  # Sentinels close connections when they change roles
        return one.ask("INFO", "replication")
    return b""


def knows(sentinel: Store, master: Store) -> bool:
    """Return whether a Sentinel takes a server for the master."""
    port = str(master.port).encode()
    return port in sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)


async def test_a_master_that_is_killed_loses_nothing_that_its_replica_has_confirmed(stores) -> None:
    everyone = [server for some in stores for server in some]
    (first, *_) = (one for one in everyone if b"role:master" in role_of(one))
    (other, *_) = (one for one in everyone if one is not first)
    async with opened(at(other), WAIT) as one, opened(at(other), WAIT) as two:
        counting = Counting(one, two)
        async with counting.running():
            first.kill()
            # Without a replica, the new master cannot confirm anything.
            assert await eventually(
                lambda: (
                    sum(b"role:master" in role_of(one) for one in everyone if one is not first) == 3
                )
            )
            first.restart()
        assert counting.errors
        await counting.check(one)
        await counting.check(two)


@pytest.mark.parametrize("how", ["kill", "pause", "command"])
async def test_sentinels_make_a_replica_the_master(how: str) -> None:
    # A server that comes back without data and is taken for the master loses everything.
    kept = ("--appendonly", "yes")
    with with_replica(*kept) as (master, replica), sentinels(master) as watching:
        options = f"sentinel={MASTER}&wait=1&timeout=1&deadline=20"
        servers = f"127.0.0.1:1,{at(*watching)}"  # no server listens on the first one
        async with opened(servers, options) as one, opened(servers, options) as two:
            counting = Counting(one, two)
            async with counting.running():
                if how == "command":
                    reply = await asyncio.to_thread(watching[0].ask, "SENTINEL", "FAILOVER", MASTER)
                    assert reply == b"+OK\r\n"
                else:
                    getattr(master, how)()
                assert await eventually(lambda: all(knows(one, replica) for one in watching))
                {"kill": master.restart, "pause": master.resume}.get(how, lambda: None)()
                assert await eventually(lambda: b"role:slave" in role_of(master))
            await counting.check(one)
            await counting.check(two)


async def confirmed(backend, record: Record) -> None:
    """Store a record until it is acknowledged: a replica on a busy machine may be late."""
    while True:
        with contextlib.suppress(StorageError):
            return await backend.put(record)


async def test_changes_that_no_replica_confirms_are_errors_that_say_so() -> None:
    with with_replica() as (master, replica):
        options = "wait=1&wait_timeout=0.5&timeout=5"
        async with opened(at(master), options) as backend:
            await confirmed(backend, Record(b"k", b"1"))
            replica.pause()
            found = await backend.get(b"k")
            text = re.escape(
                "store: the change was made, but only 0 of 1 replicas confirmed it within 0.5 s: a "
                "failover may undo it"
            )
            for change in (
                backend.put(Record(b"k", b"2"), found),
                backend.put(Record(b"k", b"3")),
                backend.delete(b"k"),
                backend.flush(),
            ):
                with pytest.raises(UnconfirmedError, match=f"^{text}$"):
                    await change
            assert await backend.get(b"k") is None
            assert backend.stats()["unconfirmed"] >= 4
            # A failure without a change is certain.
            with pytest.raises(VersionConflict):
                await backend.put(Record(b"k", b"2"), found)
            replica.resume()
            await confirmed(backend, Record(b"k", b"4"))


async def test_a_flush_of_another_server_counts_only_if_replicas_have_it() -> None:
    with with_replica() as (master, replica):
        options = "wait=1&wait_timeout=0.5&timeout=5"
        async with opened(at(master), options) as backend:
            await confirmed(backend, Record(b"k", b"1"))
            register = backend._epoch._register
            write = register.write

            async def write_later(call, text: bytes, expect: object) -> object:
                master.ask("SET", "p/epoch", text)
                return await write(call, text, expect)

            register.write = write_later
            replica.pause()
            with pytest.raises(StorageError, match=r"too few replicas have confirmed its flush$"):
                await backend.flush()
            replica.resume()
            while True:
                with contextlib.suppress(StorageError):
                    await backend.flush()
                    break
            found = await backend.get(b"k")
            assert 0 < found.expires < 2


async def test_reads_do_not_wait_for_replicas() -> None:
    with with_replica() as (master, replica):
        options = "wait=1&wait_timeout=20&timeout=30&deadline=60"
        async with opened(at(master), options) as backend:
            await confirmed(backend, Record(b"k", b"1"))
            replica.pause()
            before = master.ask("GET", "p:k")
            changing = asyncio.ensure_future(backend.put(Record(b"k", b"2")))
            assert await eventually(lambda: master.ask("GET", "p:k") != before)
            assert (await backend.get(b"k")).value == b"2"
            assert not changing.done()
            replica.resume()
            await changing


async def certain(member) -> Stored:
    """Return the topology as a member reads it; retry while replicas are late."""
    while True:
        with contextlib.suppress(StoreUnavailableError):
            found = await member.read("topology")
            assert found is not None
            return found


async def test_members_see_no_change_that_a_failover_may_undo() -> None:
    """A write of another member that no replica has confirmed cannot be read."""
    with with_replica() as (master, replica):
        url = f"valkey://{at(master)}/cluster?wait=1&wait_timeout=0.5&timeout=20&deadline=60"
        one, other = store_of(url, "--join"), store_of(url, "--join")
        await one.open()
        await other.open()
        try:
            with contextlib.suppress(StoreUnavailableError):  # a busy replica may be late
                await one.write("topology", b"1", None)
            found = await certain(other)
            replica.pause()
            with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
                await one.write("topology", b"2", found)
            for store in (one, other):
                with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
                    await store.read("topology")
            replica.resume()
            assert (await certain(other)).data == b"2"
            # The write has been confirmed: reading it again writes nothing.
            replica.pause()
            found = await other.read("topology")
            assert found is not None
            assert found.data == b"2"
        finally:
            replica.resume()
            await one.close()
            await other.close()


async def test_replicas_that_are_missing_do_not_make_the_master_look_dead() -> None:
    """This holds even if the timeout for replicas exceeds that for the master."""
    with store() as one:
        options = parse_options(parse_url(f"valkey://127.0.0.1:{one.port}/p"))
        address = "127.0.0.1", one.port
        connect = partial(connection_of, options, address)
        node = Node(address, connect, TimeLimits(), 2.0, confirmation=Confirmation(1, 3.0))
        with pytest.raises(UnconfirmedError, match="0 of 1 replicas"):
            await node.send(("SET", "k", "1"), change=True)
        assert not node.breaker.recent_failures
        await node.close()


async def test_a_lost_reply_is_no_confirmation() -> None:
    with with_replica() as (master, _):
        options = "wait=1&timeout=1&deadline=20"
        async with opened(at(master), options) as backend:
            await confirmed(backend, Record(b"k", b"1"))
            master.pause()
            changing = asyncio.ensure_future(backend.put(Record(b"k", b"2")))
            assert await eventually(lambda: backend.stats()["failures"] > 0)
            master.resume()
            with pytest.raises(StorageError, match=r"may not have reached|may or may not"):
                await changing


async def test_a_store_without_replicas_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with store() as one:
        async with opened(at(one), "wait=2"):
            pass
    assert "changes wait for 2 replicas, but there are 0" in caplog.text


class FakeSentinel:
    """A Sentinel with scripted replies."""

    def __init__(self, master: Store) -> None:
        self.master = master

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await reader.read(4096):
            if b"PING" in request:
                writer.write(b"+PONG\r\n")
            else:
                port = str(self.master.port).encode()
                reply = b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port)
                writer.write(reply)
        writer.close()


@pytest.mark.parametrize("at_start", [False, True])
async def test_a_sentinel_that_missed_a_failover_is_not_believed(at_start: bool) -> None:
    with store() as old, store() as new:
        sentinel, others = FakeSentinel(old), FakeSentinel(new if at_start else old)
        async with sentinel.running() as first, others.running() as second:
            if at_start:
                old.kill()
            async with opened(
                f"{first},{second}", f"sentinel={MASTER}&timeout=1&deadline=20"
            ) as one:
                if not at_start:
                    others.master = new
                    old.kill()
                await confirmed(one, Record(b"k", b"1"))
                assert b"p:k" in new.ask("KEYS", "*")
