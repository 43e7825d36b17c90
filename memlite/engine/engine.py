"""The engine: each command on items in a table, counted. Synchronous, so atomic by itself."""

from collections.abc import Callable

from memlite.backends import Item, Marks, Part, nameable
from memlite.backends.item import (
    END,
    EPOCH,
    FETCHED,
    FRESH_BITS,
    FULL,
    LINE_BESIDE_KEY,
    STATE_BITS,
    VIEW_FROM,
    FullItem,
    key_of,
    line_of,
    shared,
    wire_form,
)
from memlite.backends.usage import MASK, Usage
from memlite.clock import Clock
from memlite.engine import semantics
from memlite.engine.observer import EXPIRED, FLUSHED, FOUND, NOT_FOUND, Observer
from memlite.engine.prefixes import PrefixStats
from memlite.engine.semantics import Content, Decision, Outcome
from memlite.engine.sizes import SizeClasses
from memlite.engine.table import Table
from memlite.errors import CommandError, OutOfMemoryError
from memlite.native import mypyc_attr
from memlite.protocol.limits import item_total
from memlite.stats import Counters

__all__ = ["Engine"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine:
    """Carries out commands on items, and counts them.

    Args:
        table: holds the items.
        clock: tells when items expire.
        counters: what is counted goes there.
        item_size: the largest item, as `memlite.protocol.limits.item_total` counts it.
        cas: give out cas uniques (not with ``-C``).
        sizes: the classes in which evictions and reclaims are counted.

    Attributes:
        prefixes: counters per key prefix, while ``stats detail on`` holds, else None.
        observer: is told what happens to items, while somebody watches, else None.
        observed: whether either of them wants to know of commands: one question for both on the
            way of each command.
    """

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

    def observe(self, prefixes: PrefixStats | None, observer: Observer | None) -> None:
        """Count by prefix, and tell an observer, from now on; None for neither."""
        self.prefixes = prefixes
        self.observer = observer
        self.observed = prefixes is not None or (observer is not None and observer.commands)
        self.usage.watch(self.observed)

    # Reading

    def hit(self, line: bytes) -> bytes | None:
        r"""Return the whole reply to ``get <key>\r\n`` if that can be had at once, and count it.

        After None nothing was done, and `collect` has to be asked: perhaps the line is another
        command.
        """
        return None

    def look_closer(self, item: Item) -> bool:
        """Note the use of an item of which there is more to look at, for a get by its whole line.

        Returns:
            Whether `Item.wire` is the reply, which remains to be counted.
        """
        if (
            self.observed
            or item.marks is not None  # perhaps the key is no word, and was not asked for
            or (item.expires and item.expires <= self.clock.now())
        ):
            return False
        item.state = self.usage.read[item.state & MASK]
        return True

    def collect(self, keys: list[bytes], out: list[Part]) -> None:
        """Append the reply to a get for each item that is there, as `fetch` finds them one by one.

        The end of the reply remains to be appended.
        """
        if self.observed:
            for key in keys:
                item = self.fetch(key)
                if item is not None:
                    out += item.entry()
            return
        straight, append = self.usage.straight, out.append
        hits = len(keys)
        for key, item in zip(keys, self.table.find_all(keys), strict=True):
            if item is not None and (state := straight[item.state & MASK]):
                item.state = state
            elif item is not None and not (item.expires and item.expires <= self.clock.now()):
                item.state = self.usage.read[item.state & MASK]
            else:
                if item is not None:  # it may be asked for twice, and be gone by now
                    item = self.table.get(key)
                self._count_miss(key, item)
                hits -= 1
                continue
            wire = item.wire
            if len(wire) < VIEW_FROM:
                append(wire[:-END])
            else:
                out += item.entry()
        self.counters.hits += hits

    def fetch(self, key: bytes) -> Item | None:
        """Return the item for get and gets, counting the hit or miss."""
        item = self.table.find(key)
        state = FOUND
        if item is not None and (not item.expires or item.expires > self.clock.now()):
            item.state = self.usage.read[item.state & MASK]
            self.counters.hits += 1
        else:
            state = self._count_miss(key, item)
            item = None
        if self.observed:
            self._observe_fetch(key, item, state)
            if self.prefixes is not None:
                self.prefixes.record_get(key, item is not None)
        return item

    def _bump(self, key: bytes, item: Item) -> None:
        self.table.find(key)
        item.state = self.usage.read[item.state & MASK]

    def _count_miss(self, key: bytes, expired: Item | None) -> str:
        self.counters.get_misses += 1
        return self._count_absent(key, expired)

    def _count_absent(self, key: bytes, expired: Item | None) -> str:
        """Count why there is no item; return it as `Observer.fetched` takes it."""
        if expired is not None:
            self.counters.get_expired += 1
            self._drop_expired(key, expired)
            return EXPIRED
        if self.table.pop_flushed(key) is not None:
            self.counters.get_flushed += 1
            return FLUSHED
        return NOT_FOUND

    def _observe_fetch(self, key: bytes, item: Item | None, state: str) -> None:
        if self.observer is not None:
            self.observer.fetched(key, item, state)

    def fetch_and_touch(self, key: bytes, exptime: int) -> Item | None:
        """Return the item for gat and gats, with its new expiry."""
        item = self._retime(key, exptime)
        if self.prefixes is not None:
            self.prefixes.record_get(key, item is not None)
        return item

    def peek(self, key: bytes) -> Item | None:
        """Return the item if it is there and has not expired, counting nothing."""
        item = self.table.get(key)
        if item is not None and item.expires and item.expires <= self.clock.now():
            return None
        return item

    def _look_up(self, key: bytes) -> Item | None:
        """Return the item to change or remove; one that expired or was flushed is counted out."""
        item = self.peek(key)
        state = FOUND
        if item is None:
            state = self._count_absent(key, self.table.get(key))
        if self.observed:
            self._observe_fetch(key, item, state)
        return item

    def unique(self, item: Item) -> int:
        """Return the cas unique that gets shows for an item; 0 for all with ``-C``.

        0 also while the item is yet to be stored by a backend, see `unnumbered`.
        """
        return self.numbered(item).unique if self.cas_enabled else 0

    def numbered(self, item: Item) -> Item:
        """Return the item that is stored for `item` once that has its cas unique."""
        return item

    def unnumbered(self, item: Item) -> bool:
        """Return whether an item has no cas unique yet, but will once the backend has stored it."""
        return False

    # Storing

    def set(self, key: bytes, flags: int, exptime: int, value: bytes) -> None:
        """Store, whatever was there.

        Raises:
            OutOfMemoryError: it does not fit and may not evict; an older item is removed.
        """
        try:
            if self.observed:
                self._store("set", key, flags, exptime, value, semantics.always)
                return
            self.counters.cmd_set += 1
            expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0
            self._put(key, self.table.find(key), wire_form(key, flags, value), expires)
        except OutOfMemoryError:
            # What could not be replaced must not be served as if it were current.
            self.table.delete(key)
            raise

    def set_framed(self, key: bytes, exptime: int, wire: bytes) -> None:
        """Store like `set`, a value that is framed as an item keeps it.

        Args:
            key: the item's.
            exptime: as for `set`.
            wire: see `Item`.

        Raises:
            OutOfMemoryError: as for `set`.
        """
        self._set_framed(key, self.table.find(key), exptime, wire)

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
        """Store if absent; see `semantics.add`. A present item counts as if stored anew."""
        outcome = self._store("add", key, flags, exptime, value, semantics.add)
        if outcome is Outcome.NOT_STORED:
            self._renew(key)
        return outcome

    def _renew(self, key: bytes) -> None:
        item = self.table.find(key)
        if item is not None:
            item.state = self.usage.seen[item.state & MASK]

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if present; see `semantics.replace`."""
        return self._store("replace", key, flags, exptime, value, semantics.replace)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Put behind the present value; see `semantics.append`."""
        return self._store("append", key, flags, exptime, value, semantics.append)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Put before the present value; see `semantics.prepend`."""
        return self._store("prepend", key, flags, exptime, value, semantics.prepend)

    def cas(self, key: bytes, flags: int, exptime: int, value: bytes, unique: int) -> Outcome:
        """Store if unchanged; see `semantics.cas`. With ``-C`` nothing is ever unchanged."""

        def decide(current: Item | None, new: Content) -> Decision:
            if current is not None:
                current = self.numbered(current)
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
        self.counters.cmd_set += 1
        if self.prefixes is not None:
            self.prefixes.record_set(key)
        current = self.peek(key)
        new = Content(value, flags, semantics.expiry(exptime, self.clock.now()))
        return self._carry_out(command, key, new, decide(current, new))

    def _carry_out(self, command: str, key: bytes, new: Content, decision: Decision) -> Outcome:
        """Store what was decided on `new`, which a client has sent."""
        outcome, content = decision
        if content is not None and len(content.value) != len(new.value):
            # Only append and prepend make a value longer than the parser let through.
            total = item_total(len(key), content.flags, len(content.value), cas=self.cas_enabled)
            if total > self._item_size:
                # memcached fails to allocate the joined item and says so by NOT_STORED.
                outcome, content = Outcome.NOT_STORED, None
        if self.observer is None:
            if content is not None:
                self._put_content(key, self.table.find(key), content)
            return outcome
        self._observe_replaced(command, key)
        status = outcome.name.lower()
        try:
            if content is not None:
                self._put_content(key, self.table.find(key), content)
        except OutOfMemoryError:
            status = "no_memory"
            raise
        finally:
            tried = content or new
            size = len(tried.value)
            self.observer.stored(command, key, tried.flags, size, tried.expires, status)
        return outcome

    def _observe_replaced(self, command: str, key: bytes) -> None:
        """Tell the observer what a storage command finds before it stores."""
        self._observe_present(key, self.table.get(key))

    def _observe_present(self, key: bytes, item: Item | None) -> None:
        if item is None:
            self._observe_fetch(key, None, NOT_FOUND)
        elif item.expires and item.expires <= self.clock.now():
            self._observe_fetch(key, None, EXPIRED)
        else:
            self._observe_fetch(key, item, FOUND)

    def refuse_large(self, key: bytes, *, removes: bool, command: str = "set") -> None:
        """Count a value over the item size; with `removes` (for set) an older item goes."""
        self.counters.store_too_large += 1
        if self.observer is not None:
            self.observer.stored(command, key, 0, 0, 0, "too_large")
            if removes:
                self._observe_replaced(command, key)
        if removes:
            self.table.delete(key)

    def _put_content(self, key: bytes, old: Item | None, content: Content) -> None:
        value, flags, expires, marks = content
        name = key if marks is None or nameable(key) else b""
        self._put(key, old, wire_form(name, flags, value), expires, marks)

    def _put(
        self,
        key: bytes,
        old: Item | None,
        wire: bytes,
        expires: float,
        marks: Marks | None = None,
    ) -> None:
        counters = self.counters
        try:
            if old is None:
                item = Item(wire, self.usage.fresh)
                if expires or marks is not None:
                    item = FullItem(wire, self.usage.fresh, expires)
                    item.marks = marks
                if self.table.pop_flushed(key) is not None:
                    self._count_reclaimed(key, item)
                self.table.put(key, item)
            else:
                if old.state & FULL and old.expires and old.expires <= self.clock.now():
                    self._count_renewed_expired(key, old)
                state = self.usage.seen[old.state & FRESH_BITS]
                self.table.renew(key, old, wire, expires, state, marks)
        except OutOfMemoryError:
            counters.store_no_memory += 1
            raise
        counters.total_items += 1

    def _count_renewed_expired(self, key: bytes, item: Item) -> None:
        if not item.fetched:
            self.counters.expired_unfetched += 1
        self._count_reclaimed(key, item)

    def _count_reclaimed(self, key: bytes, item: Item) -> None:
        self.counters.reclaimed += 1
        self.sizes.gone[self.sizes.of_item(len(key), item)].reclaimed += 1

    # Changing and removing

    def delete(self, key: bytes) -> bool:
        """Remove a key; return whether it was there."""
        if self.prefixes is not None:
            self.prefixes.record_delete(key)
        item = self._look_up(key)
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
        result = self._count(key, delta)
        if result is Outcome.NOT_FOUND:
            self.counters.incr_misses += 1
        elif isinstance(result, int):
            self.counters.incr_hits += 1
        return result

    def decr(self, key: bytes, delta: int) -> int | Outcome:
        """Subtract, down to 0; return the new number, or why there is none."""
        result = self._count(key, -delta)
        if result is Outcome.NOT_FOUND:
            self.counters.decr_misses += 1
        elif isinstance(result, int):
            self.counters.decr_hits += 1
        return result

    def _count(self, key: bytes, delta: int) -> int | Outcome:
        current = self._look_up(key)
        outcome, number, content = semantics.count(current, delta)
        if content is None:
            return outcome
        in_place = current is not None and current.size == len(content.value)
        fetched = current is not None and current.fetched
        try:
            self._put_content(key, self.table.find(key), content)
            # memcached writes a number that fits into the item it has, which is no new one.
            if in_place:
                self.counters.total_items -= 1
                item = self.table.get(key)
                if item is not None and fetched:
                    item.state = shared(item.state | FETCHED)
        except OutOfMemoryError as error:
            raise CommandError(b"SERVER_ERROR out of memory\r\n") from error
        return number

    def touch(self, key: bytes, exptime: int) -> bool:
        """Set a new expiry; return whether the key was there."""
        return self._retime(key, exptime) is not None

    def _retime(self, key: bytes, exptime: int) -> Item | None:
        counters = self.counters
        counters.cmd_touch += 1
        item = self._look_up(key)
        if item is None:
            counters.touch_misses += 1
            return None
        counters.touch_hits += 1
        expires = semantics.expiry(exptime, self.clock.now())
        item = self.table.alter(key, item, expires, item.marks)
        self._bump(key, item)
        return item

    # Making room

    def count_eviction(self, key: bytes, item: Item) -> None:
        """Count an item that made room for another."""
        self.count_evictions([(line_of(key), item, 0)])

    def count_evictions(self, gone: list[tuple[bytes, Item, int]]) -> None:
        """Count items that made room for others, as `Policy.evict` returns them."""
        counters, sizes = self.counters, self.sizes
        second = self.clock.second - EPOCH
        for line, item, _ in gone:
            counts = sizes.gone[sizes.of_item(len(line) - LINE_BESIDE_KEY, item)]
            state = item.state
            if state & FULL and item.expires:
                if item.expires <= self.clock.now():
                    # memcached's allocator takes an expired tail first, and calls that reclaiming.
                    counters.reclaimed += 1
                    counts.reclaimed += 1
                    if not item.fetched:
                        counters.expired_unfetched += 1
                    continue
                counts.evicted_nonzero += 1
            if self.observer is not None:
                self.observer.evicted(key_of(line), item)
            counters.evictions += 1
            counts.evicted += 1
            if not state & FETCHED:
                counters.evicted_unfetched += 1
                counts.evicted_unfetched += 1
            counts.evicted_time = second - (state >> STATE_BITS)

    def _drop_expired(self, key: bytes, item: Item) -> None:
        if not item.fetched:
            self.counters.expired_unfetched += 1
        self.table.drop(key)
