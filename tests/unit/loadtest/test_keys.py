"""Key choosers draw from the distributions they claim to."""

import numpy as np
import pytest

from memlite.loadtest.keys import key_chooser
from memlite.loadtest.workload import Keys

DRAWS = 200_000


def drawn(keys, count=DRAWS, seed=1, **client):
    return key_chooser(keys, **client).choose(np.random.default_rng(seed), count)


def assert_distributed(numbers, shares):
    """Compare with a chi-square test that tolerates 6 standard deviations of random variation."""
    expected = np.asarray(shares) * len(numbers)
    found = np.bincount(numbers, minlength=len(expected))
    assert len(found) == len(expected)
    freedom = len(expected) - 1
    chi_square = ((found - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) < 6 * np.sqrt(2 * freedom)


def zipfian_shares(count, theta):
    weights = np.arange(1, count + 1, dtype=float) ** -theta
    return weights / weights.sum()


def test_uniform():
    assert_distributed(drawn(Keys(count=100)), np.full(100, 0.01))


@pytest.mark.parametrize("theta", [0, 0.5, 0.99, 1, 1.2, 2])
def test_zipfian_ranks_have_their_shares(theta):
    count = 50
    numbers = drawn(Keys(count=count, distribution="zipfian", theta=theta))
    # Each rank is multiplied by the step. With enough skew the step is the second most frequent
    # number, that of rank 1.
    step = int(np.argsort(-np.bincount(numbers, minlength=count))[1]) if theta >= 0.5 else 31
    ranks = numbers * pow(step, -1, count) % count
    assert_distributed(ranks, zipfian_shares(count, theta))


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1_000, 4_096, 9_973])
def test_zipfian_reaches_every_key_once(count):
    step = key_chooser(Keys(count=count, distribution="zipfian"))._step
    ranks = np.arange(count)
    assert sorted((ranks * step % count).tolist()) == ranks.tolist()


def test_zipfian_spreads_hot_keys():
    numbers = drawn(Keys(count=10_000, distribution="zipfian"))
    hot = np.sort(np.argsort(-np.bincount(numbers, minlength=10_000))[:10])
    assert np.diff(hot).min() > 100


def test_zipfian_of_ten_million_keys_stays_in_range():
    numbers = drawn(Keys(count=10_000_000, distribution="zipfian"), 10_000)
    assert 0 <= numbers.min() <= numbers.max() < 10_000_000
    assert numbers.dtype == np.int64


def test_latest_is_zipfian_from_the_newest_key():
    numbers = drawn(Keys(count=50, distribution="latest"))
    assert_distributed(49 - numbers, zipfian_shares(50, 0.99))


def test_latest_follows_inserts():
    chooser = key_chooser(Keys(count=50, distribution="latest"), client=1, clients=4)
    chooser.note_inserted(10)
    numbers = chooser.choose(np.random.default_rng(1), DRAWS)
    # It has inserted the keys 50 + 1 + 4n for n from 0 to 9.
    own = [51 + 4 * n for n in range(10)]
    assert set(numbers.tolist()) == set(range(10, 50)) | set(own)
    places = np.where(numbers >= 50, 50 + (numbers - 51) // 4, numbers)
    assert_distributed(59 - places, zipfian_shares(50, 0.99))


def test_latest_sees_inserts_of_the_same_batch():
    chooser = key_chooser(Keys(count=50, distribution="latest", theta=2), client=0, clients=1)
    numbers = chooser.choose(np.random.default_rng(1), 1_000, np.arange(1_000))
    assert (numbers <= 49 + np.arange(1_000)).all()
    assert (numbers == 49 + np.arange(1_000)).mean() == pytest.approx(6 / np.pi**2, abs=0.06)


def test_hotspot():
    numbers = drawn(Keys(count=100, distribution="hotspot", hot_fraction=0.2, hot_share=0.8))
    assert_distributed(numbers, [0.8 / 20] * 20 + [0.2 / 80] * 80)


@pytest.mark.parametrize(("count", "fraction"), [(1, 0.2), (5, 1.0), (5, 0.01)])
def test_hotspot_of_few_keys(count, fraction):
    keys = Keys(count=count, distribution="hotspot", hot_fraction=fraction)
    assert set(drawn(keys, 1_000).tolist()) == set(range(count))


def test_sequential_wraps_around_and_clients_start_apart():
    keys = Keys(count=10, distribution="sequential")
    chooser = key_chooser(keys, client=1, clients=2)
    rng = np.random.default_rng(1)
    assert chooser.choose(rng, 7).tolist() == [5, 6, 7, 8, 9, 0, 1]
    assert chooser.choose(rng, 2).tolist() == [2, 3]


@pytest.mark.parametrize("distribution", ["uniform", "zipfian", "latest", "hotspot", "sequential"])
def test_the_same_seed_gives_the_same_keys(distribution):
    keys = Keys(count=1_000, distribution=distribution)
    assert (drawn(keys, 100, seed=3) == drawn(keys, 100, seed=3)).all()
    if distribution != "sequential":
        assert (drawn(keys, 100, seed=3) != drawn(keys, 100, seed=4)).any()
