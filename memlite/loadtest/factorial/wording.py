"""Formats changes, intervals, shares and probabilities."""

import math
from typing import Final

from memlite.lab import Estimate, FactorialResult
from memlite.loadtest.cells import Cell, Number, between
from memlite.loadtest.units import grouped

__all__ = ["amount", "chance", "change", "interval", "number", "ratio", "share"]

_RATIO: Final = "ratio"


def ratio(value: float) -> str:
    """Return a factor by which something is multiplied, like ``3.39``."""
    return grouped(value)


def amount(value: float) -> str:
    """Return a number like ``12,300``."""
    text = grouped(abs(value)) if abs(value) >= 10 else f"{abs(value):.2g}"
    return f"-{text}" if value < 0 else text


def number(value: float) -> str:
    """Return a number with its sign, like ``+12,300``."""
    return amount(value) if value < 0 else f"+{amount(value)}"


def change(found: Estimate, result: FactorialResult, unit: str = "") -> Cell:
    """Return a change, like ``× 3.39`` or ``+12,300``; the unit is that of differences."""
    text = f"× {ratio(found.value)}" if result.multiplicative else number(found.value)
    return Cell(text, Number(found.value, _RATIO if result.multiplicative else unit))


def interval(found: Estimate, result: FactorialResult, unit: str = "") -> str:
    """Return the interval of a change, like ``2.94 to 3.92``; empty if unknown."""
    if math.isinf(found.high):
        return ""
    write = ratio if result.multiplicative else number
    text = f"{write(found.low)} to {write(found.high)}"
    return between(text, found.low, found.high, _RATIO if result.multiplicative else unit)


def share(value: float) -> Cell:
    """Return a share of variation, like ``97.9%``."""
    return Cell(f"{value:.1%}", Number(value * 100, "%"))


def chance(probability: float | None) -> str:
    """Return a probability, like ``0.042``; empty if it is unknown."""
    if probability is None:
        return ""
    return Cell("<0.001" if probability < 0.001 else f"{probability:.3f}", Number(probability))
