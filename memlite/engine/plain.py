"""Shortcuts for the usual cases of commands: one lookup in the table of all items."""

from memlite.core.clock import Clock
from memlite.engine import semantics
from memlite.engine.meta import MetaEngine
from memlite.engine.semantics import Outcome
from memlite.engine.sizes import SizeClasses
from memlite.memory import FullItem, Item, ItemTable
from memlite.memory.item import END, FETCHED, FRESH_BITS, wire_form, with_value
from memlite.memory.usage import MASK
from memlite.protocol import replies
from memlite.protocol.limits import LONGEST_GET, item_total
from memlite.telemetry.counters import Counters

__all__ = ["PlainEngine"]

# Everything that begins with "get " sorts between these two; comparing costs half as much as
# `startswith`.
_GET = b"get "
_GET_END = b"get!"
_CR = 13
_SHORTEST_GET = len(b"get k\r\n")
_AFTER_VALUE = len(b"\r\n") + END
# Digits of a number that is certainly below 2**64.
_SAFE_DIGITS = 19
# A value of up to this many bytes fits into the smallest item size that can be configured.
_SAFE_SIZE = 512


class PlainEngine(MetaEngine):
    """Carries out commands on plain items, and on absent ones, with a single lookup.

    A plain item has no expiry, cas unique or meta flags. `Usage.fast_read` and `Usage.fast_store`
    are 0 for all others, and for all items while commands are observed: one list lookup decides
    whether there is a shortcut. Whatever has none is left to the general methods, whose results
    are the same.

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
        self._items = items
        self._fast_read = self.usage.fast_read
        self._fast_store = self.usage.fast_store

    # Reading

    def hit(self, line: bytes) -> bytes | None:
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
        r"""Return the reply to ``get <key>\r\n`` without an item, and count it; see `Engine`."""
        if (
            self.observed
            or not _GET < line < _GET_END
            or line[-2] != _CR
            or line.count(b" ") != 1
            or line.find(b"\n") != len(line) - 1
            or not _SHORTEST_GET <= len(line) <= LONGEST_GET
            or self._items.get_by_line(line) is not None
        ):
            return None
        self.counters.get_misses += 1
        if self._items.pop_flushed(line[4:-2]) is not None:
            self.counters.get_flushed += 1
        return replies.END

    def fetch_plain(self, key: bytes) -> Item | None:
        """Return the item and count a hit, if it is plain; see `Engine`."""
        item = self._items.find(key)
        if item is None:
            return None
        state = self._fast_read[item.state & MASK]
        if not state:
            return None
        item.state = state
        self.counters.hits += 1
        return item

    # Storing

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

    def add(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if absent; see `Engine`."""
        item = self._items.find(key)
        if item is None:
            if not self.observed:
                self._set_framed(key, None, exptime, wire_form(key, flags, value))
                return Outcome.STORED
        elif self._fast_store[item.state & MASK]:
            self.counters.cmd_set += 1
            item.state = self.usage.used[item.state & MASK]
            return Outcome.NOT_STORED
        return super().add(key, flags, exptime, value)

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if present; see `Engine`."""
        item = self._items.find(key)
        if item is None:
            if not self.observed:
                return self._store_nothing(key)
        elif self._fast_store[item.state & MASK]:
            self.counters.cmd_set += 1
            expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0.0
            self._put(key, item, wire_form(key, flags, value), expires)
            return Outcome.STORED
        return super().replace(key, flags, exptime, value)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Append to the value; see `Engine`."""
        return self._join(key, b"", value) or super().append(key, flags, exptime, value)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Prepend to the value; see `Engine`."""
        return self._join(key, value, b"") or super().prepend(key, flags, exptime, value)

    def _join(self, key: bytes, before: bytes, after: bytes) -> Outcome | None:
        """Add to both ends of the value of a plain item; return None if nothing was done."""
        item = self._items.find(key)
        if item is None:
            return None if self.observed else self._store_nothing(key)
        if not self._fast_store[item.state & MASK]:
            return None
        wire = item.wire
        value = wire[wire.index(b"\n") + 1 : -_AFTER_VALUE]
        value = b"%b%b%b" % (before, value, after) if before else value + after
        size = len(value)
        if size > _SAFE_SIZE and (
            item_total(len(key), item.flags, size, cas=self.cas_enabled) > self._item_size
        ):
            return None
        self.counters.cmd_set += 1
        self._put(key, item, with_value(wire, len(key), value), 0.0)
        return Outcome.STORED

    def _store_nothing(self, key: bytes) -> Outcome:
        self.counters.cmd_set += 1
        self._count_absent(key, None)
        return Outcome.NOT_STORED

    def cas(self, key: bytes, flags: int, exptime: int, value: bytes, unique: int) -> Outcome:
        """Store if unchanged; see `Engine`."""
        item = self._items.get(key)  # a failed cas is no use of the item
        if item is None and not self.observed:
            self._store_nothing(key)
            self.counters.cas_misses += 1
            return Outcome.NOT_FOUND
        if not isinstance(item, FullItem) or self.observed or not self.cas_enabled:
            return super().cas(key, flags, exptime, value, unique)
        version = item.extra
        if not (isinstance(version, int) and version) or (
            item.expires and item.expires <= self.clock.now()
        ):
            return super().cas(key, flags, exptime, value, unique)
        counters = self.counters
        counters.cmd_set += 1
        if version != unique:
            counters.cas_badval += 1
            return Outcome.EXISTS
        expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0.0
        self._items.find(key)
        self._put(key, item, wire_form(key, flags, value), expires)
        counters.cas_hits += 1
        return Outcome.STORED

    # Changing and removing

    def delete(self, key: bytes) -> bool:
        """Remove a key; return whether it was there."""
        line = b"get %b\r\n" % key
        item = self._items.get_by_line(line)
        if item is None:
            if not self.observed:
                self._count_absent(key, None)
                self.counters.delete_misses += 1
                return False
        elif self._fast_store[item.state & MASK]:
            self._items.remove(line, item)
            self.counters.delete_hits += 1
            return True
        return super().delete(key)

    def _count(self, key: bytes, delta: int) -> int | Outcome:
        """Add to a number that takes as many digits afterwards; see `Engine`."""
        item = self._items.get_by_line(b"get %b\r\n" % key)
        if item is None:
            if not self.observed:
                self._count_absent(key, None)
                return Outcome.NOT_FOUND
            return super()._count(key, delta)
        bits = item.state & MASK
        state = self._fast_store[bits]
        if state:
            wire = item.wire
            begin = wire.index(b"\n") + 1
            digits = wire[begin:-_AFTER_VALUE]
            if digits.isdigit() and len(digits) <= _SAFE_DIGITS:
                number = int(digits) + delta
                number = max(number, 0)
                stored = b"%d" % number
                if len(stored) == len(digits):
                    item.wire = b"%b%b\r\nEND\r\n" % (wire[:begin], stored)
                    # It is the same item, which has been fetched if it had been.
                    item.state = self.usage.read[bits & FRESH_BITS] if bits & FETCHED else state
                    return number
        return super()._count(key, delta)

    def _retime(self, key: bytes, exptime: int) -> Item | None:
        """Touch an item that has an expiry both before and after, or neither; see `Engine`."""
        if self.observed:
            return super()._retime(key, exptime)
        item = self._items.find(key)
        counters = self.counters
        if item is None:
            self._count_absent(key, None)
            counters.cmd_touch += 1
            counters.touch_misses += 1
            return None
        if isinstance(item, FullItem):
            if bool(exptime) is not bool(item.expires):
                return super()._retime(key, exptime)
            if exptime:
                now = self.clock.now()
                if item.expires <= now:
                    return super()._retime(key, exptime)
                item.expires = semantics.expiry(exptime, now)
        elif exptime:
            return super()._retime(key, exptime)
        item.state = self.usage.read[item.state & MASK]
        counters.cmd_touch += 1
        counters.touch_hits += 1
        return item
