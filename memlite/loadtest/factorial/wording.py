"""How changes, intervals, shares and probabilities are written."""

import math

from memlite.lab import Estimate, FactorialResult
from memlite.loadtest.units import grouped

__all__ = ["amount", "chance", "change", "interval", "number", "ratio", "share"]


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


def change(found: Estimate, result: FactorialResult) -> str:
    """Return a change, like ``× 3.39`` or ``+12,300``."""
    return f"× {ratio(found.value)}" if result.multiplicative else number(found.value)


def interval(found: Estimate, result: FactorialResult) -> str:
    """Return the interval of a change, like ``2.94 to 3.92``; empty if nothing tells."""
    if math.isinf(found.high):
        return ""
    write = ratio if result.multiplicative else number
    return f"{write(found.low)} to {write(found.high)}"


def share(value: float) -> str:
    """Return a share of variation, like ``97.9%``."""
    return f"{value:.1%}"


def chance(probability: float | None) -> str:
    """Return a probability, like ``0.042``; empty if it is unknown."""
    if probability is None:
        return ""
    return "<0.001" if probability < 0.001 else f"{probability:.3f}"
