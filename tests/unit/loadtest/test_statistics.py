"""Means, confidence intervals, merged histograms."""

import math

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memlite.core.errors import ConfigError
from memlite.loadtest.results import Interval, Latency, Repetition
from memlite.loadtest.statistics import (
    curve,
    decode,
    interval,
    latency,
    merge,
    new_histogram,
    percentiles,
    point,
    positive_interval,
    ratio,
)


def recorded(*values):
    histogram = new_histogram()
    for value in values:
        histogram.record_value(value)
    return latency(histogram)


def repetition(*values, **more):
    arguments = {"seconds": 2.0, "operations": 200} | more
    return Repetition(1, 0.0, response={"all": recorded(*values)}, **arguments)


def test_an_interval_by_students_t():
    found = interval([10.0, 12.0, 14.0])
    assert found.mean == 12
    # t is 4.3027 for 2 degrees of freedom, the standard error 2 / sqrt(3).
    assert found.low == pytest.approx(12 - 4.3027 * 2 / 3**0.5, abs=1e-3)
    assert found.high == pytest.approx(12 + 4.3027 * 2 / 3**0.5, abs=1e-3)


def test_one_value_has_no_interval():
    assert interval([3.5]) == Interval(3.5, None, None)


def test_equal_values_have_an_interval_of_no_width():
    assert interval([5.0, 5.0, 5.0]) == Interval(5.0, 5.0, 5.0)


def test_an_interval_needs_values():
    with pytest.raises(ValueError, match="no values"):
        interval([])


POSITIVE = st.lists(st.floats(0.001, 1e9), min_size=2, max_size=8)


@given(values=POSITIVE)
def test_a_positive_interval_never_reaches_zero(values):
    found = positive_interval(values)
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert 0 < found.low <= found.high


def test_a_positive_interval_of_little_variation_is_like_any_other():
    values = [99.0, 100.0, 101.0]
    found, usual = positive_interval(values), interval(values)
    assert (found.low, found.high) == pytest.approx((usual.low, usual.high), rel=1e-3)


@pytest.mark.parametrize("values", [[3.0], [0.0, 1.0], [0.0]])
def test_values_without_a_positive_interval(values):
    assert positive_interval(values) == Interval(sum(values) / len(values))


@given(values=POSITIVE, others=POSITIVE)
def test_a_ratio_has_the_interval_of_welchs_t_test(values, others):
    # Imported here: it takes more than a second, and every worker collects this file.
    from scipy.stats import ttest_ind

    found = ratio(values, others)
    logs = [[math.log(value) for value in some] for some in (values, others)]
    if min(map(np.ptp, logs)) < 1e-6:
        return  # scipy's variances are then rounding errors
    expected = ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    middle = np.mean(logs[0]) - np.mean(logs[1])
    for bound, log in (
        (found.mean, middle),
        (found.low, expected.low),
        (found.high, expected.high),
    ):
        assert math.log(bound) == pytest.approx(max(-745, min(log, 700)), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "others", "expected"),
    [
        ([6.0], [2.0, 4.0], Interval(2.0)),
        ([6.0, 6.0], [3.0], Interval(2.0)),
        ([0.0, 6.0], [3.0, 3.0], Interval(1.0)),
        ([6.0, 6.0], [0.0, 0.0], Interval(0.0)),
        ([6.0, 6.0], [3.0, 3.0], Interval(2.0, 2.0, 2.0)),
    ],
)
def test_ratios_without_an_interval_or_without_variation(values, others, expected):
    assert ratio(values, others) == expected


def test_percentiles():
    found = recorded(*range(1, 1001))
    assert found.count == 1000
    assert found.mean == pytest.approx(500.5, rel=1e-3)
    assert (found.least, found.p50, found.p90, found.p99, found.p999, found.most) == (
        1, 500, 900, 990, 999, 1000,
    )  # fmt: skip


@given(
    st.dictionaries(st.integers(1, 2**31), st.integers(1, 10**6), min_size=1),
    st.lists(st.floats(0.01, 100), min_size=1, unique=True),
)
def test_percentiles_are_those_of_the_library(times, wanted):
    histogram = new_histogram()
    for value, count in times.items():
        histogram.record_value(value, count)
    assert percentiles(histogram, wanted) == histogram.get_percentile_to_value_dict(wanted)


def test_an_empty_histogram_is_an_empty_latency():
    assert latency(new_histogram()) == Latency()
    assert decode(Latency()).get_total_count() == 0
    assert merge([]) == Latency()
    assert curve(Latency()) == []


def test_a_histogram_with_another_range_is_converted():
    from hdrh.histogram import HdrHistogram

    other = HdrHistogram(1, 100_000, 2)
    other.record_value(1000)
    assert latency(other).p50 == pytest.approx(1000, rel=0.01)


def test_an_hour_can_be_recorded():
    assert recorded(3_600_000_000).most == pytest.approx(3.6e9, rel=1e-3)


@given(st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=20), min_size=1, max_size=4))
def test_merging_equals_recording_together(groups):
    together = recorded(*(value for group in groups for value in group))
    assert merge([recorded(*group) for group in groups]) == together


@pytest.mark.parametrize("text", ["x", "AAAA", "HISTFAAAABh42pNpmSzMwMDAxgABzFCaEUzf", "é"])
def test_a_damaged_histogram_is_refused(text):
    with pytest.raises(ConfigError, match="histogram of latencies cannot be read"):
        decode(Latency(count=1, histogram=text))


def test_a_curve_rises_to_1():
    pairs = curve(recorded(10, 20, 20, 40))
    assert pairs == [(0.25, 10.0), (0.75, 20.0), (1.0, 40.0)]


def test_a_point_summarises_its_repetitions():
    found = point("a", 10, 0.0, 100, [repetition(100, 200), repetition(300, 400, operations=220)])
    assert found.throughput.mean == pytest.approx(105)
    assert found.throughput.low < 105 < found.throughput.high
    assert found.seconds.mean == 2
    assert found.response["all"].count == 4
    assert found.response["all"].p50 == 200
    assert found.p50.mean == pytest.approx(200)
    assert found.service == {}
    assert not found.generator_limited


def test_operations_missing_from_some_repetitions():
    one, other = repetition(100), Repetition(2, 0.0, 1.0, 0)
    found = point("a", 1, 0.0, 1, [one, other])
    assert found.response["all"].count == 1
    assert found.p50 == Interval(100.0)
    assert point("a", 1, 0.0, 1, [other]).p99 == Interval(0.0)


@pytest.mark.parametrize(
    ("rate", "more", "limited"),
    [
        (0.0, {"generator_share": 0.9}, False),
        (0.0, {"generator_share": 0.91}, True),
        (0.0, {"lateness": 5000.0}, False),
        (100.0, {"generator_share": 0.99}, False),
        (100.0, {"lateness": 1000.0}, False),
        (100.0, {"lateness": 1001.0}, True),
    ],
)
def test_generator_limits(rate, more, limited):
    found = point("a", 1, rate, 1, [repetition(1), repetition(1, **more)])
    assert found.generator_limited is limited
