"""A number with known uncertainty."""

from dataclasses import dataclass

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its confidence interval.

    Attributes:
        value: the number.
        low: the lower bound; if unknown, minus infinity, or 0 for a positive number.
        high: the upper bound; infinity if unknown.
    """

    value: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        """Both bounds."""
        return self.low, self.high
