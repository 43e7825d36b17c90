"""The guarantees of Space-Saving, and the detection of hot keys."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.core.clock import Clock
from memlite.telemetry import memcached_stats
from memlite.telemetry.hotkeys import HotKeys, SpaceSaving
from memlite.telemetry.sampling import Sampler

START = 1_800_000_000.0

STREAMS = st.lists(st.integers(0, 40).map(lambda n: b"%d" % (n * n // 40)), max_size=400)


@given(STREAMS, st.integers(1, 20))
def test_counts_are_never_too_low_and_at_most_their_error_too_high(stream, size):
    sketch = SpaceSaving(size)
    for key in stream:
        sketch.add(key)
    true = Counter(stream)
    found = sketch.top()
    assert len(found) == min(size, len(true))
    assert sketch.total == sum(count for _, count, _ in found) == len(stream)
    assert [count for _, count, _ in found] == sorted((n for _, n, _ in found), reverse=True)
    for key, count, error in found:
        assert true[key] <= count <= true[key] + error
        assert error <= len(stream) / size
    frequent = {key for key, count in true.items() if count > len(stream) / size}
    assert frequent <= {key for key, _, _ in found}


@given(STREAMS, st.integers(1, 20), st.integers(0, 400), st.sampled_from([0.5, 2.0**-64, 4.0]))
def test_scaling_keeps_the_order(stream, size, at, factor):
    """Powers of two, so that every count stays exact."""
    one, other = SpaceSaving(size), SpaceSaving(size)
    for position, key in enumerate(stream):
        if position == at:
            other.scale(factor)
        one.add(key)
        other.add(key, factor if position >= at else 1.0)
    if at >= len(stream):
        other.scale(factor)
    true = Counter(stream)
    for key, count, error in other.top():
        assert true[key] <= count / factor <= true[key] + error / factor
    assert other.total == one.total * factor


@given(STREAMS, STREAMS, st.integers(1, 20))
def test_compacting_changes_no_count(before, after, size):
    one, other = SpaceSaving(size), SpaceSaving(size)
    for key in before:
        one.add(key)
        other.add(key)
    other.compact()
    assert other.top() == one.top()
    for key in after:
        one.add(key)
        other.add(key)
    assert [count for _, count, _ in other.top()] == [count for _, count, _ in one.top()]
    assert other.total == one.total


@given(STREAMS)
def test_with_enough_counters_it_counts_exactly(stream):
    sketch = SpaceSaving(100)
    for key in stream:
        sketch.add(key, 3)
    assert {key: count / 3 for key, count, _ in sketch.top()} == Counter(stream)


class Fixture:
    """Hot keys on a clock that tests advance."""

    def __init__(self):
        self.clock = Clock(lambda: 0.0, lambda: START)
        self.keys = HotKeys(self.clock, 64)
        self.keys._random = Random(1)

    def load(self, key, rate, seconds):
        """Request a key `rate` times a second; one request in 64 is sampled."""
        for _ in range(seconds):
            self.clock.advance(1)
            for _ in range(rate // 64):
                self.keys.record((key,))

    @property
    def report(self):
        return dict(memcached_stats.hot_keys(self.keys.snapshot()))

    @property
    def ranking(self):
        report = self.report
        return [report[name] for name in report if name.endswith(":key")]


@pytest.fixture
def hot():
    return Fixture()


def test_no_requests(hot):
    assert hot.report == {
        "hotkeys:sample_interval": 64,
        "hotkeys:half_life": 60,
        "hotkeys:requests": 0,
        "hotkeys:per_second": "0.0",
    }


@pytest.mark.parametrize("seconds", [5, 60, 600])
def test_rates_are_right_from_the_start(hot, seconds):
    hot.load(b"a b", 6400, seconds)
    report = hot.report
    assert report["hotkeys:1:key"] == "a%20b"
    assert report["hotkeys:1:share"] == "100.00"
    assert report["hotkeys:1:error"] == 0
    assert float(report["hotkeys:1:per_second"]) == pytest.approx(6400, rel=0.1)
    assert report["hotkeys:1:per_second"] == report["hotkeys:per_second"]
    assert report["hotkeys:1:requests"] <= 6400 * seconds


def test_changes_are_counted(hot):
    sampler = Sampler(hot.keys.record, record_changes=hot.keys.record_changes)
    for number in range(300):
        for name in ("get", "get", "store", "arithmetic", "touch")[: 1 + number % 5]:
            sampler.record(name, 1, (b"a", b"b") if name == "get" else (b"a",))
    report = hot.report
    assert report["hotkeys:1:key"] == "a"
    assert (report["hotkeys:1:requests"], report["hotkeys:1:changes"]) == (64 * 900, 64 * 360)
    assert report["hotkeys:2:changes"] == 0
    before = report["hotkeys:1:changes"]
    hot.clock.advance(60)
    assert hot.report["hotkeys:1:changes"] == before / 2


def test_changes_of_many_keys_take_bounded_memory(hot):
    for number in range(10_000):
        for key in (b"%d" % number, b"hot"):
            hot.keys.record_changes((key,))
            hot.keys.record((key,))
    assert len(hot.keys._changes) <= HotKeys._MOST_CHANGES + 1
    report = hot.report
    assert report["hotkeys:1:changes"] == report["hotkeys:1:requests"] == 64 * 10_000


def test_old_requests_lose_their_weight(hot):
    hot.load(b"then", 64_000, 300)
    hot.load(b"now", 6400, 120)
    assert hot.ranking == ["then", "now"]
    hot.load(b"now", 6400, 120)
    assert hot.ranking == ["now", "then"]
    before = hot.report["hotkeys:2:requests"]
    hot.clock.advance(60)
    assert hot.report["hotkeys:2:requests"] == pytest.approx(before / 2, abs=1)


def test_hot_keys_are_found_after_years_of_uptime(hot):
    for _ in range(50):
        hot.load(b"a", 640, 60)
        hot.clock.advance(40 * 60)
    hot.clock.advance(10 * 365 * 86400)
    assert hot.report["hotkeys:requests"] == 0
    hot.load(b"b", 640, 60)
    assert hot.ranking == ["b"]
    assert float(hot.report["hotkeys:1:share"]) == 100


def test_keys_of_equal_frequency_are_not_hot(hot):
    for number in range(20_000):
        hot.keys.record((b"key%d" % number,))
    assert hot.ranking == []
    for number in range(20_000):
        hot.keys.record((b"key%d" % number,))
        if not number % 50:
            hot.keys.record((b"hot",))
    assert hot.ranking == ["hot"]
    report = hot.report
    assert report["hotkeys:1:requests"] - report["hotkeys:1:error"] <= 64 * 400
    assert report["hotkeys:1:requests"] >= 64 * 400


def test_twenty_keys_are_shown(hot):
    for number in range(100):
        for _ in range(number):
            hot.keys.record((b"%d" % number,))
    assert hot.ranking == [str(number) for number in range(99, 79, -1)]


def test_a_get_of_very_many_keys_is_sampled(hot):
    keys = [b"%d" % (number % 4) for number in range(100_000)]
    hot.keys.record(keys)
    assert sorted(hot.ranking) == ["0", "1", "2", "3"]
    assert hot.report["hotkeys:requests"] == 6_400_000
    hot.keys.record([])


def test_reset(hot):
    hot.load(b"a", 6400, 100)
    hot.keys.clear()
    assert hot.report["hotkeys:requests"] == 0
    hot.load(b"a", 6400, 2)
    assert float(hot.report["hotkeys:1:per_second"]) == pytest.approx(6400, rel=0.1)


def test_sampling_intervals_are_random_with_the_configured_mean():
    sampler = Sampler(interval=64)
    sampler._random = Random(1).random
    gaps = [sampler.next_read() for _ in range(10_000)]
    assert (min(gaps), max(gaps)) == (1, 127)
    assert sum(gaps) / len(gaps) == pytest.approx(64, rel=0.03)
