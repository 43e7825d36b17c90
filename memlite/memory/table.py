"""Items by key, bounded in bytes of memory.

Synchronous: no method waits. The memory engine works on a table directly; backends that keep items
in memory keep them in one.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, cast

from memlite.core.build import mypyc_attr
from memlite.core.errors import OutOfMemoryError
from memlite.core.meta_flags import MetaFlags
from memlite.memory.eviction import Policy, S3Fifo, weigh
from memlite.memory.index import FEW, Index
from memlite.memory.item import (
    FULL,
    MAIN,
    SMALL_OBJECT,
    FullItem,
    Item,
    allocated,
    key_of,
    line_of,
    shared,
)

__all__ = ["Contents", "ItemTable"]

# When the index has grown at the expense of items, a store evicts at most this many bytes more than
# it needs, so that no single store takes long.
_EVICTED_EXTRA: Final = 16 * 1024
_KEYS_AT_ONCE: Final = 200
_EVICTED_AT_ONCE: Final = 100
# For a value of this many bytes, a store does not evict everything at once, which would take ten
# milliseconds for a megabyte of small items. The table may exceed its limit by this share.
_LARGE: Final = 64 * 1024
_EXCESS_SHIFT: Final = 5
# Bytes that a store evicts ahead, and their largest share of the limit: evicting several items
# together costs an eighth less per item.
_EVICTED_AHEAD: Final = 4 * 1024
_AHEAD_SHIFT: Final = 14
# Re-measure overhead after this many bytes of inserts.
_MEASURED_EVERY: Final = 256 * 1024
# If the index leaves no room for items, it is rebuilt as a whole up to this many items, which takes
# a millisecond.
_TIDIED_AT_ONCE: Final = 10_000
_MOVED: Final = 1000  # Re-measure overhead after compacting this many items.


Contents: TypeAlias = tuple[Index, Policy, int]
"""All items, their policy, and the bytes of memory that they take."""


def _none() -> int:
    return 0


@mypyc_attr(allow_interpreted_subclasses=True)
class ItemTable:
    """Items by key; when it is full, a policy chooses what to evict.

    Internally, items are indexed by the request line of a get (`line_of`), so that the most
    frequent request is looked up exactly as it arrives.

    The limit is on memory: objects with their headers, rounded up as the allocator does, the index,
    and the policy's own data.

    Args:
        limit: bytes of memory (``-m``).
        evict: whether to evict when full; otherwise storing raises (``-M``).
        on_evict: called with some evicted items at a time, as `Policy.evict` returns them.
        policy: creates the policy, given the items by line.

    Attributes:
        on_evict: as above.
        limit: as above; lower it with `shrink`.
        excess: returns the bytes of memory used beyond the limit because of fragmentation. The
            memory left for items is smaller by that much.
        used: bytes of the items, without the index and the policy.
        flushed: the items removed by the last flush and not yet freed; None for none.
        get_by_line: returns the item that a request line requests, or None if there is none or the
            line is another command; counts as a use, like `find`.
    """

    # Slots, because code in C reads and writes some of them with every command.
    __slots__ = (
        "_ahead", "_evict", "_few", "_flush_due", "_garbage", "_items", "_make_policy", "_moved",
        "_policy", "_room", "_set_aside", "_states", "_until_measured", "excess", "flushed",
        "get_by_line", "limit", "on_evict", "overhead", "used",
    )  # fmt: skip

    def __init__(
        self,
        limit: int,
        *,
        evict: bool = True,
        on_evict: Callable[[list[tuple[bytes, Item, int]]], None] = lambda gone: None,
        policy: Callable[[Index], Policy] = S3Fifo,
    ) -> None:
        self.limit = limit
        self.on_evict = on_evict
        self.excess: Callable[[], int] = _none
        self._evict = evict
        self._make_policy = policy
        # Flushed items: absent for clients, and freed a few at a time.
        self.flushed: Index | None = None
        self._set_aside: Index | None = None  # the items set aside last, until they are discarded
        self._garbage: list[tuple[Index, Policy]] = []
        self._states: dict[int, int] = {}
        self._few = FEW
        self._moved = 0  # items moved since the last measurement
        self._flush_due: Callable[[], bool] | None = None
        self._begin()

    def _begin(self) -> None:
        self.used = 0
        self._items = Index(self._few)
        self._policy = self._make_policy(self._items)
        self._bind()
        self.measure()

    def _bind(self) -> None:
        # Bound once: calling a C method costs no Python frame on the hot path.
        self.get_by_line: Callable[[bytes], Item | None] = (
            self._policy.find if self._flush_due is None else self._find_after_flush
        )

    def measure(self) -> None:
        """Compute how much of the limit is left for items."""
        self._until_measured = _MEASURED_EVERY
        self._tidy()
        self.overhead = self._items.memory
        self.overhead += self._policy.adapt(self.limit - self.overhead)
        self._room = self.limit - self.overhead - self.excess()
        self._ahead = min(_EVICTED_AHEAD, self.limit >> _AHEAD_SHIFT)

    def _tidy(self, *, all_of_it: bool = False) -> None:
        if self._items.tidy(all_of_it=all_of_it):
            self._policy.follow()
            self._bind()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def over(self) -> bool:
        """Whether items exceed the memory left for them; `reclaim` and stores correct that."""
        return self._evict and self.used > max(self._room, 0)

    def __bool__(self) -> bool:
        """Return True, even for an empty table (``table or …``)."""
        return True

    @property
    def finds_without_effect(self) -> bool:
        """Whether its policy only looks items up in the index: it keeps no order of uses."""
        return self._policy.find is self._items.get

    def get(self, key: bytes) -> Item | None:
        """Return the item of a key, or None. The caller checks whether it has expired."""
        if self._flush_due is not None:
            self._flush_if_due()
        return self._items.get(b"get %b\r\n" % key)

    def find(self, key: bytes) -> Item | None:
        """Return the item of a key, or None; counts as a use where the policy tracks those."""
        return self.get_by_line(b"get %b\r\n" % key)

    def find_all(self, keys: list[bytes]) -> Iterable[Item | None]:
        """Yield the item of each key as `find` does."""
        # A fifth of the cost of formatting the lines one by one.
        lines = (b"get " + b"\r\nget ".join(keys) + b"\r\n").splitlines(keepends=True)
        if len(lines) != len(keys):  # a key contains a carriage return
            lines = [line_of(key) for key in keys]
        return self.find_lines(lines)

    def find_lines(self, lines: list[bytes]) -> Iterable[Item | None]:
        """Yield the item of each request line as `find` does."""
        if self._flush_due is not None:
            self._flush_if_due()
        return self._policy.find_all(lines)

    def put(self, key: bytes, item: Item) -> None:
        """Store `item` under an absent key, evicting the items that it displaces.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted.
        """
        line = b"get %b\r\n" % key
        size = weigh(line, item)
        used = self.used + size
        self._policy.recall(line, item)
        if used > self._room:
            self._make_room(size)
            used = self.used + size
        self.used = used
        self._policy.admit(line, item, size)
        self._items.put(line, item)
        self._until_measured -= size
        if self._until_measured <= 0:
            self.measure()
        if self._garbage:
            # New items and flushed items together never take more than the limit.
            self._free(sys.maxsize, 2 * size)

    def overwrite(
        self,
        key: bytes,
        item: Item,
        wire: bytes,
        expires: float,
        state: int,
        meta_flags: MetaFlags | None,
    ) -> Item:
        """Give a stored item a new value and no version, evicting the items that it displaces.

        Returns:
            The item that is stored now: the same object or another.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted; the item is unchanged.
        """
        if expires or meta_flags is not None or item.state & FULL:
            new = FullItem(wire, state, expires) if expires or meta_flags else Item(wire, state)
            if meta_flags is not None:
                cast("FullItem", new).meta_flags = meta_flags
            return self.replace(key, item, new)
        if self.rewrite(item, wire, state):
            return item
        return self.replace(key, item, Item(wire, state))

    def rewrite(self, item: Item, wire: bytes, state: int) -> bool:
        """Give a stored item a new value and leave the rest unchanged, if there is room.

        Returns:
            Whether that was done.
        """
        if len(wire) != len(item.wire):
            more = allocated(len(wire)) - allocated(len(item.wire))
            if more > 0 and self.used + more > self._room:
                return False
            self._resize(item, more)
        item.wire = wire
        item.state = state
        return True

    def replace(self, key: bytes, old: Item, new: Item) -> Item:
        """Replace a stored item with `new`, evicting the items that it displaces.

        Returns:
            `new`, with the queue that it is in noted in its state.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted; `old` is still stored.
        """
        line = b"get %b\r\n" % key
        if (new.state ^ old.state) & MAIN:
            new.state = shared(new.state ^ MAIN)
        if not (  # most overwrites change neither the size nor the kind of an item
            len(new.wire) == len(old.wire)
            and type(new) is FullItem
            and type(old) is FullItem
            and bool(new.expires) == bool(old.expires)
            and isinstance(new.extra, int)
            and isinstance(old.extra, int)
            and bool(new.extra) == bool(old.extra)
        ):
            size = weigh(line, new)
            more = size - weigh(line, old)
            if more > 0 and self.used + more > self._room:
                if not self._evict or size > self._room:
                    raise OutOfMemoryError
                self.delete(key)
                self.put(key, new)
                return new
            self._resize(new, more)
        if self._items.only is not None:
            self._items.only[line] = new
        else:
            self._items.put(line, new)
        return new

    def update_metadata(
        self,
        key: bytes,
        item: Item,
        expires: float,
        meta_flags: MetaFlags | None,
        *,
        drop_version: bool = False,
    ) -> Item:
        """Change the expiry and meta flags of a stored item, but not its value.

        Args:
            key: the key of the item.
            item: the stored item.
            expires: see `Item`.
            meta_flags: see `Item`.
            drop_version: remove the version, so that the item gets a new one.

        Returns:
            The item that is stored now: the same object or another.
        """
        if not (item.state & FULL or expires or meta_flags is not None):
            return item
        line = line_of(key)
        before = weigh(line, item)
        item = self._full(line, item)
        item.expires = expires
        item.meta_flags = meta_flags
        if drop_version:
            item.version = 0
        self._resize(item, weigh(line, item) - before)
        return item

    def set_version(self, item: Item, version: int) -> Item:
        """Assign a version to a stored item; return the item that is stored now."""
        # A full item may not know its key, but that does not affect the added bytes.
        line = line_of(item.key)
        before = weigh(line, item)
        item = self._full(line, item)
        item.version = version
        self._resize(item, weigh(line, item) - before)
        return item

    def _full(self, line: bytes, item: Item) -> FullItem:
        """Return a stored item as a `FullItem`, replacing it if it is a plain one."""
        if isinstance(item, FullItem):
            return item
        full = FullItem(item.wire, item.state)
        self._items.put(line, full)
        return full

    def _resize(self, item: Item, more: int) -> None:
        # Metadata is added without making room; the next store does that.
        self.used += more
        self._policy.resize(item, more)

    def restore(self, key: bytes, item: Item | None) -> None:
        """Restore the previous item of a key (None for absent), even if it does not fit."""
        self.delete(key)
        if item is not None:
            item.state = shared(item.state & ~MAIN)  # admitted like any new item
            line = line_of(key)
            size = weigh(line, item)
            self.used += size
            self._policy.admit(line, item, size)
            self._items.put(line, item)

    def _make_room(self, size: int) -> None:
        """Evict until `size` bytes fit, and some more."""
        until = self._room - size
        if not self._evict or until < 0:
            raise OutOfMemoryError
        until -= self._ahead
        at_most = self.used - 2 * size - _EVICTED_EXTRA
        if until < at_most:
            until = at_most
        if size > _LARGE:
            lacking = self._room + (self.limit >> _EXCESS_SHIFT) - size
            until = max(until, min(self.used - _LARGE, lacking))
        self._evict_down_to(until, sys.maxsize)

    def _evict_down_to(self, until: int, at_most: int) -> int:
        """Evict up to `at_most` items until the rest take `until` bytes; return how many."""
        used = self.used
        if used <= until or at_most <= 0:
            return 0
        gone = self._policy.evict(used - until, at_most)
        for _, _, size in gone:
            used -= size
        self.used = used
        self._items.remove(gone)
        self.on_evict(gone)
        return len(gone)

    def delete(self, key: bytes) -> Item | None:
        """Remove a key; return its item, or None if there was none."""
        line = line_of(key)
        item = self._items.pop(line)
        if item is not None:
            self._forget(line, item)
        return item

    def remove(self, line: bytes, item: Item) -> None:
        """Remove `item`, which is stored under `line`."""
        self._items.pop(line)
        self._forget(line, item)

    def _forget(self, line: bytes, item: Item) -> None:
        size = weigh(line, item)
        self.used -= size
        self._policy.remove(line, item, size)

    def drop(self, key: bytes) -> Item | None:
        """Remove an expired item, which clients cannot see any more."""
        return self.delete(key)

    def flush(self) -> None:
        """Invalidate every item at once; `reclaim` frees them."""
        self._flush_due = None
        self.discard(self.set_aside())

    def flush_when(self, due: Callable[[], bool] | None) -> None:
        """Call `due` before each lookup, and flush when it returns True; None to stop that."""
        self._flush_due = due
        self._bind()

    def _flush_if_due(self) -> None:
        if self._flush_due is not None and self._flush_due():
            self.flush()

    def _find_after_flush(self, line: bytes) -> Item | None:
        self._flush_if_due()
        return self._policy.find(line)

    def set_aside(self) -> Contents:
        """Remove every item at once; return them all, for `put_back` or `discard`."""
        contents = (self._items, self._policy, self.used)
        self.flushed = None
        self._set_aside = self._items
        self._begin()
        return contents

    def put_back(self, contents: Contents) -> None:
        """Replace all items with those that were set aside."""
        self._items, self._policy, self.used = contents
        self._set_aside = None
        self._bind()
        self.measure()

    def discard(self, contents: Contents) -> None:
        """Hand over items that were set aside to `reclaim`, which frees them."""
        items, policy, _ = contents
        was_last = self._set_aside is items
        if was_last:
            self._set_aside = None
        # A table with few items is freed here, which bounds the number of tables waiting.
        if len(policy) >= max(len(self._garbage), 1):
            self._garbage.append((items, policy))
            if was_last:
                self.flushed = items

    def pop_flushed(self, key: bytes) -> Item | None:
        """Return and free the item that the last flush removed from `key`, or None."""
        if self.flushed is None:
            return None
        item = self.flushed.pop(line_of(key))
        if item is not None:
            self._garbage[-1][1].dissolve()
        return item

    def reclaim(self, at_most: int) -> int:
        """Free up to `at_most` items and places: flushed ones, then those over the limit.

        Returns:
            How many were freed.
        """
        count = self._free(at_most, sys.maxsize)
        if self._evict:
            count += self._evict_down_to(self._room, at_most - count)
        if self._room < 0:
            # After the limit was lowered a lot, the free slots of the index can exceed it. As
            # nothing can be stored, they would stay.
            self._tidy(all_of_it=len(self._items) <= _TIDIED_AT_ONCE)
            self.measure()
        return count

    def _free(self, at_most: int, size: int) -> int:
        """Free flushed items: up to `at_most`, or until `size` bytes are free."""
        count = 0
        while self._garbage and count < at_most and size > 0:
            items, policy = self._garbage[0]
            gone = items.popitem()
            if gone is not None:
                size -= weigh(*gone)
            elif not len(policy):
                if self.flushed is items:
                    self.flushed = None
                del self._garbage[0]
                continue
            policy.dissolve()
            count += 1
        return count

    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Visit some items, and all of them over many calls; see `Policy.walk`."""
        return self._policy.walk(at_most, lambda line, item: look(key_of(line), item))

    def compact(self, at_most: int) -> bool:
        """Copy some items, and all of them over many calls, to reduce fragmentation.

        A few small objects that remain in an arena keep all of it from being returned to the
        system; copies made one after the other share few arenas. No other code may hold an item
        during a call. Afterwards, listings are in the order of the policy.

        Returns:
            Whether there is more to do.
        """
        passed = self._policy.move(at_most, self._copy)
        self._moved += passed
        if self._moved > _MOVED or passed < at_most:
            self._moved = 0
            self.measure()
        if passed == at_most:
            return True
        self._states = {}
        return False

    def _copy(self, line: bytes, item: Item) -> bytes:
        """Replace an item and the objects it refers to with copies; return the new line."""
        self._items.pop(line)
        line = b"%b" % line
        wire = item.wire
        if len(wire) < SMALL_OBJECT:
            wire = b"%b" % wire
        # One object for equal states, as most items stored in the same second share one.
        state = self._states.get(item.state)
        if state is None:
            self._states[item.state] = state = item.state + 0
        if isinstance(item, FullItem):
            new = FullItem(wire, state, item.expires + 0.0)
            extra = item.extra
            new.extra = extra + 0 if isinstance(extra, int) else (extra[0] + 0, extra[1])
            self._items.put(line, new)
        else:
            self._items.put(line, Item(wire, state))
        return line

    def can_take(self, limit: int) -> bool:
        """Return whether `shrink` can set this limit."""
        return True

    def shrink(self, limit: int) -> None:
        """Set the limit, and evict some of the items over it if evicting is allowed.

        Later stores and `reclaim` evict the rest.
        """
        self.limit = limit
        self.measure()
        self.reclaim(_EVICTED_AT_ONCE)

    def list_keys(self) -> list[bytes]:
        """Return every key, roughly oldest first, possibly with some that have been removed."""
        return [line[4:-2] for line in self._lines()]  # `key_of` inlined, in half the time

    def key_batches(self) -> Iterator[list[bytes]]:
        """Yield these keys in batches of a few hundred; other items may be stored meanwhile."""
        keys = self.list_keys()
        # Taken from the end, so that the list shrinks as it is used: freeing a million keys in one
        # go would take too long.
        keys.reverse()
        while keys:
            yield [keys.pop() for _ in range(min(_KEYS_AT_ONCE, len(keys)))]

    def scan(self) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item in the same order; nothing may be stored meanwhile."""
        for line in self._lines():
            item = self._items.get(line)
            if item is not None:
                yield key_of(line), item

    def _lines(self) -> list[bytes]:
        """Return all lines, possibly with some of removed items."""
        return self._items.lines() if self._items.single else self._policy.lines()

    def survey(self, *, newest_first: bool = False) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item that exists throughout; other items may be stored meanwhile."""
        lines = self._lines()
        if not newest_first:
            lines.reverse()
        # Taken from the end, which shortens the list: a million lines are not freed at once.
        while lines:
            line = lines.pop()
            item = self._items.get(line)
            if item is not None:
                yield key_of(line), item
