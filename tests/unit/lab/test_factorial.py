"""Factorial experiments: Jain's worked examples, and general properties."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.lab import FactorialResult, analyse_factorial, compare_models

# Jain, example 17.1: MIPS of a workstation with two sizes of memory and of cache.
WITHOUT_REPETITIONS: dict[tuple[int, ...], list[float]] = {
    (0, 0): [15.0],
    (1, 0): [45.0],
    (0, 1): [25.0],
    (1, 1): [75.0],
}
# Jain, example 18.1 ff.: the same experiment, repeated three times.
REPEATED: dict[tuple[int, ...], list[float]] = {
    (0, 0): [15.0, 18.0, 12.0],
    (1, 0): [45.0, 48.0, 51.0],
    (0, 1): [25.0, 28.0, 19.0],
    (1, 1): [75.0, 75.0, 81.0],
}


def test_the_example_without_repetitions() -> None:
    result = analyse_factorial(["memory", "cache"], WITHOUT_REPETITIONS)
    assert result.mean == 40
    assert [(one.factors, one.value) for one in result.effects] == [
        (("memory",), 20),
        (("cache",), 10),
        (("memory", "cache"), 5),
    ]
    assert [round(one.variation, 2) for one in result.effects] == [0.76, 0.19, 0.05]
    assert result.error_variation == 0
    assert all(one.interval == (-math.inf, math.inf) for one in result.effects)


def test_the_example_with_repetitions() -> None:
    result = analyse_factorial(["memory", "cache"], REPEATED, confidence=0.9)
    assert result.mean == 41
    assert [one.value for one in result.effects] == [21.5, 9.5, 5]
    assert [round(100 * one.variation, 2) for one in result.effects] == [78.88, 15.4, 4.27]
    assert round(100 * result.error_variation, 2) == 1.45
    # The book has (39.08, 42.91), (19.58, 23.41), (7.58, 11.41) and (3.08, 6.91): it rounds early.
    assert result.mean_interval == pytest.approx((39.08, 42.92), abs=0.01)
    assert [one.interval for one in result.effects] == [
        pytest.approx(interval, abs=0.01)
        for interval in ((19.58, 23.42), (7.58, 11.42), (3.08, 6.92))
    ]
    assert all(one.significant for one in result.effects)
    assert result.residuals[0, 1] == (1, 4, -5)


# Jain, tables 18.5 to 18.7: execution times of a benchmark on two processors.
MULTIPLYING: dict[tuple[int, ...], list[float]] = {
    (0, 0): [85.10, 79.50, 147.90],
    (1, 0): [0.891, 1.047, 1.072],
    (0, 1): [0.955, 0.933, 1.122],
    (1, 1): [0.0148, 0.0126, 0.0118],
}


def test_the_example_of_an_additive_model_that_does_not_fit() -> None:
    models = compare_models(["workload", "processor"], MULTIPLYING)
    additive, multiplicative = models.additive, models.multiplicative
    assert multiplicative is not None
    assert additive.mean == pytest.approx(26.55, abs=0.005)
    assert [one.value for one in additive.effects] == pytest.approx(
        [-26.04, -26.04, 25.54], abs=0.005
    )
    # The book has logarithms to the base 10.
    tens = [multiplicative.mean, *(one.value for one in multiplicative.effects)]
    assert [one / math.log(10) for one in tens] == pytest.approx(
        [0.03, -0.97, -0.97, 0.03], abs=0.005
    )
    assert [round(100 * one.variation, 1) for one in multiplicative.effects] == [49.9, 49.9, 0.0]
    assert round(100 * multiplicative.error_variation, 1) == 0.2
    assert models.better is multiplicative
    assert models.advantage > 1.92


# Jain, example 20.1: code size of five programs on each of three processors.
CODE_SIZES: dict[tuple[int, ...], list[float]] = {
    (0,): [144, 120, 176, 288, 144],
    (1,): [101, 144, 211, 288, 72],
    (2,): [130, 180, 141, 374, 302],
}


def test_the_example_of_one_factor() -> None:
    result = analyse_factorial(["processor"], CODE_SIZES, confidence=0.9)
    (effect,) = result.effects
    assert result.mean == pytest.approx(187.7, abs=0.05)
    assert list(effect.values.values()) == pytest.approx([-13.3, -24.5, 37.7], abs=0.05)
    assert round(100 * effect.variation, 1) == 10.4
    assert (effect.freedom, result.error_freedom) == (2, 12)
    assert round(result.error_deviation, 1) == 88.7
    assert effect.f_statistic == pytest.approx(0.7, abs=0.01)
    assert not effect.significant
    assert result.mean_interval == pytest.approx((146.9, 228.5), abs=0.1)
    reach = effect.reach
    assert (effect.values[0,] - reach, effect.values[0,] + reach) == pytest.approx(
        (-71.0, 44.4), abs=0.1
    )
    from scipy import stats  # slow: not imported while tests are collected

    peer = stats.f_oneway(*CODE_SIZES.values())
    assert (effect.f_statistic, effect.p_value) == pytest.approx((peer.statistic, peer.pvalue))


def test_the_example_of_two_factors_without_repetitions() -> None:
    """Jain, example 21.1: the times of five workloads with three kinds of cache."""
    times = ((54, 60, 43, 49, 49), (55, 60, 43, 52, 50), (106, 123, 120, 111, 108))
    responses = {
        (cache, workload): [float(time)]
        for cache, of_cache in enumerate(times)
        for workload, time in enumerate(of_cache)
    }
    result = analyse_factorial(["caches", "workload"], responses, order=1)
    caches, workloads = result.effects
    assert result.mean == pytest.approx(72.2)
    assert list(caches.values.values()) == pytest.approx([-21.2, -20.2, 41.4])
    assert list(workloads.values.values()) == pytest.approx([-0.5, 8.8, -3.5, -1.5, -3.2], abs=0.05)
    assert [round(100 * one.variation, 1) for one in result.effects] == [95.9, 2.3]
    assert round(100 * result.error_variation, 1) == 1.8
    assert (result.error_freedom, round(result.error_deviation, 1)) == (8, 5.4)
    assert [round(one.f_statistic or 0, 1) for one in result.effects] == [217.2, 2.6]
    assert [one.significant for one in result.effects] == [True, False]


# D. Montgomery, Design and Analysis of Experiments, example 5.1: hours that batteries of three
# materials last at three temperatures.
BATTERIES: dict[tuple[int, ...], list[float]] = {
    (0, 0): [130, 155, 74, 180], (0, 1): [34, 40, 80, 75], (0, 2): [20, 70, 82, 58],
    (1, 0): [150, 188, 159, 126], (1, 1): [136, 122, 106, 115], (1, 2): [25, 70, 58, 45],
    (2, 0): [138, 110, 168, 160], (2, 1): [174, 120, 150, 139], (2, 2): [96, 104, 82, 60],
}  # fmt: skip


def test_the_example_of_two_factors_with_three_levels() -> None:
    result = analyse_factorial(["material", "temperature"], BATTERIES)
    found = [(one.freedom, round(one.f_statistic or 0, 2)) for one in result.effects]
    assert found == [(2, 7.91), (2, 28.97), (4, 3.56)]
    assert [round(one.p_value or 0, 4) for one in result.effects] == [0.0020, 0.0000, 0.0186]
    total = 77_646.97
    assert [one.variation * total for one in result.effects] == pytest.approx(
        [10_683.72, 39_118.72, 9_613.78], abs=0.02
    )
    assert result.error_variation * total == pytest.approx(18_230.75, abs=0.02)
    with pytest.raises(ValueError, match="more than two levels"):
        _ = result.effects[0].value


def test_factors_that_multiply_do_not_interact_in_a_multiplicative_model() -> None:
    times = {
        levels: [math.prod((2.0, 10.0)[level] for level in levels) * one for one in (0.9, 1, 1.1)]
        for levels in itertools.product((0, 1), repeat=2)
    }
    additive = analyse_factorial(["a", "b"], times)
    assert additive.effects[2].variation > 0.1
    result = analyse_factorial(["a", "b"], times, multiplicative=True)
    assert [round(one.ratio, 6) for one in result.effects] == [5, 5, 1]
    assert not result.effects[2].significant


VALUES = st.floats(-1e6, 1e6)


Experiment = tuple[list[str], dict[tuple[int, ...], Sequence[float]]]


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    counts = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    repetitions = draw(st.integers(1, 3))
    values = st.lists(VALUES, min_size=repetitions, max_size=repetitions)
    levels = itertools.product(*map(range, counts))
    return list("abc"[: len(counts)]), {one: draw(values) for one in levels}


@given(experiments())
def test_effects_recombine_to_the_measured_values(experiment: Experiment) -> None:
    factors, responses = experiment
    result = analyse_factorial(factors, responses)
    for levels, values in responses.items():
        at = dict(zip(factors, levels, strict=True))
        predicted = result.mean + sum(
            one.values[tuple(at[name] for name in one.factors)] for one in result.effects
        )
        assert result.estimate(at).value == pytest.approx(predicted, abs=1e-6)
        assert predicted == pytest.approx(result.predicted[levels], abs=1e-6)
        recombined = [predicted + residual for residual in result.residuals[levels]]
        assert recombined == pytest.approx(values, abs=1e-6)
    shares = [result.error_variation, *(one.variation for one in result.effects)]
    assert sum(shares) == pytest.approx(1) or sum(shares) == 0
    assert result.runs - 1 == result.error_freedom + sum(one.freedom for one in result.effects)


@given(experiments(), st.data())
def test_changes_are_differences_of_estimates(experiment: Experiment, data: st.DataObject) -> None:
    factors, responses = experiment
    result = analyse_factorial(factors, responses)
    counts = dict(zip(factors, result.levels, strict=True))
    factor = data.draw(st.sampled_from(factors))
    before, after = (data.draw(st.integers(0, counts[factor] - 1)) for _ in range(2))
    others = data.draw(st.sets(st.sampled_from(factors))) - {factor}
    at = {name: data.draw(st.integers(0, counts[name] - 1)) for name in sorted(others)}
    change = result.change(factor, before, after, at)
    last, first = (result.estimate({**at, factor: level}).value for level in (after, before))
    assert change.value == pytest.approx(last - first, abs=1e-6)
    assert change.low <= change.value <= change.high


@given(experiments())
def test_each_effect_sums_to_nothing_over_the_levels_of_a_factor(experiment: Experiment) -> None:
    for effect in analyse_factorial(*experiment).effects:
        for place in range(len(effect.factors)):
            sums: dict[tuple[int, ...], float] = {}
            for at, value in effect.values.items():
                others = (*at[:place], *at[place + 1 :])
                sums[others] = sums.get(others, 0.0) + value
            assert list(sums.values()) == pytest.approx([0.0] * len(sums), abs=1e-6)


def fitted(
    design: list[list[float]], values: Sequence[float]
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return coefficients, the residual sum of squares, and the inverse of the normal matrix."""
    matrix = np.array(design)
    coefficients, *_ = np.linalg.lstsq(matrix, np.array(values), rcond=None)
    left = np.array(values) - matrix @ coefficients
    return coefficients, float(left @ left), np.linalg.inv(matrix.T @ matrix)


def test_analysis_of_variance_and_intervals_are_those_of_least_squares() -> None:
    """A regression on indicators gives the same figures in another way, with other formulas."""
    random = np.random.default_rng(5)
    levels = list(itertools.product(range(3), range(2), range(4)))
    responses = {one: list(random.normal(10 + one[0] * one[2], 1, size=2)) for one in levels}
    result = analyse_factorial(["a", "b", "c"], responses)
    rows = [(one, value) for one, values in responses.items() for value in values]
    values = [value for _, value in rows]
    terms: list[tuple[int, ...]] = [
        axes for size in range(4) for axes in itertools.combinations(range(3), size)
    ]

    from scipy import stats  # slow: not imported while tests are collected

    def columns(at: Sequence[int], axes: Sequence[int]) -> list[float]:
        # Levels against the first, coded so that columns sum to 0.
        codes = [
            [
                1.0 if at[axis] == level else -1.0 if at[axis] == 0 else 0.0
                for level in range(1, (3, 2, 4)[axis])
            ]
            for axis in axes
        ]
        return [math.prod(chosen) for chosen in itertools.product(*codes)]

    full = [[one for axes in terms for one in columns(at, axes)] for at, _ in rows]
    _, error, inverse = fitted(full, values)
    freedom = len(rows) - len(full[0])
    for axes, effect in zip(terms[1:], result.effects, strict=True):
        others = [other for other in terms if other != axes]
        without = [[one for other in others for one in columns(at, other)] for at, _ in rows]
        _, more, _ = fitted(without, values)
        statistic = (more - error) / effect.freedom / (error / freedom)
        assert effect.f_statistic == pytest.approx(statistic)
        assert effect.p_value == pytest.approx(stats.f.sf(statistic, effect.freedom, freedom))

    def row(at: Sequence[int]) -> np.ndarray:
        return np.array([one for axes in terms for one in columns(at, axes)])

    contrast = row((2, 1, 3)) - row((0, 1, 3))
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(
        error / freedom * float(contrast @ inverse @ contrast)
    )
    change = result.change("a", 0, 2, {"b": 1, "c": 3})
    assert change.high - change.value == pytest.approx(reach)
    average = np.mean([row((2, b, c)) for b in range(2) for c in range(4)], axis=0)
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(
        error / freedom * float(average @ inverse @ average)
    )
    estimate = result.estimate({"a": 2})
    assert estimate.high - estimate.value == pytest.approx(reach)


def simulated(seed: int, *, multiplies: bool) -> dict[tuple[int, ...], list[float]]:
    """Return the responses of two factors that add or multiply, with errors of 5%."""
    random = np.random.default_rng(seed)

    def response(a: int, b: int) -> float:
        if multiplies:
            return float(100 * 3.0**a * 2.0**b * math.exp(random.normal(0, 0.05)))
        return float(100 + 200 * a + 100 * b + random.normal(0, 5))

    return {(a, b): [response(a, b) for _ in range(3)] for a in range(3) for b in range(2)}


@pytest.mark.parametrize("multiplies", [True, False])
def test_the_model_that_generated_the_responses_is_found(multiplies: bool) -> None:
    for seed in range(20):
        models = compare_models(["a", "b"], simulated(seed, multiplies=multiplies))
        assert models.better.multiplicative == multiplies
        assert abs(models.advantage) > 1.92


def test_nineteen_of_twenty_intervals_contain_the_true_value() -> None:
    contained = wrong = 0
    for seed in range(200):
        result = analyse_factorial(["a", "b"], simulated(seed, multiplies=False))
        change = result.change("a", 0, 2)
        contained += change.low <= 400 <= change.high
        wrong += result.effects[2].significant  # there is no interaction
    # 95% and 5% of 200, with four standard deviations.
    assert 177 <= contained <= 200
    assert wrong <= 23


def test_without_repetitions_nothing_is_significant() -> None:
    result: FactorialResult = analyse_factorial(["memory", "cache"], WITHOUT_REPETITIONS)
    assert result.error_freedom == 0
    assert [one.p_value for one in result.effects] == [None] * 3
    assert not any(one.significant for one in result.effects)
    change = result.change("memory", 0, 1)
    assert (change.value, change.low, change.high) == (40, -math.inf, math.inf)


def test_responses_without_variation_favour_no_model() -> None:
    models = compare_models(["a"], {(0,): [2.0, 2.0], (1,): [2.0, 2.0]})
    assert (models.advantage, models.better) == (0, models.additive)
    assert models.additive.effects[0].p_value == 1
    once = compare_models(["a"], {(0,): [2.0], (1,): [20.0]})
    assert (once.freedom, once.advantage, once.better.multiplicative) == (0, 0.0, False)
    below = compare_models(["a"], {(0,): [-2.0, 2.0], (1,): [2.0, 3.0]})
    assert below.multiplicative is None


@pytest.mark.parametrize(
    ("factors", "responses", "message"),
    [
        ([], {(): [1.0]}, "1 to 16 factors"),
        (["a", "a"], WITHOUT_REPETITIONS, "different names"),
        (["a"], {(0,): [1.0]}, "exactly the 2 combinations"),
        (["a"], {(0,): [1.0], (2,): [1.0]}, "exactly the 3 combinations"),
        (["a"], {(0, 0): [1.0], (0, 1): [1.0]}, "one level for each factor"),
        (["a"], {}, "one level for each factor"),
        (["a"], {(0,): [1.0], (1,): [1.0, 2.0]}, "same number"),
        (["a"], {(0,): [], (1,): []}, "at least one"),
        (["a"], {(0,): [1.0], (1,): [math.nan]}, "must be finite numbers"),
        (["a"], {(0,): [1.0], (1,): [1e200]}, "small enough to be squared"),
    ],
)
def test_experiments_that_cannot_be_analysed(
    factors: list[str], responses: dict[tuple[int, ...], list[float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        analyse_factorial(factors, responses)


def test_the_order_and_the_confidence_are_checked() -> None:
    with pytest.raises(ValueError, match="order"):
        analyse_factorial(["a"], {(0,): [1.0], (1,): [2.0]}, order=0)
    with pytest.raises(ValueError, match="confidence"):
        analyse_factorial(["a"], {(0,): [1.0], (1,): [2.0]}, confidence=95)


def test_a_multiplicative_model_needs_positive_values() -> None:
    with pytest.raises(ValueError, match="positive"):
        analyse_factorial(["a"], {(0,): [1.0], (1,): [0.0]}, multiplicative=True)
