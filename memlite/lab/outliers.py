"""Values unlike the others, to be looked at rather than left out."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memlite.lab.series import Floats, checked

__all__ = ["Stall", "find_outliers", "find_stalls", "outlier_threshold"]

_FEWEST = 5
_THRESHOLD = 3.5
# For normally distributed values: the median of absolute deviations, and their mean, divided by the
# standard deviation.
_MEDIAN_DEVIATION = 0.6745
_MEAN_DEVIATION = 0.7979
# Pairs of the largest number of values, and the score that none of so many normally distributed
# values exceeds in 95% of samples. Rounded up, from 400,000 samples of 5 to 20, 25, 26 and 30
# values, and 60,000 of 31 to 1,000.
_THRESHOLDS = (
    (5, 8.0),
    (6, 5.6),
    (7, 5.9),
    (8, 5.0),
    (9, 5.1),
    (10, 4.6),
    (11, 4.7),
    (13, 4.5),
    (15, 4.3),
    (17, 4.2),
    (24, 4.1),
    (30, 4.0),
    (200, 3.9),
    (1000, 4.1),
)
# A stall does less than this share of the usual.
_STALLED = 0.5


def find_outliers(values: Sequence[float], threshold: float = _THRESHOLD) -> tuple[int, ...]:
    """Return the positions of outliers, by the modified z-score.

    It is the distance from the median, divided by the median of all such distances: Iglewicz and
    Hoaglin, *How to Detect and Handle Outliers* (1993), who recommend 3.5. If most values are the
    same, the mean distance takes its place.

    Args:
        values: any number; of less than five nothing can be told, and the result is empty.
        threshold: the smallest absolute score of an outlier.

    Raises:
        ValueError: a value is not a number, or the threshold is not above 0.
    """
    if not threshold > 0:
        raise ValueError(f"threshold must be above 0, not {threshold:g}")
    found = checked(values, 0)
    if len(found) < _FEWEST:
        return ()
    return tuple(int(one) for one in np.flatnonzero(np.abs(_scores(found)) > threshold))


def outlier_threshold(count: int) -> float:
    """Return the threshold that normally distributed values exceed in at most 5% of samples.

    With 3.5, one of five values is an outlier in 21% of samples, and one of ten in 13%. That the
    threshold of an identifier depends on the number of values, so that a sample without outliers
    has none with a given probability, is from Davies and Gather, "The Identification of Multiple
    Outliers", *Journal of the American Statistical Association* 88 (1993), who find it by
    simulation, too.

    Args:
        count: the number of values. Of more than 1,000, it is that of 1,000.
    """
    return next((limit for most, limit in _THRESHOLDS if count <= most), _THRESHOLDS[-1][1])


def _scores(values: Floats) -> Floats:
    distances = values - np.median(values)
    scale = float(np.median(np.abs(distances))) / _MEDIAN_DEVIATION
    scale = scale or float(np.abs(distances).mean()) / _MEAN_DEVIATION
    scores: Floats = distances / scale if scale else distances
    return scores


@dataclass(frozen=True, slots=True)
class Stall:
    """Successive intervals in which little was done.

    Attributes:
        start: the position of the first.
        length: how many there are.
        lost: what was not done in them, compared with the median, in the unit of the values.
    """

    start: int
    length: int
    lost: float


def find_stalls(values: Sequence[float], threshold: float = _THRESHOLD) -> tuple[Stall, ...]:
    """Return the stalls of a time series of throughput.

    They are successive intervals, each with less than half of the median. Either one of them is an
    outlier, or their mean is: the mean of k intervals varies by 1/√k of what one does. In a series
    that varies much, a single interval without any work may be chance, and a whole second is not.
    The mean does not count at the beginning and at the end, where throughput may grow or fall.

    Args:
        values: what was done in intervals of equal length.
        threshold: see `find_outliers`.

    Raises:
        ValueError: see `find_outliers`.
    """
    series = checked(values, 0)
    outliers = {*find_outliers(values, threshold)}
    if len(series) < _FEWEST:
        return ()
    usual, scores = float(np.median(series)), _scores(series)
    stalls = []
    for low, positions in itertools.groupby(
        range(len(series)), key=lambda one: bool(series[one] < _STALLED * usual)
    ):
        run = [*positions]
        inside = run[0] > 0 and run[-1] < len(series) - 1
        below = -float(scores[run].mean()) * math.sqrt(len(run)) if inside else 0.0
        if low and (below > threshold or not outliers.isdisjoint(run)):
            lost = len(run) * usual - float(series[run].sum())
            stalls.append(Stall(run[0], len(run), lost))
    return tuple(stalls)
