"""Measured times, such as service times: their moments, and whether they are exponential.

Values are processed in pieces, so that files need not fit into memory.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Exponentiality", "Times", "exponentiality"]

_Floats = npt.NDArray[np.float64]

_SAMPLE = 1000
_FEWEST = 20
_LEVEL = 5.0  # per cent


@dataclass(frozen=True, slots=True)
class Exponentiality:
    """How closely times follow an exponential distribution.

    The test is that of Anderson and Darling for an exponential distribution with unknown mean
    (Stephens, "EDF Statistics for Goodness of Fit and Some Comparisons", 1974).

    Attributes:
        count: how many times were tested: all, or a random sample of `Times.sample`.
        statistic: the test statistic.
        critical: the value that it exceeds in 5% of exponential samples.
        distance: the largest difference between the distribution function and that of an
            exponential distribution with the same mean (Kolmogorov's), from 0 to 1.
    """

    count: int
    statistic: float
    critical: float
    distance: float

    @property
    def rejected(self) -> bool:
        """Whether the exponential distribution is rejected, at the 5% level."""
        return self.statistic > self.critical


class Times:
    """Adds up times; keeps their number, moments and a random sample.

    Args:
        seed: the seed of the random sample.
        size: the size of the sample.

    Attributes:
        count: the number of times.
        mean: their mean; 0 if there were none.
    """

    def __init__(self, seed: int = 1, size: int = _SAMPLE) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0
        self._random = np.random.default_rng(seed)
        self._size = size
        self._sample: _Floats = np.empty(0)
        self._order: _Floats = np.empty(0)

    def add(self, values: _Floats) -> None:
        """Add values; their order does not matter."""
        added = len(values)
        if not added:
            return
        # Chan et al., "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances".
        mean = float(values.mean())
        difference, before = mean - self.mean, self.count
        self.count += added
        self.mean += difference * added / self.count
        self._squares += float(((values - mean) ** 2).sum())
        self._squares += difference**2 * before * added / self.count
        # The values with the smallest random numbers so far are a random sample.
        order = np.concatenate((self._order, self._random.random(added)))
        kept = np.concatenate((self._sample, values))
        if len(order) > self._size:
            chosen = np.argpartition(order, self._size)[: self._size]
            order, kept = order[chosen], kept[chosen]
        self._order, self._sample = order, kept

    @property
    def sample(self) -> _Floats:
        """A random sample of the values: all of them if there are few."""
        return self._sample

    @property
    def variance(self) -> float:
        """The variance of the times; 0 with fewer than two."""
        return self._squares / (self.count - 1) if self.count > 1 else 0.0

    @property
    def cv(self) -> float:
        """The coefficient of variation of the times: 1 if exponential, 0 if all are equal."""
        return math.sqrt(self.variance) / self.mean if self.mean else 0.0


def exponentiality(times: Times, resolution: float = 0.0) -> Exponentiality | None:
    """Test whether times are exponentially distributed.

    Args:
        times: the times.
        resolution: the unit that they are multiples of. The test is for continuous values, so a
            random part of this is added to each.

    Returns:
        The result; None with fewer than 20 times, or if all are 0.
    """
    values = times.sample
    if len(values) < _FEWEST or not values.any():
        return None
    if resolution:
        # A time is the difference of two moments, both rounded down.
        noise = np.random.default_rng(1)
        spread = noise.random(len(values)) - noise.random(len(values))
        values = np.abs(values + resolution * spread)
    # Imported here, as it takes a second.
    from scipy.stats import anderson

    with warnings.catch_warnings():
        # scipy 1.17 requires an argument for the p-value, which earlier versions do not have.
        warnings.simplefilter("ignore", FutureWarning)
        found = anderson(values, "expon")
    (critical,) = found.critical_values[np.asarray(found.significance_level) == _LEVEL]
    ordered = np.sort(values)
    expected = -np.expm1(-ordered / ordered.mean())
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max((steps[1:] - expected).max(), (expected - steps[:-1]).max())
    return Exponentiality(len(values), float(found.statistic), float(critical), float(distance))
