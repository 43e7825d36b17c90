"""The measured values of a factorial experiment, checked, as an array."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memlite.lab.factorial_result import Levels, combinations

__all__ = ["Array", "array_of", "levels_of"]

_MAX_FACTORS = 16
_TOO_LARGE = 1e150
Array = np.ndarray[Any, np.dtype[np.float64]]


def levels_of(
    factors: Sequence[str], responses: Mapping[Levels, Sequence[float]]
) -> tuple[int, ...]:
    """Return the number of levels of each factor.

    Raises:
        ValueError: the factors are invalid, or a combination of their levels is missing.
    """
    if not 0 < len(factors) <= _MAX_FACTORS or len(set(factors)) < len(factors):
        raise ValueError(f"there must be 1 to {_MAX_FACTORS} factors, with different names")
    if {len(at) for at in responses} != {len(factors)}:
        raise ValueError("a combination of levels must have one level for each factor")
    # At least two levels, even if fewer are present.
    levels = tuple(max(1, *column) + 1 for column in zip(*responses, strict=True))
    if math.prod(levels) != len(responses) or set(responses) != set(combinations(levels)):
        raise ValueError(
            f"responses must contain exactly the {math.prod(levels)} combinations of levels"
        )
    return levels


def array_of(
    levels: Sequence[int], responses: Mapping[Levels, Sequence[float]], *, multiplicative: bool
) -> Array:
    """Return the measured values, or their logarithms.

    Returns:
        An array with an axis for each factor, and a last one for repetitions.

    Raises:
        ValueError: combinations have different numbers of values, or values unsuitable for
            calculation.
    """
    counts = {len(values) for values in responses.values()}
    if len(counts) > 1 or 0 in counts:
        raise ValueError("all combinations must have the same number of values, at least one")
    values = np.array([responses[at] for at in combinations(levels)], dtype=float)
    if not np.all(np.abs(values) < _TOO_LARGE):
        raise ValueError("responses must be finite numbers, small enough to be squared")
    if multiplicative and values.min() <= 0:
        raise ValueError("a multiplicative model needs positive responses")
    return (np.log(values) if multiplicative else values).reshape([*levels, -1])
