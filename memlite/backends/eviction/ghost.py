"""The keys that were evicted lately, a few bytes each."""

from struct import Struct
from typing import Final

__all__ = ["Ghost"]

_WIDTH: Final = 4  # bytes of a fingerprint
_DEPTH: Final = 16  # fingerprints in a full bucket
_STRIDE: Final = _WIDTH * _DEPTH
_FEWEST: Final = 64  # buckets
_spelt: Final = Struct("=I").pack


class Ghost:
    """Remembers evicted keys by fingerprints, in buckets of at most 16, each a ring.

    A key falls into a bucket by its hash, and out of it when so many others of that bucket have
    come. So it is forgotten after about `capacity` others, give or take a fifth, where an exact
    queue would need twenty times the memory. That another key is taken for it happens once in 200
    million lookups. Hashes of bytes differ from process to process: nobody can aim at a bucket.

    Attributes:
        capacity: keys to remember; see `resize`.
        memory: bytes it takes.
    """

    __slots__ = ("_depth", "_mask", "_next", "_places", "_table", "capacity")

    def __init__(self, capacity: int = 0) -> None:
        self._make(_FEWEST)
        self.capacity = self._depth = 0
        self.resize(capacity)

    def _make(self, buckets: int) -> None:
        self._mask = buckets - 1
        self._table = bytearray(buckets * _STRIDE)
        self._places = memoryview(self._table).cast("I")
        self._next = bytearray(buckets)  # where in each bucket the next fingerprint goes

    @property
    def memory(self) -> int:
        """Bytes it takes."""
        return len(self._table) + len(self._next)

    def resize(self, capacity: int) -> None:
        """Remember so many keys from now on; what it knows, it keeps in part."""
        self.capacity = capacity
        buckets = self._mask + 1
        while capacity > buckets * _DEPTH:
            buckets *= 2
        if buckets > self._mask + 1:
            table, following, times = self._table, self._next, buckets // (self._mask + 1)
            known = self._depth > 0
            self._make(buckets)
            if known:
                # A key's bucket is the one it was in, or one of its copies. What stands behind the
                # new depth is lost; which keys it were the newest of, nobody knows any more.
                self._places[:] = memoryview(table * times).cast("I")
                self._next[:] = following * times
        self._depth = -(-capacity // buckets)

    def add(self, key: bytes) -> None:
        """Remember a key."""
        if self._depth:
            hashed = hash(key)
            bucket = hashed & self._mask
            place = self._next[bucket]
            if place >= self._depth:
                place = 0
            self._next[bucket] = place + 1
            # Never 0, which is what an empty place holds. The bits are others than the bucket's.
            self._places[bucket * _DEPTH + place] = hashed >> 28 & 0xFFFFFFFF or 1

    def take(self, key: bytes) -> bool:
        """Forget a key; return whether it was remembered."""
        hashed = hash(key)
        start = (hashed & self._mask) * _STRIDE
        fingerprint = _spelt(hashed >> 28 & 0xFFFFFFFF or 1)
        found = self._table.find(fingerprint, start, start + self._depth * _WIDTH)
        if found < 0 or found % _WIDTH:
            return False
        self._places[found // _WIDTH] = 0
        return True
