"""Operational laws: relations that must hold between measured means of any system.

Jain, *The Art of Computer Systems Performance Analysis* (1991), chapter 33; Denning and Buzen, "The
Operational Analysis of Queueing Network Models" (1978). The laws assume nothing about
distributions, so a measurement that violates one has lost or miscounted something.
"""

import math
from dataclasses import dataclass

__all__ = [
    "ClosedLoopCheck",
    "OpenLoopCheck",
    "check_closed_loop",
    "check_open_loop",
    "in_system",
    "interactive_response_time",
]

# With a larger tolerance, hardly any error would violate a law.
_MAX_TOLERANCE = 0.1


def interactive_response_time(clients: float, throughput: float, think_time: float) -> float:
    """Return R = N/X − Z, the response time of clients in a closed loop.

    Args:
        clients: N, the number of clients; with pipelining, of requests they may have in flight.
        throughput: X, requests per unit of time.
        think_time: Z, the mean time from a reply until the client's next request.

    Raises:
        ValueError: clients or throughput is not a positive number, or the think time is negative.
    """
    _check("clients", clients, positive=True)
    _check("throughput", throughput, positive=True)
    _check("think time", think_time)
    return clients / throughput - think_time


def in_system(throughput: float, time: float) -> float:
    """Return N = X·R, Little's law: the mean number of requests in a system.

    Args:
        throughput: X, requests per unit of time.
        time: R, the mean time that a request spends there; R + Z to include clients
            that are thinking.

    Raises:
        ValueError: an argument is negative or not a number.
    """
    _check("throughput", throughput)
    _check("time", time)
    return throughput * time


@dataclass(frozen=True, slots=True)
class ClosedLoopCheck:
    """Whether a measurement in a closed loop obeys the laws.

    Attributes:
        clients: N, as configured.
        throughput: X, as measured.
        response_time: R, as measured.
        think_time: Z, as measured.
        predicted: N/X − Z.
        difference: `predicted` divided by R, minus 1.
        in_system: X·(R + Z), which is N by Little's law.
        tolerance: the largest difference, in either direction, for which the law holds.
    """

    clients: float
    throughput: float
    response_time: float
    think_time: float
    predicted: float
    difference: float
    in_system: float
    tolerance: float

    @property
    def holds(self) -> bool | None:
        """Whether the difference is within the tolerance; None if that is above 10%.

        The law cannot be tested then: the measurement is too short for its longest response.
        """
        return _within(self.difference, self.tolerance)


def _within(difference: float, tolerance: float) -> bool | None:
    return None if tolerance > _MAX_TOLERANCE else abs(difference) <= tolerance


def check_closed_loop(
    clients: float,
    throughput: float,
    response_time: float,
    think_time: float,
    length: float = math.inf,
    tolerance: float = 0.02,
    longest: float = 0.0,
) -> ClosedLoopCheck:
    """Compare a measured response time with the prediction of the interactive response time law.

    Args:
        clients: N; see `interactive_response_time`.
        throughput: X.
        response_time: R, the measured mean.
        think_time: Z, the measured mean.
        length: the length of the measurement. For a request cut off at one of its ends, X counts
            more or less than R and Z do: at most one request of each client. If that exceeds the
            tolerance, as with long think times, it becomes the tolerance.
        tolerance: the largest accepted difference, as a share of the response time.
        longest: the longest response time, which may have been cut off; 0 for the mean.

    Raises:
        ValueError: an argument is out of range.
    """
    _check("response time", response_time, positive=True)
    _check("tolerance", tolerance)
    if not length > 0:
        raise ValueError(f"length must be above 0, not {length:g}")
    predicted = interactive_response_time(clients, throughput, think_time)
    _check("longest response time", longest)
    cycle = response_time + think_time
    cut_off = max(response_time, longest) + think_time
    return ClosedLoopCheck(
        clients,
        throughput,
        response_time,
        think_time,
        predicted,
        predicted / response_time - 1,
        in_system(throughput, cycle),
        max(tolerance, cut_off / length * cycle / response_time),
    )


@dataclass(frozen=True, slots=True)
class OpenLoopCheck:
    """Whether a measurement in an open loop obeys Little's law.

    Attributes:
        in_system: N, the mean number of requests in the system over time, as measured.
        throughput: X, as measured.
        response_time: R, as measured.
        predicted: X·R, which is N by Little's law.
        difference: `predicted` divided by N, minus 1.
        tolerance: the largest difference, in either direction, for which the law holds.
    """

    in_system: float
    throughput: float
    response_time: float
    predicted: float
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool | None:
        """Whether the difference is within the tolerance; None if that is above 10%.

        The law cannot be tested then: the measurement is too short for its longest response.
        """
        return _within(self.difference, self.tolerance)


def check_open_loop(
    in_system: float,
    throughput: float,
    response_time: float,
    length: float = math.inf,
    tolerance: float = 0.02,
    cut_off: float = 0.0,
    longest: float = 0.0,
) -> OpenLoopCheck:
    """Compare the number of requests in a system with Little's law, N = X·R.

    J. D. C. Little, "A Proof for the Queuing Formula: L = λW", Operations Research 9 (1961).

    Args:
        in_system: N, the mean number over time; measured without the response times.
        throughput: X.
        response_time: R, the measured mean.
        length: the length of the measurement.
        tolerance: the largest accepted difference, as a share of N.
        cut_off: the number of requests cut off by the ends of the measurement. For each, X·R counts
            all or none of its response time, and N the part within. If that exceeds the tolerance,
            it becomes the tolerance.
        longest: the longest response time, which may have been cut off; 0 for the mean.

    Raises:
        ValueError: an argument is out of range.
    """
    _check("requests in the system", in_system, positive=True)
    _check("throughput", throughput, positive=True)
    _check("response time", response_time, positive=True)
    _check("tolerance", tolerance)
    _check("requests cut off", cut_off)
    _check("longest response time", longest)
    if not length > 0:
        raise ValueError(f"length must be above 0, not {length:g}")
    predicted = throughput * response_time
    explained = cut_off * max(response_time, longest) / (in_system * length)
    return OpenLoopCheck(
        in_system,
        throughput,
        response_time,
        predicted,
        predicted / in_system - 1,
        max(tolerance, explained),
    )


def _check(name: str, value: float, *, positive: bool = False) -> None:
    if not math.isfinite(value) or value < 0 or (positive and not value):
        raise ValueError(f"{name} must be {'above' if positive else 'at least'} 0, not {value:g}")
