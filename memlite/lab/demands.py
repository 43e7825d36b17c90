"""Service demands: how much of a station's time a request takes, from measured numbers.

The service demand law is D = U/X: Denning and Buzen, "The Operational Analysis of Queueing Network
Models" (1978); Jain, *The Art of Computer Systems Performance Analysis* (1991), section 33.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memlite.lab.estimate import Estimate
from memlite.lab.network import Station, exact_throughputs

__all__ = ["NetworkFit", "fit_demands", "service_demand"]

_Floats = npt.NDArray[np.float64]
_LEAST_SHARE = 1e-6
"""A fitted demand is at least this share of the longest measured cycle."""


@dataclass(frozen=True, slots=True)
class NetworkFit:
    """A network with some demands fitted to measured throughputs.

    Attributes:
        stations: all stations, with the fitted demands.
        demands: the fitted demands by the station's name.
        deviation: the standard deviation of the measured throughputs from the fitted ones, as a
            share of them; 0 if there are as many unknown demands as points.
    """

    stations: tuple[Station, ...]
    demands: dict[str, Estimate]
    deviation: float


def service_demand(
    utilisations: Sequence[float], throughputs: Sequence[float], confidence: float = 0.95
) -> Estimate:
    """Return the service demand of a station: its utilisation divided by the throughput.

    Args:
        utilisations: in each repetition, the mean number of its servers that were busy, such as
            processor seconds per second.
        throughputs: requests per second of the whole system, in the same repetitions.
        confidence: the confidence of the interval, of 1, by Student's t over the repetitions.

    Raises:
        ValueError: there are no repetitions, or a number is out of range.
    """
    _check_confidence(confidence)
    busy, rates = np.array(utilisations, float), np.array(throughputs, float)
    if not len(busy) or busy.shape != rates.shape:
        raise ValueError("utilisations and throughputs must be non-empty and of the same length")
    if not (np.isfinite(busy).all() and (busy >= 0).all()):
        raise ValueError("utilisations must be non-negative numbers")
    if not (np.isfinite(rates).all() and (rates > 0).all()):
        raise ValueError("throughputs must be positive numbers")
    demands = busy / rates
    mean = float(demands.mean())
    if len(demands) == 1:
        return Estimate(mean, 0.0, math.inf)
    error = float(demands.std(ddof=1)) / math.sqrt(len(demands))
    reach = _quantile(len(demands) - 1, confidence) * error
    return Estimate(mean, max(mean - reach, 0.0), mean + reach)


def fit_demands(
    stations: Sequence[Station],
    unknown: Sequence[str],
    clients: Sequence[int],
    throughputs: Sequence[float],
    think_time: float = 0.0,
    confidence: float = 0.95,
) -> NetworkFit:
    """Find the demands with which a closed network has the measured throughputs.

    The logarithms of the throughputs are fitted by least squares, with `exact_mva` as the model.

    Args:
        stations: the network's stations. Unknown demands serve as initial guesses if they are
            positive.
        unknown: the names of the stations whose demands are unknown.
        clients: the number of clients of each measurement.
        throughputs: requests per second in each.
        think_time: mean time from a reply to the client's next request.
        confidence: the confidence of the intervals, of 1.

    Raises:
        ValueError: an argument is out of range, or there are fewer different numbers of clients
            than unknown demands.
    """
    _check_confidence(confidence)
    names = [one.name for one in stations]
    free = [names.index(name) for name in unknown]
    if not free:
        raise ValueError("unknown must name at least one station")
    at, found = list(clients), np.array(throughputs, float)
    if len(at) != len(found) or not (np.isfinite(found).all() and (found > 0).all()):
        raise ValueError("clients and positive throughputs must have the same length")
    if len(set(at)) < len(free):
        raise ValueError(
            f"{len(free)} demands cannot be estimated from {len(set(at))} numbers of clients"
        )
    # Imported here, as it takes a while.
    from scipy.optimize import least_squares

    def network(logarithms: _Floats) -> list[Station]:
        built = list(stations)
        for index, demand in zip(free, np.exp(logarithms), strict=True):
            built[index] = replace(built[index], demand=float(demand))
        return built

    def misses(logarithms: _Floats) -> _Floats:
        predicted = exact_throughputs(network(logarithms), max(at), think_time)
        missed: _Floats = np.log(predicted[np.array(at) - 1] / found)
        return missed

    longest = float((np.array(at) / found).max())
    lowest = math.log(longest * _LEAST_SHARE)
    guesses = [stations[index].demand or _guess(stations[index], found) for index in free]
    start = np.clip(np.log(guesses), lowest + 1e-6, math.log(longest))
    solved = least_squares(
        misses, start, bounds=(lowest, math.log(longest * 1e3)), xtol=1e-10, ftol=1e-12
    )
    freedom = len(found) - len(free)
    deviation = math.sqrt(float((solved.fun**2).sum()) / freedom) if freedom else 0.0
    reach = _reach(solved.jac, deviation, freedom, confidence)
    values = [float(one) for one in solved.x]
    return NetworkFit(
        tuple(network(solved.x)),
        {
            names[index]: Estimate(math.exp(value), _exp(value - width), _exp(value + width))
            for index, value, width in zip(free, values, reach, strict=True)
        },
        deviation,
    )


def _guess(station: Station, throughputs: _Floats) -> float:
    """Return an initial demand: the highest possible, as if the station were the bottleneck."""
    capacity = station.capacity if math.isfinite(station.capacity) else 1.0
    return capacity / float(throughputs.max())


def _reach(jacobian: _Floats, deviation: float, freedom: int, confidence: float) -> list[float]:
    """Return half the width of each interval, on a log scale."""
    count = jacobian.shape[1]
    information = jacobian.T @ jacobian
    if not freedom or np.linalg.matrix_rank(information) < count:
        return [math.inf] * count
    spread = np.sqrt(np.diag(np.linalg.inv(information))) * deviation
    return [float(one) for one in _quantile(freedom, confidence) * spread]


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _quantile(freedom: int, confidence: float) -> float:
    # Imported here, as it takes a while.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence:g}")
