"""Shortcuts of a shared table for the usual cases of commands: changes of items without meta flags.

`SharedEngine` locks other processes out of a key while it reads, decides and writes. These
shortcuts read the item and write a new one on condition that its cas unique is still the same. If
it is not, they try again.
"""

from collections.abc import Callable
from itertools import chain
from typing import Final, cast

from memlite.core.clock import Clock
from memlite.engine import semantics
from memlite.engine.meta import Found
from memlite.engine.plain import PlainEngine
from memlite.engine.semantics import Outcome
from memlite.engine.shared import SharedEngine, SharedItems
from memlite.engine.sizes import SizeClasses
from memlite.memory import FullItem, Item, Part
from memlite.memory.item import END, FETCHED, VIEW_FROM, extended, line_of, wire_form
from memlite.memory.shared.layout import EXPIRY, KEEP, USED
from memlite.memory.shared.python_table import PureTable, Stored
from memlite.protocol import replies
from memlite.protocol.limits import item_total
from memlite.telemetry.counters import Counters

__all__ = ["PlainSharedEngine"]

_AFTER_VALUE: Final = len(b"\r\n") + END
# Digits of a number that is certainly below 2**64.
_SAFE_DIGITS: Final = 19
# The most parts of a reply, and the most bytes, to join.
_MAX_JOINED: Final = 128
_JOINED_BYTES: Final = 128 * 1024
_TRIES: Final = range(4)
_ABSENT: Final = 0  # the condition that there is no item


class PlainSharedEngine(SharedEngine):
    """Carries out commands on plain items with one or two calls of the table.

    All other cases are left to `SharedEngine`, whose results are the same.

    Args:
        items: see `SharedEngine`.
        clock: see `Engine`.
        counters: see `Engine`.
        item_size: see `Engine`.
        cas: see `Engine`.
        sizes: see `Engine`.

    Attributes:
        find_reply: returns the reply to a get of one key by its line, or None.
        table_in_c: the table if it is the one in C, else None.
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
        self.find_reply = items.shared.find
        self.table_in_c = None if isinstance(items.shared, PureTable) else items.shared
        # Only the table in Python has these methods: in C, `find` is as fast.
        self._lacks: Callable[[bytes], bool] | None = None
        self._find_all = self._find_each
        if isinstance(items.shared, PureTable):
            self._lacks = items.shared.lacks
            self._find_all = items.shared.find_all

    def _plain(self, line: bytes) -> Stored | None:
        """Return the item if it has no meta flags and has not expired; otherwise None."""
        stored = None if self.observed or self._inside else self._shared.get(line)
        if stored is None or stored[4] or (stored[1] and stored[1] <= self.clock.now()):
            return None
        return stored

    def _expires(self, exptime: int) -> float:
        return semantics.expiry(exptime, self.clock.now()) if exptime else 0.0

    # Reading

    def miss(self, line: bytes) -> bytes | None:
        r"""Return the reply to ``get <key>\r\n`` of a key without an item; see `Engine`."""
        shared, lacks = self._shared, self._lacks
        if lacks is not None and lacks(line):
            return PlainEngine.miss(self, line)
        if shared.get(line) is not None:  # it has expired, or has meta flags
            return None
        reply = PlainEngine.miss(self, line)
        if reply is not None and shared.drop_flushed(line):
            self.counters.get_flushed += 1
        return reply

    def is_miss(self, line: bytes) -> bool:
        """Return whether there is certainly no item; if so, count the miss. See `Engine`."""
        return self.miss(line) is not None

    def fetch_plain(self, key: bytes) -> Item | None:
        """Return the item and count a hit, if it is plain and has no expiry; see `Engine`."""
        line = b"get %b\r\n" % key
        stored = self._plain(line)
        if stored is None or stored[1]:
            return None
        self._find(line)  # counts as a use
        self.counters.hits += 1
        return Item(stored[0], 0)

    def serve_lines(self, lines: list[bytes], out: list[Part]) -> int:
        """Append the replies to gets, up to the first unusual one; see `Engine`."""
        if self.observed:
            return 0
        found = self._find_all(lines, stop=True)
        if found and found[-1] is None:
            found.pop()
        hits = served = len(found)
        out += cast("list[bytes]", found)
        if served < len(lines):
            # One by one: each find counts as a use, and lines after an unusual one are looked up
            # again.
            for reply in chain((None,), map(self._find, lines[served + 1 :])):
                if reply is not None:
                    hits += 1
                    out.append(reply)
                elif (absent := self.miss(lines[served])) is not None:
                    out.append(absent)
                else:
                    break
                served += 1
        self.counters.hits += hits
        return served

    def _find_each(self, lines: list[bytes], *, stop: bool) -> list[bytes | None]:
        """Find the reply of each line; see `PureTable.find_all`."""
        if not stop:
            return list(map(self._find, lines))
        found: list[bytes | None] = []
        for reply in map(self._find, lines):
            found.append(reply)
            if reply is None:
                break
        return found

    def collect_lines(self, lines: list[bytes], out: list[Part]) -> bool:
        r"""Append the reply of a get for each item that ``get <key>\r\n`` finds; see `Engine`."""
        if self.observed:
            return False
        shared = self._shared
        found = self._find_all(lines, stop=False)
        if None in found:
            absent = [line for line, reply in zip(lines, found, strict=True) if reply is None]
            if any(shared.get(line) is not None for line in absent):  # see `miss`
                return False
            self.counters.get_misses += len(absent)
            self.counters.get_flushed += sum(map(shared.drop_flushed, absent))
        parts: list[Part] = [
            reply[:-END] if len(reply) < VIEW_FROM else memoryview(reply)[:-END]
            for reply in found
            if reply is not None
        ]
        self.counters.hits += len(parts)
        parts.append(replies.END)
        if len(parts) <= _MAX_JOINED and sum(map(len, parts)) < _JOINED_BYTES:
            out.append(b"".join(parts))
        else:
            out += parts
        return True

    def retrieve(
        self,
        key: bytes,
        *,
        touch: int | None = None,
        vivify: int | None = None,
        recache: int | None = None,
        recache_first: bool = False,
        unique: int | None = None,
        bump: bool = True,
        compares: bool = False,
    ) -> Found | None:
        """Return an item; see `MetaEngine`. It counts as read, even if it expires at once."""
        with self.alone(key, len(key)):
            found = super().retrieve(
                key,
                touch=touch,
                vivify=vivify,
                recache=recache,
                recache_first=recache_first,
                unique=unique,
                bump=bump,
                compares=compares,
            )
            if touch is not None and touch < 0 and bump and found is not None:
                line = line_of(key)
                stored = self._shared.get(line)
                if stored is not None:  # uses of an expired item are not recorded
                    wire, expires, _, _, kind, extra = stored
                    self._store_now(line, wire, expires, None, kind | KEEP | USED, extra)
            return found

    # Storing

    def add(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if absent; see `Engine`."""
        if not (self.observed or self._inside):
            line = b"get %b\r\n" % key
            stored = self._shared.get(line)
            if stored is None:
                wire = wire_form(key, flags, value)
                unique = self._store_now(line, wire, self._expires(exptime), _ABSENT, 0, b"")
                if unique > 0:
                    self.counters.cmd_set += 1
                    self.counters.total_items += 1
                    if self._shared.met:
                        self._count_met(key, wire, overwritten=True)
                    return Outcome.STORED
            elif not stored[1] or stored[1] > self.clock.now():
                self.counters.cmd_set += 1
                return Outcome.NOT_STORED
        return super().add(key, flags, exptime, value)

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Store if present; see `Engine`."""
        line = b"get %b\r\n" % key
        for _ in _TRIES:
            stored = self._plain(line)
            if stored is None:
                break
            wire = wire_form(key, flags, value)
            if self._exchange(line, wire, self._expires(exptime), stored[2]):
                return Outcome.STORED
        return super().replace(key, flags, exptime, value)

    def _exchange(
        self, line: bytes, wire: bytes, expires: float, unique: int, kind: int = 0
    ) -> int:
        """Replace the item that has `unique`; return the new cas unique, 0 if it has changed."""
        found = self._store_now(line, wire, expires, unique, kind, b"")
        if found <= 0:
            return 0
        self.counters.cmd_set += 1
        self.counters.total_items += 1
        return found

    def cas(self, key: bytes, flags: int, exptime: int, value: bytes, unique: int) -> Outcome:
        """Store if unchanged; see `Engine`."""
        line = b"get %b\r\n" % key
        stored = self._plain(line) if self.cas_enabled else None
        if stored is not None:
            if stored[2] != unique:
                self.counters.cmd_set += 1
                self.counters.cas_badval += 1
                return Outcome.EXISTS
            wire = wire_form(key, flags, value)
            if self._exchange(line, wire, self._expires(exptime), unique):
                self.counters.cas_hits += 1
                return Outcome.STORED
        return super().cas(key, flags, exptime, value, unique)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Append to the value; see `Engine`."""
        if self.join(key, b"", value) is not None:
            return Outcome.STORED
        return super().append(key, flags, exptime, value)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes) -> Outcome:
        """Prepend to the value; see `Engine`."""
        if self.join(key, value, b"") is not None:
            return Outcome.STORED
        return super().prepend(key, flags, exptime, value)

    def join(self, key: bytes, before: bytes, after: bytes) -> Item | None:
        """Add to both ends of the value of an item; see `Engine`."""
        line = b"get %b\r\n" % key
        for _ in _TRIES:
            stored = self._plain(line)
            if stored is None:
                break
            wire, expires, unique, *_ = stored
            item = FullItem(extended(wire, before, after), 0, expires)
            if len(item.wire) > self.safe_size and (
                item_total(len(key), item.flags, item.size, cas=self.cas_enabled) > self._item_size
            ):
                break
            item.version = self._exchange(line, item.wire, expires, unique, EXPIRY)
            if item.version:
                return item
        return None

    # Changing

    def incr(self, key: bytes, delta: int) -> int | Outcome:
        """Add; see `Engine`."""
        counted = self.count_in_place(key, delta, False)
        return self.recount(key, delta, False) if counted is None else counted[0]

    def decr(self, key: bytes, delta: int) -> int | Outcome:
        """Subtract, down to 0; see `Engine`."""
        counted = self.count_in_place(key, delta, True)
        return self.recount(key, delta, True) if counted is None else counted[0]

    def count_in_place(self, key: bytes, delta: int, down: bool) -> tuple[int, bytes, Item] | None:
        """Add to a number or subtract from it, if it then needs no more room; see `Engine`."""
        line = b"get %b\r\n" % key
        for _ in _TRIES:
            stored = self._plain(line)
            if stored is None:
                break
            wire, expires, unique, state, *_ = stored
            begin = wire.index(b"\n") + 1
            old = wire[begin:-_AFTER_VALUE]
            number = _counted(old, delta, down)
            digits = b"%d" % number
            if number < 0 or len(digits) > len(old):
                break
            new = b"%b%b\r\nEND\r\n" % (wire[:begin], digits.ljust(len(old)))
            how = USED if state & FETCHED else 0  # it still counts as fetched
            version = self._store_now(line, new, expires, unique, how | EXPIRY, b"")
            if version < 0:
                break
            if version:
                item = FullItem(new, state, expires)
                item.version = version
                if down:
                    self.counters.decr_hits += 1
                else:
                    self.counters.incr_hits += 1
                return number, digits, item
        return None

    def touch(self, key: bytes, exptime: int) -> bool:
        """Set an expiry; see `Engine`."""
        return self.retime_plain(key, exptime) is not None or super().touch(key, exptime)

    def fetch_and_touch(self, key: bytes, exptime: int) -> Item | None:
        """Return the item for gat and gats; see `Engine`."""
        return self.retime_plain(key, exptime) or super().fetch_and_touch(key, exptime)

    def retime_plain(self, key: bytes, exptime: int) -> Item | None:
        """Touch an item; see `Engine`."""
        if self.observed or self._inside or exptime < 0:
            return None
        shared, line = self._shared, b"get %b\r\n" % key
        shared.hold(line, 0)
        try:
            stored = self._plain(line)
            if stored is None:
                return None
            self._find(line)  # counts as a use
            expires = self._expires(exptime)
            shared.touch(line, expires)
        finally:
            shared.release()
        self.counters.cmd_touch += 1
        self.counters.touch_hits += 1
        item = FullItem(stored[0], FETCHED, expires)
        item.version = stored[2]
        return item


def _counted(stored: bytes, delta: int, down: bool) -> int:
    """Add to a stored number, or subtract; return -1 if it is no number or may exceed 64 bits."""
    room = len(stored)
    if not stored.isdigit():
        stored = stored.rstrip(b" ")  # left over from a longer number
        if not stored.isdigit():
            return -1
    if room > _SAFE_DIGITS:
        return -1
    return max(int(stored) - delta, 0) if down else int(stored) + delta
