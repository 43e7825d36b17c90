"""S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), by bytes."""

import sys
from collections.abc import Callable, Iterable
from typing import Final

from memlite.backends.eviction.fifo import Fifo
from memlite.backends.eviction.ghost import Ghost
from memlite.backends.eviction.policy import PLACE, Policy, weigh
from memlite.backends.index import Index
from memlite.backends.item import FREQUENCY, MAIN, Item, allocated, shared

__all__ = ["S3Fifo"]

_SMALL_SHARE: Final = 0.1  # of the bytes
_GHOST_SHARE: Final = 0.9  # of the number of items
# Bytes of the limit for one key that the ghost remembers: what it takes stays below an eighth.
_LIMIT_PER_GHOST: Final = 8 * 9
_TO_MAIN: Final = 2  # uses in the small queue that lead to the main one

# Used items that may be passed over to make room once, however many go: a quarter of a millisecond.
_CHANCES_AT_ONCE: Final = 1000

# Share of the bytes that places without an item may take before each removal passes a few places
# to give some up: else a client that stores and deletes would leave no room for items.
_LEFT_SHARE: Final = 0.05
_PASSED: Final = 4


class S3Fifo(Policy):
    """Two queues: a small one where new items prove themselves, and the main one.

    What was not used twice in the small queue leaves the cache, and comes back straight to the
    main queue if it is stored again soon (`Ghost`). In the main queue a used item goes round once
    more for each use, up to three. A hit costs a note in the item; nothing moves.

    A removed item's place stays in its queue until it comes out or `walk` comes by; a key that
    comes back before takes it again, as if it had been overwritten.
    """

    def __init__(self, items: Index, ghost: Ghost | None = None) -> None:
        super().__init__(items)
        self.ghost = ghost or Ghost()
        self._small = Fifo()
        self._main = Fifo()
        self._small_bytes = 0
        self._main_bytes = 0
        self._small_limit = 0
        self._main_limit = 0
        self._filling = True  # for the first time
        # Keys of places without an item, and in which queue they are.
        self._left: dict[bytes, int] = {}
        self._left_bytes = 0
        self._left_limit = 0
        self._ghost_limit = 0
        self._walked = self._small
        self._patience = _CHANCES_AT_ONCE
        self._chances = 0  # that are left of these

    def find_all(self, lines: list[bytes]) -> Iterable[Item | None]:
        """Look up items that are about to be used."""
        return self._items.get_all(lines)

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def adapt(self, limit: int) -> int:
        """Take in what items may take, and how many there are; return the bytes of the rest."""
        self._small_limit = int(limit * _SMALL_SHARE)
        self._main_limit = limit - self._small_limit
        self._left_limit = int(limit * _LEFT_SHARE)
        self._ghost_limit = limit // _LIMIT_PER_GHOST
        if self.ghost.capacity > 2 * max(self._ghost_limit, 1):
            self.ghost = Ghost()  # that of a much higher limit
        self._size_ghost()
        if not self._left:
            self._left = {}  # a dict keeps its slots
        return self.ghost.memory + self._left_bytes + sys.getsizeof(self._left)

    def _size_ghost(self) -> None:
        if self._filling:
            return  # nothing is evicted: what fits will show
        capacity = min(int(len(self._items) * _GHOST_SHARE), self._ghost_limit)
        if capacity > self.ghost.capacity:
            self.ghost.resize(capacity)

    def recall(self, line: bytes, item: Item) -> None:
        """Look whether a key was evicted lately."""
        if not self._filling and self.ghost.take(line):
            item.state |= MAIN

    def admit(self, line: bytes, item: Item, size: int) -> None:
        """Put an item into the small queue, or into the main one if it is back.

        While there is room for all, into the main one also what is beyond the small one's share.
        """
        if self._left:
            queue = self._left.get(line)
            if queue is not None:
                self._give_up(line)
                item.state = shared(item.state & ~MAIN | queue)
                if queue:
                    self._main_bytes += size
                else:
                    self._small_bytes += size
                return
        if item.state & MAIN or (self._filling and self._small_bytes >= self._small_limit):
            item.state = shared(item.state | MAIN)
            self._main.push(line)
            self._main_bytes += size
        else:
            self._small.push(line)
            self._small_bytes += size

    def resize(self, item: Item, more: int) -> None:
        """Note that an item takes more bytes than before."""
        if item.state & MAIN:
            self._main_bytes += more
        else:
            self._small_bytes += more

    def remove(self, line: bytes, item: Item, size: int) -> None:
        """Forget an item; its place is left."""
        self.resize(item, -size)
        self._left[line] = item.state & MAIN
        self._left_bytes += _left_by(line)
        if self._left_bytes > self._left_limit:
            self.walk(_PASSED, _ignore)

    def _give_up(self, line: bytes) -> None:
        del self._left[line]
        self._left_bytes -= _left_by(line)

    def evict(self, size: int, at_most: int) -> list[tuple[bytes, Item, int]]:
        """Choose items from the small queue, or from the main one where that has too much."""
        self._chances = self._patience
        if self._filling:
            self._filling = False
            self._size_ghost()
        gone: list[tuple[bytes, Item, int]] = []
        while size > 0 and len(gone) < at_most:
            if self._small_bytes and self._main_bytes <= self._main_limit:
                freed = self._evict_small(size, at_most, gone) or self._evict_main(gone)
            else:
                # All of the small queue may have gone on to the main one, which had nothing before.
                freed = self._evict_main(gone) or self._evict_small(size, at_most, gone)
                freed = freed or self._evict_main(gone)
            if not freed:
                # A thousand that were used may all have moved on, and the main queue be empty now.
                if self._chances or not len(self):
                    break
                self._chances = self._patience
            size -= freed
        return gone

    def _evict_small(self, size: int, at_most: int, gone: list[tuple[bytes, Item, int]]) -> int:
        """Evict until that many bytes are free or items gone, or the main queue has too much."""
        pop, push, items, add = self._small.pop, self._main.push, self._items, self.ghost.add
        chances = self._chances
        freed = moved = 0
        while freed < size and chances and len(gone) < at_most and (line := pop()) is not None:
            item = items.get(line)
            if item is None:
                self._give_up(line)
                continue
            weight = weigh(line, item)
            if item.state & FREQUENCY < _TO_MAIN:
                add(line)
                gone.append((line, item, weight))
                freed += weight
                if self._main_bytes + moved > self._main_limit:
                    break
            else:
                chances -= 1
                item.state = shared(item.state & ~FREQUENCY | MAIN)
                moved += weight
                push(line)
        self._chances = chances
        self._small_bytes -= freed + moved
        self._main_bytes += moved
        return freed

    def _evict_main(self, gone: list[tuple[bytes, Item, int]]) -> int:
        """Evict one item; return the bytes that makes free."""
        main, items = self._main, self._items
        chances = self._chances
        while (line := main.pop()) is not None:
            item = items.get(line)
            if item is None:
                self._give_up(line)
            elif item.state & FREQUENCY and chances:
                chances -= 1
                item.state = shared(item.state - 1)
                main.push(line)
            else:
                weight = weigh(line, item)
                self._chances = chances
                self._main_bytes -= weight
                gone.append((line, item, weight))
                return weight
        return 0

    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Show items, first those of the small queue, and give up the places that are left.

        It may miss items while there are so many places that removals pass some, too.
        """
        items, left = self._items, self._left

        def keep(line: bytes) -> bytes | None:
            item = items.get(line)
            if item is not None:
                look(line, item)
            if line in left:
                self._give_up(line)
                return None
            return line

        return self._pass(at_most, keep)

    def lines(self) -> list[bytes]:
        """Return the lines of all items and of places left, queue by queue."""
        lines: list[bytes] = []
        # What is beyond the small one's share goes into the main one at first, and later from it.
        queues = (self._small, self._main) if self._filling else (self._main, self._small)
        for queue in queues:
            queue.append_to(lines)  # a copy of a million takes 10 ms, so there is but one
        return lines

    def move(self, at_most: int, renew: Callable[[bytes, Item], bytes]) -> int:
        """Have items made anew, in the order in which `walk` shows them; also gives up places."""
        items = self._items

        def keep(line: bytes) -> bytes | None:
            item = items.get(line)
            if item is None:
                self._give_up(line)
                return None
            return renew(line, item)

        return self._pass(at_most, keep)

    def _pass(self, at_most: int, keep: Callable[[bytes], bytes | None]) -> int:
        passed = self._walked.walk(at_most, keep)
        if passed == at_most:
            return passed
        if self._walked is self._small:
            self._walked = self._main
            return at_most  # there is more
        self._walked = self._small
        return passed

    @property
    def places_left(self) -> int:
        """How many places have no item any more."""
        return len(self._left)

    def dissolve(self) -> None:
        """Free a place of each queue."""
        for queue in (self._small, self._main):
            queue.pop()
        if self._left:
            self._left.popitem()


def _left_by(line: bytes) -> int:
    """Return the bytes of what a removed item leaves: its line, here and in its place."""
    return 2 * allocated(len(line)) + PLACE


def _ignore(line: bytes, item: Item) -> None:
    """Look at nothing."""
