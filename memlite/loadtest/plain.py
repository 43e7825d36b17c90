"""Gets and sets of values of one size: operations that cost next to nothing to generate."""

import numpy as np

from memlite.loadtest.operations import Operations
from memlite.loadtest.workload import Workload

__all__ = ["PlainOperations", "is_plain"]

# The expected replies, a hit and STORED: see `memlite.client.scanner.fixed_size_matcher`.
_LETTERS = {"get": b"V", "set": b"S"}
# Requests are built once and cached: the maximum number, and the maximum value size in bytes.
_KEPT_MOST = 1 << 17
_KEPT_SIZE = 256


def is_plain(workload: Workload) -> bool:
    """Return whether a workload has only gets of one key and sets of one size, in a closed loop."""
    load = workload.load
    return (
        workload.kind == "steady"
        and not workload.trace
        and workload.values.distribution == "fixed"
        and {kind for kind, weight in workload.mix.items() if weight} <= _LETTERS.keys()
        and (load.multiget, load.noreply, load.rate, load.think_time) == (1, False, 0, 0)
    )


class PlainOperations:
    """The operations of a plain workload: joined requests, and the expected replies.

    They are the same operations that `operations` would return one by one.

    Args:
        operations: the source of operations; its workload is plain and not verified.
        size: size of values, in bytes.

    Attributes:
        left: number of operations still to return; None for no limit.
        size: size of values, in bytes.
    """

    def __init__(self, operations: Operations, size: int) -> None:
        self.left: int | None = None
        self.size = size
        self._operations = operations
        self._requests = _Requests(operations, size)
        letters = b"".join(_LETTERS[kind] for kind in operations.kinds)
        self._letter_of = np.frombuffer(letters, np.uint8)
        # Operations drawn but not yet taken: for each, a code made of kind and key, and the letter
        # of its expected reply.
        self._codes: list[int] = []
        self._letters = b""
        self._taken = 0

    def take(self, count: int) -> tuple[bytes, bytes]:
        """Return up to `count` requests, and a letter for each; fewer if the stream ends."""
        if self.left is not None:
            count = min(count, self.left)
            self.left -= count
        start = self._taken
        end = start + count
        while end > len(self._codes):
            self._draw()
            start, end = 0, count
        self._taken = end
        if count == 1:
            return self._requests[self._codes[start]], self._letters[start:end]
        requests = map(self._requests.__getitem__, self._codes[start:end])
        return b"".join(requests), self._letters[start:end]

    def _draw(self) -> None:
        kinds, numbers = self._operations.draw()
        codes = numbers * len(self._operations.kinds) + kinds
        self._codes = self._codes[self._taken :] + codes.tolist()
        self._letters = self._letters[self._taken :] + self._letter_of[kinds].tobytes()
        self._taken = 0


class _Requests(dict[int, bytes]):
    """Requests by code, built when first needed."""

    def __init__(self, operations: Operations, size: int) -> None:
        self._operations = operations
        self._size = size
        self._most = _KEPT_MOST if size <= _KEPT_SIZE else 0

    def __missing__(self, code: int) -> bytes:
        number, kind = divmod(code, len(self._operations.kinds))
        request = self._operations.build(kind, number, self._size).request
        if len(self) < self._most:
            self[code] = request
        return request
