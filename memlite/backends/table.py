"""Items by key, bounded in bytes of memory.

Synchronous: nothing in it waits. The memory engine works on one directly; backends that keep
items in memory beside something slower hold them in one.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from memlite.backends.eviction import Policy, S3Fifo, cost, weigh
from memlite.backends.index import FEW, Index
from memlite.backends.item import (
    FULL,
    MAIN,
    PYTHONS_OWN,
    FullItem,
    Item,
    Marks,
    allocated,
    key_of,
    line_of,
    shared,
)
from memlite.errors import OutOfMemoryError
from memlite.native import mypyc_attr

__all__ = ["ItemTable"]

# Bytes that a store may evict beside what it needs itself, where the dict has outgrown its share:
# what that displaces goes bit by bit, so that no store takes long.
_EVICTED_BESIDE: Final = 16 * 1024
_EVICTED_AT_ONCE: Final = 100
# Bytes from which a value does not have all its room made by its store, which would take ten
# milliseconds for a megabyte of small items; and the share of the limit that it may lack.
_LARGE: Final = 64 * 1024
_LACKING_SHIFT: Final = 5
# Bytes freed beyond what a store needs, and the share of the limit that they are at most: several
# items that go together cost an eighth less than as many one by one.
_EVICTED_TOGETHER: Final = 4 * 1024
_AHEAD_SHIFT: Final = 14
# Bytes of new items after which is looked at how large the index and the policy have become.
_MEASURED_EVERY: Final = 256 * 1024
# Items of an index that leaves no room for any, with which it is made anew: it takes a millisecond.
_TIDIED_AT_ONCE: Final = 10_000
_MOVED: Final = 1000  # items that were made anew, after which it is, too


def _none() -> int:
    return 0


@mypyc_attr(allow_interpreted_subclasses=True)
class ItemTable:
    """Items by key; where there is no room for another, a policy chooses what goes.

    Within, an item is found by the line that asks for it (`line_of`): so what arrives most often
    is looked up as it is.

    What is counted against the limit is memory: objects with their headers, as the allocator
    rounds them up, the index, and what the policy keeps.

    Args:
        limit: bytes that all of it may take (``-m``).
        evict: whether to evict when full; otherwise storing raises (``-M``).
        on_evict: called with what `Policy.evict` returns, some evicted items at a time.
        policy: makes the policy, given the items by line.

    Attributes:
        on_evict: as above.
        limit: as above; lower it with `shrink`.
        excess: returns the bytes of memory that are taken beyond the limit all the same, by what
            lies unused between objects; so much less there is for items.
        used: bytes of the items, without the index and the policy.
        asked: returns the item that is asked for with a whole line, or None if there is none or
            the line is another command; see `find`.
    """

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
        # What flush left behind: absent for everybody, freed a few at a time.
        self._flushed: Index | None = None
        self._garbage: list[tuple[Index, Policy]] = []
        self._states: dict[int, int] = {}
        self._few = FEW
        self._moved = 0  # items since it was measured
        self._begin()

    def _begin(self) -> None:
        self.used = 0
        self._items = Index(self._few)
        self._policy = self._make_policy(self._items)
        # Bound once: an attribute that is a C method costs no Python frame on the hot path.
        self.asked: Callable[[bytes], Item | None] = self._policy.find
        self.measure()

    def measure(self) -> None:
        """Find out what is left of the limit for items."""
        self._until_measured = _MEASURED_EVERY
        self._tidy()
        self.overhead = self._items.memory
        self.overhead += self._policy.adapt(self.limit - self.overhead)
        self._room = self.limit - self.overhead - self.excess()
        self._ahead = min(_EVICTED_TOGETHER, self.limit >> _AHEAD_SHIFT)

    def _tidy(self, *, all_of_it: bool = False) -> None:
        if self._items.tidy(all_of_it=all_of_it):
            self._policy.follow()
            self.asked = self._policy.find

    def __len__(self) -> int:
        return len(self._items)

    @property
    def over(self) -> bool:
        """Whether items take more than they may, and `reclaim` or what is stored makes room."""
        return self._evict and self.used > max(self._room, 0)

    def __bool__(self) -> bool:
        """Return True: an empty table is one all the same (``table or …``)."""
        return True

    def get(self, key: bytes) -> Item | None:
        """Return a key's item, or None; whether it has expired is the caller's to judge."""
        return self._items.get(b"get %b\r\n" % key)

    def find(self, key: bytes) -> Item | None:
        """Return the same of an item that is about to be used."""
        return self.asked(b"get %b\r\n" % key)

    def find_all(self, keys: list[bytes]) -> Iterable[Item | None]:
        """Yield the same of each key, one after the other."""
        # At a fifth of what it costs to make the lines one by one.
        lines = (b"get " + b"\r\nget ".join(keys) + b"\r\n").splitlines(keepends=True)
        if len(lines) != len(keys):  # a carriage return in one
            lines = [line_of(key) for key in keys]
        return self._policy.find_all(lines)

    def put(self, key: bytes, item: Item) -> None:
        """Store `item` under a key that is absent, evicting what it displaces.

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
            # New items and flushed ones together never take more than the limit.
            self._free(sys.maxsize, 2 * size)

    def renew(
        self, key: bytes, item: Item, wire: bytes, expires: float, state: int, marks: Marks | None
    ) -> Item:
        """Give a stored item a new value, and no version, evicting what it displaces.

        Returns:
            The item that is stored now, the old one or another.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted; the item is unchanged.
        """
        if expires or marks is not None or item.state & FULL:
            new = FullItem(wire, state, expires) if expires or marks else Item(wire, state)
            if marks is not None:
                cast("FullItem", new).marks = marks
            return self._replace(key, item, new)
        if len(wire) != len(item.wire):
            more = allocated(len(wire)) - allocated(len(item.wire))
            if more > 0 and self.used + more > self._room:
                return self._replace(key, item, Item(wire, state))
            self._resize(item, more)
        item.wire = wire
        item.state = state
        return item

    def _replace(self, key: bytes, old: Item, new: Item) -> Item:
        more = new.held - old.held
        if more > 0 and self.used + more > self._room:
            if not self._evict or cost(key, new) > self._room:
                raise OutOfMemoryError
            self.delete(key)
            self.put(key, new)
        else:
            self._items.put(line_of(key), new)
            self._resize(new, more)
        return new

    def alter(
        self,
        key: bytes,
        item: Item,
        expires: float,
        marks: Marks | None,
        *,
        renumber: bool = False,
    ) -> Item:
        """Give a stored item another expiry and other marks, and leave its value.

        Args:
            key: the item's.
            item: which.
            expires: see `Item`.
            marks: see `Item`.
            renumber: whether to take its version away, for it to get another.

        Returns:
            The item that is stored now, the old one or another.
        """
        if not (item.state & FULL or expires or marks is not None):
            return item
        before = item.held
        item = self._full(item)
        item.expires = expires
        item.marks = marks
        if renumber:
            item.version = 0
        self._resize(item, item.held - before)
        return item

    def number(self, item: Item, version: int) -> Item:
        """Give a stored item a version; return the item that is stored now."""
        before = item.held
        item = self._full(item)
        item.version = version
        self._resize(item, item.held - before)
        return item

    def _full(self, item: Item) -> FullItem:
        """Return a stored item, if need be after exchanging it for one that has room for more."""
        if isinstance(item, FullItem):
            return item
        full = FullItem(item.wire, item.state)
        self._items.put(line_of(item.key), full)
        return full

    def _resize(self, item: Item, more: int) -> None:
        # No room is made for what alter and number add; the next item to be stored makes it.
        self.used += more
        self._policy.resize(item, more)

    def restore(self, key: bytes, item: Item | None) -> None:
        """Bring a key back to what it was, whether or not that fits; None for absent."""
        self.delete(key)
        if item is not None:
            item.state = shared(item.state & ~MAIN)  # it comes as any other
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
        at_most = self.used - 2 * size - _EVICTED_BESIDE
        if until < at_most:
            until = at_most
        if size > _LARGE:
            lacking = self._room + (self.limit >> _LACKING_SHIFT) - size
            until = max(until, min(self.used - _LARGE, lacking))
        self._evict_down_to(until, sys.maxsize)

    def _evict_down_to(self, until: int, at_most: int) -> int:
        """Evict up to `at_most` items, until the others take so many bytes; return how many."""
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
        """Remove a key; return its item, or None when there was none."""
        line = line_of(key)
        item = self._items.pop(line)
        if item is not None:
            size = weigh(line, item)
            self.used -= size
            self._policy.remove(line, item, size)
        return item

    def drop(self, key: bytes) -> Item | None:
        """Forget what has expired, which a table may keep or not: nobody sees it any more."""
        return self.delete(key)

    def flush(self) -> None:
        """Make every item absent at once; `reclaim` frees them."""
        self._flushed = None
        # A few items go at once: however often it is flushed, few tables wait.
        if len(self._policy) >= max(len(self._garbage), 1):
            self._garbage.append((self._items, self._policy))
            self._flushed = self._items
        self._begin()

    def pop_flushed(self, key: bytes) -> Item | None:
        """Return and free what the last flush took from `key`, or None."""
        if self._flushed is None:
            return None
        item = self._flushed.pop(line_of(key))
        if item is not None:
            self._garbage[-1][1].dissolve()
        return item

    def reclaim(self, at_most: int) -> int:
        """Free up to `at_most` items and places: what was flushed, then what is over the limit.

        Returns:
            How many were freed.
        """
        count = self._free(at_most, sys.maxsize)
        if self._evict:
            count += self._evict_down_to(self._room, at_most - count)
        if self._room < 0:
            # After a much lower limit the index's free slots may be more than that, and as nothing
            # can be stored they would stay.
            self._tidy(all_of_it=len(self._items) <= _TIDIED_AT_ONCE)
            self.measure()
        return count

    def _free(self, at_most: int, size: int) -> int:
        """Free flushed items: up to a number, or until `size` bytes are free."""
        count = 0
        while self._garbage and count < at_most and size > 0:
            items, policy = self._garbage[0]
            gone = items.popitem()
            if gone is not None:
                size -= weigh(*gone)
            elif not len(policy):
                if self._flushed is items:
                    self._flushed = None
                del self._garbage[0]
                continue
            policy.dissolve()
            count += 1
        return count

    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Show items, all of them in the course of many calls; see `Policy.walk`."""
        return self._policy.walk(at_most, lambda line, item: look(key_of(line), item))

    def compact(self, at_most: int) -> bool:
        """Make some items anew, all of them in the course of many calls, and tidy the index.

        What is left of many small objects keeps whole arenas from going back to the system; copies
        made one after the other share few. Nobody may hold an item meanwhile. What lists items does
        so in the order of the policy afterwards.

        Returns:
            Whether there is more to do.
        """
        passed = self._policy.move(at_most, self._renew)
        self._moved += passed
        if self._moved > _MOVED or passed < at_most:
            self._moved = 0
            self.measure()
        if passed == at_most:
            return True
        self._states = {}
        return False

    def _renew(self, line: bytes, item: Item) -> bytes:
        """Put other objects in the place of an item and what it refers to; return its line."""
        self._items.pop(line)
        line = b"%b" % line
        wire = item.wire
        if len(wire) < PYTHONS_OWN:
            wire = b"%b" % wire
        # Of equal states one object: most items that were stored in the same second share one.
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

    def shrink(self, limit: int) -> None:
        """Set the limit, and evict some of what is over it when that is allowed.

        The rest goes with what is stored, and by `reclaim`.
        """
        self.limit = limit
        self.measure()
        self.reclaim(_EVICTED_AT_ONCE)

    def list_keys(self) -> list[bytes]:
        """Return every key, about from the oldest to the newest, and perhaps some that are gone."""
        return [line[4:-2] for line in self._lines()]  # as `key_of`, in half the time

    def scan(self) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item, in the same order; nothing may be stored meanwhile."""
        for line in self._lines():
            item = self._items.get(line)
            if item is not None:
                yield key_of(line), item

    def _lines(self) -> list[bytes]:
        """Return all lines, and perhaps some of items that are gone."""
        return self._items.lines() if self._items.single else self._policy.lines()

    def survey(self, *, newest_first: bool = False) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item that is there from beginning to end, whatever else is stored."""
        lines = self._lines()
        if not newest_first:
            lines.reverse()
        # Taken from the end, so that the list gets shorter: a million are not freed at one stroke.
        while lines:
            line = lines.pop()
            item = self._items.get(line)
            if item is not None:
                yield key_of(line), item
