"""Generation numbers: unique, as large as those of GCS, and deliberately not in order."""

from collections.abc import Callable

__all__ = ["Generations"]

# These low bits of the time in microseconds, spanning a little over an hour, are permuted.
_BITS = 32
_MASK = (1 << _BITS) - 1
# Odd, so that multiplication is a permutation; near the golden ratio, so that neighbours end up far
# apart.
_FACTOR = 2_654_435_769


class Generations:
    """A source of generation numbers.

    In practice, a generation on GCS is a time in microseconds; by contract it is only an identity.
    The emulator's generations are unique but by default not ordered, so that code which compares
    them with ``<`` fails in tests rather than in production.

    Args:
        clock: returns unix time in seconds.
        ordered: whether later numbers are larger.
    """

    def __init__(self, clock: Callable[[], float], *, ordered: bool = False) -> None:
        self._clock = clock
        self._ordered = ordered
        self._last = 0

    def next(self) -> int:
        """Return a number that was not returned before."""
        self._last = max(self._last + 1, int(self._clock() * 1_000_000))
        if self._ordered:
            return self._last
        return self._last & ~_MASK | (self._last * _FACTOR) & _MASK

    def avoid(self, generation: int) -> None:
        """Never return `generation`, which an earlier run used."""
        self._last = max(self._last, generation | _MASK)
