"""Bounds on the throughput and response time of closed networks, which need no queueing model.

Asymptotic and balanced job bounds are those of Lazowska et al., *Quantitative System Performance*
(1984), chapter 5 (balanced job bounds: Zahorjan et al., 1982), and of Jain, *The Art of Computer
Systems Performance Analysis* (1991), sections 33.6 and 34.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memlite.lab.network import Station

__all__ = ["Bounds", "asymptotic_bounds", "balanced_job_bounds"]

_Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of throughput and response time.

    Attributes:
        throughput: requests per second, at least and at most.
        response_time: mean time from a request to its reply, at least and at most.
    """

    throughput: _Range
    response_time: _Range


def asymptotic_bounds(stations: Sequence[Station], clients: int, think_time: float = 0.0) -> Bounds:
    """Return bounds that hold for any distribution of service times.

    At worst, a request waits for all others at every station, and at best for none; no station
    works faster than its capacity.

    Args:
        stations: the stations of the network.
        clients: the number of clients.
        think_time: mean time from a reply to the client's next request.

    Raises:
        ValueError: an argument is out of range, or nothing takes any time.
    """
    delay, slow, fast = _demands(stations, clients, think_time)
    least = sum(_least(one, clients) for one in stations if one.servers)
    highest = clients / (least + delay)
    if fast:
        highest = min(highest, 1 / max(fast))
    return _bounds(clients, think_time, clients / (clients * sum(slow) + delay), highest)


def balanced_job_bounds(
    stations: Sequence[Station], clients: int, think_time: float = 0.0
) -> Bounds:
    """Return tighter bounds, which hold under the assumptions of `exact_mva`.

    A network whose stations all have the same demand has a higher throughput than others with the
    same total; one whose stations all have the highest demand has a lower one. A station with
    several servers is bounded by the fastest and the slowest equivalent single server.

    Args:
        stations: the stations of the network.
        clients: the number of clients.
        think_time: mean time from a reply to the client's next request.

    Raises:
        ValueError: an argument is out of range, or nothing takes any time.
    """
    wide = asymptotic_bounds(stations, clients, think_time)
    delay, slow, fast = _demands(stations, clients, think_time)
    others = clients - 1
    lowest, highest = wide.throughput
    if total := sum(slow):
        met = others * max(slow) / (1 + delay / (clients * total))
        lowest = max(lowest, clients / (total + delay + met))
    if total := sum(fast):
        met = others * total / len(fast) / (1 + delay / total)
        highest = min(highest, clients / (total + delay + met))
    return _bounds(clients, think_time, lowest, max(lowest, highest))


def _demands(
    stations: Sequence[Station], clients: int, think_time: float
) -> tuple[float, list[float], list[float]]:
    """Return the time without queues, and the demands of stations at their slowest and fastest."""
    if clients < 1:
        raise ValueError(f"clients must be at least 1, not {clients}")
    if think_time < 0:
        raise ValueError(f"think_time must be a non-negative number, not {think_time:g}")
    if not think_time and not any(one.demand for one in stations):
        raise ValueError("total demand and think_time must not both be 0")
    delay = think_time + sum(one.demand for one in stations if not one.servers)
    queues = [one for one in stations if one.servers and one.demand]
    speeds = [one.speeds(clients) for one in queues]
    slow = [one.demand / float(of.min()) for one, of in zip(queues, speeds, strict=True)]
    fast = [one.demand / float(of.max()) for one, of in zip(queues, speeds, strict=True)]
    return delay, slow, fast


def _least(station: Station, clients: int) -> float:
    """Return the minimum time that a request spends at a station, by Little's law."""
    number = np.arange(1, clients + 1)
    return station.demand * float((number / station.speeds(clients)).min())


def _bounds(clients: int, think_time: float, lowest: float, highest: float) -> Bounds:
    times = clients / highest - think_time, clients / lowest - think_time
    return Bounds((lowest, highest), (max(times[0], 0.0), times[1]))
