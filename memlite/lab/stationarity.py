"""Tests whether the mean of a time series is constant, and how precisely it is known."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memlite.lab.series import Floats, checked, grouped_means, student

__all__ = ["BatchMeans", "Trend", "batch_means", "find_trend"]

_FEWEST_BATCHES = 10
_MAX_BATCHES = 30
_TREND_BATCHES = 20
# The one-sided 90% quantile of the normal distribution, for von Neumann's ratio.
_CORRELATED = 1.2816


@dataclass(frozen=True, slots=True)
class BatchMeans:
    """The mean of a series, with a confidence interval that allows for autocorrelation.

    Attributes:
        mean: the mean.
        low: the lower bound of the interval.
        high: the upper bound.
        batches: the number of batches.
        size: the number of values in each.
        independent: whether the batches pass a test of independence. If not, the series is too
            short for its autocorrelation, and the interval is too narrow.
    """

    mean: float
    low: float
    high: float
    batches: int
    size: int
    independent: bool


def batch_means(values: Sequence[float], confidence: float = 0.95) -> BatchMeans:
    """Return the mean of a steady series and its confidence interval, by batch means.

    There are about 30 batches, as more would not improve the interval: Schmeiser, "Batch Size
    Effects in the Analysis of Simulation Output", *Operations Research* 30 (1982). Their size is
    doubled until von Neumann's ratio of their means shows no correlation, as long as there are ten:
    Fishman, "Grouping Observations in Digital Simulation", *Management Science* 24 (1978).

    Args:
        values: at least 10, in the order of time. The first few are dropped if the batch size does
            not divide their number.
        confidence: the confidence level of the interval, from 0 to 1.

    Raises:
        ValueError: there are fewer, one is not a number, or the confidence is out of range.
    """
    series = checked(values, _FEWEST_BATCHES)
    size = max(1, len(series) // _MAX_BATCHES)
    while True:
        means = grouped_means(series, size)
        independent = not _correlated(means)
        if independent or len(series) // (2 * size) < _FEWEST_BATCHES:
            break
        size *= 2
    count, mean = len(means), float(means.mean())
    half = student(count - 1, confidence) * float(means.std(ddof=1)) / math.sqrt(count)
    return BatchMeans(mean, mean - half, mean + half, count, size, independent)


def _correlated(means: Floats) -> bool:
    """Return whether successive values are more alike than others.

    Von Neumann's ratio is about 2 for independent values, with this variance.
    """
    total = float(((means - means.mean()) ** 2).sum())
    if not total:
        return False
    count = len(means)
    ratio = float((np.diff(means) ** 2).sum()) / total
    deviation = math.sqrt(4 * (count - 2) / (count**2 - 1))
    return (2 - ratio) / deviation > _CORRELATED


@dataclass(frozen=True, slots=True)
class Trend:
    """The rise or fall of a series from its beginning to its end.

    Attributes:
        change: the change along a straight line, divided by the mean.
        low: the lower bound of its confidence interval.
        high: the upper bound.
        limit: the smallest change that counts.
    """

    change: float
    low: float
    high: float
    limit: float

    @property
    def steady(self) -> bool:
        """Whether there is no trend: the interval contains 0, or the change is too small."""
        return self.low <= 0 <= self.high or abs(self.change) < self.limit


def find_trend(values: Sequence[float], limit: float = 0.05, confidence: float = 0.95) -> Trend:
    """Test whether a series drifts: a straight line through the means of 20 batches.

    The interval is that of the slope of a linear regression, for the effective number of
    independent values: n(1 − r)/(1 + r), where r is the correlation of successive residuals. Santer
    et al., "Statistical significance of trends and trend differences in layer-average atmospheric
    temperature time series", *Journal of Geophysical Research* 105 (2000). A change below the limit
    does not count, however certain it is.

    Args:
        values: at least 20 in the order of time, with a mean above 0.
        limit: the smallest change that counts, as a share of the mean.
        confidence: the confidence level of the interval, from 0 to 1.

    Raises:
        ValueError: there are fewer, one is not a number, or an argument is out of range.
    """
    if not limit >= 0:
        raise ValueError(f"limit must be at least 0, not {limit:g}")
    series = checked(values, _TREND_BATCHES)
    means = grouped_means(series, len(series) // _TREND_BATCHES)
    mean = float(series.mean())
    if mean <= 0:
        raise ValueError(f"the mean must be above 0, not {mean:g}")
    times = (np.arange(len(means)) + 0.5) / len(means)
    (slope, start), covariance = np.polyfit(times, means / mean, 1, cov=True)
    freedom = len(means) - 2
    worth = max(_worth(means / mean - start - slope * times) - 2, 1.0)
    half = student(worth, confidence) * math.sqrt(covariance[0, 0] * freedom / worth)
    return Trend(float(slope), float(slope) - half, float(slope) + half, limit)


def _worth(residuals: Floats) -> float:
    """Return the effective number of independent residuals."""
    total = float((residuals**2).sum())
    correlation = float((residuals[1:] * residuals[:-1]).sum()) / total if total else 0.0
    correlation = min(max(correlation, 0.0), 0.99)
    return len(residuals) * (1 - correlation) / (1 + correlation)
