"""Generation numbers: unique, of the size of GCS's, and out of order on purpose."""

from collections.abc import Callable

__all__ = ["Generations"]

# The lowest bits of the time in microseconds, a little more than an hour, are permuted.
_BITS = 32
_MASK = (1 << _BITS) - 1
# Odd, so that multiplying permutes; near the golden ratio, so that neighbours end up far apart.
_FACTOR = 2_654_435_769


class Generations:
    """A source of generation numbers.

    On GCS a generation is a number of microseconds in practice, and of no meaning but its identity
    by contract. Those of the emulator are unique but, unless asked for, not in order, so
    that code which compares them with ``<`` fails here and not in production.

    Args:
        clock: returns unix time in seconds.
        ordered: later numbers are larger.
    """

    def __init__(self, clock: Callable[[], float], *, ordered: bool = False) -> None:
        self._clock = clock
        self._ordered = ordered
        self._last = 0

    def next(self) -> int:
        """Return a number that was never returned before."""
        self._last = max(self._last + 1, int(self._clock() * 1_000_000))
        if self._ordered:
            return self._last
        return self._last & ~_MASK | (self._last * _FACTOR) & _MASK

    def avoid(self, generation: int) -> None:
        """Never return `generation`, which an earlier run has used."""
        self._last = max(self._last, generation | _MASK)
