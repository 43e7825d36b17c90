"""The Universal Scalability Law, fitted to measured throughputs.

Gunther, *Guerrilla Capacity Planning* (2007): with N clients, or processors, the throughput is
``X(N) = γN / (1 + σ(N − 1) + κN(N − 1))``. σ is the contention, the serial share of the work; κ is
the cost of keeping every pair coherent, which eventually makes throughput fall.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Scalability", "fit_scalability"]

_Floats = npt.NDArray[np.float64]
_Range = tuple[float, float]

_PARAMETERS = 3
# The number of parameter samples, for the intervals of quantities derived from them.
_DRAWS = 10_000
# A peak beyond this many times the largest measured number of clients is not predicted.
_REACH = 2.0
_NOTHING = 1e-9
# The significance level, and the deviation from the law that is tolerated anyway.
_UNLIKELY = 0.01
_MATTERS = 0.05


@dataclass(frozen=True, slots=True)
class Scalability:
    """A fit of the law; each interval has the requested confidence.

    Attributes:
        contention: σ.
        coherency: κ.
        rate: γ, the throughput of one client.
        contention_interval: the confidence interval of σ.
        coherency_interval: that of κ.
        rate_interval: that of γ.
        peak_clients_interval: the confidence interval of N*; its upper bound is infinite if κ may
            be 0.
        peak_throughput_interval: that of the peak throughput.
        explained: the share of the variation of throughput that the fit explains (R²).
        peak_clients: N*, the number of clients with the most throughput; infinite if κ is 0.
        peak_throughput: the throughput at N*; if there is no peak, the limit γ/σ.
        warnings: what the data cannot support, each in a sentence.
        covariance: the covariance of γ, σ and κ, in this order; empty if the points do not
            determine it.
        quantile: the quantile of Student's t for the confidence; infinite if they do not.
    """

    contention: float
    coherency: float
    rate: float
    contention_interval: _Range
    coherency_interval: _Range
    rate_interval: _Range
    explained: float
    peak_clients: float
    peak_throughput: float
    peak_clients_interval: _Range
    peak_throughput_interval: _Range
    warnings: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...] = ()
    quantile: float = math.inf

    def throughput(self, clients: float) -> float:
        """Return the throughput that the fit predicts."""
        return float(_law(np.array([clients]), self.rate, self.contention, self.coherency)[0])

    def band(self, clients: float) -> _Range:
        """Return the confidence interval of the mean throughput.

        It is that of a nonlinear regression, by the derivatives of the law: Bates and Watts,
        *Nonlinear Regression Analysis and Its Applications* (1988), section 2.3.
        """
        if not self.covariance:
            return 0.0, math.inf
        middle = self.throughput(clients)
        # Derivatives with respect to γ, σ and κ.
        share = middle / self.rate / clients
        slopes = np.array(
            [
                share * clients,
                -middle * share * (clients - 1),
                -middle * share * clients * (clients - 1),
            ]
        )
        half = self.quantile * math.sqrt(max(float(slopes @ np.array(self.covariance) @ slopes), 0))
        return max(middle - half, 0.0), middle + half


def fit_scalability(
    clients: Sequence[float],
    throughput: Sequence[float],
    confidence: float = 0.95,
    *,
    relative: bool = False,
) -> Scalability:
    """Fit the law to measured points by least squares, with σ and κ from 0.

    Args:
        clients: the number of clients of each point; several points may have the same.
        throughput: the throughput of each point.
        confidence: the confidence level of the intervals, of 1.
        relative: whether to fit the logarithms: for throughputs with a constant relative deviation,
            as measured ones have, rather than a constant absolute one.

    Raises:
        ValueError: there are fewer than three different numbers of clients, one is below 1, or a
            throughput is not a positive number.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence:g}")
    at, found = np.array(clients, float), np.array(throughput, float)
    if len(at) != len(found):
        raise ValueError("clients and throughput must have the same length")
    if not (np.isfinite(at).all() and np.isfinite(found).all() and (at >= 1).all()):
        raise ValueError("clients must be at least 1, and throughput positive")
    if (found <= 0).any():
        raise ValueError("clients must be at least 1, and throughput positive")
    different = len(set(at))
    if different < _PARAMETERS:
        raise ValueError(f"at least three different numbers of clients are needed, not {different}")
    # Imported here, as it takes a while.
    from scipy.optimize import OptimizeWarning, curve_fit
    from scipy.special import stdtrit

    # Everything is scaled to the point with the most clients, so that no parameter is tiny.
    form: Callable[[_Floats], _Floats] = np.log if relative else np.asarray
    most = float(at.max())
    scale = float((found / at).max())
    units = np.array([scale, 1 / (most - 1), 1 / (most * (most - 1))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)  # with three points there are no intervals
        fitted, covariance = curve_fit(
            lambda number, *values: form(_law(number, *(values * units)) / scale),
            at,
            form(found / scale),
            p0=_guess(at, found, units),
            bounds=(0, np.inf),
            x_scale="jac",
            ftol=1e-14,
            xtol=1e-14,
            gtol=1e-14,
            max_nfev=10_000,
        )
    rate, contention, coherency = (float(one) for one in fitted * units)
    freedom = len(at) - _PARAMETERS
    known = bool(freedom) and bool(np.isfinite(covariance).all())
    quantile = float(stdtrit(freedom, (1 + confidence) / 2)) if known else math.inf
    reach = np.full(_PARAMETERS, math.inf)
    if known:
        covariance *= np.outer(units, units)
        reach = quantile * np.sqrt(np.diag(covariance))
    residuals = found - _law(at, rate, contention, coherency)
    variation = float(((found - found.mean()) ** 2).sum())
    explained = 1 - float((residuals**2).sum()) / variation if variation else 1.0
    intervals = [
        (max(value - width, 0.0), value + width)
        for value, width in (
            (rate, float(reach[0])),
            (contention, float(reach[1])),
            (coherency, float(reach[2])),
        )
    ]
    # Below these, the parameters are 0 up to the precision of the search for the minimum.
    peak = _peak(contention, coherency if coherency > _NOTHING * units[2] else 0.0)
    if math.isfinite(peak):
        highest = float(_law(np.array([peak]), rate, contention, coherency)[0])
    else:
        highest = rate / contention if contention > _NOTHING * units[1] else math.inf
    peaks = ((1.0, math.inf), (0.0, math.inf))
    if known:
        peaks = _peak_intervals(np.array(fitted * units), covariance, freedom, confidence)
    return Scalability(
        contention,
        coherency,
        rate,
        intervals[1],
        intervals[2],
        intervals[0],
        explained,
        peak,
        highest,
        *peaks,
        (
            *_warnings(at, freedom, intervals[2], peak, explained),
            *_lack_of_fit(at, form(found), form(_law(at, rate, contention, coherency)), found),
        ),
        tuple(tuple(float(one) for one in row) for row in covariance) if known else (),
        quantile,
    )


def _law(clients: _Floats, rate: float, contention: float, coherency: float) -> _Floats:
    queueing = contention * (clients - 1) + coherency * clients * (clients - 1)
    found: _Floats = rate * clients / (1 + queueing)
    return found


def _peak(contention: float, coherency: float) -> float:
    if contention >= 1:
        return 1.0
    return max(math.sqrt((1 - contention) / coherency), 1.0) if coherency else math.inf


def _peak_intervals(
    fitted: _Floats, covariance: _Floats, freedom: int, confidence: float
) -> tuple[_Range, _Range]:
    """Return the intervals of the peak's clients and throughput.

    They are quantiles over parameters sampled from their fitted distribution, because the peak is
    far from linear in κ.
    """
    random = np.random.default_rng(1)
    # Scaled to correlations, as the parameters differ by orders of magnitude.
    deviations = np.sqrt(np.diag(covariance))
    scale = np.where(deviations > 0, deviations, 1.0)
    normal = random.multivariate_normal(
        np.zeros(_PARAMETERS), covariance / np.outer(scale, scale), _DRAWS, check_valid="ignore"
    )
    # Student's t: the variance of the points is itself an estimate.
    normal *= np.sqrt(freedom / random.chisquare(freedom, _DRAWS))[:, None]
    rates, contention, coherency = (fitted + normal * scale).T
    contention, coherency = np.maximum(contention, 0), np.maximum(coherency, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.sqrt(np.maximum(1 - contention, 0) / coherency)
        at = np.where(contention >= 1, 1.0, np.maximum(at, 1.0))
        finite = np.isfinite(at)
        highest = np.where(finite, _law(np.where(finite, at, 1), rates, contention, coherency), 0)
        highest = np.where(finite, highest, rates / contention)
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    # Interpolated quantiles between a finite and an infinite value are NaN.
    clients = np.quantile(at, tails, method="nearest")
    throughput = np.quantile(highest, tails, method="nearest")
    return (float(clients[0]), float(clients[1])), (float(throughput[0]), float(throughput[1]))


def _guess(clients: _Floats, throughput: _Floats, units: _Floats) -> _Floats:
    """Return scaled parameters near the best: those fitted to N/X, which is linear in them."""
    from scipy.optimize import nnls

    columns = np.array([np.ones_like(clients), clients - 1, clients * (clients - 1)])
    columns[1:] *= units[1:, None]
    inverse, contention, coherency = nnls(
        (columns * throughput / clients).T, np.ones_like(clients)
    )[0]
    if not inverse:  # then throughput falls from the first point
        return np.array([1.0, 1.0, 1.0])
    found: _Floats = np.array([1 / inverse / units[0], contention / inverse, coherency / inverse])
    return found


def _lack_of_fit(
    clients: _Floats, measured: _Floats, fitted: _Floats, throughput: _Floats
) -> Iterator[str]:
    """Warn of points that are further from the law than their repetitions are from each other.

    The F-test for lack of fit: Draper and Smith, *Applied Regression Analysis* (1998), section 2.1.
    With repetitions that hardly differ, it also detects deviations that do not matter; these are
    tolerated.
    """
    loads = np.unique(clients)
    means = np.array([measured[clients == load].mean() for load in loads])
    counts = np.array([(clients == load).sum() for load in loads])
    at = np.array([fitted[clients == load][0] for load in loads])
    freedom, free_errors = len(loads) - _PARAMETERS, len(clients) - len(loads)
    if freedom < 1 or free_errors < 1:
        return
    typical = np.array([throughput[clients == load].mean() for load in loads])
    # Deviations of logarithms are already relative.
    relative = bool(np.array_equal(measured, np.log(throughput)))
    worst = float(np.abs((means - at) / (1 if relative else typical)).max())
    lack = float((counts * (means - at) ** 2).sum()) / freedom
    errors = float(((measured - means[np.searchsorted(loads, clients)]) ** 2).sum()) / free_errors
    from scipy.special import fdtrc

    chance = float(fdtrc(freedom, free_errors, lack / errors)) if errors else 0.0
    if chance < _UNLIKELY and worst > _MATTERS:
        yield (
            f"The law does not fit: a point deviates from it by {worst:.0%}, which the variation "
            "between repetitions does not explain."
        )


def _warnings(
    clients: _Floats, freedom: int, coherency: _Range, peak: float, explained: float
) -> list[str]:
    found = []
    most = float(clients.max())
    if freedom < _PARAMETERS:
        found.append(f"{len(clients)} points are too few to fit three parameters reliably.")
    if coherency[0] <= 0 or math.isinf(peak):
        found.append("κ may be 0: the points do not show that throughput has a peak.")
    if math.isfinite(peak) and peak > _REACH * most:
        found.append(
            f"The peak, at {peak:.0f} clients, is far beyond the highest measured load, {most:.0f}."
        )
    if explained < 0.9:
        found.append(f"The law explains only {explained:.0%} of the variation in throughput.")
    return found
