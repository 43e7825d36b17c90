"""Closed networks of queues, in which a fixed number of clients send request after request.

The methods are those of Reiser and Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing
Networks" (1980), of Buzen's convolution (1973) and of Schweitzer's approximation (1979), as in
Jain, *The Art of Computer Systems Performance Analysis* (1991), chapters 34 and 35. All stations
are assumed to serve requests at random times (exponentially distributed), in the order of their
arrival; a request goes from station to station independently of the others.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "NetworkState",
    "Station",
    "StationState",
    "approximate_mva",
    "exact_mva",
    "exact_throughputs",
]

_Floats = npt.NDArray[np.float64]

# Schweitzer's approximation stops when no queue changes by more than this share of all clients.
_PRECISE = 1e-12
_MAX_ROUNDS = 100_000


@dataclass(frozen=True, slots=True)
class Station:
    """A station of a network, such as a proxy, a node or a link.

    Attributes:
        name: its name.
        demand: the service time that a request needs there, over all its visits, when it is alone.
        servers: how many requests are served at a time; 0 for no limit, as on a link that only
            delays.
        rates: for a station whose speed depends on its load, such as one that serves in batches:
            its speed with 1, 2 … requests relative to that with one. The last applies to more
            requests. Empty for a station whose speed depends only on its servers.
    """

    name: str
    demand: float
    servers: int = 1
    rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a value is out of range.
        """
        if not (self.demand >= 0 and math.isfinite(self.demand)):
            raise ValueError(
                f"{self.name}: demand must be a non-negative number, not {self.demand:g}"
            )
        if self.servers < 0:
            raise ValueError(f"{self.name}: servers must be 0 or more, not {self.servers}")
        if self.rates and self.servers != 1:
            raise ValueError(f"{self.name}: rates cannot be combined with several servers")
        if not all(rate > 0 and math.isfinite(rate) for rate in self.rates):
            raise ValueError(f"{self.name}: rates must be positive numbers")

    @property
    def capacity(self) -> float:
        """The highest speed relative to that with one request; infinite without a limit."""
        return max(self.rates, default=float(self.servers or math.inf))

    def speeds(self, clients: int) -> _Floats:
        """Return the speeds with 1, 2 … `clients` requests relative to that with one."""
        if self.rates:
            index = np.minimum(np.arange(clients), len(self.rates) - 1)
            found: _Floats = np.array(self.rates, float)[index]
        else:
            found = np.minimum(np.arange(1.0, clients + 1), self.capacity)
        return found


@dataclass(frozen=True, slots=True)
class StationState:
    """The steady state of a station.

    Attributes:
        name: the station's.
        utilisation: the share of time in which one of its servers is busy, of 1; with `rates`, its
            mean speed as a share of the highest; 0 for a station without a limit.
        residence_time: mean time that a request spends there, over all its visits.
        queue_length: mean number of requests there, those in service included.
    """

    name: str
    utilisation: float
    residence_time: float
    queue_length: float


@dataclass(frozen=True, slots=True)
class NetworkState:
    """The steady state of a network with a number of clients.

    Attributes:
        clients: the number of clients.
        throughput: requests completed per second.
        response_time: mean time from a request to its reply.
        stations: each station, in the order in which they were given.
    """

    clients: int
    throughput: float
    response_time: float
    stations: tuple[StationState, ...]

    @property
    def bottleneck(self) -> StationState:
        """The station with the highest utilisation."""
        return max(self.stations, key=lambda one: one.utilisation)


def exact_mva(
    stations: Sequence[Station], clients: int, think_time: float = 0.0
) -> list[NetworkState]:
    """Solve a closed network exactly.

    Takes time in proportion to the number of clients, for each pair of stations and each of their
    servers. Uses convolution, which remains precise for stations with several servers or with
    load-dependent speed, unlike the recursion of mean value analysis.

    Args:
        stations: the stations of the network.
        clients: the most clients.
        think_time: mean time from a reply to the client's next request.

    Returns:
        The states with 1, 2 … `clients` clients.

    Raises:
        ValueError: an argument is out of range, or nothing takes any time.
    """
    _check(stations, clients, think_time)
    delays = _delays(stations, clients, think_time)
    queues = {number: one for number, one in enumerate(stations) if one.servers}
    throughput = _throughputs(functools.reduce(_with_station, queues.values(), delays))
    lengths = [
        _lengths(one, [other for at, other in queues.items() if at != number], delays)
        if one.servers
        else throughput * one.demand
        for number, one in enumerate(stations)
    ]
    return [
        _state(stations, total, think_time, rate, of_total)
        for total, (rate, of_total) in enumerate(
            zip(throughput.tolist(), np.transpose(lengths).tolist(), strict=True), 1
        )
    ]


def exact_throughputs(
    stations: Sequence[Station], clients: int, think_time: float = 0.0
) -> _Floats:
    """Return only the throughputs of `exact_mva`, which takes a fraction of the time.

    Args:
        stations: the stations of the network.
        clients: the most clients.
        think_time: mean time from a reply to the client's next request.

    Raises:
        ValueError: an argument is out of range, or nothing takes any time.
    """
    _check(stations, clients, think_time)
    queues = [one for one in stations if one.servers]
    return _throughputs(
        functools.reduce(_with_station, queues, _delays(stations, clients, think_time))
    )


def approximate_mva(
    stations: Sequence[Station], clients: int, think_time: float = 0.0
) -> NetworkState:
    """Solve a closed network approximately, which takes little time even for many clients.

    The approximation is Schweitzer's; a station with m servers is replaced by one server with
    1/m of the demand, and a delay with the rest (Seidmann's approximation). Throughput is usually
    within a few per cent of the exact one, but a quarter too low if a station has as many servers
    as there are clients, and the clients do little but use it.

    Args:
        stations: the stations of the network.
        clients: the number of clients.
        think_time: mean time from a reply to the client's next request.

    Raises:
        ValueError: an argument is out of range, nothing takes any time, or the speed of a station
            depends on its load.
        ArithmeticError: the approximation does not converge, as happens with very many clients if
            several stations are bottlenecks.
    """
    _check(stations, clients, think_time)
    for one in stations:
        if one.rates:
            raise ValueError(f"{one.name}: stations with rates need exact_mva")
    demands = np.array([one.demand / max(one.servers, 1) for one in stations])
    delays = np.array(
        [one.demand * (1 - 1 / one.servers) if one.servers else 0.0 for one in stations]
    )
    queues = np.array([one.servers > 0 for one in stations])
    lengths = np.full(len(stations), clients / len(stations))
    residence = demands + delays
    throughput = 0.0
    for _ in range(_MAX_ROUNDS):
        met = lengths * (clients - 1) / clients  # by a request that arrives
        residence = np.where(queues, demands * (1 + met) + delays, demands)
        throughput = clients / (think_time + float(residence.sum()))
        # Requests in the delay of a station with several servers do not queue.
        following = throughput * (residence - delays)
        changed = float(np.abs(following - lengths).max())
        lengths = following
        if changed <= _PRECISE * clients:
            break
    else:
        raise ArithmeticError(f"the approximation does not converge for {clients:,} clients")
    found = [float(one) for one in throughput * residence]
    return _state(stations, clients, think_time, throughput, found)


def _check(stations: Sequence[Station], clients: int, think_time: float) -> None:
    if not stations:
        raise ValueError("a network needs at least one station")
    if clients < 1:
        raise ValueError(f"clients must be at least 1, not {clients}")
    if not (think_time >= 0 and math.isfinite(think_time)):
        raise ValueError(f"think_time must be a non-negative number, not {think_time:g}")
    if not think_time and not any(one.demand for one in stations):
        raise ValueError("total demand and think_time must not both be 0")


# Normalisation constants, as logarithms: they differ by more than a float can express. That of a
# network with n clients is the sum over all ways to spread them over the stations, a convolution.
# Beyond some number of requests, a station gets no faster, so its weights form a geometric series;
# convolving with it is a running sum.


def _delays(stations: Sequence[Station], clients: int, think_time: float) -> _Floats:
    """Return the constants with 0, 1 … clients of all delays without queues, combined into one."""
    delay = think_time + math.fsum(one.demand for one in stations if not one.servers)
    if not delay:
        return _shifted(np.zeros(1), 0, clients + 1)
    factors = math.log(delay) - np.log(np.arange(1.0, clients + 1))
    return np.concatenate(([0.0], np.cumsum(factors)))


def _throughputs(constants: _Floats) -> _Floats:
    """Return the throughputs with 1, 2 … clients."""
    found: _Floats = np.exp(constants[:-1] - constants[1:])
    return found


def _with_station(others: _Floats, station: Station) -> _Floats:
    """Return the constants of a network with one more station."""
    if not station.demand:
        return others
    weights, ratio = _weights(station, len(others) - 1)
    found = _shifted(_geometric(others, ratio) + weights[-1], len(weights) - 1)
    for number, weight in enumerate(weights[:-1]):
        found = np.logaddexp(found, _shifted(others + weight, number))
    return found


def _lengths(station: Station, queues: Sequence[Station], delays: _Floats) -> _Floats:
    """Return the mean number of requests at a station, with 1, 2 … clients.

    Args:
        station: the station.
        queues: the other stations with queues.
        delays: the constants of the delays, which have no queues.
    """
    clients = len(delays) - 1
    if not station.demand:
        return np.zeros(clients)
    others = functools.reduce(_with_station, queues, delays)
    weights, ratio = _weights(station, clients)
    # Each number of requests is weighted by itself; with j more than the first of the geometric
    # series, once for the first and j times more.
    first = len(weights) - 1
    series = _geometric(others, ratio)
    more = _shifted(_geometric(series, ratio) + ratio, 1)
    with np.errstate(divide="ignore"):
        counted = np.log(np.arange(float(first + 1)))
    found = np.logaddexp(series + counted[first], more) + weights[-1]
    found = _shifted(found, first)
    for number in range(1, first):
        found = np.logaddexp(found, _shifted(others + weights[number] + counted[number], number))
    lengths: _Floats = np.exp(found - _with_station(others, station))[1:]
    return lengths


def _weights(station: Station, clients: int) -> tuple[_Floats, float]:
    """Return a station's weights with 0, 1 … requests, and the ratio of further ones to the last.

    All are logarithms.
    """
    count = min(len(station.rates) or station.servers, clients)
    steps = np.log(station.demand / station.speeds(count))
    return np.concatenate(([0.0], np.cumsum(steps[:-1]))), float(steps[-1])


def _geometric(values: _Floats, ratio: float) -> _Floats:
    """Convolve with 1, r, r² …; all are logarithms."""
    powers = ratio * np.arange(len(values))
    found: _Floats = np.logaddexp.accumulate(values - powers) + powers
    return found


def _shifted(values: _Floats, by: int, size: int = 0) -> _Floats:
    """Return the values after `by` logarithms of 0: as many as before, or `size` in all."""
    found = np.full(size or len(values), -np.inf)
    found[by : by + len(values)] = values[: len(found) - by]
    return found


def _state(
    stations: Sequence[Station],
    clients: int,
    think_time: float,
    throughput: float,
    lengths: Sequence[float],
) -> NetworkState:
    found = tuple(
        StationState(
            station.name,
            throughput * station.demand / station.capacity,
            length / throughput,
            length,
        )
        for station, length in zip(stations, lengths, strict=True)
    )
    return NetworkState(clients, throughput, clients / throughput - think_time, found)
