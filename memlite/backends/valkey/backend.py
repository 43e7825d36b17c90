"""Valkey or Redis as a store that several servers can share: one key per record."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial

from redis.exceptions import ResponseError

from memlite.backends.base import ANY, Anything, Backend, Reader
from memlite.backends.record import Record, Versioned
from memlite.backends.registry import BackendUrl, Context
from memlite.backends.remote.call import Call, TimeLimits
from memlite.backends.remote.epoch import Epoch
from memlite.backends.valkey import library, startup
from memlite.backends.valkey.begun_read import BegunRead
from memlite.backends.valkey.codec import Origin
from memlite.backends.valkey.commands import LOST, Commands
from memlite.backends.valkey.connections import (
    connection_of,
    sentinel_connection_of,
    tracking_connection_of,
)
from memlite.backends.valkey.epoch_key import EpochKey
from memlite.backends.valkey.items import Items
from memlite.backends.valkey.node import Address, Confirmation, LostError, Node, NotSentError
from memlite.backends.valkey.options import Options, parse_options
from memlite.backends.valkey.role import RoleWatch
from memlite.backends.valkey.sentinel import SentinelTopology
from memlite.backends.valkey.topology import Topology
from memlite.backends.valkey.tracking import Tracking
from memlite.backends.valkey.writer import Writer
from memlite.core.errors import StartError, StorageError, VersionConflict
from memlite.core.logs import failure

__all__ = ["ValkeyBackend", "make"]

_log = logging.getLogger("memlite")

# Keys that one SCAN looks at.
_SCANNED_AT_ONCE = 512


class ValkeyBackend(Backend):
    """Stores records in Valkey or Redis, under a prefix.

    Even when several servers write at once, none of them undoes a write that another has
    acknowledged; see `memlite.backends.valkey.writer`. This does not cover writes that the store
    loses in a failover.

    Args:
        options: the store, and how to reach it.
        context: the server's settings.
    """

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._clock = context.clock
        self._shared_epoch = context.epoch
        self._refresh: asyncio.Task[None] | None = None
        self._changed: Callable[[bytes | None], None] | None = None
        self._tracking: Tracking | None = None
        self._epoch_changed = False
        self._told_epoch = 0
        self._record: Callable[[str, str, int], None] | None = None

    peeks = False  # every read is a request
    begins = True

    # Life

    _loop: asyncio.AbstractEventLoop
    _topology: Topology
    _commands: Commands
    _items: Items
    _epoch: Epoch
    _writer: Writer
    _role: RoleWatch

    def watch(self, changed: Callable[[bytes | None], None]) -> None:
        """Report changes by other servers as the store announces them."""
        self._changed = changed

    async def open(self) -> None:
        """Connect, check that the store can be used, and read the epoch."""
        library.check()
        options = self._options
        self._loop = asyncio.get_running_loop()
        self._topology = _topology(options)
        self._commands = Commands(
            self._topology,
            concurrency=options.concurrency,
            deadline=options.deadline,
            confirmed=options.wait > 0,
        )
        self._commands.record = self._record
        register = EpochKey(self._commands, options.prefix)
        self._epoch = Epoch(register, self._clock, self._shared_epoch)
        self._items = Items(self._commands, options.prefix, self._clock, self._epoch)
        self._writer = Writer(self._commands, self._items, self._epoch)
        self._role = RoleWatch(self._topology, self._demoted)
        try:
            await startup.check(options, self._topology)
            await self._epoch.refresh()
        except StorageError as error:
            await self._topology.close()
            raise StartError(f"--backend: {options.shown}: {error}") from None
        except BaseException:
            await self._topology.close()
            raise
        if self._changed is not None and options.tracking:
            prefix = options.prefix.encode()
            self._tracking = Tracking(
                partial(tracking_connection_of, options),
                (prefix + b":", prefix + b"/epoch"),
                self._told,
                options.timeout,
            )
            self._follow()

    def _follow(self) -> None:
        if self._tracking is not None:
            self._tracking.follow(node.address for node in self._topology.masters)

    def _told(self, name: bytes | None) -> None:
        """Pass on a change that the store announced."""
        assert self._changed is not None  # noqa: S101 - set before changes are requested
        if name is not None and self._items.is_item(name):
            self._changed(self._items.key_of(name))
            return
        if name is None:
            self._changed(None)
        else:  # the epoch: a flush takes effect once it has been read
            self._epoch_changed = True
            self._refresh_now()

    async def close(self) -> None:
        """Close the connections."""
        if self._tracking is not None:
            await self._tracking.close()
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait([self._refresh])
        await self._role.close()
        await self._topology.close()

    def tick(self) -> None:
        """Refresh the epoch, and check that the server is still the master and reports changes."""
        self._refresh_now()
        self._tell_of_epoch()  # a delayed flush may be due
        self._role.look()
        self._follow()

    def _demoted(self, address: Address) -> None:
        """Follow another server, if the name now refers to one."""
        if self._changed is not None:
            self._changed(None)
        if self._tracking is not None:
            self._tracking.leave(address)
            self._follow()

    def _refresh_now(self) -> None:
        if self._refresh is None or self._refresh.done():
            self._refresh = self._loop.create_task(self._refresh_epoch())

    async def _refresh_epoch(self) -> None:
        while True:
            self._epoch_changed = False
            # The known epoch remains valid until the next successful refresh.
            with contextlib.suppress(StorageError):
                await self._epoch.refresh()
            self._tell_of_epoch()
            if not self._epoch_changed:
                break

    def _tell_of_epoch(self) -> None:
        """Report that records are absent now, if the epoch has changed since the last report."""
        epoch = self._epoch.now()
        if epoch != self._told_epoch:
            self._told_epoch = epoch
            if self._changed is not None:
                self._changed(None)

    # Reading

    async def get(self, key: bytes, call: Call | None = None) -> Record | None:
        """Return the record of `key`.

        Args:
            key: the key.
            call: the operation that this is part of; None for an operation of its own.

        Raises:
            StorageError: the store cannot be read, or the content is not memlite's.
        """
        return await self._items.read(call or self._commands.call(), key)

    get_cached = get

    def begin_get(self, key: bytes, reader: Reader) -> bool:
        """Begin to read the record of `key`, if its server is available."""
        return BegunRead(self._items, self._commands, key, reader).begin()

    async def get_many(self, keys: Sequence[bytes]) -> list[Record | None]:
        """Return the records of `keys`; those on one server are read in one round trip."""
        name_of = self._items.name_of
        records: list[Record | None] = []
        replies = await self._commands.read_many([name_of(key) for key in keys])
        for key, reply in zip(keys, replies, strict=True):
            if reply is LOST or isinstance(reply, Exception):  # a redirection, or a failure
                records.append(await self.get(key))
            else:
                records.append(self._items.parsed(key, reply))
        return records

    async def scan(self) -> AsyncIterator[Record]:
        """Yield every record of every master; keys that are not memlite's are skipped.

        The store may yield a record twice while its tables of keys grow or shrink, or while a
        cluster moves slots.
        """
        for node in self._topology.masters:
            cursor = b"0"
            while True:
                cursor, names = await self._page(node, cursor)
                names = list(dict.fromkeys(names))
                replies = await self._commands.read_many(names)
                for name, reply in zip(names, replies, strict=True):
                    record = await self._scanned(self._items.key_of(name), reply)
                    if record is not None:
                        yield record
                if cursor == b"0":
                    break

    async def _page(self, node: Node, cursor: bytes) -> tuple[bytes, list[bytes]]:
        call = self._commands.call()
        arguments = ("SCAN", cursor, "MATCH", self._items.pattern, "COUNT", _SCANNED_AT_ONCE)
        while True:
            try:
                reply = await node.send(arguments)
            except (NotSentError, LostError) as error:
                call.trouble = str(error)
                await call.pause()
                continue
            if isinstance(reply, ResponseError):
                raise self._commands.refusal(call, reply)
            assert isinstance(reply, list)  # noqa: S101 - as SCAN returns it
            return reply[0], reply[1]

    async def _scanned(self, key: bytes, reply: object) -> Record | None:
        try:
            if reply is LOST or isinstance(reply, Exception):
                return await self.get(key)
            return self._items.parsed(key, reply)
        except StorageError as error:
            _log.warning("skipped a key: %s", error, extra=failure("key_damaged"))
            return None

    # Writing

    def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> Awaitable[int]:
        """Store a record; see `Backend.put`. `ANY` also replaces content that is not memlite's."""
        call = self._commands.call()
        if replacing is ANY:
            return self._writer.set(call, record)
        if replacing is None:
            return self._writer.add(call, record)
        return self._replace(call, record, replacing)

    async def _replace(self, call: Call, record: Record, replacing: Versioned) -> int:
        before, origin = await self._as_read(call, record.key, replacing)
        return await self._writer.replace(call, record, before, origin)

    async def confirm(self, record: Record) -> None:
        """Wait until replicas have a state that was read, if changes wait for replicas.

        A state is visible to `get` before that, and a failover may undo it.

        Args:
            record: a record that `get` returned, and that has not expired.

        Raises:
            VersionConflict: it is no longer current.
            StorageError: too few replicas have it, or their number is unknown.
        """
        if self._options.wait:
            await self._writer.confirm(self._commands.call(), record)

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Remove the record of `key`; see `Backend.delete`."""
        call = self._commands.call()
        if replacing is ANY:
            await self._writer.delete(call, key)
        else:
            await self._writer.remove(call, key, replacing.version)

    async def _as_read(self, call: Call, key: bytes, read: Versioned) -> tuple[int, Origin]:
        """Return the version and origin of a state that was read, reading it again if necessary.

        A record derived from a state belongs to the epoch in which that state was read: a flush
        since then applies to both.

        Raises:
            VersionConflict: the state is no longer current.
        """
        record = read if isinstance(read, Record) else None
        if record is None or not isinstance(record.token, Origin):
            record = await self.get(key, call)
            if record is None or record.version != read.version:
                raise VersionConflict
        origin = record.token
        assert isinstance(origin, Origin)  # noqa: S101 - as `get` made it
        return record.version, origin

    def _tracking_stats(self) -> Mapping[str, int]:
        tracking = self._tracking
        if tracking is None:
            return {}
        return {"servers_tracked": tracking.open, "invalidations": tracking.changes}

    async def flush(self, at: float = 0.0) -> None:
        """Make all records absent for all servers, now or at the unix time `at`; see `Epoch`."""
        try:
            await self._epoch.flush(at)
        except StorageError:
            self._refresh_now()  # it may have been carried out
            raise
        finally:
            self._tell_of_epoch()

    def measure(self, record: Callable[[str, str, int], None]) -> None:
        """Report how long commands take, by name."""
        self._record = record

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the commands sent to the store, and whether it is available."""
        counts = self._commands.counts
        breakers = [node.breaker for node in self._topology.masters]
        unavailable = sum(breaker.is_open for breaker in breakers)
        return {
            "store": self._options.shown,
            "state": "unavailable" if unavailable else "available",
            "servers": len(breakers),
            "servers_unavailable": unavailable,
            "times_unavailable": sum(breaker.times_opened for breaker in breakers),
            "in_flight": self._commands.turns.taken,
            **{name: counts[name] for name in _COUNTS},
            **self._tracking_stats(),
            "epoch": self._epoch.now(),
            "epoch_age": round(self._epoch.age, 1),
        }


def _topology(options: Options) -> Topology:
    limits, timeout = TimeLimits(), options.timeout
    confirmation = Confirmation(options.wait, options.wait_timeout) if options.wait else None

    def node(address: Address) -> Node:
        return Node(
            address,
            partial(connection_of, options, address),
            limits,
            timeout,
            confirmation=confirmation,
            only_master=bool(options.service),
        )

    if not options.service:
        return Topology((options.host, options.port), node)
    sentinels = [
        Node(address, partial(sentinel_connection_of, options, address), limits, timeout)
        for address in options.sentinels
    ]
    return SentinelTopology(sentinels, options.service, node)


_COUNTS = (
    "commands",
    "retries",
    "failures",
    "redirections",
    "refusals",
    "lost_acknowledgements",
    "unconfirmed",
)


def make(url: BackendUrl, context: Context) -> Backend:
    """Make a backend from a ``valkey://host:port/prefix`` URL."""
    return ValkeyBackend(parse_options(url), context)
