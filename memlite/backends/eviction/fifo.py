"""A queue of keys that can be walked through, a few at a time, while it is in use."""

from collections import deque
from collections.abc import Callable

__all__ = ["Fifo"]


class Fifo:
    """Keys in the order in which they came.

    What is removed from the middle stays until it comes out, or the walk comes by. The walk goes
    from the oldest to the newest: what it has passed waits in a part of its own, so the order
    holds at any time.
    """

    __slots__ = ("_ahead", "_new", "_passed")

    # deques: 8 bytes a key, and C on both ends.
    def __init__(self) -> None:
        self._passed: deque[bytes] = deque()
        self._ahead: deque[bytes] = deque()
        self._new: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._passed) + len(self._ahead) + len(self._new)

    def push(self, key: bytes) -> None:
        """Append a key."""
        self._new.append(key)

    def pop(self) -> bytes | None:
        """Take out the oldest key; None when there is none."""
        queue = self._passed or self._ahead or self._new
        return queue.popleft() if queue else None

    def walk(self, at_most: int, keep: Callable[[bytes], bytes | None]) -> int:
        """Go on walking, and keep, exchange or drop keys.

        Args:
            at_most: keys to pass.
            keep: returns the key that stays in a key's place, itself or its like, or None.

        Returns:
            How many were passed; fewer than `at_most` at the end. The next call starts over.
        """
        passed = self._passed
        for count in range(at_most):
            if not self._ahead:
                if not self._new:
                    self._ahead, self._passed = passed, deque()
                    return count
                self._ahead, self._new = self._new, deque()
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
