"""How many requests of an open loop are in the system, over time."""

__all__ = ["Occupancy"]


class Occupancy:
    """Counts requests as they become due and as they are done.

    The area below the number over time is what Little's law compares with the response times, which
    it does not use: it needs no request's beginning and end together. An arrival adds the time from
    it to the end of the measurement, and a departure takes away as much, so that each costs one
    addition. L. Kleinrock, *Queueing Systems* I (1975), section 2.1.

    Attributes:
        number: how many there are.
    """

    __slots__ = ("_area", "_cut_off", "number")

    def __init__(self) -> None:
        self.number = 0
        self._area = 0
        self._cut_off = 0

    def arrived(self, moment: int) -> None:
        """Count a request that was due at a moment, in nanoseconds."""
        self.number += 1
        self._area -= moment

    def left(self, moment: int, count: int = 1) -> None:
        """Count requests that are done, or have failed."""
        self.number -= count
        self._area += moment * count

    def begin(self, moment: int) -> None:
        """Begin to measure."""
        self._area = -moment * self.number
        self._cut_off = self.number

    def end(self, moment: int) -> tuple[int, int]:
        """Return the area, in nanoseconds, and how many requests either end cuts off."""
        return self._area + moment * self.number, self._cut_off + self.number
