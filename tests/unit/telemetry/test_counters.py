"""Counters and latency histograms."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlite.core.build import running_build
from memlite.telemetry.counters import Counters, LatencyHistogram

PERCENTS = (0.1, 1, 25, 50, 90, 99, 99.9, 100)


def recorded(durations):
    histogram = LatencyHistogram()
    for duration in durations:
        histogram.record(duration)
    return histogram


@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 10**7), min_size=1, max_size=300))
@example([0])
@example([2**63 - 1])
@example([31, 32, 33, 63, 64, 65])
def test_percentiles_are_at_most_3_percent_off(durations):
    durations.sort()
    histogram = recorded(durations)
    for percent, found in zip(PERCENTS, histogram.percentiles(*PERCENTS), strict=True):
        exact = durations[max(0, math.ceil(len(durations) * percent / 100) - 1)]
        assert exact <= found <= exact * 1.032


@given(st.integers(0, 2**63 - 1))
def test_one_duration_is_exact(duration):
    histogram = recorded([duration])
    assert list(histogram.percentiles(50, 100)) == [duration, duration]


@given(st.lists(st.integers(0, 2**63 - 1), max_size=50))
def test_count_total_and_maximum_are_exact(durations):
    histogram = recorded(durations)
    assert histogram.count == len(durations)
    assert histogram.total == sum(durations)
    assert histogram.maximum == max(durations, default=0)


def test_small_durations_are_exact():
    assert list(recorded(range(64)).percentiles(25, 50, 100)) == [15, 31, 63]


def test_percentiles_without_durations_are_zero():
    assert list(LatencyHistogram().percentiles(50, 99)) == [0, 0]


def test_no_percents_give_no_values():
    assert list(recorded([1]).percentiles()) == []


def test_counters_start_at_zero_and_can_be_reset():
    counters = Counters()
    for name in Counters.NAMES:
        assert getattr(counters, name) == 0
        setattr(counters, name, 5)
    counters.reset()
    assert [getattr(counters, name) for name in Counters.NAMES] == [0] * len(Counters.NAMES)


@pytest.mark.skipif(running_build() == "compiled", reason="compiled classes keep no annotations")
def test_every_counter_is_annotated():
    others = {"NAMES", "hits", "until_sample", "until_slow_sample", "_countdown"}
    assert set(Counters.__annotations__) == {*Counters.NAMES, *others} - {"get_hits"}


def test_unknown_counters_are_rejected():
    with pytest.raises(AttributeError):
        Counters().get_hit = 1


def test_cmd_get_counts_hits_and_misses():
    counters = Counters()
    counters.get_hits = 3
    counters.get_misses = 4
    assert counters.cmd_get == 7


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("get_hits", True), ("get_misses", True), ("cmd_set", True), ("cmd_touch", True),
        ("delete_hits", True), ("delete_misses", True), ("incr_hits", True), ("incr_misses", True),
        ("decr_hits", True), ("decr_misses", True), ("cmd_flush", False), ("evictions", False),
        # These are included in the counters above.
        ("touch_hits", False), ("touch_misses", False), ("cas_hits", False), ("get_expired", False),
    ],
)  # fmt: skip
def test_operations_count_each_command_once(name, counts):
    counters = Counters()
    setattr(counters, name, 5)
    assert counters.operations == (5 if counts else 0)


@given(
    st.lists(st.integers(0, 2**40) | st.integers(0, 2000), max_size=200),
    st.lists(st.integers(6, 41), min_size=1, max_size=9, unique=True),
)
def test_durations_below_powers_of_two_are_counted_exactly(durations, powers):
    limits = [1 << power for power in sorted(powers)]
    expected = [sum(one < limit for one in durations) for limit in limits]
    assert recorded(durations).below(limits) == expected
