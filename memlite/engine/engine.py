"""The engine: carries out commands on items in a table, synchronously and so atomically."""

from collections.abc import Callable

from memlite.core.build import mypyc_attr
from memlite.core.clock import Clock
from memlite.core.errors import OutOfMemoryError, Shortage
from memlite.core.meta_flags import MetaFlags
from memlite.engine import semantics
from memlite.engine.observer import EXPIRED, FLUSHED, FOUND, NOT_FOUND, Observer
from memlite.engine.prefixes import PrefixStats
from memlite.engine.semantics import Content, Decision, Outcome
from memlite.engine.sizes import SizeClasses
from memlite.engine.table import Table
from memlite.memory import Item, ItemTable, Part, nameable
from memlite.memory.item import (
    END,
    EPOCH,
    FETCHED,
    FRESH_BITS,
    FULL,
    LINE_OVERHEAD,
    STATE_BITS,
    VIEW_FROM,
    FullItem,
    key_of,
    line_of,
    shared,
    wire_form,
)
from memlite.memory.usage import MASK, Usage
from memlite.protocol.limits import MAX_KEY_LENGTH, item_total
from memlite.telemetry.counters import Counters

__all__ = ["Engine"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine:
    """Carries out commands on items, and counts them.

    Args:
        table: holds the items.
        clock: the clock by which items expire.
        counters: the server's counters.
        item_size: the largest item, as `memlite.protocol.limits.item_total` counts it.
        cas: whether items have cas uniques (not with ``-C``).
        sizes: the size classes, with counts of evictions and reclaims.

    Attributes:
        prefixes: counters per key prefix, while ``stats detail`` is on; else None.
        observer: notified of changes to items, while a client watches; else None.
        observed: whether either of them has to see every command; a single check on the hot path.
        items: the table, if it holds all items; engines on other tables have none.
        safe_size: a value of up to this many bytes fits with any key and flags.
    """

    items: ItemTable

    def __init__(
        self,
        table: Table,
        clock: Clock,
        counters: Counters,
        *,
        item_size: int = 1024 * 1024,
        cas: bool = True,
        sizes: SizeClasses | None = None,
    ) -> None:
        self.table = table
        self.clock = clock
        self.counters = counters
        self.cas_enabled = cas
        self.sizes = sizes or SizeClasses(item_size_max=item_size)
        self.usage = Usage(clock.second)
        clock.on_tick(self.usage.tick)
        self.observe(None, None)
        self._item_size = item_size
        self.safe_size = item_size - item_total(MAX_KEY_LENGTH, 1, 0)

    def observe(self, prefixes: PrefixStats | None, observer: Observer | None) -> None:
        """Count by prefix and notify an observer from now on; None turns either off."""
        self.prefixes = prefixes
        self.observer = observer
        self.observed = prefixes is not None or (observer is not None and observer.wants_commands)
        self.usage.watch(self.observed)

    # Reading

    def try_get(self, line: bytes) -> bytes | None:
        r"""Return the complete reply to ``get <key>\r\n`` if it exists already, and count the hit.

        None means that nothing was done, and `collect` has to be used: the line may also be another
        command.
        """
        return None

    def miss(self, line: bytes) -> bytes | None:
        r"""Return the reply to a line ``get <key>\r\n`` not in the table; count a miss.

        None means that nothing was done, as with `try_get`: the line may be another command.
        """
        return None

    def is_miss(self, line: bytes) -> bool:
        r"""Return whether ``get <key>\r\n`` certainly finds no item; if so, count the miss."""
        return False

    def can_serve(self, item: Item) -> bool:
        """Check whether the stored reply can be served for an item off the fast path; note its use.

        Returns:
            Whether `Item.wire` is the reply. The caller counts the hit.
        """
        if (
            self.observed
            or item.meta_flags is not None  # its key may be binary: the line requests another
            or (item.expires and item.expires <= self.clock.now())
        ):
            return False
        item.state = self.usage.read[item.state & MASK]
        return True

    def collect(self, keys: list[bytes], out: list[Part]) -> None:
        """Append the reply of a get for each item that exists, and count as `fetch` does.

        The caller appends the END line.
        """
        if self.observed:
            for key in keys:
                item = self.fetch(key)
                if item is not None:
                    out += item.entry()
            return
        fast_read, append = self.usage.fast_read, out.append
        hits = len(keys)
        for key, item in zip(keys, self.table.find_all(keys), strict=True):
            if item is not None and (state := fast_read[item.state & MASK]):
                item.state = state
            elif item is not None and not (item.expires and item.expires <= self.clock.now()):
                item.state = self.usage.read[item.state & MASK]
            else:
                if item is not None:  # a duplicate key, whose item has been removed by now
                    item = self.table.get(key)
                self.counters.get_misses += 1
                self._count_absent(key, item)
                hits -= 1
                continue
            wire = item.wire
            if len(wire) < VIEW_FROM:
                append(wire[:-END])
            else:
                out += item.entry()
        self.counters.hits += hits

    def serve_lines(self, lines: list[bytes], out: list[Part]) -> int:
        r"""Append the replies to gets, and count hits and misses, up to the first unusual one.

        Args:
            lines: ``get <key>*\r\n``, or any other line.
            out: the list to append to.

        Returns:
            How many lines were answered.
        """
        return 0

    def collect_lines(self, lines: list[bytes], out: list[Part]) -> bool:
        r"""Append the reply to a get of several keys, ``END`` included, and count hits and misses.

        Args:
            lines: ``get <key>\r\n`` for each key.
            out: the list to append to.

        Returns:
            False if nothing was done, and `collect` has to be used.
        """
        return False

    def fetch(self, key: bytes) -> Item | None:
        """Return the item for get and gets; count the hit or miss."""
        item = self.table.find(key)
        state = FOUND
        if item is not None and (not item.expires or item.expires > self.clock.now()):
            item.state = self.usage.read[item.state & MASK]
            self.counters.hits += 1
        else:
            self.counters.get_misses += 1
            state = self._count_absent(key, item)
            item = None
        if self.observed:
            self._observe_fetch(key, item, state)
            if self.prefixes is not None:
                self.prefixes.record_get(key, item is not None)
        return item

    def fetch_plain(self, key: bytes) -> Item | None:
        """Return the item and count a hit, if it is plain: no expiry, cas unique or meta flags.

        None means that nothing was done.
        """
        return None

    def retime_plain(self, key: bytes, exptime: int) -> Item | None:
        """Touch an item that has an expiry both before and after, or neither, and return it.

        None means that nothing was done.
        """
        return None

    def join(self, key: bytes, before: bytes, after: bytes) -> Item | None:
        """Add to both ends of the value of an item, and return the item.

        None means that nothing was done.
        """
        return None

    def count_in_place(self, key: bytes, delta: int, down: bool) -> tuple[int, bytes, Item] | None:
        """Add to a number if it then needs no more room; return it, its digits and its item.

        None means that nothing was done.

        Args:
            key: the key.
            delta: the number to add or subtract.
            down: whether to subtract.
        """
        return None

    def _bump(self, key: bytes, item: Item) -> None:
        self.table.find(key)
        item.state = self.usage.read[item.state & MASK]

    def _count_absent(self, key: bytes, expired: Item | None) -> str:
        """Count why there is no item; return the reason for `Observer.fetched`."""
        if expired is not None:
            self.counters.get_expired += 1
            self._drop_expired(key, expired)
            return EXPIRED
        if self.table.pop_flushed(key) is not None:
            self.counters.get_flushed += 1
            return FLUSHED
        return NOT_FOUND

    def _count_if_absent(self, key: bytes) -> None:
        """If a storage command that changes nothing finds no item, count the reason."""
        if self.peek(key) is None:
            self._count_absent(key, self.table.get(key))

    def _observe_fetch(self, key: bytes, item: Item | None, state: str) -> None:
        if self.observer is not None:
            self.observer.fetched(key, item, state)

    def fetch_and_touch(self, key: bytes, exptime: int) -> Item | None:
        """Return the item for gat and gats, after setting its new expiry."""
        item = self._retime(key, exptime)
        if self.prefixes is not None:
            self.prefixes.record_get(key, item is not None)
        return item

    def peek(self, key: bytes) -> Item | None:
        """Return the item if it exists and has not expired; count nothing."""
        item = self.table.get(key)
        if item is not None and item.expires and item.expires <= self.clock.now():
            return None
        return item

    def look_up(self, key: bytes) -> Item | None:
        """Return the item to change, remove or show; count one that has expired or was flushed."""
        item = self.peek(key)
        state = FOUND
        if item is None:
            state = self._count_absent(key, self.table.get(key))
        if self.observed:
            self._observe_fetch(key, item, state)
        return item

    def unique(self, item: Item, compared: int = 0) -> int:
        """Return the cas unique of an item for clients; always 0 with ``-C``.

        It is also 0 until a backend has stored the item, see `awaits_version`. For `compared` see
        `with_unique`.
        """
        return self.with_unique(item, compared).unique if self.cas_enabled else 0

    def with_unique(self, item: Item, compared: int = 0) -> Item:
        """Return the stored item, after assigning its cas unique if it has none.

        Args:
            item: the item.
            compared: the unique that a client compares with; it is not assigned now.
        """
        return item

    def awaits_version(self, item: Item) -> bool:
        """Return whether an item gets its cas unique only when the backend has stored it."""
        return False

    # Storing

    def set(self, key: bytes, flags: int, exptime: int, value: bytes) -> None:
        """Store unconditionally.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted. An older item is removed.
        """
        try:
            if self.observed:
                self._store("set", key, flags, exptime, value, semantics.always)
                return
            self.counters.cmd_set += 1
            expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0
            self._put(key, self.table.find(key), wire_form(key, flags, value), expires)
        except OutOfMemoryError:
            # An older item must not be served as if it were current.
            self.table.delete(key)
            raise

    def set_framed(self, key: bytes, exptime: int, wire: bytes) -> None:
        """Store like `set`, with flags and value already in the form in which items keep them.

        Args:
            key: the key.
            exptime: as for `set`.
            wire: see `Item`.

        Raises:
            OutOfMemoryError: as for `set`.
        """
        self._set_framed(key, self.table.find(key), exptime, wire)

    def replace_framed(self, key: bytes, exptime: int, wire: bytes) -> Outcome:
        """Store like `replace`, with flags and value in the form in which items keep them."""
        new = Item(wire, 0)
        return self.replace(key, new.flags, exptime, new.value)

    def _set_framed(self, key: bytes, old: Item | None, exptime: int, wire: bytes) -> None:
        if self.observed:
            new = Item(wire, 0)
            self.set(key, new.flags, exptime, new.value)
            return
        self.counters.cmd_set += 1
        expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0
        try:
            self._put(key, old, wire, expires)
        except OutOfMemoryError:
            self.table.delete(key)
            raise

    def add(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if absent; see `semantics.add`. If not absent, the item counts as used."""
        outcome = self._store("add", key, flags, exptime, value, semantics.add)
        if outcome is Outcome.NOT_STORED:
            self._mark_used(key)
        return outcome

    def _mark_used(self, key: bytes) -> None:
        item = self.table.find(key)
        if item is not None:
            item.state = self.usage.used[item.state & MASK]

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if present; see `semantics.replace`."""
        return self._store("replace", key, flags, exptime, value, semantics.replace)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Append to the value; see `semantics.append`."""
        return self._store("append", key, flags, exptime, value, semantics.append)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Prepend to the value; see `semantics.prepend`."""
        return self._store("prepend", key, flags, exptime, value, semantics.prepend)

    def cas(self, key: bytes, flags: int, exptime: int, value: bytes, unique: int) -> Outcome:
        """Store if unchanged; see `semantics.cas`. With ``-C`` it never stores."""

        def decide(current: Item | None, new: Content) -> Decision:
            if current is not None:
                current = self.with_unique(current, unique)
            return semantics.cas(current, new, unique if self.cas_enabled else -1)

        outcome = self._store("cas", key, flags, exptime, value, decide)
        self._count_cas(outcome)
        return outcome

    def _count_cas(self, outcome: Outcome) -> None:
        counters = self.counters
        if outcome is Outcome.STORED:
            counters.cas_hits += 1
        elif outcome is Outcome.EXISTS:
            counters.cas_badval += 1
        else:
            counters.cas_misses += 1

    def _store(
        self,
        command: str,
        key: bytes,
        flags: int,
        exptime: int,
        value: bytes,
        decide: Callable[[Item | None, Content], Decision],
    ) -> Outcome:
        self.count_store(key)
        current = self.peek(key)
        new = Content(value, flags, semantics.expiry(exptime, self.clock.now()))
        return self._carry_out(command, key, new, decide(current, new))

    def count_store(self, key: bytes) -> None:
        """Count a storage command, even one that stores nothing."""
        self.counters.cmd_set += 1
        if self.prefixes is not None:
            self.prefixes.record_set(key)

    def _carry_out(self, command: str, key: bytes, new: Content, decision: Decision) -> Outcome:
        """Store the content decided on for `new`, the content that a client sent."""
        outcome, content = decision
        if content is not None and len(content.value) != len(new.value):
            # Only append and prepend produce a longer value than the parser has checked.
            total = item_total(len(key), content.flags, len(content.value), cas=self.cas_enabled)
            if total > self._item_size:
                # memcached fails to allocate the joined item, and replies NOT_STORED.
                outcome, content = Outcome.NOT_STORED, None
        if self.observer is None:
            self._put_decided(key, content)
            return outcome
        self._observe_replaced(command, key)
        status = outcome.name.lower()
        try:
            self._put_decided(key, content)
        except OutOfMemoryError:
            status = "no_memory"
            raise
        finally:
            tried = content or new
            size = len(tried.value)
            self.observer.stored(command, key, tried.flags, size, tried.expires, status)
        return outcome

    def _put_decided(self, key: bytes, content: Content | None) -> None:
        if content is None:
            self._count_if_absent(key)
        else:
            self._put_content(key, self.table.find(key), content)

    def _observe_replaced(self, command: str, key: bytes) -> None:
        """Notify the observer of the item that a storage command finds before it stores."""
        self._observe_present(key, self.table.get(key))

    def _observe_present(self, key: bytes, item: Item | None) -> None:
        if item is None:
            self._observe_fetch(key, None, NOT_FOUND)
        elif item.expires and item.expires <= self.clock.now():
            self._observe_fetch(key, None, EXPIRED)
        else:
            self._observe_fetch(key, item, FOUND)

    def refuse_large(self, key: bytes, *, removes: bool, command: str = "set") -> None:
        """Count a value over the item size; with `removes` (for set), remove an older item."""
        self.counters.store_too_large += 1
        if self.observer is not None:
            self.observer.stored(command, key, 0, 0, 0, "too_large")
            if removes:
                self._observe_replaced(command, key)
        if removes:
            self._count_if_absent(key)
            self.table.delete(key)

    def _put_content(self, key: bytes, old: Item | None, content: Content) -> None:
        value, flags, expires, meta_flags = content
        name = key if meta_flags is None or nameable(key) else b""
        self._put(key, old, wire_form(name, flags, value), expires, meta_flags)

    def _put(
        self,
        key: bytes,
        old: Item | None,
        wire: bytes,
        expires: float,
        meta_flags: MetaFlags | None = None,
    ) -> None:
        counters = self.counters
        try:
            if old is None:
                item = Item(wire, self.usage.fresh)
                if expires or meta_flags is not None:
                    item = FullItem(wire, self.usage.fresh, expires)
                    item.meta_flags = meta_flags
                if self.table.pop_flushed(key) is not None:
                    counters.get_flushed += 1
                    self._count_reclaimed(key, item)
                self.table.put(key, item)
            else:
                if old.state & FULL and old.expires and old.expires <= self.clock.now():
                    self._count_overwritten_expired(key, old)
                state = self.usage.used[old.state & FRESH_BITS]
                self.table.overwrite(key, old, wire, expires, state, meta_flags)
        except OutOfMemoryError:
            counters.store_no_memory += 1
            raise
        counters.total_items += 1

    def _count_overwritten_expired(self, key: bytes, item: Item) -> None:
        self.counters.get_expired += 1
        if not item.fetched:
            self.counters.expired_unfetched += 1
        self._count_reclaimed(key, item)

    def _count_reclaimed(self, key: bytes, item: Item) -> None:
        self.counters.reclaimed += 1
        self.sizes.evictions[self.sizes.of_item(len(key), item)].reclaimed += 1

    # Changing and removing

    def delete(self, key: bytes) -> bool:
        """Remove a key; return whether it was there."""
        if self.prefixes is not None:
            self.prefixes.record_delete(key)
        item = self.look_up(key)
        if item is None:
            self.counters.delete_misses += 1
            return False
        if self.observer is not None:
            self.observer.deleted("delete", key, item)
        self.table.delete(key)
        self.counters.delete_hits += 1
        return True

    def incr(self, key: bytes, delta: int) -> int | Outcome:
        """Add; return the new number, or why there is none. See `semantics.count`."""
        return self.recount(key, delta, False)

    def decr(self, key: bytes, delta: int) -> int | Outcome:
        """Subtract, down to 0; return the new number, or why there is none."""
        return self.recount(key, delta, True)

    def recount(self, key: bytes, delta: int, down: bool) -> int | Outcome:
        """Add or subtract like `incr` and `decr`, without trying `count_in_place` first."""
        counters = self.counters
        result = self._count(key, -delta if down else delta)
        if result is Outcome.NOT_FOUND:
            if down:
                counters.decr_misses += 1
            else:
                counters.incr_misses += 1
        elif isinstance(result, int):
            if down:
                counters.decr_hits += 1
            else:
                counters.incr_hits += 1
        return result

    def _count(self, key: bytes, delta: int) -> int | Outcome:
        current = self.look_up(key)
        outcome, number, content = semantics.count(current, delta)
        if content is None:
            return outcome
        in_place = current is not None and current.size == len(content.value)
        fetched = current is not None and current.fetched
        try:
            self._put_content(key, self.table.find(key), content)
            # memcached writes a number that fits into the existing item, so it is not a new one.
            if in_place:
                self.counters.total_items -= 1
                if fetched:
                    self._mark_fetched(key)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(Shortage.NUMBER) from error
        return number

    def _mark_fetched(self, key: bytes) -> None:
        item = self.table.get(key)
        if item is not None:
            item.state = shared(item.state | FETCHED)

    def touch(self, key: bytes, exptime: int) -> bool:
        """Set a new expiry; return whether the key was there."""
        return self._retime(key, exptime) is not None

    def _retime(self, key: bytes, exptime: int) -> Item | None:
        counters = self.counters
        counters.cmd_touch += 1
        item = self.look_up(key)
        if item is None:
            counters.touch_misses += 1
            return None
        counters.touch_hits += 1
        expires = semantics.expiry(exptime, self.clock.now())
        item = self.table.update_metadata(key, item, expires, item.meta_flags)
        self._bump(key, item)
        return item

    # Making room

    def count_eviction(self, key: bytes, item: Item) -> None:
        """Count an evicted item."""
        self.count_evictions([(line_of(key), item, 0)])

    def count_evictions(self, gone: list[tuple[bytes, Item, int]]) -> None:
        """Count evicted items, as `Policy.evict` returns them."""
        counters, sizes, observer = self.counters, self.sizes, self.observer
        second = self.clock.second - EPOCH
        evicted = unfetched = 0
        for line, item, _ in gone:
            counts = sizes.evictions[sizes.of_item(len(line) - LINE_OVERHEAD, item)]
            state = item.state
            if state & FULL and item.expires:
                if item.expires <= self.clock.now():
                    # memcached's allocator uses an expired tail first, and counts it as reclaimed.
                    counters.reclaimed += 1
                    counts.reclaimed += 1
                    if not item.fetched:
                        counters.expired_unfetched += 1
                    continue
                counts.evicted_nonzero += 1
            if observer is not None:
                observer.evicted(key_of(line), item)
            evicted += 1
            counts.evicted += 1
            if not state & FETCHED:
                unfetched += 1
                counts.evicted_unfetched += 1
            counts.evicted_time = second - (state >> STATE_BITS)
        counters.evictions += evicted
        counters.evicted_unfetched += unfetched

    def _drop_expired(self, key: bytes, item: Item) -> None:
        if not item.fetched:
            self.counters.expired_unfetched += 1
        self.table.drop(key)
