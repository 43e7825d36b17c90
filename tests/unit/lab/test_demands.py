"""Service demands: the law, and fits that give the known values."""

import math

import numpy as np
import pytest

from memlite.lab import Station, exact_mva, fit_demands, service_demand

CLIENTS = [1, 2, 4, 8, 16, 32]


def test_one_repetition_has_no_interval() -> None:
    found = service_demand([0.75], [0.25])
    assert found.value == pytest.approx(3.0)
    assert found.interval == (0, math.inf)


def test_the_interval_is_over_repetitions() -> None:
    found = service_demand([0.5, 0.52, 0.48], [100.0, 100.0, 100.0])
    assert found.value == pytest.approx(0.005)
    # Student's t with 2 degrees of freedom.
    assert found.interval[1] - found.value == pytest.approx(
        4.3027 * 0.0002 / math.sqrt(3), rel=1e-3
    )


def measured(stations: list[Station], noise: float, seed: int, think: float = 0.0) -> list[float]:
    random = np.random.default_rng(seed)
    states = exact_mva(stations, CLIENTS[-1], think)
    return [states[n - 1].throughput * float(random.lognormal(0, noise)) for n in CLIENTS]


def test_intervals_of_fits_cover_the_demand_as_often_as_claimed() -> None:
    truth = [Station("server", 0.005, 2), Station("network", 0.001, 0)]
    guess = [Station("server", 0.0, 2), Station("network", 0.0, 0)]
    covered = 0
    for seed in range(20):
        fit = fit_demands(guess, ["server", "network"], CLIENTS, measured(truth, 0.02, seed))
        low, high = fit.demands["server"].interval
        covered += low <= 0.005 <= high
        assert fit.demands["server"].value == pytest.approx(0.005, rel=0.06)
        assert fit.deviation < 0.06
    assert covered >= 17  # of 20, at 95%


def test_a_fit_with_a_known_station_and_think_time() -> None:
    truth = [Station("proxy", 0.002), Station("node", 0.006, 3)]
    points = measured(truth, 0.0, 1, think=0.01)
    fit = fit_demands([truth[0], Station("node", 0.0, 3)], ["node"], CLIENTS, points, 0.01)
    assert fit.demands["node"].value == pytest.approx(0.006, rel=1e-5)
    assert [one.name for one in fit.stations] == ["proxy", "node"]
    # With a wrong number of servers, no demand fits as well.
    wrong = fit_demands([truth[0], Station("node", 0.0, 1)], ["node"], CLIENTS, points, 0.01)
    assert wrong.deviation > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: service_demand([], []), "same length"),
        (lambda: service_demand([-1], [1]), "utilisations"),
        (lambda: service_demand([1], [0]), "throughputs"),
        (lambda: service_demand([1], [1], 1.0), "confidence"),
        (lambda: fit_demands([Station("s", 0)], [], [1], [1.0]), "must name at least one station"),
        (lambda: fit_demands([Station("s", 0)], ["s"], [1], [0.0]), "positive throughputs"),
        (
            lambda: fit_demands([Station("s", 0), Station("t", 0)], ["s", "t"], [1], [1.0]),
            "2 demands cannot be estimated from 1",
        ),
    ],
)
def test_arguments_out_of_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
