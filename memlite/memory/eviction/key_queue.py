"""A queue of keys that can be traversed a few at a time while it is in use."""

from collections import deque
from collections.abc import Callable

__all__ = ["Fifo"]


class Fifo:
    """Keys in insertion order.

    A key that is removed from the middle remains as a stale place until it is popped or the walk
    reaches it. The walk goes from the oldest key to the newest; the keys it has passed are in a
    separate part, so that the order is preserved at any time.

    Attributes:
        push: appends a key.
    """

    __slots__ = ("_ahead", "_new", "_passed", "push")

    # deques: 8 bytes per key, and fast at both ends.
    def __init__(self) -> None:
        self._passed: deque[bytes] = deque()
        self._ahead: deque[bytes] = deque()
        self._begin_new()

    def _begin_new(self) -> None:
        self._new: deque[bytes] = deque()
        # Bound once: calling a C method costs no Python frame.
        self.push: Callable[[bytes], None] = self._new.append

    def __len__(self) -> int:
        return len(self._passed) + len(self._ahead) + len(self._new)

    def oldest(self) -> "deque[bytes]":
        """Return the part in which the oldest key is first; an empty one if there is none.

        Its `popleft` removes that key, and needs no memory.
        """
        return self._passed or self._ahead or self._new

    def pop(self) -> bytes | None:
        """Remove and return the oldest key; None if there is none."""
        queue = self.oldest()
        return queue.popleft() if queue else None

    def walk(self, at_most: int, keep: Callable[[bytes], bytes | None]) -> int:
        """Continue the walk, and keep, replace or drop the keys it passes.

        Args:
            at_most: number of keys to pass.
            keep: returns the key to leave in place of a key, usually itself, or None to drop it.

        Returns:
            How many were passed; fewer than `at_most` at the end, after which the next call starts
            over.
        """
        passed = self._passed
        for count in range(at_most):
            if not self._ahead:
                if not self._new:
                    self._ahead, self._passed = passed, deque()
                    return count
                self._ahead = self._new
                self._begin_new()
            key = keep(self._ahead.popleft())
            if key is not None:
                passed.append(key)
        return at_most

    def append_to(self, keys: "list[bytes]") -> None:
        """Append all keys to a list, oldest first."""
        for part in (self._passed, self._ahead, self._new):
            keys += part

    def list(self) -> list[bytes]:
        """Return all keys, oldest first."""
        keys: list[bytes] = []
        self.append_to(keys)
        return keys
