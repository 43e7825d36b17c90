"""Warm-up and cool-down: the parts of a time series outside its steady state.

MSER-5: White, "An Effective Truncation Heuristic for Bias Reduction in Simulation Output",
*Simulation* 69 (1997); White, Cobb and Spratt, "A Comparison of Five Steady-State Truncation
Heuristics for Simulation" (2000), who look for the cut in the first half.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memlite.lab.series import Floats, checked, grouped_means, student

__all__ = ["Transients", "find_transients", "mser"]

# The fewest batches from which a result can be obtained.
_LEAST = 10
# The confidence that the part cut off differs from the rest. High, because MSER searches for a cut
# at which it differs.
_CONFIDENCE = 0.999


def mser(values: Sequence[float], batch: int = 5) -> int | None:
    """Return how many values at the beginning to cut, by MSER.

    The cut is the one in the first half that minimizes the standard error of the mean of the rest.
    Without a warm-up it is not always 0; see `find_transients`.

    Args:
        values: a time series, in intervals of equal length.
        batch: the number of values averaged beforehand: 5 in MSER-5.

    Returns:
        The number of values; None if the series has fewer than ten batches, or no steady state, in
        which case the best cut is the last, in the middle.

    Raises:
        ValueError: there are no values, one is not a number, or the batch is empty.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    cut, last = _best_cut(checked(values, 1), batch)
    return None if cut == last else cut


def _best_cut(series: Floats, batch: int) -> tuple[int, int]:
    """Return the best cut and the last one; both 0 if the series is too short."""
    means = _batches(series, batch)
    count = len(means)
    if count < _LEAST:
        return 0, 0
    last = count // 2
    cut = int(np.argmin([_mser(means[start:]) for start in range(last + 1)]))
    return cut * batch, last * batch


def _batches(series: Floats, batch: int) -> Floats:
    """Return the means of batches, aligned with the beginning of the series."""
    return grouped_means(series[::-1], batch)[::-1]


def _mser(rest: Floats) -> float:
    return float(((rest - rest.mean()) ** 2).sum()) / len(rest) ** 2


@dataclass(frozen=True, slots=True)
class Transients:
    """The parts of a time series outside its steady state.

    Attributes:
        warm_up: the number of values at the beginning.
        cool_down: the number of values at the end.
        known: whether the series is long enough to tell; otherwise both are 0.
        settles: whether it has a steady state; otherwise the warm-up lasts into the second half,
            or the cool-down begins in the first, and both are 0.
        bias: their effect on the mean: the mean of all values divided by that of the steady state,
            minus 1.
    """

    warm_up: int
    cool_down: int
    known: bool
    settles: bool
    bias: float


def find_transients(values: Sequence[float], batch: int = 5) -> Transients:
    """Find warm-up and cool-down: MSER-5, from both ends.

    MSER cuts something off most series without a warm-up too. A cut counts only if a batch that it
    cuts differs from the rest with a confidence of 99.9% (Student's t).

    Args:
        values: see `mser`.
        batch: likewise.

    Raises:
        ValueError: see `mser`.
    """
    series = checked(values, 1)
    known = len(series) >= _LEAST * batch
    warm_up = _cut(series, batch)
    cool_down = _cut(series[warm_up or 0 :][::-1], batch)
    if warm_up is None or cool_down is None:
        return Transients(0, 0, known=known, settles=False, bias=0.0)
    steady = float(series[warm_up : len(series) - cool_down].mean())
    bias = float(series.mean()) / steady - 1 if steady else 0.0
    return Transients(warm_up, cool_down, known=known, settles=True, bias=bias)


def _cut(series: Floats, batch: int) -> int | None:
    """Return how many values to cut; None if the series does not settle."""
    cut, last = _best_cut(series, batch)
    if not cut:
        return 0
    before, after = _batches(series[:cut], batch), _batches(series[cut:], batch)
    # Test each of its batches, so that a long cut does not dilute a short warm-up (Bonferroni).
    confidence = 1 - (1 - _CONFIDENCE) / len(before)
    reach = student(len(after) - 1, confidence) * float(after.std(ddof=1))
    if float(np.abs(before - after.mean()).max()) <= reach * math.sqrt(1 + 1 / len(after)):
        return 0
    return None if cut == last else cut
