"""The engine for items shared by several processes: all of them are in one mapping."""

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from time import monotonic
from typing import Final, ParamSpec, TypeVar, cast

from memlite.core.clock import Clock
from memlite.core.errors import OutOfMemoryError
from memlite.core.meta_flags import MetaFlags
from memlite.engine import semantics
from memlite.engine.memory import MemoryEngine
from memlite.engine.meta import Counted, MetaEngine
from memlite.engine.semantics import Content
from memlite.engine.sizes import SizeClasses
from memlite.memory import FullItem, Item, ItemTable, Part, nameable
from memlite.memory.item import END, EPOCH, FETCHED, STATE_BITS, line_of
from memlite.memory.shared import Mapping
from memlite.memory.shared.layout import (
    KEEP,
    MET_EXPIRED_UNFETCHED,
    MET_FLUSHED,
    META,
    UNNAMED,
    USED,
)
from memlite.telemetry.counters import Counters

__all__ = ["SharedEngine", "SharedItems"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_META: Final = struct.Struct("<BQ")
_STALE, _WON, _BINARY, _UNIQUE = 1, 2, 4, 8
# Bytes of a record besides the value and the key: the rest of the reply, and the extra bytes.
_AROUND: Final = 128


def _encode(key: bytes, flags: MetaFlags | None) -> tuple[int, bytes]:
    """Return the kind of a record, and the extra bytes after its reply."""
    if flags is None:
        return 0, b""
    bits = flags.stale * _STALE | flags.won * _WON | flags.binary * _BINARY
    unique = flags.unique
    meta = _META.pack(bits | (0 if unique is None else _UNIQUE), unique or 0)
    return (META, meta) if nameable(key) else (META | UNNAMED, key + meta)


def _decode(extra: bytes) -> MetaFlags:
    bits, unique = _META.unpack(extra[-_META.size :])
    assigned = unique if bits & _UNIQUE else None
    return MetaFlags(bool(bits & _STALE), bool(bits & _WON), bool(bits & _BINARY), assigned)


_FLUSHED: Final = Item(b"", 0)


class SharedItems(ItemTable):
    """A shared table with the interface of an `ItemTable`; items are copies.

    Args:
        mapping: the shared table.
        limit: bytes of memory, for statistics.
    """

    def __init__(self, mapping: Mapping, limit: int) -> None:
        super().__init__(limit)
        self.mapping = mapping
        self.shared = mapping.table
        self.find_reply = mapping.table.find  # bound once, instead of once for each connection
        self._store = mapping.table.store
        self.get_by_line: Callable[[bytes], Item | None] = self._find
        # The table and items count seconds from different origins.
        self._shift = mapping.origin - EPOCH << STATE_BITS

    def can_take(self, limit: int) -> bool:
        """Set the limit for all processes, if possible; return whether it is."""
        return self.mapping.resize(limit)

    def shrink(self, limit: int) -> None:
        """Measure only: `can_take` has set the limit, and `reclaim` gives memory back."""
        self.measure()

    def __len__(self) -> int:
        return len(self.mapping)

    @property
    def over(self) -> bool:
        """Whether memory has to be given back."""
        return self.mapping.over

    def measure(self) -> None:
        """Measure the process's own memory."""
        if hasattr(self, "mapping"):
            self.used = self.mapping.used
            self.limit = self.mapping.limit
        self.overhead = 0
        self.excess()

    def get(self, key: bytes) -> Item | None:
        """Return a copy of an item, or None."""
        return self._item(line_of(key))

    def _item(self, line: bytes) -> Item | None:
        stored = self.shared.get(line)
        if stored is None:
            return None
        wire, expires, unique, state, kind, extra = stored
        item = FullItem(wire, state + self._shift, expires)
        item.version = unique
        if kind & META:
            item.meta_flags = _decode(extra)
        return item

    def _find(self, line: bytes) -> Item | None:
        self.shared.find(line)  # counts as a use
        return self._item(line)

    def find_all(self, keys: list[bytes]) -> Iterable[Item | None]:
        """Yield the item of each key."""
        return map(self.find, keys)

    def put(self, key: bytes, item: Item) -> None:
        """Store an item; see `ItemTable.put`."""
        self._keep(key, item.wire, item.expires, item.meta_flags, 0)

    def _keep(
        self,
        key: bytes,
        wire: bytes,
        expires: float,
        flags: MetaFlags | None,
        state: int,
        how: int = 0,
    ) -> int:
        kind, extra = _encode(key, flags)
        kind |= how
        if state & FETCHED:
            kind |= USED
        unique = self._store(line_of(key), wire, expires, None, kind, extra)
        if unique <= 0:
            raise OutOfMemoryError
        return unique

    def overwrite(
        self,
        key: bytes,
        item: Item,
        wire: bytes,
        expires: float,
        state: int,
        meta_flags: MetaFlags | None,
    ) -> Item:
        """Store another value; see `ItemTable.overwrite`."""
        new = FullItem(wire, state, expires)
        new.version = self._keep(key, wire, expires, meta_flags, state)
        new.meta_flags = meta_flags
        return new

    def replace(self, key: bytes, old: Item, new: Item) -> Item:
        """Store another item; see `ItemTable.replace`."""
        return self.overwrite(key, old, new.wire, new.expires, new.state, new.meta_flags)

    def update_metadata(
        self,
        key: bytes,
        item: Item,
        expires: float,
        meta_flags: MetaFlags | None,
        *,
        drop_version: bool = False,
    ) -> Item:
        """Set expiry and meta flags; see `ItemTable.update_metadata`."""
        if drop_version or meta_flags != item.meta_flags:
            new = FullItem(item.wire, item.state, expires)
            how = 0 if drop_version else KEEP
            new.version = self._keep(key, item.wire, expires, meta_flags, item.state, how)
            new.meta_flags = meta_flags
            return new
        self.shared.touch(line_of(key), expires)
        new = FullItem(item.wire, item.state, expires)
        new.version = item.version
        new.meta_flags = meta_flags
        return new

    def set_version(self, item: Item, version: int) -> Item:
        """Return the item: every item has a version."""
        return item

    def delete(self, key: bytes) -> Item | None:
        """Remove a key; return its item, or None."""
        item = self.get(key)
        self.shared.delete(line_of(key), None)
        return item

    def flush(self) -> None:
        """Invalidate every item."""
        self.shared.flush(0.0)

    def pop_flushed(self, key: bytes) -> Item | None:
        """Return an item without content if a flush has removed the key's item; forget that."""
        return _FLUSHED if self.shared.drop_flushed(line_of(key)) else None

    def reclaim(self, at_most: int) -> int:
        """Give back a segment's memory if over the limit; return how many items that removes."""
        before = len(self)
        return max(1, before - len(self)) if self.mapping.settle() else 0

    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Return 0: expired items go with their segments."""
        return 0

    def compact(self, at_most: int) -> bool:
        """Return False: segments have no holes."""
        return False

    def list_keys(self) -> list[bytes]:
        """Return every key, in no order."""
        return list(self.mapping.list_keys())

    def key_batches(self) -> Iterator[list[bytes]]:
        """Yield every key, in no order; see `ItemTable`."""
        return self.mapping.key_batches()

    def scan(self) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item."""
        return self.survey()

    def survey(self, *, newest_first: bool = False) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item, in no order; others may be stored meanwhile."""
        for key in self.mapping.list_keys():
            item = self.get(key)
            if item is not None:
                yield key, item


def _alone(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Wrap a method of an engine, so that no other process changes its key while it runs."""

    @wraps(method)
    def alone(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        engine = cast("SharedEngine", arguments[0])
        # In all of these methods, the key comes before the value.
        texts = [one for one in (*arguments, *named.values()) if isinstance(one, bytes)]
        with engine.alone(texts[0], sum(map(len, texts))):
            return method(*arguments, **named)

    return alone


class SharedEngine(MemoryEngine):
    """Carries out commands on a shared table.

    A command that reads before it writes locks other processes out of the key meanwhile.

    Args:
        items: the table.
        clock: see `Engine`.
        counters: see `Engine`.
        item_size: see `Engine`.
        cas: see `Engine`.
        sizes: see `Engine`.
    """

    def __init__(
        self,
        items: SharedItems,
        clock: Clock,
        counters: Counters,
        *,
        item_size: int = 1024 * 1024,
        cas: bool = True,
        sizes: SizeClasses | None = None,
    ) -> None:
        super().__init__(items, clock, counters, item_size=item_size, cas=cas, sizes=sizes)
        self._shared = items.shared
        self._find = items.shared.find
        self._store_now = items.shared.store
        self.crawls = False
        self._inside = False
        self._assigned: int | None = None
        self._table = items
        self._evicted = (0, 0, 0, 0)
        self._set_second(clock.second)
        clock.on_tick(self._set_second)

    def _set_second(self, second: int) -> None:
        self._shared.second = (second - self._table.mapping.origin) & 0xFFFFFFFF >> STATE_BITS
        self._shared.offset = self.clock.now() - monotonic()

    def count_evicted(self) -> None:
        """Count the items that this process has evicted since the last call."""
        shared, counters = self._shared, self.counters
        now = (
            shared.evictions,
            shared.evicted_unfetched,
            shared.reclaimed,
            shared.expired_unfetched,
        )
        before, self._evicted = self._evicted, now
        counters.evictions += now[0] - before[0]
        counters.evicted_unfetched += now[1] - before[1]
        counters.reclaimed += now[2] - before[2]
        counters.expired_unfetched += now[3] - before[3]

    def flush_all(self, exptime: int) -> None:
        """Make all items absent, now or at a given time; see `MemoryEngine`."""
        at = semantics.expiry(exptime, self.clock.now()) if exptime > 0 else 0.0
        self._shared.flush(at)

    @property
    def flush_pending(self) -> float:
        """The unix time of a delayed flush, 0 if there is none."""
        return self._table.mapping.flush_at

    def tick(self) -> None:
        """Give back memory, if the limit was lowered; the table itself flushes in time."""
        self._table.mapping.settle()

    def crawl(self) -> None:
        """Count a crawl, without searching for expired items; see `tick`."""
        self.counters.lru_crawler_starts += 1

    # Commands that take one step, and need no hold

    def try_get(self, line: bytes) -> bytes | None:
        r"""Return the complete reply to ``get <key>\r\n``; see `Engine`."""
        reply = None if self.observed else self._find(line)
        if reply is not None:
            self.counters.hits += 1
        return reply

    def collect(self, keys: list[bytes], out: list[Part]) -> None:
        """Append the replies of items that exist; see `Engine`."""
        hit = self.try_get
        for key in keys:
            reply = hit(b"get %b\r\n" % key)
            if reply is not None:
                out.append(reply[:-END])
            elif (item := self.fetch(key)) is not None:
                out += item.entry()

    def set_framed(self, key: bytes, exptime: int, wire: bytes) -> None:
        """Store like `set`; see `Engine`."""
        if self.observed:
            with self.alone(key, len(wire)):
                self._set_framed(key, self.table.find(key), exptime, wire)
            return
        counters = self.counters
        expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0.0
        counters.cmd_set += 1
        if self._store_now(b"get %b\r\n" % key, wire, expires, None, 0, b"") <= 0:
            self.table.delete(key)
            counters.store_no_memory += 1
            raise OutOfMemoryError
        counters.total_items += 1
        if self._shared.met:
            self._count_met(key, wire, overwritten=True)

    def _count_met(self, key: bytes, wire: bytes, *, overwritten: bool) -> None:
        """Count that a command has found an expired or flushed item."""
        counters, met = self.counters, self._shared.met
        if met == MET_FLUSHED:
            counters.get_flushed += 1
        else:
            counters.get_expired += 1
            counters.expired_unfetched += met == MET_EXPIRED_UNFETCHED
        if overwritten:
            self._count_reclaimed(key, Item(wire, 0))

    def delete(self, key: bytes) -> bool:
        """Remove a key; see `Engine`."""
        if self.observed:
            with self.alone(key, 0):
                return super().delete(key)
        gone = self._shared.delete(b"get %b\r\n" % key, None)
        if gone:
            self.counters.delete_hits += 1
        else:
            self.counters.delete_misses += 1
            if self._shared.met:
                self._count_met(key, b"", overwritten=False)
        return gone

    # Commands that hold their key

    @contextmanager
    def alone(self, key: bytes, size: int) -> Iterator[None]:
        """Lock other processes out of a key, with room for `size` bytes more in its value."""
        if self._inside:  # a command that uses another
            yield
            return
        shared = self._shared
        shared.hold(line_of(key), size and size + _AROUND + len(key))
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            shared.release()

    # The shortcuts of `PlainEngine` change items in place; here they are copies.
    fetch = MetaEngine.fetch
    fetch_plain = MetaEngine.fetch_plain
    serve_lines = MetaEngine.serve_lines
    collect_lines = MetaEngine.collect_lines
    retime_plain = MetaEngine.retime_plain
    join = MetaEngine.join
    count_in_place = MetaEngine.count_in_place
    _count = MetaEngine._count

    def miss(self, line: bytes) -> bytes | None:
        r"""Return the reply to ``get <key>\r\n`` of a key without an item; see `Engine`."""
        if self._items.get_by_line(line) is not None:  # it has expired
            return None
        reply = super().miss(line)
        if reply is not None and self._items.pop_flushed(line[4:-2]) is not None:
            self.counters.get_flushed += 1
        return reply

    def _mark_used(self, key: bytes) -> None:
        """Do nothing: the table records only reads, which are shown to clients (``h``)."""

    def _mark_fetched(self, key: bytes) -> None:
        self._find(line_of(key))

    def _drop_expired(self, key: bytes, item: Item) -> None:
        """Remove an expired item, unless another process has stored or touched it since."""
        with self.alone(key, 0):
            stored = self._items.get(key)
            if stored is not None and stored.expires and stored.expires <= self.clock.now():
                MetaEngine._drop_expired(self, key, stored)

    def _retime(self, key: bytes, exptime: int) -> Item | None:
        """Set an expiry; see `Engine`. The item counts as read, even if it expires at once."""
        self._find(line_of(key))
        return MetaEngine._retime(self, key, exptime)

    set = _alone(MetaEngine.set)
    set_for_unique = _alone(MetaEngine.set_for_unique)
    add = _alone(MetaEngine.add)
    replace = _alone(MetaEngine.replace)
    replace_framed = MetaEngine.replace_framed
    append = _alone(MetaEngine.append)
    prepend = _alone(MetaEngine.prepend)
    cas = _alone(MetaEngine.cas)
    incr = _alone(MetaEngine.incr)
    decr = _alone(MetaEngine.decr)
    recount = _alone(MetaEngine.recount)
    touch = _alone(MetaEngine.touch)
    fetch_and_touch = _alone(MetaEngine.fetch_and_touch)
    refuse_large = _alone(MetaEngine.refuse_large)
    retrieve = _alone(MetaEngine.retrieve)
    store = _alone(MetaEngine.store)
    remove = _alone(MetaEngine.remove)

    def count(
        self,
        key: bytes,
        delta: int,
        *,
        down: bool = False,
        compare: int | None = None,
        initial: int | None = None,
        exptime: int = 0,
        touch: int | None = None,
        unique: int | None = None,
    ) -> Counted:
        """Add or subtract; see `MetaEngine`."""
        with self.alone(key, len(key)):
            self._assigned = unique
            try:
                return super().count(
                    key,
                    delta,
                    down=down,
                    compare=compare,
                    initial=initial,
                    exptime=exptime,
                    touch=touch,
                    unique=unique,
                )
            finally:
                self._assigned = None

    def _put_content(self, key: bytes, old: Item | None, content: Content) -> None:
        # A number is stored with its cas unique at once: there may be no room for another record.
        if self._assigned is not None:
            flags = (content.meta_flags or MetaFlags())._replace(unique=self._assigned)
            content = content._replace(meta_flags=flags)
        super()._put_content(key, old, content)
