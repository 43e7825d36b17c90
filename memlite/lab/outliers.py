"""Outliers: values unlike the others, to be examined rather than discarded."""

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
# Pairs of n and a threshold: in 95% of samples of at most n normally distributed values, no score
# exceeds the threshold. Simulated with 400,000 samples each of 5 to 20, 25, 26 and 30 values, and
# 60,000 of 31 to 1,000; rounded up.
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
# A stall has less than this share of the usual throughput.
_STALLED = 0.5


def find_outliers(values: Sequence[float], threshold: float = _THRESHOLD) -> tuple[int, ...]:
    """Return the positions of outliers, by the modified z-score.

    The score is the distance from the median, divided by the median of all such distances: Iglewicz
    and Hoaglin, *How to Detect and Handle Outliers* (1993), who recommend 3.5. If most values are
    the same, the mean distance is used instead.

    Args:
        values: any number; with fewer than five, outliers cannot be identified, and the result is
            empty.
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

    With 3.5, one of five values is an outlier in 21% of samples, and one of ten in 13%. Making the
    threshold depend on the number of values, so that with a given probability no value of a sample
    without outliers exceeds it, was proposed by Davies and Gather, "The Identification of
    Multiple Outliers", *Journal of the American Statistical Association* 88 (1993), who also find
    it by simulation.

    Args:
        count: the number of values. For more than 1,000, the threshold is that for 1,000.
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
    """Successive intervals with little throughput.

    Attributes:
        start: the position of the first.
        length: their number.
        lost: the work missing in them compared with the median, in the unit of the values.
    """

    start: int
    length: int
    lost: float


def find_stalls(values: Sequence[float], threshold: float = _THRESHOLD) -> tuple[Stall, ...]:
    """Return the stalls of a time series of throughput.

    A stall consists of successive intervals, each with less than half of the median. Either one of
    them is an outlier, or their mean is: the mean of k intervals varies 1/√k times as much as one.
    In a series with high variance, a single interval without any work may be chance, but a whole
    second is not. The mean is ignored at the beginning and the end, where throughput may ramp up or
    down.

    Args:
        values: the work done in intervals of equal length.
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
