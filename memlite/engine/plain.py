"""Shortcuts for the usual cases of commands: one lookup in the table of all items."""

from operator import itemgetter
from typing import Final

from memlite.core.build import mypyc_attr
from memlite.core.clock import Clock
from memlite.core.errors import OutOfMemoryError
from memlite.engine import semantics
from memlite.engine.meta import MetaEngine
from memlite.engine.semantics import Outcome
from memlite.engine.sizes import SizeClasses
from memlite.memory import FullItem, Item, ItemTable, Part
from memlite.memory.item import END, FETCHED, FRESH_BITS, FULL, VIEW_FROM, extended, wire_form
from memlite.memory.usage import MASK
from memlite.protocol import replies
from memlite.protocol.limits import CLUSTER_LINE, MAX_GET_LENGTH, item_total
from memlite.telemetry.counters import Counters

__all__ = ["PlainEngine"]

# Everything that begins with "get " sorts between these two; comparing costs half as much as
# `startswith`.
_GET: Final = b"get "
_GET_END: Final = b"get!"
_SPACE_AT: Final = len(b"get")
_CR: Final = 13
_SHORTEST_GET: Final = len(b"get k\r\n")
# The most small parts of a reply to join, which make at most 128 KiB.
_MAX_JOINED: Final = 128
# Cuts END off a short reply, without the interpreter's overhead for a slice.
_without_end: Final = itemgetter(slice(-END))
_STORED: Final = Outcome.STORED
_NOT_STORED: Final = Outcome.NOT_STORED
# The bits of its state that an item keeps when its number changes.
_KEPT_BITS: Final = FRESH_BITS | FULL
# Digits of a number that is certainly below 2**64.
_SAFE_DIGITS: Final = 19


@mypyc_attr(allow_interpreted_subclasses=True)
class PlainEngine(MetaEngine):
    """Carries out commands on plain items, and on absent ones, with a single lookup.

    A plain item has no expiry, cas unique or meta flags. `Usage.fast_read` and `Usage.fast_store`
    are 0 for all others, and for all items while commands are observed: one list lookup decides
    whether there is a shortcut. Items with an expiry or a cas unique, but no meta flags, get a new
    value in place where possible (`_kept`). All other cases are left to the general methods, whose
    results are the same.

    `ItemTable.get_by_line` is an attribute, not a method: a call takes 200 instructions less if it
    is bound to a local first.

    Args:
        items: the table that holds all items.
        clock: see `Engine`.
        counters: see `Engine`.
        item_size: see `Engine`.
        cas: see `Engine`.
        sizes: see `Engine`.
    """

    def __init__(
        self,
        items: ItemTable,
        clock: Clock,
        counters: Counters,
        *,
        item_size: int = 1024 * 1024,
        cas: bool = True,
        sizes: SizeClasses | None = None,
    ) -> None:
        super().__init__(items, clock, counters, item_size=item_size, cas=cas, sizes=sizes)
        self.items = self._items = items
        self._fast_read = self.usage.fast_read
        self._fast_store = self.usage.fast_store
        self._full_store = self.usage.full_store
        self._version = 0  # the last cas unique assigned

    # Reading

    def try_get(self, line: bytes) -> bytes | None:
        r"""Return the complete reply to ``get <key>\r\n`` if it exists already; see `Engine`."""
        get_by_line = self._items.get_by_line  # a local is called faster than a method
        item = get_by_line(line)
        if item is None:
            return None
        state = self._fast_read[item.state & MASK]
        if state:
            item.state = state
        elif not self.can_serve(item):
            return None
        self.counters.hits += 1
        return item.wire

    def miss(self, line: bytes) -> bytes | None:
        r"""Return the reply to ``get <key>\r\n`` for a line not in the table; see `Engine`."""
        if (
            self.observed
            or not _GET < line < _GET_END
            or line[-2] != _CR
            or line.rfind(b" ") != _SPACE_AT
            or line.find(b"\n") != len(line) - 1
            or not _SHORTEST_GET <= len(line) <= MAX_GET_LENGTH
            or line == CLUSTER_LINE
        ):
            return None
        self.counters.get_misses += 1
        if self._items.flushed is not None:
            self._count_absent(line[4:-2], None)
        return replies.END

    def is_miss(self, line: bytes) -> bool:
        """Return whether there is certainly no item; if so, count the miss. See `Engine`."""
        return self._items.get_by_line(line) is None and self.miss(line) is not None

    def fetch_plain(self, key: bytes) -> Item | None:
        """Return the item and count a hit, if it is plain; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is None:
            return None
        state = self._fast_read[item.state & MASK]
        if not state:
            return None
        item.state = state
        self.counters.hits += 1
        return item

    def fetch(self, key: bytes) -> Item | None:
        """Return the item, and count the hit or miss; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is None or self.observed or (item.state & FULL and item.expires):
            return super().fetch(key)
        item.state = self.usage.read[item.state & MASK]
        self.counters.hits += 1
        return item

    def serve_lines(self, lines: list[bytes], out: list[Part]) -> int:
        """Append the replies to gets, up to the first unusual one; see `Engine`."""
        items = self._items
        fast_read = self._fast_read
        append = out.append
        hits = served = 0
        # Nothing changes between the lookups, so they may all be done at once.
        for line, item in zip(lines, items.find_lines(lines), strict=True):
            if item is None:
                reply = self.miss(line)
                if reply is None:
                    break
                append(reply)
            elif state := fast_read[item.state & MASK]:
                item.state = state
                hits += 1
                append(item.wire)
            elif self.can_serve(item):
                hits += 1
                append(item.wire)
            else:
                break
            served += 1
        self.counters.hits += hits
        return served

    def collect_lines(self, lines: list[bytes], out: list[Part]) -> bool:
        r"""Append the reply of a get for each item that ``get <key>\r\n`` finds; see `Engine`."""
        items = self._items
        found = items.find_lines(lines)  # carries out a due flush
        if self.observed or items.flushed is not None:
            return False
        fast_read = self._fast_read
        wires: list[bytes] = []
        append = wires.append
        for item in filter(None, found):
            state = fast_read[item.state & MASK]
            if state:
                item.state = state
            elif not self._use(item):
                continue
            append(item.wire)
        hits = len(wires)
        self.counters.hits += hits
        self.counters.get_misses += len(lines) - hits
        if not hits:
            out.append(replies.END)
        elif hits <= _MAX_JOINED and sum(map(len, wires)) < hits * VIEW_FROM:
            last = wires.pop()  # with its END
            out.append(b"".join([*map(_without_end, wires), last]))
        else:
            last = wires.pop()
            out += map(_entry, wires)
            out.append(last)
        return True

    def _use(self, item: Item) -> bool:
        """Record a read of an item; if it has expired, count that and return False."""
        if item.expires and item.expires <= self.clock.now():
            key = item.key
            self._count_absent(key, self._items.get(key))  # None if the command named it before
            return False
        item.state = self.usage.read[item.state & MASK]
        return True

    # Storing

    def _kept(self, item: Item) -> int:
        """Return the state after a store that keeps the item's object; 0 if it cannot be kept.

        The states of plain items are in `Usage.fast_store`. An item with an expiry or a cas unique
        also stays the same object, and gets a new unique; see `_rewrite`.
        """
        state = self._full_store[item.state & MASK]
        if not state or not isinstance(item, FullItem):
            return 0
        if item.expires:
            if item.expires <= self.clock.now():
                return 0
        elif not item.extra:
            return 0
        return state if isinstance(item.extra, int) else 0

    def _rewrite(self, key: bytes, item: Item, wire: bytes, state: int) -> Item | None:
        """Replace an item's value, and set its state to `state`, the result of `_kept`."""
        if len(wire) == len(item.wire):
            item.wire = wire
            item.state = state
        elif not self._items.rewrite(item, wire, state):
            self._put(key, item, wire, item.expires)
            return self._items.get(key)
        self.counters.total_items += 1
        if isinstance(item, FullItem) and item.extra:
            self._version += 1
            item.extra = self._version
        return item

    def set(self, key: bytes, flags: int, exptime: int, value: bytes) -> None:
        """Store unconditionally; see `Engine`."""
        if self.observed:
            super().set(key, flags, exptime, value)
        else:
            self.set_framed(key, exptime, wire_form(key, flags, value))

    def set_framed(self, key: bytes, exptime: int, wire: bytes) -> None:
        """Store like `set`; see `Engine`."""
        get_by_line = self._items.get_by_line
        old = get_by_line(b"get %b\r\n" % key)
        # The most frequent case, an overwrite of the same size, without any further call.
        if old is not None and not exptime and len(wire) == len(old.wire):
            state = self._fast_store[old.state & MASK]
            if state:
                old.wire = wire
                old.state = state
                counters = self.counters
                counters.cmd_set += 1
                counters.total_items += 1
                return
        self._set_framed(key, old, exptime, wire)

    def _set_framed(self, key: bytes, old: Item | None, exptime: int, wire: bytes) -> None:
        """Store in place of `old`; see `Engine`."""
        if old is not None or exptime or self.observed or self._items.flushed is not None:
            super()._set_framed(key, old, exptime, wire)
            return
        # A new plain item, with no other call than the table's.
        counters = self.counters
        counters.cmd_set += 1
        try:
            self._items.put(key, Item(wire, self.usage.fresh))
        except OutOfMemoryError:
            counters.store_no_memory += 1
            raise
        counters.total_items += 1

    def add(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if absent; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is None:
            if not self.observed:
                self._set_framed(key, None, exptime, wire_form(key, flags, value))
                return _STORED
        elif self._fast_store[item.state & MASK]:
            self.counters.cmd_set += 1
            item.state = self.usage.used[item.state & MASK]
            return _NOT_STORED
        return super().add(key, flags, exptime, value)

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if present; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is None:
            return (
                super().replace(key, flags, exptime, value)
                if self.observed
                else self._store_nothing(key)
            )
        state = self._fast_store[item.state & MASK] or self._kept(item)
        if not state:
            return super().replace(key, flags, exptime, value)
        self._replace(key, item, state, exptime, wire_form(key, flags, value))
        return _STORED

    def replace_framed(self, key: bytes, exptime: int, wire: bytes) -> Outcome:
        """Store like `replace`; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is not None and not exptime and len(wire) == len(item.wire):
            state = self._fast_store[item.state & MASK]
            if state:
                item.wire = wire
                item.state = state
                counters = self.counters
                counters.cmd_set += 1
                counters.total_items += 1
                return _STORED
        return super().replace_framed(key, exptime, wire)

    def _replace(self, key: bytes, item: Item, state: int, exptime: int, wire: bytes) -> None:
        """Replace an item's value and expiry, and count the command."""
        self.counters.cmd_set += 1
        if exptime or (state & FULL and item.expires):
            expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0.0
            self._put(key, item, wire, expires)
        else:
            self._rewrite(key, item, wire, state)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Append to the value; see `Engine`."""
        if self.join(key, b"", value) is not None:
            return _STORED
        if self.observed or self._items.get(key) is not None:
            return super().append(key, flags, exptime, value)
        return self._store_nothing(key)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Prepend to the value; see `Engine`."""
        if self.join(key, value, b"") is not None:
            return _STORED
        if self.observed or self._items.get(key) is not None:
            return super().prepend(key, flags, exptime, value)
        return self._store_nothing(key)

    def join(self, key: bytes, before: bytes, after: bytes) -> Item | None:
        """Add to both ends of the value of an item; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is None:
            return None
        state = self._fast_store[item.state & MASK] or self._kept(item)
        if not state:
            return None
        wire = extended(item.wire, before, after)
        if len(wire) > self.safe_size and (
            item_total(len(key), item.flags, Item(wire, 0).size, cas=self.cas_enabled)
            > self._item_size
        ):
            return None
        self.counters.cmd_set += 1
        return self._rewrite(key, item, wire, state)

    def _store_nothing(self, key: bytes) -> Outcome:
        self.counters.cmd_set += 1
        if self._items.flushed is not None:
            self._count_absent(key, None)
        return _NOT_STORED

    def cas(self, key: bytes, flags: int, exptime: int, value: bytes, unique: int) -> Outcome:
        """Store if unchanged; see `Engine`."""
        item = self._items.get(key)  # a failed cas does not count as a use
        if item is None and not self.observed:
            self._store_nothing(key)
            self.counters.cas_misses += 1
            return Outcome.NOT_FOUND
        if not self.cas_enabled or not isinstance(item, FullItem) or not item.extra:
            return super().cas(key, flags, exptime, value, unique)
        state = self._kept(item)
        if not state:
            return super().cas(key, flags, exptime, value, unique)
        counters = self.counters
        if item.extra != unique:
            counters.cmd_set += 1
            counters.cas_badval += 1
            return Outcome.EXISTS
        self._items.find(key)
        self._replace(key, item, state, exptime, wire_form(key, flags, value))
        counters.cas_hits += 1
        return _STORED

    # Changing and removing

    def delete(self, key: bytes) -> bool:
        """Remove a key; return whether it was there."""
        line = b"get %b\r\n" % key
        find = self._items.get_by_line
        item = find(line)
        if item is None:
            if not self.observed:
                if self._items.flushed is not None:
                    self._count_absent(key, None)
                self.counters.delete_misses += 1
                return False
        elif self._fast_store[item.state & MASK]:
            self._items.remove(line, item)
            self.counters.delete_hits += 1
            return True
        return super().delete(key)

    def incr(self, key: bytes, delta: int) -> int | Outcome:
        """Add; see `Engine`."""
        counted = self.count_in_place(key, delta, False)
        return self.recount(key, delta, False) if counted is None else counted[0]

    def decr(self, key: bytes, delta: int) -> int | Outcome:
        """Subtract, down to 0; see `Engine`."""
        counted = self.count_in_place(key, delta, True)
        return self.recount(key, delta, True) if counted is None else counted[0]

    def _count(self, key: bytes, delta: int) -> int | Outcome:
        """Add to a number; see `Engine`."""
        if self.observed or self._items.get_by_line(b"get %b\r\n" % key) is not None:
            return super()._count(key, delta)
        if self._items.flushed is not None:
            self._count_absent(key, None)
        return Outcome.NOT_FOUND

    def count_in_place(self, key: bytes, delta: int, down: bool) -> tuple[int, bytes, Item] | None:
        """Add to a number or subtract from it, if it then needs no more room; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is None:
            return None
        bits = item.state & MASK
        state = self._fast_store[bits] or self._kept(item)
        if not state:
            return None
        head, stored, end = item.wire.split(b"\r\n", 2)
        room = len(stored)
        if not stored.isdigit():
            stored = stored.rstrip(b" ")  # left over from a longer number
            if not stored.isdigit():
                return None
        if room > _SAFE_DIGITS or end != b"END\r\n":
            return None
        number = int(stored)
        if not down:
            number += delta
        else:
            number = number - delta if number > delta else 0
        digits = stored = b"%d" % number
        if len(digits) != room:
            if len(digits) > room:
                return None
            stored = digits.ljust(room)
        item.wire = b"%b\r\n%b\r\nEND\r\n" % (head, stored)
        # It stays the same item, and counts as fetched if it did before.
        item.state = self.usage.read[bits & _KEPT_BITS] if bits & FETCHED else state
        if isinstance(item, FullItem) and item.extra:
            self._version += 1
            item.extra = self._version
        if down:
            self.counters.decr_hits += 1
        else:
            self.counters.incr_hits += 1
        return number, digits, item

    def retime_plain(self, key: bytes, exptime: int) -> Item | None:
        """Touch an item that has an expiry both before and after, or neither; see `Engine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if item is None or self.observed:
            return None
        if item.state & FULL:
            if not self._renew_expiry(item, exptime):
                return None
        elif exptime:
            return None
        item.state = self.usage.read[item.state & MASK]
        counters = self.counters
        counters.cmd_touch += 1
        counters.touch_hits += 1
        return item

    def _renew_expiry(self, item: Item, exptime: int) -> bool:
        """Change the expiry of a full item, if it has one both before and after, or neither."""
        if not isinstance(item, FullItem) or bool(exptime) is not bool(item.expires):
            return False
        if exptime:
            now = self.clock.now()
            if item.expires <= now:
                return False
            item.expires = semantics.expiry(exptime, now)
        return True

    def _retime(self, key: bytes, exptime: int) -> Item | None:
        """Touch an item; see `Engine`."""
        item = self.retime_plain(key, exptime)
        if item is not None:
            return item
        if self.observed or self._items.get_by_line(b"get %b\r\n" % key) is not None:
            return super()._retime(key, exptime)
        if self._items.flushed is not None:
            self._count_absent(key, None)
        counters = self.counters
        counters.cmd_touch += 1
        counters.touch_misses += 1
        return None


def _entry(wire: bytes) -> Part:
    """Cut END off a reply."""
    return wire[:-END] if len(wire) < VIEW_FROM else memoryview(wire)[:-END]
