"""The keys that were evicted lately, a few bytes each."""

from typing import Final

__all__ = ["Ghost"]

_WIDTH: Final = 4  # bytes of a fingerprint
_DEPTH: Final = 16  # fingerprints in a full bucket
_STRIDE: Final = _WIDTH * _DEPTH
_FEWEST: Final = 64  # buckets


class Ghost:
    """Remembers evicted keys by fingerprints, in buckets of at most 16, newest first.

    A key falls into a bucket by its hash, and out of it behind so many others of that bucket. So
    it is forgotten after about `capacity` others, give or take a fifth, where an exact queue would
    need twenty times the memory. That another key is taken for it happens once in 200 million
    lookups. Hashes of bytes differ from process to process: nobody can aim at a bucket.

    Attributes:
        capacity: keys to remember; see `resize`.
        memory: bytes it takes.
    """

    __slots__ = ("_depth", "_mask", "_table", "capacity")

    def __init__(self, capacity: int = 0) -> None:
        self.clear()
        self.resize(capacity)

    def clear(self) -> None:
        """Forget everything."""
        self._mask = _FEWEST - 1
        self._table = bytearray(_FEWEST * _STRIDE)
        self._depth = 0
        self.capacity = 0

    @property
    def memory(self) -> int:
        """Bytes it takes."""
        return len(self._table)

    def resize(self, capacity: int) -> None:
        """Remember so many keys from now on; what it knows, it keeps as far as that goes."""
        self.capacity = capacity
        while capacity > (self._mask + 1) * _DEPTH:
            # Keys of a bucket go on to the one of its number, or to its double in the second half.
            self._table = self._table + self._table
            self._mask = 2 * self._mask + 1
        self._depth = -(-capacity // (self._mask + 1)) * _WIDTH

    def add(self, key: bytes) -> None:
        """Remember a key."""
        depth = self._depth
        if depth:
            hashed = hash(key)
            start = (hashed & self._mask) * _STRIDE
            table = self._table
            table[start : start + depth] = (
                _fingerprint(hashed) + table[start : start + depth - _WIDTH]
            )

    def take(self, key: bytes) -> bool:
        """Forget a key; return whether it was remembered."""
        hashed = hash(key)
        start = (hashed & self._mask) * _STRIDE
        end = start + self._depth
        table = self._table
        found = table.find(_fingerprint(hashed), start, end)
        if found < 0 or (found - start) % _WIDTH:
            return False
        table[found:end] = table[found + _WIDTH : end] + bytes(_WIDTH)
        return True


def _fingerprint(hashed: int) -> bytes:
    # Never 0, which is what an empty place holds. The bits are others than the bucket's.
    return (hashed >> 28 & 0xFFFFFFFF or 1).to_bytes(_WIDTH, "little")
