"""A number of which it is known how far off it may be."""

from dataclasses import dataclass

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its confidence interval.

    Attributes:
        value: the number.
        low: the lower bound; minus infinity, or of a positive number 0, if nothing tells.
        high: the upper bound; infinity if nothing tells.
    """

    value: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        """Both bounds."""
        return self.low, self.high
