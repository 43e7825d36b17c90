"""Operational laws, on systems whose response time is known."""

import bisect
import heapq
import random

import pytest

from memlite.lab import (
    check_closed_loop,
    check_open_loop,
    in_system,
    interactive_response_time,
)


def closed_loop(
    clients: int, service: float, think: float, length: float, seed: int
) -> tuple[float, float, float]:
    """Return throughput, response and think time of clients at a server, simulated.

    Service and think times are exponentially distributed; requests are served in order of arrival.
    """
    noise = random.Random(seed)
    due = [(noise.expovariate(1 / think), one) for one in range(clients)]
    heapq.heapify(due)
    free = responses = thoughts = 0.0
    count = 0
    while True:
        arrived, one = heapq.heappop(due)
        free = max(free, arrived) + noise.expovariate(1 / service)
        if free > length:
            return count / length, responses / count, thoughts / count
        pause = noise.expovariate(1 / think)
        heapq.heappush(due, (free + pause, one))
        responses += free - arrived
        thoughts += pause
        count += 1


def test_jains_example() -> None:
    # Example 33.7: 60 terminals, 18 s of thinking, 3.0 interactions a second would take 2 s.
    assert interactive_response_time(60, 3.0, 18.0) == pytest.approx(2.0)
    # Example 33.3: 40 requests a second, each of which takes 0.1 s: 4 of them are in the system.
    assert in_system(40, 0.1) == pytest.approx(4.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("clients", "think"), [(1, 0.001), (8, 0.01), (64, 0.03)])
def test_the_laws_hold_in_a_simulation(clients: int, think: float, seed: int) -> None:
    throughput, response, thought = closed_loop(clients, 0.001, think, 100.0, seed)
    check = check_closed_loop(clients, throughput, response, thought, 100.0)
    assert check.holds
    assert check.tolerance == 0.02
    assert check.in_system == pytest.approx(clients, rel=0.02)


def test_lost_requests_break_the_law() -> None:
    throughput, response, thought = closed_loop(8, 0.001, 0.01, 100.0, 1)
    check = check_closed_loop(8, throughput * 0.95, response, thought, 100.0)
    assert not check.holds
    assert check.difference > 0.05


def test_a_short_measurement_has_a_larger_tolerance() -> None:
    # Requests that take 1 ms, and 1 s of thinking: the ends can explain a lot.
    check = check_closed_loop(10, 10 / 1.05, 0.001, 1.0, length=100.0)
    assert check.tolerance == pytest.approx(1.001**2 / 100 / 0.001)
    assert check_closed_loop(10, 9990, 0.001, 0.0).tolerance == 0.02
    # One response took 50 ms of the second.
    check = check_closed_loop(10, 9990, 0.001, 0.0, length=1.0, longest=0.05)
    assert check.tolerance == pytest.approx(0.05)
    assert check.holds


def test_a_law_that_nothing_could_break_is_not_tested() -> None:
    # One response took 1 s of 2: even with half of the requests lost it might hold.
    for throughput in (9990, 5000):
        check = check_closed_loop(10, throughput, 0.001, 0.0, length=2.0, longest=1.0)
        assert check.tolerance == pytest.approx(0.5)
        assert check.holds is None
    assert check_closed_loop(10, 9990, 0.001, 0.0, length=10.0, longest=1.0).holds
    assert check_closed_loop(10, 5000, 0.001, 0.0, length=10.0, longest=1.0).holds is False


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, 1, 1, 0), "clients must be above 0"),
        ((1, 0, 1, 0), "throughput must be above 0"),
        ((1, 1, 0, 0), "response time must be above 0"),
        ((1, 1, 1, -1), "think time must be at least 0"),
        ((1, 1, float("nan"), 0), "response time must be above 0"),
        ((1, 1, 1, 0, 0), "length must be above 0"),
        ((1, 1, 1, 0, 1, -1), "tolerance must be at least 0"),
    ],
)
def test_arguments_out_of_range(arguments: tuple[float, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_closed_loop(*arguments)


def open_loop(rate: float, service: float, length: float, seed: int) -> tuple[float, float, float]:
    """Return the mean number at a server, throughput and response time, simulated.

    Requests arrive at random, are served in order of arrival, and none arrives after the end. The
    number is sampled a hundred thousand times, at random moments.
    """
    noise = random.Random(seed)
    arrivals, departures = [], []
    now = free = 0.0
    while (now := now + noise.expovariate(rate)) < length:
        free = max(free, now) + noise.expovariate(1 / service)
        arrivals.append(now)
        departures.append(free)
    length = max(length, free)
    seen = 0
    for _ in range(100_000):
        moment = noise.uniform(0, length)
        seen += bisect.bisect(arrivals, moment) - bisect.bisect(departures, moment)
    count = len(arrivals)
    return seen / 100_000, count / length, (sum(departures) - sum(arrivals)) / count


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_littles_law_holds_in_a_simulation(load: float) -> None:
    number, throughput, response = open_loop(load * 1000, 0.001, 200.0, 1)
    check = check_open_loop(number, throughput, response, 200.0)
    assert check.holds
    assert check.tolerance == 0.02
    assert check.predicted == pytest.approx(load / (1 - load), rel=0.15)  # of M/M/1
    # Response times that are too long by a twentieth, and requests that are lost.
    assert check_open_loop(number, throughput, response * 1.05, 200.0).holds is False
    assert check_open_loop(number, throughput * 0.95, response, 200.0).holds is False


def test_requests_cut_off_at_the_ends_widen_littles_tolerance() -> None:
    check = check_open_loop(10.0, 1000.0, 0.0105, length=10.0, cut_off=12, longest=0.5)
    assert check.difference == pytest.approx(0.05)
    assert check.tolerance == pytest.approx(12 * 0.5 / 100)
    assert check.holds
    assert check_open_loop(10.0, 1000.0, 0.02, length=1.0, cut_off=12, longest=0.5).holds is None
    with pytest.raises(ValueError, match="requests in the system must be above 0, not 0"):
        check_open_loop(0.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="length must be above 0"):
        check_open_loop(1.0, 1.0, 1.0, length=0.0)
