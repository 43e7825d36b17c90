"""Table cells: the text for readers, and the numbers for spreadsheets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from memlite.loadtest.results import Interval
from memlite.loadtest.units import duration, grouped, percent

__all__ = [
    "PER_SECOND",
    "UNKNOWN",
    "Cell",
    "Number",
    "between",
    "count",
    "microseconds",
    "plain",
    "share",
    "with_interval",
]

UNKNOWN: Final = "–"
"""The text of a cell whose value is unknown."""


PER_SECOND: Final = "1/s"
"""The unit of a throughput."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a cell.

    Attributes:
        value: the number; None if unknown.
        unit: its unit; empty for none, or if the column heading states it.
        of: label that tells several numbers in a cell apart, such as ``95% low``; empty for the
            first.
    """

    value: float | None
    unit: str = ""
    of: str = ""


class Cell(str):
    """The text of a cell, with its numbers.

    Args:
        text: the text for readers, rounded and with a unit.
        numbers: the numbers that it shows.

    Attributes:
        numbers: the numbers that it shows.
    """

    __slots__ = ("numbers",)

    numbers: tuple[Number, ...]

    def __new__(cls, text: str, *numbers: Number) -> Self:
        """Return the text with its numbers."""
        cell = super().__new__(cls, text)
        cell.numbers = numbers
        return cell


def count(number: int) -> Cell:
    """Return a count, like ``1,024``."""
    return Cell(f"{number:,}", Number(number))


def plain(
    value: float | None, text: Callable[[float], str] = grouped, unit: str = ""
) -> Cell | str:
    """Return a number; `UNKNOWN` for None.

    Args:
        value: the number.
        text: formats the number for readers.
        unit: its unit, unless the column heading or all columns have it.
    """
    return UNKNOWN if value is None else Cell(text(value), Number(value, unit))


def microseconds(value: float | None) -> Cell | str:
    """Return a time, like ``1.3 ms``; `UNKNOWN` for None.

    Args:
        value: the time in microseconds.
    """
    return plain(value, duration, "µs")


def share(value: float | None, text: Callable[[float], str] = percent) -> Cell | str:
    """Return a share, like ``12.5%``; `UNKNOWN` for None.

    Args:
        value: the share; 1.0 is 100%.
        text: formats the share for readers.
    """
    return UNKNOWN if value is None else Cell(text(value), Number(value * 100, "%"))


def with_interval(text: str, found: Interval, unit: str = "", factor: float = 1.0) -> Cell:
    """Return a mean and its 95% confidence interval.

    Args:
        text: the mean and its interval, as shown to readers.
        found: the mean and its interval.
        unit: the unit of the numbers; empty if the column heading states it.
        factor: factor that converts the numbers to that unit.
    """
    bounds = (("", found.mean), ("95% low", found.low), ("95% high", found.high))
    return Cell(
        text,
        *(Number(None if one is None else one * factor, unit, of) for of, one in bounds),
    )


def between(text: str, low: float, high: float, unit: str = "") -> Cell:
    """Return an interval shown in a column of its own.

    Args:
        text: the interval, as shown to readers.
        low: its lower bound.
        high: its upper bound.
        unit: the unit of both.
    """
    return Cell(text, Number(low, unit, "low"), Number(high, unit, "high"))
