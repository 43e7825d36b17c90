"""Measured times: moments in pieces, and the test for an exponential distribution."""

import numpy as np
import pytest

from memlite.lab import Times, exponentiality


def of(values: np.ndarray, pieces: int = 7) -> Times:
    times = Times()
    for piece in np.array_split(values, pieces):
        times.add(piece)
    return times


def test_moments_do_not_depend_on_the_pieces() -> None:
    values = np.random.default_rng(1).gamma(3, 2e-3, 5000) + 1e3
    whole, parts = of(values, 1), of(values, 41)
    for times in (whole, parts):
        assert times.count == 5000
        assert times.mean == pytest.approx(values.mean())
        assert times.variance == pytest.approx(values.var(ddof=1))
        assert len(times.sample) == 1000
        assert set(times.sample) <= set(values)
    assert parts.sample.mean() == pytest.approx(values.mean())


def test_exponential_times_are_rejected_at_the_nominal_rate() -> None:
    rejected = 0
    for seed in range(80):
        times = of(np.random.default_rng(seed).exponential(0.005, 300))
        found = exponentiality(times)
        assert found is not None
        rejected += found.rejected
        assert found.distance < 0.12
    assert 1 <= rejected <= 10  # 5% of 80


@pytest.mark.parametrize(
    ("values", "cv"),
    [
        (np.random.default_rng(1).normal(100, 20, 3000), 0.2),
        (np.random.default_rng(1).lognormal(0, 1.2, 3000), 1.8),
        (np.repeat([0.0, 5.0], 500), 1.0),  # batches: every other time is 0
    ],
)
def test_other_distributions_are_rejected(values: np.ndarray, cv: float) -> None:
    times = of(values)
    assert times.cv == pytest.approx(cv, rel=0.2)
    found = exponentiality(times)
    assert found is not None
    assert found.rejected
    assert found.distance > 0.1


def test_rounding_to_microseconds_causes_no_rejection() -> None:
    random = np.random.default_rng(3)
    begun = random.random(1000) * 1e6
    times = of(np.floor(begun + random.exponential(4.0, 1000)) - np.floor(begun))
    found = exponentiality(times, resolution=1.0)
    assert found is not None
    assert not found.rejected
    raw = exponentiality(times)
    assert raw is not None
    assert raw.rejected


def test_too_few_times_to_tell() -> None:
    assert exponentiality(of(np.ones(19))) is None
    assert exponentiality(of(np.zeros(100))) is None
    assert Times().cv == Times().variance == 0
