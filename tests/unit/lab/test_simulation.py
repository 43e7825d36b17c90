"""Every model against a simulation, with fixed seeds."""

import math
from typing import Any

import pytest

pytest.importorskip("ciw", reason="the simulator is not installed")

import ciw

from memlite.lab import Station, closed_mmm, exact_mva, mg1, mm1, mmm, mmmk

CUSTOMERS = 12_000
NOTHING = [[0.0]]


def open_queue(
    arrival_rate: float, service: Any, servers: int, room: float = math.inf
) -> tuple[float, float, float]:
    """Simulate a queue; return the mean time there, in the queue, and the share rejected."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(arrival_rate)],
        service_distributions=[service],
        number_of_servers=[servers],
        queue_capacities=[room],
        routing=NOTHING,
    )
    ciw.seed(5)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(CUSTOMERS, method="Arrive")
    records = simulation.get_all_records()
    served = sorted(
        (one for one in records if one.record_type == "service"), key=lambda one: one.arrival_date
    )
    kept = served[len(served) // 10 :]
    times = [one.exit_date - one.arrival_date for one in kept]
    waits = [one.waiting_time for one in kept]
    rejected = sum(one.record_type == "rejection" for one in records) / len(records)
    return sum(times) / len(times), sum(waits) / len(waits), rejected


def test_mm1() -> None:
    time, wait, _ = open_queue(0.7, ciw.dists.Exponential(1.0), 1)
    model = mm1(0.7, 1.0)
    assert time == pytest.approx(model.response_time, rel=0.08)
    assert wait == pytest.approx(model.waiting_time, rel=0.1)


@pytest.mark.slow
def test_mmm() -> None:
    time, wait, _ = open_queue(3.2, ciw.dists.Exponential(1.0), 4)
    model = mmm(3.2, 1.0, 4)
    assert time == pytest.approx(model.response_time, rel=0.05)
    assert wait == pytest.approx(model.waiting_time, rel=0.1)
    # The model of one server does not fit several.
    assert mm1(3.2, 4.0).response_time < time * 0.8


@pytest.mark.slow
def test_mmmk() -> None:
    time, _, rejected = open_queue(3.6, ciw.dists.Exponential(1.0), 3, 4)
    model = mmmk(3.6, 1.0, 3, 7)
    assert time == pytest.approx(model.response_time, rel=0.04)
    assert rejected == pytest.approx(model.rejected, rel=0.06)


@pytest.mark.parametrize(
    ("service", "squared_cv"),
    [
        pytest.param(ciw.dists.Deterministic(1.0), 0.0, marks=pytest.mark.slow),
        pytest.param(ciw.dists.Uniform(0.0, 2.0), 1 / 3, marks=pytest.mark.slow),
        (ciw.dists.HyperExponential([2 / 3, 2.0], [0.5, 0.5]), 1.5),
    ],
)
def test_mg1(service: Any, squared_cv: float) -> None:
    time, wait, _ = open_queue(0.6, service, 1)
    model = mg1(0.6, 1.0, squared_cv)
    assert time == pytest.approx(model.response_time, rel=0.05)
    assert wait == pytest.approx(model.waiting_time, rel=0.1)


class Once(ciw.dists.Distribution):  # type: ignore[misc]
    """One arrival; unlike `ciw.dists.Sequential`, this can be copied on Python 3.14."""

    def __init__(self) -> None:
        self.times = [0.001]

    def sample(self, t: float | None = None, ind: Any = None) -> float:
        return self.times.pop() if self.times else math.inf


def closed_network(stations: list[Station], clients: int) -> tuple[float, list[float]]:
    """Simulate circulating clients; return the throughput and the mean number at each station."""
    count = len(stations)
    network = ciw.create_network(
        arrival_distributions=[Once(), *[None] * (count - 1)],
        batching_distributions=[ciw.dists.Deterministic(clients)] * count,
        service_distributions=[ciw.dists.Exponential(1 / one.demand) for one in stations],
        number_of_servers=[one.servers or math.inf for one in stations],
        routing=[[float(to == (at + 1) % count) for to in range(count)] for at in range(count)],
    )
    ciw.seed(7)
    simulation = ciw.Simulation(network)
    end = 2500.0
    simulation.simulate_until_max_time(end)
    records = [one for one in simulation.get_all_records() if one.exit_date > end / 10]
    span = end * 0.9
    of = [[one for one in records if one.node == number] for number in range(1, count + 1)]
    lengths = [
        sum(min(one.exit_date, end) - max(one.arrival_date, end / 10) for one in here) / span
        for here in of
    ]
    return len(of[0]) / span, lengths


def test_closed_mmm() -> None:
    throughput, lengths = closed_network([Station("think", 5.0, 0), Station("s", 1.0, 2)], 12)
    model = closed_mmm(12, 5.0, 1.0, 2)
    assert throughput == pytest.approx(model.throughput, rel=0.04)
    assert lengths[1] == pytest.approx(model.in_system, rel=0.08)


def test_a_network() -> None:
    stations = [Station("a", 0.8), Station("b", 1.5, 2), Station("link", 1.0, 0)]
    throughput, lengths = closed_network(stations, 6)
    model = exact_mva(stations, 6)[-1]
    assert throughput == pytest.approx(model.throughput, rel=0.04)
    assert lengths == pytest.approx([one.queue_length for one in model.stations], rel=0.08)
