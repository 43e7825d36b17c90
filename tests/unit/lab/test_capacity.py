"""Sustainable rates of servers: the closed form of M/M/1, and general properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.lab import mmm, sustainable_rate


@given(st.floats(1e-6, 1), st.floats(1.1, 1000), st.floats(0, 10), st.floats(0.5, 0.999))
def test_one_server(demand: float, times: float, fixed: float, share: float) -> None:
    """Response times of M/M/1 are exponential: the limit is ln(1 / (1 - share)) / (µ - λ)."""
    unloaded = -math.log(1 - share) * demand
    limit = fixed + times * unloaded
    rate = sustainable_rate(demand, 1, limit, fixed=fixed, share=share)
    expected = 1 / demand + math.log(1 - share) / (limit - fixed)
    assert rate == pytest.approx(expected, rel=1e-3)


@given(st.floats(1e-6, 1), st.integers(1, 16), st.floats(5, 100))
def test_at_the_limit(demand: float, servers: int, times: float) -> None:
    limit = times * demand
    rate = sustainable_rate(demand, servers, limit)
    assert mmm(rate, 1 / demand, servers).response_percentile(0.99) <= limit
    assert mmm(rate * 1.001, 1 / demand, servers).response_percentile(0.99) > limit * 0.999


def test_too_slow_without_load() -> None:
    assert sustainable_rate(1.0, 4, 4.6) == 0
    assert sustainable_rate(1.0, 1, 100.0, fixed=99.0) == 0


@pytest.mark.parametrize(
    ("demand", "limit", "fixed"), [(0, 1, 0), (-1, 1, 0), (math.inf, 1, 0), (1, 0, 0), (1, 1, -1)]
)
def test_arguments_out_of_range(demand: float, limit: float, fixed: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        sustainable_rate(demand, 1, limit, fixed=fixed)
