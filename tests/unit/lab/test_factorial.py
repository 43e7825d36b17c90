"""Factorial experiments: Jain's worked examples, and what must hold of any."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.lab import analyse_factorial

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
    # The book has (39.08, 42.91), (19.58, 23.41), (7.58, 11.41) and (3.08, 6.91): it rounds before.
    assert result.mean_interval == pytest.approx((39.08, 42.92), abs=0.01)
    assert [one.interval for one in result.effects] == [
        pytest.approx(interval, abs=0.01)
        for interval in ((19.58, 23.42), (7.58, 11.42), (3.08, 6.92))
    ]
    assert all(one.significant for one in result.effects)
    assert result.residuals[0, 1] == (1, 4, -5)


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
    count, repetitions = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    values = st.lists(VALUES, min_size=repetitions, max_size=repetitions)
    levels = itertools.product((0, 1), repeat=count)
    return list("abcd"[:count]), {one: draw(values) for one in levels}


@given(experiments())
def test_effects_recombine_to_the_measured_values(experiment: Experiment) -> None:
    factors, responses = experiment
    result = analyse_factorial(factors, responses)
    for levels, values in responses.items():
        high = dict(zip(factors, levels, strict=True))
        predicted = result.mean + sum(
            one.value * math.prod(2 * high[name] - 1 for name in one.factors)
            for one in result.effects
        )
        assert predicted == pytest.approx(result.predicted[levels], abs=1e-6)
        recombined = [predicted + residual for residual in result.residuals[levels]]
        assert recombined == pytest.approx(values, abs=1e-6)
    shares = [result.error_variation, *(one.variation for one in result.effects)]
    assert sum(shares) == pytest.approx(1) or sum(shares) == 0


@pytest.mark.parametrize(
    ("factors", "responses", "message"),
    [
        ([], {(): [1.0]}, "1 to 16 factors"),
        (["a", "a"], WITHOUT_REPETITIONS, "different names"),
        (["a"], {(0,): [1.0]}, "all 2 combinations"),
        (["a"], {(0,): [1.0], (1,): [1.0, 2.0]}, "same number"),
        (["a"], {(0,): [], (1,): []}, "at least one"),
        (["a"], {(0,): [1.0], (1,): [math.nan]}, "must be numbers"),
        (["a"], {(0,): [1.0], (1,): [1e200]}, "can be squared"),
    ],
)
def test_what_cannot_be_analysed(
    factors: list[str], responses: dict[tuple[int, ...], list[float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        analyse_factorial(factors, responses)


def test_a_confidence_is_a_share() -> None:
    with pytest.raises(ValueError, match="confidence"):
        analyse_factorial(["a"], {(0,): [1.0], (1,): [2.0]}, confidence=95)


def test_a_multiplicative_model_needs_positive_values() -> None:
    with pytest.raises(ValueError, match="positive"):
        analyse_factorial(["a"], {(0,): [1.0], (1,): [0.0]}, multiplicative=True)
