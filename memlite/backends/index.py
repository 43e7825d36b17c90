"""Items by the lines that ask for them, in dicts none of which is ever large."""

import sys
from collections.abc import Callable, Iterable
from typing import Final

from memlite.backends.item import Item

__all__ = ["FEW", "Index"]

FEW: Final = 21_845
"""Items up to which one dict has them all: it is made anew, or taken apart, in 2 and 5 ms."""
# Dicts that have them from then on: a prime, as a dict goes by the last bits of a hash, and those
# would be the same for all that is in it. Each takes 16 bits for a slot up to 5 million items in
# all.
_MANY: Final = 251
_LOOKED_AT: Final = 32  # of these, at a time
_REMADE: Final = 4096  # items of those that are made anew then, or some more: half a millisecond
_BESIDE: Final = 104  # bytes for each of them beside it
# Bytes of a dict for each entry that it has room for: 24 of its own, and a half more slots of 2.
_PER_ENTRY: Final = 27
_SMALL: Final = 4096  # bytes of a dict that is left as it is
# Share of its entries below which a dict is made anew: so that it gets half as many, and a third of
# them are free until it has used them up once more, and a set costs 100 ns for it.
_SPARSE: Final = 0.375


class Index:
    """Finds items by line.

    A dict grows, or makes itself anew after removals, in one step: 70 ms with 1.4 million items, in
    which nobody is served. So there is more than one of them as soon as there are many items, and
    a line's hash says which has it: 1,200 instructions more, where a get takes 6,500.

    A removed item leaves its entry, and a dict that has used up its entries takes three times the
    slots of what is in it: `tidy` makes those anew that are twice as large as they need be.

    Args:
        few: items up to which there is one dict.

    Attributes:
        get: returns the item of a line, or None; another function after `tidy` has returned True.
        single: whether one dict has all items, in the order in which they came.
    """

    __slots__ = ("_dicts", "_few", "_filled", "_finds", "_next", "get", "single")

    def __init__(self, few: int = FEW) -> None:
        self._few = few
        self._dicts: list[dict[bytes, Item]] = [{}]
        self._finds: list[Callable[[bytes], Item | None]] = []
        self._next = 0  # the dict to look at next
        self._filled = 0  # dicts that may have items, while `popitem` empties them
        self.single = True
        # Bound once: what is a C method costs no Python frame.
        self.get: Callable[[bytes], Item | None] = self._dicts[0].get

    def __len__(self) -> int:
        return len(self._dicts[0]) if self.single else sum(map(len, self._dicts))

    @property
    def memory(self) -> int:
        """Bytes that it takes."""
        return sum(map(sys.getsizeof, self._dicts), len(self._finds) * _BESIDE)

    def put(self, line: bytes, item: Item) -> None:
        """Let `item` be found under `line`."""
        if self.single:
            self._dicts[0][line] = item
        else:
            self._dicts[hash(line) % _MANY][line] = item

    def pop(self, line: bytes) -> Item | None:
        """Remove a line; return its item, or None when there was none."""
        if self.single:
            return self._dicts[0].pop(line, None)
        return self._dicts[hash(line) % _MANY].pop(line, None)

    def remove(self, gone: list[tuple[bytes, Item, int]]) -> None:
        """Remove what is there, as `Policy.evict` returns it."""
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
        """How many parts it has: one while `single`, then many, none of them large."""
        return len(self._dicts)

    def lines(self, part: int = 0) -> list[bytes]:
        """Return the lines in one of its parts, in the order in which they came there."""
        return list(self._dicts[part])

    def get_all(self, lines: list[bytes]) -> Iterable[Item | None]:
        """Return for each line what `get` does."""
        if self.single:
            return map(self.get, lines)
        finds = self._finds
        return [finds[hash(line) % _MANY](line) for line in lines]

    def popitem(self) -> tuple[bytes, Item] | None:
        """Remove any line; return it and its item, or None when there is none. Nothing may come."""
        self._filled = self._filled or len(self._dicts)
        while self._filled > 1 and not self._dicts[self._filled - 1]:
            self._filled -= 1
        last = self._dicts[self._filled - 1]
        return last.popitem() if last else None

    def tidy(self, *, all_of_it: bool = False) -> bool:
        """Look at some dicts, or at all, whether they are too large for what is in them.

        Returns:
            Whether `get` is another now.
        """
        if self.single:
            one = self._dicts[0]
            if len(one) > self._few:
                self._scatter()
                return True
            _tidy(one)
            return False
        remade = 0
        for _ in range(_MANY if all_of_it else _LOOKED_AT):
            place = self._next
            self._next = (place + 1) % _MANY
            remade += _tidy(self._dicts[place])
            if remade > _REMADE and not all_of_it:
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
        self.single = False


def _tidy(one: dict[bytes, Item]) -> int:
    """Make a dict anew if it is too large for what is in it; return how many items it has then."""
    size = sys.getsizeof(one)
    if size <= _SMALL or len(one) * _PER_ENTRY >= _SPARSE * size:
        return 0
    # In place: another dict would be new to the garbage collector, which goes through all that is
    # in it twice before it lets it be, and takes as long as all the rest.
    items = dict(one)
    one.clear()
    one.update(items)
    return len(one)
