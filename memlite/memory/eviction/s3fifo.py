"""S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), by bytes."""

import sys
from collections.abc import Callable, Iterable
from typing import Final

from memlite.memory.eviction.ghost import Ghost
from memlite.memory.eviction.key_queue import Fifo
from memlite.memory.eviction.policy import PLACE, Policy, weigh
from memlite.memory.index import Index
from memlite.memory.item import FREQUENCY, MAIN, Item, allocated, shared

__all__ = ["S3Fifo"]

_SMALL_SHARE: Final = 0.1  # of the bytes
_GHOST_SHARE: Final = 0.9  # of the number of items
# Bytes of the limit per key in the ghost, which then takes less than an eighth of the limit.
_LIMIT_PER_GHOST: Final = 8 * 9
_TO_MAIN: Final = 2  # uses in the small queue that promote an item to the main queue

# Recently used items that one call of `evict` may spare; this takes a quarter of a millisecond.
_CHANCES_AT_ONCE: Final = 1000

# Share of the limit that places of removed items may take. Above it, each removal visits a few
# places to free some, or a client that stores and deletes would leave no room for items.
_LEFT_SHARE: Final = 0.05
_PASSED: Final = 4


class S3Fifo(Policy):
    """Two queues: a small one on probation, and the main one.

    An item that was not used twice in the small queue is evicted. If it is stored again soon, it
    goes directly to the main queue (`Ghost`). In the main queue an item is spared once for each
    use, up to three times. A hit only changes the item's state; nothing moves.

    The place of a removed item stays in its queue until it is popped or `walk` reaches it. A key
    that is stored again before that gets the same place, as if it had been overwritten.
    """

    # Slots, because code in C reads and writes some of them with every command.
    __slots__ = (
        "_chances", "_filling", "_ghost_limit", "_left", "_left_bytes", "_left_limit", "_main",
        "_main_bytes", "_main_limit", "_patience", "_small", "_small_bytes", "_small_limit",
        "_walked", "ghost",
    )  # fmt: skip

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
        # Lines of places without an item, and the queue they are in.
        self._left: dict[bytes, int] = {}
        self._left_bytes = 0
        self._left_limit = 0
        self._ghost_limit = 0
        self._walked = self._small
        self._patience = _CHANCES_AT_ONCE
        self._chances = 0  # remaining in this call

    def find_all(self, lines: list[bytes]) -> Iterable[Item | None]:
        """Look up items that are about to be used."""
        return self._items.get_all(lines)

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def adapt(self, limit: int) -> int:
        """Adapt to the limit and the number of items; return the bytes that the policy takes."""
        self._small_limit = int(limit * _SMALL_SHARE)
        self._main_limit = limit - self._small_limit
        self._left_limit = int(limit * _LEFT_SHARE)
        self._ghost_limit = limit // _LIMIT_PER_GHOST
        if self.ghost.capacity > 2 * max(self._ghost_limit, 1):
            self.ghost = Ghost()  # the old one is from a much higher limit
        self._size_ghost()
        if not self._left:
            self._left = {}  # an emptied dict keeps its slots
        return self.ghost.memory + self._left_bytes + sys.getsizeof(self._left)

    def _size_ghost(self) -> None:
        if self._filling:
            return  # nothing has been evicted, and how many items fit is unknown
        capacity = min(int(len(self._items) * _GHOST_SHARE), self._ghost_limit)
        if capacity > self.ghost.capacity:
            self.ghost.resize(capacity)

    def recall(self, line: bytes, item: Item) -> None:
        """Record whether a key was evicted recently."""
        if not self._filling and self.ghost.take(line):
            item.state |= MAIN

    def admit(self, line: bytes, item: Item, size: int) -> None:
        """Add an item to the small queue, or to the main one if it was evicted recently.

        Until the table is full for the first time, items beyond the share of the small queue go to
        the main one.
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
        """Account for an item that takes more bytes than before."""
        if item.state & MAIN:
            self._main_bytes += more
        else:
            self._small_bytes += more

    def remove(self, line: bytes, item: Item, size: int) -> None:
        """Forget an item; its place remains."""
        self.resize(item, -size)
        self._left[line] = item.state & MAIN
        self._left_bytes += _left_by(line)
        if self._left_bytes > self._left_limit:
            self.walk(_PASSED, _ignore)

    def _give_up(self, line: bytes) -> None:
        left_bytes = self._left_bytes - _left_by(line)
        del self._left[line]
        self._left_bytes = left_bytes

    def evict(self, size: int, at_most: int) -> list[tuple[bytes, Item, int]]:
        """Choose items from the small queue, or from the main one if that exceeds its share."""
        self._chances = self._patience
        if self._filling:
            self._filling = False
            self._size_ghost()
        gone: list[tuple[bytes, Item, int]] = []
        try:
            self._choose(size, at_most, gone)
        except MemoryError:
            if not gone:
                raise
        return gone  # even if out of memory for more: these have left their queues

    def _choose(self, size: int, at_most: int, gone: list[tuple[bytes, Item, int]]) -> None:
        while size > 0 and len(gone) < at_most:
            if self._small_bytes and self._main_bytes <= self._main_limit:
                freed = self._evict_small(size, at_most, gone) or self._evict_main(gone)
            else:
                # The whole small queue may have moved to the main one, which was empty before.
                freed = self._evict_main(gone) or self._evict_small(size, at_most, gone)
                freed = freed or self._evict_main(gone)
            if not freed:
                # A thousand used items may have moved to a main queue that is empty by now.
                if self._chances or not len(self):
                    break
                self._chances = self._patience
            size -= freed

    def _evict_small(self, size: int, at_most: int, gone: list[tuple[bytes, Item, int]]) -> int:
        """Evict until enough is free or enough items are chosen, or the main queue is too large."""
        oldest, push, items, add = self._small.oldest, self._main.push, self._items, self.ghost.add
        chances = self._chances
        small, main = self._small_bytes, self._main_bytes
        freed = 0
        try:
            while freed < size and chances and len(gone) < at_most and (part := oldest()):
                line = part[0]
                item = items.get(line)
                if item is None:
                    self._give_up(line)
                    part.popleft()
                    continue
                weight = weigh(line, item)
                if item.state & FREQUENCY < _TO_MAIN:
                    after, small_after = freed + weight, small - weight
                    add(line)
                    gone.append((line, item, weight))
                    part.popleft()  # anything that may lack memory comes before
                    freed, small = after, small_after
                    if main > self._main_limit:
                        break
                else:
                    state = shared(item.state & ~FREQUENCY | MAIN)
                    small_after, main_after = small - weight, main + weight
                    chances -= 1
                    push(line)
                    part.popleft()
                    item.state = state
                    small, main = small_after, main_after
        finally:
            self._chances = chances
            self._small_bytes, self._main_bytes = small, main
        return freed

    def _evict_main(self, gone: list[tuple[bytes, Item, int]]) -> int:
        """Evict one item; return the bytes that this frees."""
        main, items = self._main, self._items
        chances = self._chances
        while part := main.oldest():
            line = part[0]
            item = items.get(line)
            if item is None:
                self._give_up(line)
                part.popleft()
            elif item.state & FREQUENCY and chances:
                state = shared(item.state - 1)
                chances -= 1
                main.push(line)
                part.popleft()
                item.state = state
            else:
                weight = weigh(line, item)
                main_bytes = self._main_bytes - weight
                gone.append((line, item, weight))
                part.popleft()
                self._main_bytes = main_bytes
                self._chances = chances
                return weight
        return 0

    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Visit items, those of the small queue first, and free the places of removed ones.

        It may miss items while there are so many such places that removals walk as well.
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
        """Return the lines of all items and of places without an item, queue by queue."""
        lines: list[bytes] = []
        # Until the table is full, the main queue has the newer items; after that, the small queue.
        queues = (self._small, self._main) if self._filling else (self._main, self._small)
        for queue in queues:
            queue.append_to(lines)  # without another copy, as a million lines take 10 ms
        return lines

    def move(self, at_most: int, copy: Callable[[bytes, Item], bytes]) -> int:
        """Replace items by copies, in the order of `walk`; also free places of removed items."""
        items = self._items

        def keep(line: bytes) -> bytes | None:
            item = items.get(line)
            if item is None:
                self._give_up(line)
                return None
            return copy(line, item)

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
        """The number of places that belong to removed items."""
        return len(self._left)

    def dissolve(self) -> None:
        """Free a place in each queue."""
        for queue in (self._small, self._main):
            queue.pop()
        if self._left:
            self._left.popitem()


def _left_by(line: bytes) -> int:
    """Return the bytes that a removed item leaves: its line, here and in its place."""
    return 2 * allocated(len(line)) + PLACE


def _ignore(line: bytes, item: Item) -> None:
    """Do nothing with a visited item."""
