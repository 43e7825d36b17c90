"""Single queues in the steady state.

The formulas are those of Jain, *The Art of Computer Systems Performance Analysis* (1991), chapters
30 and 31, and of Kleinrock, *Queueing Systems*, volume 1 (1975). Requests are served in the order
of their arrival, and none is abandoned.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlite.core.errors import MemliteError

__all__ = ["Queue", "UnstableError", "closed_mmm", "mg1", "mm1", "mmm", "mmmk"]


class UnstableError(MemliteError):
    """Requests arrive at least as fast as they can be served, so the queue grows without bound."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The steady state of a queue and its servers.

    Attributes:
        utilisation: the share of time in which a server is busy, of 1.
        throughput: requests served per second.
        response_time: mean time from arrival to departure.
        waiting_time: mean time in the queue, before the service.
        in_system: mean number of requests there, those in service included.
        in_queue: mean number of waiting requests.
        rejected: the share of requests that found the system full, of 1.
    """

    utilisation: float
    throughput: float
    response_time: float
    waiting_time: float
    in_system: float
    in_queue: float
    rejected: float = 0.0
    _survival: Callable[[float], float] | None = None

    def response_percentile(self, share: float) -> float:
        """Return the response time that the given share of requests does not exceed.

        Args:
            share: for example 0.99.

        Raises:
            ValueError: the share is not between 0 and 1, or the model does not give the
                distribution of response times.
        """
        if not 0 <= share < 1:
            raise ValueError(f"share must be at least 0 and below 1, not {share:g}")
        if self._survival is None:
            raise ValueError("this model provides only mean values")
        longest = self.response_time
        while self._survival(longest) > 1 - share:
            longest *= 2
        shortest = 0.0
        while longest - shortest > 1e-12 * longest:
            middle = (shortest + longest) / 2
            if self._survival(middle) > 1 - share:
                shortest = middle
            else:
                longest = middle
        return longest


def mm1(arrival_rate: float, service_rate: float) -> Queue:
    """M/M/1: one server, random arrivals, exponentially distributed service times.

    Args:
        arrival_rate: requests per second.
        service_rate: requests that the server completes per second while it is busy.

    Raises:
        UnstableError: there are more arrivals than services.
        ValueError: a rate is negative, or the service rate 0.
    """
    return mmm(arrival_rate, service_rate, 1)


def mmm(arrival_rate: float, service_rate: float, servers: int) -> Queue:
    """M/M/m: several equal servers with one queue; see `mm1`.

    Args:
        arrival_rate: requests per second.
        service_rate: the service rate of each server.
        servers: the number of servers.

    Raises:
        UnstableError: there are more arrivals than services.
        ValueError: an argument is out of range.
    """
    _check(arrival_rate, service_rate, servers)
    load = arrival_rate / service_rate
    utilisation = load / servers
    if utilisation >= 1:
        raise UnstableError(
            f"{arrival_rate:g} requests per second arrive, but only {servers * service_rate:g} can "
            "be served"
        )
    waits = _erlang_c(load, servers)
    waiting = waits / (servers * service_rate - arrival_rate)
    response = waiting + 1 / service_rate

    def survival(time: float) -> float:
        """Return the probability that a request takes longer."""
        spare = servers * service_rate - arrival_rate  # the rate at which the queue empties
        alone = math.exp(-service_rate * time)
        difference = spare - service_rate
        if abs(difference) < 1e-9 * service_rate:
            return alone * (1 + waits * service_rate * time)
        waited = service_rate * (alone - math.exp(-spare * time)) / difference
        return alone + waits * waited

    return Queue(
        utilisation,
        arrival_rate,
        response,
        waiting,
        arrival_rate * response,
        arrival_rate * waiting,
        0.0,
        survival,
    )


def mmmk(arrival_rate: float, service_rate: float, servers: int, capacity: int) -> Queue:
    """M/M/m/K: as `mmm`, but requests that find the system full are rejected.

    Args:
        arrival_rate: requests per second, including rejected ones.
        service_rate: the service rate of each server.
        servers: the number of servers.
        capacity: the largest number of requests, including those in service.

    Raises:
        ValueError: an argument is out of range.
    """
    _check(arrival_rate, service_rate, servers)
    if capacity < servers:
        raise ValueError(f"capacity must be at least the number of servers, not {capacity}")
    if not arrival_rate:
        return Queue(0.0, 0.0, 1 / service_rate, 0.0, 0.0, 0.0)
    arrivals = np.full(capacity, math.log(arrival_rate))
    return _birth_death(arrivals, service_rate, servers, rejects=True)


def closed_mmm(clients: int, think_time: float, service_rate: float, servers: int = 1) -> Queue:
    """M/M/m with a fixed number of clients, each sending its next request after a think time.

    This is the model of a load generator in a closed loop (the machine repairman model).

    Args:
        clients: the number of clients.
        think_time: mean time from a reply to the client's next request.
        service_rate: the service rate of each server.
        servers: the number of servers.

    Raises:
        ValueError: an argument is out of range.
    """
    _check(0.0, service_rate, servers)
    if clients < 1:
        raise ValueError(f"clients must be at least 1, not {clients}")
    if not (think_time >= 0 and math.isfinite(think_time)):
        raise ValueError(f"think_time must be a non-negative number, not {think_time:g}")
    if not think_time:
        busy = min(clients, servers)
        throughput = busy * service_rate
        response = clients / throughput
        waiting = response - 1 / service_rate
        return Queue(busy / servers, throughput, response, waiting, clients, throughput * waiting)
    arrivals = np.log(np.arange(clients, 0, -1)) - math.log(think_time)
    return _birth_death(arrivals, service_rate, servers, rejects=False)


def mg1(arrival_rate: float, service_time: float, squared_cv: float) -> Queue:
    """M/G/1: one server, random arrivals, any distribution of service times.

    Args:
        arrival_rate: requests per second.
        service_time: the mean.
        squared_cv: the variance of service times divided by the square of their mean: 0 if all are
            equal, 1 if they are exponentially distributed.

    Raises:
        UnstableError: there are more arrivals than services.
        ValueError: an argument is out of range.
    """
    if not (service_time > 0 and math.isfinite(service_time)):
        raise ValueError(f"service_time must be positive, not {service_time:g}")
    if not (squared_cv >= 0 and math.isfinite(squared_cv)):
        raise ValueError(f"squared_cv must be a non-negative number, not {squared_cv:g}")
    _check(arrival_rate, 1 / service_time, 1)
    utilisation = arrival_rate * service_time
    if utilisation >= 1:
        raise UnstableError(
            f"{arrival_rate:g} requests per second arrive, but only {1 / service_time:g} can be "
            "served"
        )
    # The Pollaczek-Khinchine formula.
    waiting = utilisation * service_time * (1 + squared_cv) / (2 * (1 - utilisation))
    response = waiting + service_time
    return Queue(
        utilisation,
        arrival_rate,
        response,
        waiting,
        arrival_rate * response,
        arrival_rate * waiting,
    )


def _check(arrival_rate: float, service_rate: float, servers: int) -> None:
    if not (arrival_rate >= 0 and math.isfinite(arrival_rate)):
        raise ValueError(f"arrival_rate must be a non-negative number, not {arrival_rate:g}")
    if not (service_rate > 0 and math.isfinite(service_rate)):
        raise ValueError(f"service_rate must be a positive number, not {service_rate:g}")
    if servers < 1:
        raise ValueError(f"servers must be at least 1, not {servers}")


def _erlang_c(load: float, servers: int) -> float:
    """Return the probability that a request has to wait; by recursion, which does not overflow."""
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return servers * blocked / (servers - load * (1 - blocked))


def _birth_death(
    arrivals: npt.NDArray[np.float64], service_rate: float, servers: int, *, rejects: bool
) -> Queue:
    """Solve a queue whose arrivals depend on the number of requests there.

    Args:
        arrivals: the logarithm of the rate while there are 0, 1 … requests, up to one below
            capacity.
        service_rate: the service rate of each server.
        servers: the number of servers.
        rejects: whether requests still arrive at full capacity.
    """
    number = np.arange(len(arrivals) + 1)
    serving = np.minimum(number, servers)
    steps = arrivals - np.log(serving[1:]) - math.log(service_rate)
    # Logarithms of the states' weights, which differ by more than a float can express.
    logarithms = np.concatenate(([0.0], np.cumsum(steps)))
    states = np.exp(logarithms - logarithms.max())
    states /= states.sum()
    busy, in_system = float(states @ serving), float(states @ number)
    throughput = busy * service_rate
    in_queue = float(states @ (number - serving))
    return Queue(
        busy / servers,
        throughput,
        in_system / throughput,
        in_queue / throughput,
        in_system,
        in_queue,
        float(states[-1]) if rejects else 0.0,
    )
