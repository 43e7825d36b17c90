"""The keys that were evicted recently, in a few bytes each."""

from struct import Struct
from typing import Final

__all__ = ["Ghost"]

_WIDTH: Final = 4  # bytes of a fingerprint
_DEPTH: Final = 16  # fingerprints in a full bucket
_STRIDE: Final = _WIDTH * _DEPTH
_FEWEST: Final = 64  # buckets
_pack: Final = Struct("=I").pack


class Ghost:
    """Remembers evicted keys as fingerprints, in buckets of at most 16, each a ring buffer.

    The hash of a key selects its bucket; the fingerprint is dropped once later ones have
    filled that bucket. A key is therefore forgotten after about `capacity` others, give or
    take a fifth; an exact queue would need twenty times the memory. A key is mistaken for another
    once in 200 million lookups. Hashes of bytes differ between processes, so that clients cannot
    target a bucket.

    Attributes:
        capacity: number of keys to remember; see `resize`.
        memory: bytes of memory it takes.
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
        """Bytes of memory it takes."""
        return len(self._table) + len(self._next)

    def resize(self, capacity: int) -> None:
        """Remember this many keys from now on; known keys are partly retained."""
        self.capacity = capacity
        buckets = self._mask + 1
        while capacity > buckets * _DEPTH:
            buckets *= 2
        if buckets > self._mask + 1:
            table, following, times = self._table, self._next, buckets // (self._mask + 1)
            known = self._depth > 0
            self._make(buckets)
            if known:
                # The new bucket of a key is its old one or one of its copies. Fingerprints beyond
                # the new depth are lost, whether or not they were the newest.
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
            # Never 0, which means empty. These bits are not those that select the bucket.
            self._places[bucket * _DEPTH + place] = hashed >> 28 & 0xFFFFFFFF or 1

    def take(self, key: bytes) -> bool:
        """Forget a key; return whether it was remembered."""
        hashed = hash(key)
        start = (hashed & self._mask) * _STRIDE
        fingerprint = _pack(hashed >> 28 & 0xFFFFFFFF or 1)
        found = self._table.find(fingerprint, start, start + self._depth * _WIDTH)
        if found < 0 or found % _WIDTH:
            return False
        self._places[found // _WIDTH] = 0
        return True
