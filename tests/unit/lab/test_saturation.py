"""Ranges of saturation and the knee, of systems whose knee is known."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from memlite.lab import LoadState, Saturation, find_saturation

CLIENTS = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]
CONTENTION, COHERENCY = 0.0267, 0.000769


def usl(clients: float) -> float:
    queueing = CONTENTION * (clients - 1) + COHERENCY * clients * (clients - 1)
    return 1000 * clients / (1 + queueing)


def measured(
    law: Callable[[float], float],
    noise: np.random.Generator | None = None,
    spread: float = 0.02,
    clients: Sequence[int] = CLIENTS,
) -> Saturation:
    points = [[law(one)] * 3 for one in clients]
    if noise is not None:
        points = [[one * math.exp(noise.normal(0, spread)) for one in some] for some in points]
    return find_saturation(clients, points)


def test_exact_points() -> None:
    found = measured(usl)
    # The peak is at 35.6 clients; 24 clients have 96% of the 12,367 that 32 have, 16 have 84%.
    assert found.best == 32
    assert found.clients(LoadState.UNDER) == (1, 2, 4, 8, 12, 16)
    assert found.clients(LoadState.SATURATED) == (24, 32, 48)
    assert found.clients(LoadState.OVER) == (64,)
    assert (found.knee, found.knee_interval) == (24, (16, 24))
    assert found.asymptotic_knee == pytest.approx(usl(32) / usl(1))
    assert all(load.certain for load in found.loads)
    assert found.warnings == ()


def test_the_interval_covers_the_knee() -> None:
    random = np.random.default_rng(1)
    # Where throughput reaches 95% of that of 32 clients.
    at = np.linspace(16, 32, 10_000)
    knee = at[np.argmax([usl(one) >= 0.95 * usl(32) for one in at])]
    found = [measured(usl, random) for _ in range(200)]
    covered = [one.knee_interval[0] < knee <= one.knee_interval[1] for one in found]
    assert np.mean(covered) >= 0.95
    # The interval is not wide.
    assert np.mean([one.knee_interval[0] >= 12 for one in found]) > 0.9
    assert np.mean([one.knee_interval[1] <= 48 for one in found]) > 0.9


def test_states_called_certain_are_true() -> None:
    random = np.random.default_rng(2)
    truth = {load.clients: load.state for load in measured(usl).loads}
    wrong = 0
    for _ in range(200):
        loads = measured(usl, random, spread=0.05).loads
        wrong += any(load.certain and load.state != truth[load.clients] for load in loads)
    assert wrong <= 10


@pytest.mark.parametrize(
    ("power", "spread", "above"),
    [(1, 0.005, 64), (1, 0.05, 48), (0.8, 0.005, 48)],
)
def test_throughput_that_does_not_saturate(power: float, spread: float, above: float) -> None:
    found = measured(lambda n: 100.0 * n**power, np.random.default_rng(3), spread)
    assert found.clients(LoadState.UNDER) == tuple(CLIENTS)
    assert found.knee is None
    # The last load is certain only if growth is proportional; more data would not change that.
    assert found.knee_interval == (above, math.inf)
    where = "is" if above == 64 else "may be"
    assert (
        "is still rising at 64 clients, the highest load measured: "
        f"the knee {where} at a higher load" in (found.warnings[0])
    )


def closed_queue(clients: float, capacity: float = 100_000, think: float = 300e-6) -> float:
    """Return the throughput of a closed M/M/1 queue, by mean value analysis (Jain, chapter 34)."""
    waiting = throughput = 0.0
    for count in range(1, round(clients) + 1):
        response = (1 + waiting) / capacity
        throughput = count / (think + response)
        waiting = throughput * response
    return throughput


def test_a_knee_below_the_last_load_is_not_said_to_be_above() -> None:
    clients = (1, 2, 4, 8, 16, 32, 64)
    # The plateau begins between these, and 64 clients are on it.
    assert closed_queue(32) < 0.92 * closed_queue(64)
    assert closed_queue(64) > 0.999 * 100_000
    random = np.random.default_rng(4)
    for _ in range(200):
        found = measured(closed_queue, random, 0.005, clients)
        assert found.knee_interval == (32, math.inf)
        assert [load.clients for load in found.loads if not load.certain] == [64]
        assert "the knee may be at a higher load" in found.warnings[0]


def test_a_plateau() -> None:
    found = measured(lambda n: min(n, 10.0), clients=(1, 2, 4, 8, 16, 32, 64))
    assert found.clients(LoadState.SATURATED) == (16, 32, 64)
    assert (found.knee, found.asymptotic_knee) == (16, pytest.approx(10))


def test_a_system_that_is_saturated_from_the_start() -> None:
    found = measured(lambda _: 10.0, clients=(1, 2, 4, 8))
    assert found.clients(LoadState.SATURATED) == (1, 2, 4, 8)
    assert found.knee == 1
    assert "already saturated" in found.warnings[0]
    falling = measured(lambda n: 10.0 / n, clients=(1, 2, 4, 8))
    assert falling.clients(LoadState.OVER) == (2, 4, 8)


def test_power_needs_response_times() -> None:
    clients = [1, 2, 4, 8, 16]
    throughput = [[min(one, 6.0)] for one in clients]
    times = [count / one[0] for count, one in zip(clients, throughput, strict=True)]
    assert find_saturation(clients, throughput, times).most_power == 8
    assert find_saturation(clients, throughput).most_power is None


def test_with_one_repetition_nothing_is_certain() -> None:
    found = find_saturation(CLIENTS, [[usl(one)] for one in CLIENTS])
    assert not any(load.certain for load in found.loads)
    assert found.knee == 24
    assert found.knee_interval == (0, math.inf)
    assert "measured only once" in found.warnings[0]


@pytest.mark.parametrize(
    ("clients", "throughput", "text"),
    [
        ([1], [[1]], "two loads are needed"),
        ([1, 2], [[1]], "two loads are needed"),
        ([2, 1], [[1], [1]], "ascending order"),
        ([1, 2], [[1], []], "positive numbers"),
        ([1, 2], [[1], [0]], "positive numbers"),
        ([1, 2], [[1], [math.inf]], "positive numbers"),
    ],
)
def test_bad_arguments(
    clients: Sequence[float], throughput: Sequence[Sequence[float]], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        find_saturation(clients, throughput)


def test_other_bad_arguments() -> None:
    with pytest.raises(ValueError, match="plateau must be between 0 and 1"):
        find_saturation([1, 2], [[1], [2]], plateau=1)
    with pytest.raises(ValueError, match="response time for each load"):
        find_saturation([1, 2], [[1], [2]], [1])
