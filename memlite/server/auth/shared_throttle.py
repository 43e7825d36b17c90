"""Throttling of authentication attempts across several processes that act as one server."""

import mmap
from typing import Final

from memlite.core.locks import Locks
from memlite.server.auth.throttle import ADDRESSES, after_attempt, after_success

__all__ = ["SharedThrottle"]

# The number of places for the bucket of an address, which its hash selects.
_PLACES: Final = 8


class SharedThrottle:
    """Like `Throttle`, in memory that processes share. Created before they are forked.

    The number of places for buckets is fixed. If all places for an address hold buckets of other
    addresses, the bucket that will be full first is replaced, as it delays attempts the least.

    Args:
        addresses: the most addresses to track.
    """

    def __init__(self, addresses: int = ADDRESSES) -> None:
        self._groups = -(-addresses // _PLACES)
        size = 8 * _PLACES * self._groups
        # Hashes of addresses, with the same hash key in all processes, and the time at which each
        # bucket will be full.
        self._names = memoryview(mmap.mmap(-1, size)).cast("q")
        self._full_at = memoryview(mmap.mmap(-1, size)).cast("d")
        self._locks = Locks()

    def take(self, address: str, now: float) -> float | None:
        """Take a token for an attempt; see `Throttle`."""
        name = hash(address) or 1
        with self._locks.hold(0):
            place = self._place(name)
            known = self._full_at[place] if self._names[place] == name else now
            result = after_attempt(known, now)
            if result is None:
                return None
            wait, full_at = result
            # In this order: if the process is killed in between, the previous address is charged.
            self._full_at[place] = full_at
            self._names[place] = name
        return wait

    def put_back(self, address: str, now: float) -> None:
        """Return the token of an attempt that succeeded."""
        name = hash(address) or 1
        with self._locks.hold(0):
            place = self._place(name)
            if self._names[place] == name:
                self._full_at[place] = after_success(self._full_at[place], now)

    def _place(self, name: int) -> int:
        """Return the place of the bucket of an address, or the place for a new one."""
        first = name % self._groups * _PLACES
        names = self._names[first : first + _PLACES].tolist()
        if name in names:
            return first + names.index(name)
        full_at = self._full_at[first : first + _PLACES].tolist()
        return first + full_at.index(min(full_at))
