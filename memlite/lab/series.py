"""Arguments of functions on time series."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "checked", "grouped_means", "student"]

Floats = npt.NDArray[np.float64]


def checked(values: Sequence[float], least: int) -> Floats:
    """Return a series as an array.

    Raises:
        ValueError: it has fewer than `least` values, or one of them is not a number.
    """
    found = np.array(values, float)
    if len(found) < least:
        raise ValueError(f"at least {least} values are needed, not {len(found)}")
    if not np.isfinite(found).all():
        raise ValueError("values must be finite numbers")
    return found


def grouped_means(values: Floats, size: int) -> Floats:
    """Return the means of groups of adjacent values, without excess values at the beginning."""
    count = len(values) // size
    means: Floats = values[len(values) - count * size :].reshape(count, size).mean(axis=1)
    return means


def student(freedom: float, confidence: float) -> float:
    """Return the quantile of Student's t for a two-sided interval.

    Raises:
        ValueError: the confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence:g}")
    # Imported here because it is slow; `scipy.stats` would take several times as long.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))
