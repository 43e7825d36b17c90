"""Warm-up, trends, batch means and outliers, in series for which they are known."""

import numpy as np
import numpy.typing as npt
import pytest

from memlite.lab import (
    batch_means,
    find_outliers,
    find_stalls,
    find_transients,
    find_trend,
    mser,
    outlier_threshold,
)

Floats = npt.NDArray[np.float64]
MEAN, SPREAD = 100.0, 5.0


def noise(random: np.random.Generator, count: int, correlation: float = 0.0) -> Floats:
    """Return values around `MEAN`, each correlated with the one before: an AR(1) process."""
    steps = random.normal(0, SPREAD * np.sqrt(1 - correlation**2), count)
    values = np.empty(count)
    last = random.normal(0, SPREAD)
    for index, step in enumerate(steps):
        values[index] = last = correlation * last + step
    return MEAN + values


def ramp(values: Floats, length: int, start: float) -> Floats:
    """Return the values, of which the first `length` are scaled by `start`, rising to 1."""
    changed = values.copy()
    changed[:length] *= np.linspace(start, 1, length)
    return changed


# Warm-up


def test_mser_cuts_a_step_exactly() -> None:
    random = np.random.default_rng(1)
    cuts = []
    for _ in range(50):
        values = noise(random, 100)
        values[:20] /= 2
        cuts.append(mser([*values]))
    # By chance, the best cut may be in the middle; it is rejected then.
    known = [cut for cut in cuts if cut is not None]
    assert len(known) >= 45
    assert min(known) == 20
    assert mser([0.0] * 20 + [1.0] * 80) == 20


def test_a_series_too_short_or_without_a_steady_state_has_no_cut() -> None:
    assert mser([1.0] * 49) is None
    assert mser([float(one) for one in range(100)]) is None
    assert not find_transients([1.0 + one**4 for one in range(100)]).settles
    # In a straight line no warm-up ends; its trend shows that it is not steady.
    assert not find_trend([float(one) for one in range(100)]).steady
    short = find_transients([1.0] * 49)
    assert (short.known, short.settles, short.warm_up) == (False, True, 0)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_known_warm_up_is_found(correlation: float) -> None:
    random = np.random.default_rng(2)
    cuts = [find_transients([*ramp(noise(random, 200, correlation), 40, 0.3)]) for _ in range(100)]
    found = [cut.warm_up for cut in cuts if cut.settles]
    assert len(found) >= 90
    # The end of the ramp is within the noise.
    assert np.median(found) == pytest.approx(40, abs=10)
    assert np.mean([20 <= cut <= 80 for cut in found]) > 0.9
    # The ramp's mean is 65% of the rest; it is a fifth of the series.
    assert np.median([cut.bias for cut in cuts]) == pytest.approx(-0.2 * 0.35, abs=0.01)


def test_a_known_cool_down_is_found() -> None:
    random = np.random.default_rng(3)
    cuts = [find_transients([*ramp(noise(random, 200), 40, 0.3)][::-1]) for _ in range(50)]
    assert np.median([cut.cool_down for cut in cuts]) == pytest.approx(40, abs=10)
    assert sum(cut.warm_up > 0 for cut in cuts) <= 5


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_steady_series_has_no_transients(correlation: float) -> None:
    random = np.random.default_rng(4)
    cuts = [find_transients([*noise(random, 120, correlation)]) for _ in range(200)]
    assert sum(not cut.settles or cut.warm_up > 0 or cut.cool_down > 0 for cut in cuts) <= 10
    same = find_transients([5.0] * 100)
    assert (same.warm_up, same.cool_down, same.known, same.bias) == (0, 0, True, 0)
    assert same.settles


# Batch means


@pytest.mark.parametrize(("correlation", "count"), [(0.0, 100), (0.5, 300), (0.8, 1000)])
def test_batch_means_cover_the_mean(correlation: float, count: int) -> None:
    random = np.random.default_rng(5)
    intervals = [batch_means([*noise(random, count, correlation)]) for _ in range(300)]
    covered = np.mean([one.low <= MEAN <= one.high for one in intervals])
    # The nominal coverage is 95%; undetected correlation costs some, and 300 rounds have ±1.3%.
    assert 0.90 <= covered <= 0.99
    if correlation:
        # An interval that assumes independent values is far too narrow.
        random = np.random.default_rng(5)
        naive = [noise(random, count, correlation) for _ in range(300)]
        reach = [1.97 * one.std(ddof=1) / np.sqrt(count) for one in naive]
        misses = [abs(one.mean() - MEAN) > far for one, far in zip(naive, reach, strict=True)]
        assert 1 - np.mean(misses) < covered - 0.1


def test_strong_correlation_is_noticed() -> None:
    random = np.random.default_rng(6)
    found = [batch_means([*noise(random, 100, 0.97)]) for _ in range(100)]
    assert sum(one.independent for one in found) < 20
    same = batch_means([3.0] * 12)
    assert (same.mean, same.low, same.high, same.independent) == (3, 3, 3, True)


# Trends


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_steady_series_has_no_trend(correlation: float) -> None:
    random = np.random.default_rng(7)
    drifts = sum(
        not find_trend([*noise(random, 120, correlation)], limit=0).steady for _ in range(300)
    )
    # The nominal rate is 5%.
    assert drifts < 40


def test_a_known_drift_is_measured() -> None:
    random = np.random.default_rng(8)
    slope = np.linspace(0.9, 1.1, 200)
    found = [find_trend([*(noise(random, 200, 0.3) * slope)]) for _ in range(200)]
    assert np.median([one.change for one in found]) == pytest.approx(0.2, abs=0.01)
    assert np.mean([one.low <= 0.2 <= one.high for one in found]) > 0.9
    assert sum(not one.steady for one in found) >= 195
    small = find_trend([1 + 0.0001 * one for one in range(200)])
    assert small.low > 0
    assert small.steady


# Outliers and stalls


def test_outliers() -> None:
    assert find_outliers([10, 11, 9, 10, 30]) == (4,)
    assert find_outliers([10, 11, 9, 30]) == ()
    assert find_outliers([10, 10, 10, 10, 10, 10, 10, 12]) == (7,)
    assert find_outliers([10] * 8) == ()
    assert find_outliers([]) == ()


@pytest.mark.parametrize("count", [5, 7, 10, 22])
def test_at_most_5_percent_of_samples_have_outliers_by_chance(count: int) -> None:
    samples = np.random.default_rng(count).normal(100, 5, (4000, count))
    threshold = outlier_threshold(count)
    found = np.mean([bool(find_outliers([*one], threshold)) for one in samples])
    # Four standard deviations of the share of as many samples.
    assert 0.03 < found < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 4000)


def test_the_threshold_for_few_and_for_many_values() -> None:
    assert outlier_threshold(4) == outlier_threshold(5) == 8.0
    assert outlier_threshold(1000) == outlier_threshold(100_000) == 4.1


def test_a_known_stall() -> None:
    random = np.random.default_rng(9)
    for _ in range(50):
        values = noise(random, 100)
        values[40:43] = (20, 0, 10)
        (stall,) = find_stalls([*values])
        assert (stall.start, stall.length) == (40, 3)
        assert stall.lost == pytest.approx(3 * MEAN - 30, abs=3 * SPREAD)
    assert find_stalls([0, 1, 0, 2, 0, 0, 1]) == ()
    assert find_stalls([]) == ()


@pytest.mark.parametrize("length", [6, 12, 30])
def test_a_long_stall_in_a_noisy_series(length: int) -> None:
    """Replies come in batches of eight; most of the time there are two to five."""
    random = np.random.default_rng(length)
    exact = 0
    for _ in range(50):
        values = 8 * random.integers(2, 6, 80)
        assert not find_stalls([*values])
        values[25 : 25 + length] = 0
        stall = max(find_stalls([*values]), key=lambda one: one.length)
        # By chance, neighbouring values may be less than half of the usual value.
        assert stall.start <= 25
        assert 25 + length <= stall.start + stall.length
        exact += stall.length == length
    assert exact >= 45


def test_chance_hardly_ever_looks_like_a_stall() -> None:
    random = np.random.default_rng(2)
    found = sum(bool(find_stalls([*random.poisson(mean, 100)])) for mean in [1, 3, 10] * 200)
    assert found <= 12  # of 600


def test_the_trend_is_0_if_only_omitted_values_are_above_0() -> None:
    assert find_trend([4500.0, *[0.0] * 44]).change == 0


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        mser([1.0, float("nan")])
    with pytest.raises(ValueError, match="1 values are needed"):
        find_transients([])
    with pytest.raises(ValueError, match="batch must be at least 1"):
        mser([1.0], batch=0)
    with pytest.raises(ValueError, match="at least 10 values are needed, not 9"):
        batch_means([1.0] * 9)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1"):
        batch_means([1.0] * 10, confidence=1)
    with pytest.raises(ValueError, match="20 values are needed"):
        find_trend([1.0] * 19)
    with pytest.raises(ValueError, match="mean must be above 0"):
        find_trend([0.0] * 20)
    with pytest.raises(ValueError, match="limit must be at least 0"):
        find_trend([1.0] * 20, limit=-1)
    with pytest.raises(ValueError, match="threshold must be above 0"):
        find_outliers([1.0] * 9, threshold=0)
