"""The Universal Scalability Law, fitted to measured throughputs.

Gunther, *Guerrilla Capacity Planning* (2007): with N clients, or processors, the throughput is
``X(N) = γN / (1 + σ(N − 1) + κN(N − 1))``. σ is the contention, the share of work that is done by
one at a time; κ is the cost of keeping every pair coherent, which makes throughput fall in the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Scalability", "fit_scalability"]

_Floats = npt.NDArray[np.float64]
_Range = tuple[float, float]

_PARAMETERS = 3
# A peak further away than this many times the most clients that were measured is not predicted.
_REACH = 2.0


@dataclass(frozen=True, slots=True)
class Scalability:
    """A fit of the law; each interval has the confidence that was asked for.

    Attributes:
        contention: σ.
        coherency: κ.
        rate: γ, the throughput of one client.
        contention_interval: the confidence interval of σ.
        coherency_interval: that of κ.
        rate_interval: that of γ.
        explained: the share of the variation of throughput that the fit explains (R²).
        peak_clients: N*, the number of clients with the most throughput; infinite if κ is 0.
        peak_throughput: the throughput with as many; γ/σ if there is no peak, which is the limit.
        warnings: what the data cannot support, each in a sentence.
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
    warnings: tuple[str, ...]

    def throughput(self, clients: float) -> float:
        """Return the throughput that the fit predicts."""
        return float(_law(np.array([clients]), self.rate, self.contention, self.coherency)[0])


def fit_scalability(
    clients: Sequence[float], throughput: Sequence[float], confidence: float = 0.95
) -> Scalability:
    """Fit the law to measured points by least squares, with σ and κ from 0.

    Args:
        clients: the number of clients of each point; several points may have the same.
        throughput: that of each point.
        confidence: of the intervals, of 1.

    Raises:
        ValueError: there are less than three different numbers of clients, or a value is not a
            positive number.
    """
    at, found = np.array(clients, float), np.array(throughput, float)
    if len(at) != len(found):
        raise ValueError("clients and throughput must have the same length")
    if not (np.isfinite(at).all() and np.isfinite(found).all() and (at > 0).all()):
        raise ValueError("clients and throughput must be positive numbers")
    if (found <= 0).any():
        raise ValueError("clients and throughput must be positive numbers")
    different = len(set(at))
    if different < _PARAMETERS:
        raise ValueError(f"three numbers of clients are needed at least, not {different}")
    # Imported here, as it takes a while.
    from scipy.optimize import curve_fit
    from scipy.special import stdtrit

    # Throughputs are scaled to 1, so that all three parameters are of a similar size.
    scale = float((found / at).max())
    (rate, contention, coherency), covariance = curve_fit(
        _law,
        at,
        found / scale,
        p0=(1.0, 0.02, 1e-4),
        bounds=((0, 0, 0), (np.inf, np.inf, np.inf)),
        x_scale=(1.0, 0.01, 1e-4),
        max_nfev=10_000,
    )
    freedom = len(at) - _PARAMETERS
    if freedom and np.isfinite(covariance).all():
        reach = float(stdtrit(freedom, (1 + confidence) / 2)) * np.sqrt(np.diag(covariance))
    else:
        reach = np.full(_PARAMETERS, math.inf)
    residuals = found / scale - _law(at, rate, contention, coherency)
    variation = float(((found - found.mean()) ** 2).sum()) / scale**2
    explained = 1 - float((residuals**2).sum()) / variation if variation else 0.0
    contention, coherency, rate = float(contention), float(coherency), float(rate) * scale
    intervals = [
        (max(value - width, 0.0), value + width)
        for value, width in (
            (rate, float(reach[0]) * scale),
            (contention, float(reach[1])),
            (coherency, float(reach[2])),
        )
    ]
    peak = _peak(contention, coherency)
    if math.isfinite(peak):
        most = float(_law(np.array([peak]), rate, contention, coherency)[0])
    else:
        most = rate / contention if contention else math.inf
    return Scalability(
        contention,
        coherency,
        rate,
        intervals[1],
        intervals[2],
        intervals[0],
        explained,
        peak,
        most,
        tuple(_warnings(at, freedom, intervals[2], peak, explained)),
    )


def _law(clients: _Floats, rate: float, contention: float, coherency: float) -> _Floats:
    queueing = contention * (clients - 1) + coherency * clients * (clients - 1)
    found: _Floats = rate * clients / (1 + queueing)
    return found


def _peak(contention: float, coherency: float) -> float:
    if contention >= 1:
        return 1.0
    # Below this, σ and κ are what the search for the minimum has left of 0.
    return math.sqrt((1 - contention) / coherency) if coherency > 1e-12 else math.inf


def _warnings(
    clients: _Floats, freedom: int, coherency: _Range, peak: float, explained: float
) -> list[str]:
    found = []
    most = float(clients.max())
    if freedom < _PARAMETERS:
        found.append(f"{len(clients)} points are few for three parameters.")
    if coherency[0] <= 0:
        found.append("κ may be 0: the points do not show that throughput has a peak.")
    if math.isfinite(peak) and peak > _REACH * most:
        found.append(
            f"The peak, at {peak:.0f} clients, is far beyond the {most:.0f} that were measured."
        )
    if explained < 0.9:
        found.append(f"The law explains only {explained:.0%} of the variation of throughput.")
    return found
