"""The search for the knee, against servers described by a formula."""

import dataclasses

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.knee import KneeSearch, find_knee
from memlite.loadtest.levels import Level
from memlite.loadtest.results import Interval, Latency, Point


def saturating(capacity, tried):
    """Return a `measure` for a server that saturates at `capacity` clients, with 1 ms per reply."""

    def measure(level):
        tried.append(level.clients)
        throughput = 1000.0 * min(level.clients, capacity)
        p99 = 1000.0 * max(1.0, level.clients / capacity)
        return Point(
            "memory", level.clients, level.rate, 100, (), Interval(throughput), Interval(1.0),
            Interval(p99), Interval(p99), {"all": Latency(count=1, p99=p99)},
        )  # fmt: skip

    return measure


def test_the_load_doubles_and_the_last_interval_is_bisected():
    tried = []
    knee = find_knee(Level(1), KneeSearch(1024), saturating(10, tried))
    assert (knee.target, knee.clients, knee.reason) == ("memory", 16, "throughput")
    assert tried == [1, 2, 4, 8, 16, 32, 23, 19]


def test_the_search_stops_at_its_limit():
    tried = []
    knee = find_knee(Level(1), KneeSearch(12), saturating(100, tried))
    assert (knee.clients, knee.reason) == (12, "limit")
    assert tried == [1, 2, 4, 8, 12]


def test_the_search_stops_when_a_higher_load_exceeds_the_slo():
    knee = find_knee(Level(8), KneeSearch(1024, slo=1500.0), saturating(10, []))
    assert knee.reason == "slo"
    assert knee.p99 <= 1500.0


def test_a_first_load_that_exceeds_the_slo_ends_the_search():
    tried = []
    knee = find_knee(Level(40), KneeSearch(1024, slo=1500.0), saturating(10, tried))
    assert (knee.clients, knee.reason, tried) == (40, "start", [40])


@pytest.mark.parametrize("works", [range(0), range(1, 5), range(2, 100)], ids=repr)
@pytest.mark.parametrize("slo", [0.0, 1500.0])
def test_a_load_at_which_every_operation_fails(works, slo):
    tried = []
    usual = saturating(100, tried)

    def measure(level):
        found = usual(level)
        if level.clients in works:
            return found
        return dataclasses.replace(found, throughput=Interval(0.0), response={})

    knee = find_knee(Level(1), KneeSearch(64, slo=slo), measure)
    if works == range(2, 100):
        assert (knee.clients, knee.reason) == (64, "limit")
    else:
        assert knee.reason == "throughput"
        assert knee.clients == (4 if works else 1)
        assert max(tried) == (8 if works else 2)
    assert knee.p99 == (1000.0 if works else 0.0)


def test_an_open_loop_is_searched_by_rate():
    def measure(level):
        return Point(
            "memory", level.clients, level.rate, 100, (), Interval(min(level.rate, 5000.0)),
            Interval(1.0), Interval(1.0), Interval(1.0), {"all": Latency(count=1, p99=1.0)},
        )  # fmt: skip

    knee = find_knee(Level(50, rate=1000.0), KneeSearch(1_000_000), measure)
    assert knee.clients == 50
    assert 4000.0 <= knee.rate <= 8000.0
    assert knee.reason == "throughput"
