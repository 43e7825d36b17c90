"""The number of requests in the system over time, in an open loop."""

__all__ = ["Occupancy"]


class Occupancy:
    """Counts requests as they become due and as they complete.

    Little's law compares the area under the number over time with the response times. The area is
    computed without response times: no request's start and end need to be matched. An arrival adds
    the time from it to the end of the measurement, and a departure subtracts the time from it to
    the end, so that each costs one addition. L. Kleinrock, *Queueing Systems* I (1975), section
    2.1.

    Attributes:
        number: number of requests in the system.
    """

    __slots__ = ("_area", "_cut_off", "number")

    def __init__(self) -> None:
        self.number = 0
        self._area = 0
        self._cut_off = 0

    def arrived(self, moment: int) -> None:
        """Count a request that became due at `moment`, in nanoseconds."""
        self.number += 1
        self._area -= moment

    def left(self, moment: int, count: int = 1) -> None:
        """Count requests that completed or failed at `moment`, in nanoseconds."""
        self.number -= count
        self._area += moment * count

    def begin(self, moment: int) -> None:
        """Begin the measurement at `moment`, in nanoseconds."""
        self._area = -moment * self.number
        self._cut_off = self.number

    def end(self, moment: int) -> tuple[int, int]:
        """Return the area, in nanoseconds, and the number of requests that the two ends cut off."""
        return self._area + moment * self.number, self._cut_off + self.number
