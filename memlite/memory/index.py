"""Items by request line, in several dicts of bounded size."""

import sys
from collections.abc import Callable, Iterable
from typing import Final

from memlite.memory.item import Item

__all__ = ["FEW", "Index"]

FEW: Final = 21_845
"""Items up to which there is a single dict; rebuilding it takes 2 ms, splitting it 5 ms."""
# Number of dicts above that. A prime, because a dict uses the last bits of the hash, which would
# otherwise be the same for all its keys. Slots take 16 bits up to 5 million items in total.
_MANY: Final = 251
_CHECKED_AT_ONCE: Final = 32  # dicts
_REBUILT_AT_ONCE: Final = 4096  # items, approximately: half a millisecond
_DICT_OVERHEAD: Final = 104  # bytes for each dict in addition to itself
# Bytes of a dict for each entry it has room for: 24 for the entry, and one and a half slots of 2.
_PER_ENTRY: Final = 27
_SMALL: Final = 4096  # bytes of a dict that is never rebuilt
# Share of entries in use below which a dict is rebuilt. It then has half as many, a third of which
# are free until it fills up again; this costs 100 ns per set.
_SPARSE: Final = 0.375


class Index:
    """Finds items by request line.

    A dict grows, or is rebuilt after removals, in one step: 70 ms with 1.4 million items, during
    which no request is served. Above a number of items there are therefore several dicts, and the
    hash of the line selects one: 1,200 more instructions, where a get takes 6,500.

    Removing an item leaves an unused entry in its dict. A dict that has run out of entries
    allocates three times the slots that its items need: `tidy` rebuilds dicts that are twice as
    large as necessary.

    Args:
        few: number of items up to which there is a single dict.

    Attributes:
        get: returns the item of a line, or None; replaced whenever `tidy` returns True.
        single: whether there is a single dict, which has the items in insertion order.
        only: that dict, for storing items without calling `put`; None if there are several.
    """

    __slots__ = ("_dicts", "_few", "_filled", "_finds", "_next", "get", "only", "single")

    def __init__(self, few: int = FEW) -> None:
        self._few = few
        self.only: dict[bytes, Item] | None = {}
        self._dicts: list[dict[bytes, Item]] = [self.only]
        self._finds: list[Callable[[bytes], Item | None]] = []
        self._next = 0  # the dict to check next
        self._filled = 0  # dicts that may have items, while `popitem` empties them
        self.single = True
        # Bound once: calling a C method costs no Python frame.
        self.get: Callable[[bytes], Item | None] = self._dicts[0].get

    def __len__(self) -> int:
        return len(self._dicts[0]) if self.single else sum(map(len, self._dicts))

    @property
    def memory(self) -> int:
        """Bytes of memory that it takes."""
        return sum(map(sys.getsizeof, self._dicts), len(self._finds) * _DICT_OVERHEAD)

    def put(self, line: bytes, item: Item) -> None:
        """Store `item` under `line`."""
        if self.single:
            self._dicts[0][line] = item
        else:
            self._dicts[hash(line) % _MANY][line] = item

    def pop(self, line: bytes) -> Item | None:
        """Remove a line; return its item, or None if there was none."""
        if self.single:
            return self._dicts[0].pop(line, None)
        return self._dicts[hash(line) % _MANY].pop(line, None)

    def remove(self, gone: list[tuple[bytes, Item, int]]) -> None:
        """Remove evicted items, as `Policy.evict` returns them."""
        dicts = self._dicts
        if self.single:
            one = dicts[0]
            for line, _, _ in gone:
                del one[line]
        else:
            for line, _, _ in gone:
                del dicts[hash(line) % _MANY][line]

    @property
    def parts(self) -> int:
        """The number of dicts: one while `single`."""
        return len(self._dicts)

    def lines(self, part: int = 0) -> list[bytes]:
        """Return the lines in one of the dicts, in insertion order."""
        return list(self._dicts[part])

    def get_all(self, lines: list[bytes]) -> Iterable[Item | None]:
        """Return the result of `get` for each line."""
        if self.single:
            return map(self.get, lines)
        finds = self._finds
        return [finds[hash(line) % _MANY](line) for line in lines]

    def popitem(self) -> tuple[bytes, Item] | None:
        """Remove any line; return it and its item, or None if empty.

        Nothing may be added between calls until it returns None.
        """
        self._filled = self._filled or len(self._dicts)
        while self._filled > 1 and not self._dicts[self._filled - 1]:
            self._filled -= 1
        last = self._dicts[self._filled - 1]
        return last.popitem() if last else None

    def tidy(self, *, all_of_it: bool = False) -> bool:
        """Rebuild dicts that are too large for their items; check some dicts, or all of them.

        Returns:
            Whether `get` was replaced.
        """
        if self.single:
            one = self._dicts[0]
            if len(one) > self._few:
                self._scatter()
                return True
            _tidy(one)
            return False
        rebuilt = 0
        for _ in range(_MANY if all_of_it else _CHECKED_AT_ONCE):
            place = self._next
            self._next = (place + 1) % _MANY
            rebuilt += _tidy(self._dicts[place])
            if rebuilt > _REBUILT_AT_ONCE and not all_of_it:
                break
        return False

    def _scatter(self) -> None:
        dicts: list[dict[bytes, Item]] = [{} for _ in range(_MANY)]
        for line, item in self._dicts[0].items():
            dicts[hash(line) % _MANY][line] = item
        finds: list[Callable[[bytes], Item | None]] = [one.get for one in dicts]

        def get(line: bytes) -> Item | None:
            return finds[hash(line) % _MANY](line)

        self._dicts, self._finds, self.get = dicts, finds, get
        self.single, self.only = False, None


def _tidy(one: dict[bytes, Item]) -> int:
    """Rebuild a dict that is too large for its items; return how many items were moved."""
    size = sys.getsizeof(one)
    if size <= _SMALL or len(one) * _PER_ENTRY >= _SPARSE * size:
        return 0
    # In place: the garbage collector would traverse a new dict twice before it moves it to the
    # oldest generation, which takes as long as everything else together.
    items = dict(one)
    one.clear()
    one.update(items)
    return len(one)
