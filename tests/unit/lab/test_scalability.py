"""The Universal Scalability Law: fits recover known parameters, or report that they cannot."""

import math

import numpy as np
import pytest

from memlite.lab import fit_scalability

CLIENTS = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]
RATE, CONTENTION, COHERENCY = 995.6, 0.0267, 0.000769


def law(clients: float) -> float:
    queueing = CONTENTION * (clients - 1) + COHERENCY * clients * (clients - 1)
    return RATE * clients / (1 + queueing)


def test_exact_points() -> None:
    fit = fit_scalability(CLIENTS, [law(one) for one in CLIENTS])
    assert fit.contention == pytest.approx(CONTENTION, rel=1e-3)
    assert fit.coherency == pytest.approx(COHERENCY, rel=1e-3)
    assert fit.rate == pytest.approx(RATE, rel=1e-3)
    assert fit.peak_clients == pytest.approx(math.sqrt((1 - CONTENTION) / COHERENCY), rel=1e-3)
    assert fit.peak_throughput == pytest.approx(law(fit.peak_clients), rel=1e-3)
    assert fit.throughput(100) == pytest.approx(law(100), rel=1e-3)
    assert fit.warnings == ()


@pytest.mark.parametrize("unit", [1, 1e3, 1e6])
def test_clients_in_any_unit(unit: float) -> None:
    clients = [unit * one for one in (1, 2, 4, 8, 16)]
    contention, coherency = 0.1 / unit, 1e-3 / unit**2
    points = [50 * n / (1 + contention * (n - 1) + coherency * n * (n - 1)) for n in clients]
    fit = fit_scalability(clients, points)
    assert (fit.rate, fit.contention, fit.coherency) == pytest.approx((50, contention, coherency))


def test_throughput_that_falls_from_the_first_client() -> None:
    fit = fit_scalability([1, 2, 4, 8, 16], [100, 30, 10, 4, 2])
    assert fit.peak_clients == 1
    assert fit.peak_throughput == pytest.approx(100, rel=0.01)


def test_three_points_have_no_intervals() -> None:
    fit = fit_scalability([1, 2, 3], [10, 19, 27])
    assert fit.rate_interval == (0, math.inf)
    assert "3 points are too few to fit three parameters reliably." in fit.warnings


def test_intervals_cover_the_parameters_as_often_as_claimed() -> None:
    random = np.random.default_rng(3)
    covered = np.zeros(3)
    rounds = 200
    for _ in range(rounds):
        clients = CLIENTS * 3
        noise = random.normal(0, 150, len(clients))
        fit = fit_scalability(clients, [law(one) + more for one, more in zip(clients, noise)])  # noqa: B905
        for index, (interval, value) in enumerate(
            (
                (fit.rate_interval, RATE),
                (fit.contention_interval, CONTENTION),
                (fit.coherency_interval, COHERENCY),
            )
        ):
            covered[index] += interval[0] <= value <= interval[1]
    # 95% are expected; 200 rounds have a standard deviation of 1.5%.
    assert (covered / rounds > 0.90).all(), covered


def test_throughput_that_only_levels_off_has_no_peak() -> None:
    fit = fit_scalability(CLIENTS, [1000 * one / (1 + 0.1 * (one - 1)) for one in CLIENTS])
    assert fit.contention == pytest.approx(0.1, rel=1e-3)
    assert any("may be 0" in warning for warning in fit.warnings)
    assert fit.peak_clients > 1000
    assert fit.peak_throughput == pytest.approx(10_000, rel=0.05)


def test_a_peak_far_beyond_the_loads_is_not_believed() -> None:
    fit = fit_scalability(
        CLIENTS[:5], [law(one) * (1 + 0.001 * (-1) ** one) for one in CLIENTS[:5]]
    )
    assert any("far beyond the highest measured load, 12" in warning for warning in fit.warnings)
    assert any("too few to fit three" in warning for warning in fit.warnings)


def test_throughput_that_does_not_follow_the_law() -> None:
    fit = fit_scalability([1, 2, 3, 4, 5, 6, 7, 8], [9, 2, 8, 1, 9, 2, 7, 3])
    assert any("explains only" in warning for warning in fit.warnings)


@pytest.mark.parametrize(
    ("clients", "throughput", "message"),
    [
        ([1, 2], [1, 2], "three different numbers"),
        ([1, 1, 2, 2], [1, 1, 2, 2], "three different numbers"),
        ([1, 2, 3], [1, 2], "same length"),
        ([0, 1, 2], [1, 2, 3], "clients must be at least 1"),
        ([0.5, 1, 2], [1, 2, 3], "clients must be at least 1"),
        ([1, 2, 3], [1, 0, 3], "positive"),
        ([1, 2, 3], [1, math.nan, 3], "positive"),
    ],
)
def test_points_that_cannot_be_fitted(
    clients: list[float], throughput: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit_scalability(clients, throughput)


def test_the_peak_and_the_band_are_covered_as_often_as_claimed() -> None:
    random = np.random.default_rng(4)
    clients = CLIENTS * 3
    peak = math.sqrt((1 - CONTENTION) / COHERENCY)
    covered = np.zeros(3)
    rounds = 200
    for _ in range(rounds):
        noise = np.exp(random.normal(0, 0.03, len(clients)))
        points = [law(one) * more for one, more in zip(clients, noise, strict=True)]
        fit = fit_scalability(clients, points, relative=True)
        for index, ((low, high), value) in enumerate(
            (
                (fit.peak_clients_interval, peak),
                (fit.peak_throughput_interval, law(peak)),
                (fit.band(20), law(20)),
            )
        ):
            covered[index] += low <= value <= high
    # 95% are expected; 200 rounds have a standard deviation of 1.5%.
    assert (covered / rounds > 0.90).all(), covered


def test_without_a_peak_its_interval_has_no_upper_bound() -> None:
    random = np.random.default_rng(5)
    clients = CLIENTS * 3
    points = [1000 * one / (1 + 0.05 * (one - 1)) * random.normal(1, 0.02) for one in clients]
    fit = fit_scalability(clients, points, relative=True)
    assert math.isinf(fit.peak_clients_interval[1])
    assert any("may be 0" in warning for warning in fit.warnings)


def test_without_degrees_of_freedom_there_is_no_band() -> None:
    fit = fit_scalability([1, 2, 3], [10, 19, 27])
    assert fit.band(2) == (0, math.inf)
    assert fit.peak_clients_interval == (1, math.inf)
    assert fit.peak_throughput_interval == (0, math.inf)
