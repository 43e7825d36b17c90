"""Closed networks: a textbook example, closed forms, and bounds."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlite.lab import Station, approximate_mva, closed_mmm, exact_mva

# Jain, example 34.2: a timesharing system with two disks; in seconds.
CPU, DISK_A, DISK_B = Station("CPU", 2.0), Station("disk A", 3.0), Station("disk B", 1.0)
STATIONS = st.lists(
    st.builds(Station, st.just("s"), st.floats(0.001, 10), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)


def test_a_timesharing_system() -> None:
    """Mean value analysis by hand, adding one client at a time."""
    stations, think_time = (CPU, DISK_A, DISK_B), 4.0
    lengths = [0.0, 0.0, 0.0]
    for state in exact_mva(stations, 20, think_time):
        residence = [
            one.demand * (1 + length) for one, length in zip(stations, lengths, strict=True)
        ]
        throughput = state.clients / (think_time + sum(residence))
        lengths = [throughput * one for one in residence]
        assert state.throughput == pytest.approx(throughput)
        assert state.response_time == pytest.approx(sum(residence))
        assert [one.queue_length for one in state.stations] == pytest.approx(lengths)
        assert [one.residence_time for one in state.stations] == pytest.approx(residence)
    assert state.bottleneck.name == "disk A"
    assert state.bottleneck.utilisation == pytest.approx(1, abs=0.01)


@given(st.integers(1, 60), st.floats(0, 20), st.floats(0.01, 10), st.integers(1, 8))
@settings(max_examples=25)
def test_one_station_is_a_queue(
    clients: int, think_time: float, demand: float, servers: int
) -> None:
    state = exact_mva([Station("s", demand, servers)], clients, think_time)[-1]
    queue = closed_mmm(clients, think_time, 1 / demand, servers)
    assert state.throughput == pytest.approx(queue.throughput)
    assert state.response_time == pytest.approx(queue.response_time, abs=1e-9)
    assert state.stations[0].utilisation == pytest.approx(queue.utilisation)


def test_one_object_for_several_equal_stations() -> None:
    one = Station("s", 1.0)
    state = exact_mva([one] * 3, 5)[-1]
    assert state == exact_mva([Station("s", 1.0) for _ in range(3)], 5)[-1]
    assert [found.residence_time for found in state.stations] == pytest.approx([7 / 3] * 3)


@given(STATIONS, st.integers(1, 40), st.floats(0, 20))
@settings(max_examples=25)
def test_laws_and_bounds(stations: list[Station], clients: int, think_time: float) -> None:
    states = exact_mva(stations, clients, think_time)
    for before, after in itertools.pairwise(states):
        assert after.throughput >= before.throughput * (1 - 1e-9)
    state = states[-1]
    total = sum(one.demand for one in stations)
    most = max((one.demand / one.servers for one in stations if one.servers), default=0)
    assert state.throughput <= clients / (think_time + total) * (1 + 1e-9)
    assert state.throughput * most <= 1 + 1e-9
    inside = sum(one.queue_length for one in state.stations)
    assert inside == pytest.approx(state.throughput * state.response_time, abs=1e-6)
    assert inside + state.throughput * think_time == pytest.approx(clients)


SPEEDS = st.lists(st.floats(0.2, 8), min_size=1, max_size=6).map(tuple)


@given(st.integers(1, 30), st.floats(0.01, 20), st.floats(0.01, 10), SPEEDS)
@settings(max_examples=25)
def test_one_station_with_rates_is_a_birth_death_process(
    clients: int, think_time: float, demand: float, rates: tuple[float, ...]
) -> None:
    """The closed form: Jain, section 31.1; each state's weight follows from the one before."""
    state = exact_mva([Station("s", demand, rates=rates)], clients, think_time)[-1]
    weights = [1.0]
    for number in range(clients):
        served = rates[min(number, len(rates) - 1)] / demand
        weights.append(weights[-1] * (clients - number) / think_time / served)
    busy = sum(
        weight * rates[min(number, len(rates)) - 1] / demand
        for number, weight in enumerate(weights)
        if number
    )
    assert state.throughput == pytest.approx(busy / sum(weights), rel=1e-6)
    length = sum(number * weight for number, weight in enumerate(weights)) / sum(weights)
    assert state.stations[0].queue_length == pytest.approx(length, rel=1e-6)


@given(STATIONS, st.integers(1, 20), st.floats(0, 5))
@settings(max_examples=25)
def test_several_servers_are_equivalent_to_rates(
    stations: list[Station], clients: int, think_time: float
) -> None:
    again = [
        Station(one.name, one.demand, rates=tuple(float(n) for n in range(1, one.servers + 1)))
        if one.servers
        else one
        for one in stations
    ]
    for before, after in zip(
        exact_mva(stations, clients, think_time),
        exact_mva(again, clients, think_time),
        strict=True,
    ):
        assert after.throughput == pytest.approx(before.throughput)
        assert [one.utilisation for one in after.stations] == pytest.approx(
            [one.utilisation for one in before.stations]
        )


def test_stations_with_rates_solve_the_balance_equations() -> None:
    """A batching station and one that gets slower, by the steady state of all their states."""
    batching = Station("batching", 0.7, rates=(1.0, 1.8, 2.4, 2.7))
    slowing = Station("slowing", 0.3, rates=(1.0, 1.5, 1.2, 0.9))
    think_time, clients = 0.5, 6
    states = [(a, b) for a in range(clients + 1) for b in range(clients + 1 - a)]
    index = {state: number for number, state in enumerate(states)}
    flow = np.zeros((len(states), len(states)))

    def speed(station: Station, number: int) -> float:
        return station.rates[min(number, len(station.rates)) - 1] / station.demand

    for a, b in states:
        thinking = clients - a - b
        if thinking:
            flow[index[a, b], index[a + 1, b]] += thinking / think_time
        if a:
            flow[index[a, b], index[a - 1, b + 1]] += speed(batching, a)
        if b:
            flow[index[a, b], index[a, b - 1]] += speed(slowing, b)
    balance = flow.T - np.diag(flow.sum(axis=1))
    balance[0] = 1.0
    shares = np.linalg.solve(balance, np.eye(len(states))[0])
    throughput = sum(
        share * speed(slowing, b) for share, (_, b) in zip(shares, states, strict=True) if b
    )
    state = exact_mva([batching, slowing], clients, think_time)[-1]
    assert state.throughput == pytest.approx(throughput)
    lengths = [
        sum(share * one[at] for share, one in zip(shares, states, strict=True)) for at in (0, 1)
    ]
    assert [one.queue_length for one in state.stations] == pytest.approx(lengths)
    with pytest.raises(ValueError, match="slowing: stations with rates need exact_mva"):
        approximate_mva([slowing], 3)


@given(STATIONS, st.integers(1, 60), st.floats(0, 20))
@settings(max_examples=25)
def test_the_approximation_is_close(
    stations: list[Station], clients: int, think_time: float
) -> None:
    exact = exact_mva(stations, clients, think_time)[-1]
    near = approximate_mva(stations, clients, think_time)
    assert near.throughput == pytest.approx(exact.throughput, rel=0.4)
    assert near.response_time == pytest.approx(
        clients / near.throughput - think_time, rel=1e-6, abs=1e-6
    )


def test_many_clients_and_servers_do_not_overflow() -> None:
    """The recursion for several servers gets negative probabilities here."""
    stations = [Station("proxy", 0.001, 16), Station("node", 0.0005, 8), Station("link", 0.1, 0)]
    state = exact_mva(stations, 1000, 0.5)[-1]
    assert state.throughput == pytest.approx(1000 / 0.6015, rel=0.01)
    state = exact_mva(stations, 1000, 0)[-1]
    assert state.throughput == pytest.approx(1000 / 0.1015, rel=0.02)
    assert min(one.queue_length for one in state.stations) > 0
    assert state.bottleneck.name == "proxy"  # a link has no limit


def test_an_approximation_that_does_not_converge_says_so() -> None:
    stations = [Station("a", 1.0), Station("b", 1 - 1e-6)]
    with pytest.raises(ArithmeticError, match="100,000,000 clients"):
        approximate_mva(stations, 10**8)
    assert approximate_mva(stations[:1], 10**8).throughput == pytest.approx(1)


def test_a_station_without_demand_is_always_empty() -> None:
    state = exact_mva([CPU, Station("idle", 0.0)], 5)[-1]
    assert state.throughput == pytest.approx(0.5)
    assert state.stations[1].queue_length == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact_mva([], 1), "at least one station"),
        (lambda: exact_mva([CPU], 0), "clients"),
        (lambda: approximate_mva([CPU], 1, -1), "think_time"),
        (lambda: exact_mva([Station("s", 0.0)], 1), "must not both be 0"),
        (lambda: Station("s", -1.0), "s: demand"),
        (lambda: Station("s", 1.0, -1), "s: servers"),
        (lambda: Station("s", 1.0, 2, (1.0, 2.0)), "s: rates cannot be combined"),
        (lambda: Station("s", 1.0, 1, (1.0, 0.0)), "s: rates must be positive"),
        (lambda: Station("s", 1.0, 1, (math.nan,)), "s: rates must be positive"),
    ],
)
def test_arguments_out_of_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
