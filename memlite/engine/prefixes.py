"""Counters per key prefix (``stats detail``)."""

from collections.abc import Mapping, Sequence

from memlite.memory import nameable

__all__ = ["PrefixStats"]


class PrefixStats:
    """Counts gets, hits, sets and deletes by the part of the key before a delimiter.

    Keys without the delimiter are not counted, as in memcached.

    Args:
        delimiter: one byte (``-D``, default a colon).
        at_most: number of prefixes; more are not counted, so that clients cannot fill the memory
            with made-up keys.
    """

    def __init__(self, delimiter: bytes = b":", at_most: int = 100_000) -> None:
        self._delimiter = delimiter
        self._at_most = at_most
        self._counts: dict[bytes, list[int]] = {}  # get, hit, set, delete

    def _of(self, key: bytes) -> list[int] | None:
        prefix, delimiter, _ = key.partition(self._delimiter)
        if not delimiter:
            return None
        counts = self._counts.get(prefix)
        if counts is None and len(self._counts) < self._at_most:
            counts = self._counts[prefix] = [0, 0, 0, 0]
        return counts

    def record_get(self, key: bytes, hit: bool) -> None:
        """Count a get of one key."""
        counts = self._of(key)
        if counts is not None:
            counts[0] += 1
            counts[1] += hit

    def record_set(self, key: bytes) -> None:
        """Count a storage command."""
        counts = self._of(key)
        if counts is not None:
            counts[2] += 1

    def record_delete(self, key: bytes) -> None:
        """Count a delete."""
        counts = self._of(key)
        if counts is not None:
            counts[3] += 1

    def clear(self) -> None:
        """Forget all counts (``stats reset``)."""
        self._counts.clear()

    def counts(self) -> dict[bytes, list[int]]:
        """Return gets, hits, sets and deletes by prefix."""
        return self._counts

    def merge(self, counts: Mapping[bytes, Sequence[int]]) -> None:
        """Add the `counts` of another process."""
        for prefix, more in counts.items():
            mine = self._counts.get(prefix, [0, 0, 0, 0])
            self._counts[prefix] = [a + b for a, b in zip(mine, more, strict=True)]

    def dump(self) -> bytes:
        r"""Return ``PREFIX <prefix> get <n> hit <n> set <n> del <n>\r\n`` lines and END.

        Prefixes that the text protocol cannot express are omitted, as they may contain line ends.
        """
        lines = [
            b"PREFIX %b get %d hit %d set %d del %d\r\n" % (prefix, gets, hits, sets, deletes)
            for prefix, (gets, hits, sets, deletes) in self._counts.items()
            if nameable(prefix)
        ]
        return b"".join(lines) + b"END\r\n"
