"""Checks of points: laws, warm-up, drift, stalls and outliers, in results and in reports."""

import dataclasses
import random

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.cells import Cell
from memlite.loadtest.checking import check, doubts, with_checks
from memlite.loadtest.files import load, save
from memlite.loadtest.measure import repetition_of
from memlite.loadtest.recorder import Recording, interval_for
from memlite.loadtest.report.check_tables import check_rows
from memlite.loadtest.results import Interval, Intervals, Latency, Point, Repetition, Slice
from memlite.loadtest.statistics import point as summarise
from memlite.loadtest.verdict import warnings
from tests.unit.loadtest.samples import results

CLIENTS = 10


def steady(seed=1, count=100):
    noise = random.Random(seed)
    return [round(noise.gauss(100, 5)) for _ in range(count)]


def repetition(operations, *, number=1, think=20.0, response=979.5, length=0.01, **more):
    """Return a repetition with these operations in each interval.

    With the defaults, ten clients that complete 100 operations in 10 ms obey the law.
    """
    total = sum(operations)
    unknown = (None,) * len(operations)
    arguments = {
        "response": {"all": Latency(count=total, mean=response)},
        "intervals": Intervals(length, tuple(operations), unknown, unknown),
        "think_time": think,
    } | more
    return Repetition(number, 0.0, len(operations) * length, total, **arguments)


def point(*repetitions, rate=0.0, **changes):
    found = Point("memory", CLIENTS, rate, 100, repetitions, *[Interval(1.0)] * 4, {})
    return dataclasses.replace(found, **{"checks": check(found)} | changes)


def test_nothing_is_wrong_with_a_good_measurement():
    found = point(*(repetition([100] * 100, number=number) for number in (1, 2, 3)))
    assert doubts(found) == []
    law = found.checks.repetitions[0].law
    assert (law.clients, law.throughput, law.response_time) == (10, 10_000, 980)
    assert (law.predicted, law.holds) == (pytest.approx(980), True)
    assert law.in_system == pytest.approx(10)
    series = found.checks.repetitions[0].series
    assert (series.throughput, series.throughput_low, series.steady) == (10_000, 10_000, True)


def test_the_law_counts_pipelined_requests():
    one = point(repetition([100] * 100, response=3979.5))
    assert doubts(one) == ["R is not N/X − Z"]
    assert check(one, pipeline=4).repetitions[0].law.holds


def test_a_broken_law_has_a_cause():
    operations = [90] * 100  # a tenth less than the law says
    failed = [repetition(operations, number=number, errors={"timeout": 600}) for number in (1, 2)]
    found = point(*failed)
    assert doubts(found) == ["R is not N/X − Z: 1,200 requests failed"]
    assert found.checks.repetitions[0].law.cause == "600 requests failed"
    one = point(repetition(operations, errors={"timeout": 1}))
    assert doubts(one) == ["R is not N/X − Z: 1 request failed"]
    made = dataclasses.replace(
        results(clients=(1,)), points=(point(repetition(operations), checks=None),)
    )
    assert doubts(with_checks(made).points[0]) == ["R is not N/X − Z"]
    made.workload["load"]["operations"] = 9000
    (counted,) = with_checks(made).points
    assert doubts(counted) == ["R is not N/X − Z: clients ended at different times"]
    # A law that holds is not mentioned.
    assert doubts(point(repetition([100] * 100, errors={"timeout": 1}))) == []


def open_loop(*, response, in_system=10.0, **more):
    """Return a point at 10,000 requests a second."""
    more = {"think": None, "in_system": in_system, "response": response} | more
    return point(repetition([100] * 100, **more), rate=10_000.0)


def test_littles_law_in_an_open_loop():
    good = open_loop(response=999.5)  # a mean of whole microseconds, rounded down
    assert doubts(good) == []
    (one,) = good.checks.repetitions
    assert one.law is None
    little = one.little
    assert (little.in_system, little.throughput, little.response_time) == (10, 10_000, 1000)
    assert (little.predicted, little.difference, little.holds) == (10, 0, True)
    shifted = open_loop(response=1049.5)
    assert doubts(shifted) == ["N is not X·R"]
    assert doubts(open_loop(response=949.5)) == ["N is not X·R"]
    lost = open_loop(response=949.5, errors={"timeout": 7})
    assert doubts(lost) == ["N is not X·R: 7 requests failed"]
    made = results(clients=(1,))
    rows = check_rows(dataclasses.replace(made, points=(good, shifted)))
    assert [row["clients"] for row in rows] == ["10", "10"]
    assert [row["by_little"] for row in rows] == ["10", "10.5"]
    assert [row["by_law"] for row in rows] == ["–", "–"]
    assert [row["difference"] for row in rows] == ["+0.00%", "+5.00%"]
    assert [row["doubts"] for row in rows] == ["", "N is not X·R"]
    said = " ".join(warnings(dataclasses.replace(made, points=(shifted,))))
    assert (
        "Checks cast doubt on 1 of 1 measurements: memory at 10,000 operations per second" in said
    )
    assert "(N is not X·R)" in said


def test_each_column_of_both_loops_has_one_unit():
    closed, opened = point(repetition([100] * 100)), open_loop(response=999.5)
    rows = check_rows(dataclasses.replace(results(clients=(1,)), points=(closed, opened)))
    assert [(row["by_law"], row["by_little"]) for row in rows] == [("980 µs", "–"), ("–", "10")]
    for name in rows[0]:
        cells = [row[name] for row in rows if isinstance(row[name], Cell)]
        assert len({number.unit for cell in cells for number in cell.numbers}) <= 1


def test_requests_cut_off_at_the_ends_may_explain_a_difference():
    response = {"all": Latency(count=10_000, mean=1049.5, most=60_000)}
    kept = open_loop(response=1049.5, cut_off=10)
    assert kept.checks.repetitions[0].little.tolerance == 0.02
    one = repetition([100] * 100, think=None, in_system=10.0, cut_off=10)
    cut = point(dataclasses.replace(one, response=response), rate=10_000.0)
    assert cut.checks.repetitions[0].little.tolerance == pytest.approx(0.06)
    assert doubts(cut) == []


@pytest.mark.parametrize(
    ("more", "limited"),
    [
        ({"generator_idle": 0.5, "generator_share": 1.0}, False),
        ({"generator_idle": 0.05}, True),
        ({"generator_idle": 0.5, "lateness": 1500.0}, True),
        ({"generator_idle": None}, False),  # as in files of earlier versions
    ],
)
def test_a_generator_that_cannot_keep_up_with_an_open_loop(more, limited):
    one = repetition([100] * 100, think=None, **more)
    assert summarise("memory", 10, 10_000.0, 100, [one]).generator_limited == limited


def test_an_untestable_law_is_no_doubt_but_shown_in_the_table():
    long = dataclasses.replace(
        repetition([50] * 100, number=2),
        response={"all": Latency(count=5000, mean=979.5, most=200_000)},  # 200 ms of 1 s
    )
    found = point(long)
    law = found.checks.repetitions[0].law
    assert law.tolerance == pytest.approx(0.2, rel=0.05)
    assert law.holds is None
    assert doubts(found) == []
    made = results(clients=(1,))
    (row,) = check_rows(dataclasses.replace(made, points=(found,)))
    assert row["difference"] == "cannot be tested"
    both = point(repetition([100] * 100), long)
    (row,) = check_rows(dataclasses.replace(made, points=(both,)))
    assert row["difference"] == "+0.00%"


def warm():
    return [round(one * 0.6) for one in steady()[:20]] + steady()[20:]


def drifting():
    return [round(one * (0.8 + index / 250)) for index, one in enumerate(steady())]


def stalled(at=50):
    return [*steady()[:at], 0, 0, 0, *steady()[at + 3 :]]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (steady(), []),
        (warm(), ["warm-up"]),
        (warm()[::-1], ["cool-down"]),
        (drifting(), ["drift"]),
        (stalled(), ["stalls"]),
        (stalled(30), ["stalls"]),
        (stalled(80), ["stalls"]),
        ([0] * 10 + steady()[10:], ["warm-up", "stalls"]),
        ([10 + index**4 // 10**5 for index in range(100)], ["no steady state"]),
    ],
    ids=lambda value: "" if len(value) == 100 else ", ".join(value) or "nothing",
)
def test_faults_are_named(operations, expected):
    assert doubts(point(repetition(operations, think=None))) == expected


def test_a_server_that_hangs_has_no_steady_state():
    # Replies for 40% of the time; only in the first of 45 intervals, as after Ctrl-C; none at all.
    for operations in ([*steady(count=40), *[0] * 60], [4500, *[0] * 44], [0] * 45):
        found = point(repetition(operations, think=None))
        series = found.checks.repetitions[0].series
        assert not series.settles
        assert (series.warm_up, series.cool_down, series.bias) == (0, 0, 0)
        assert series.throughput_low <= series.throughput <= series.throughput_high
        assert doubts(found) == ["no steady state"]
    # It hangs for the last 40% of the time.
    found = point(repetition([*steady(count=60), *[0] * 40], think=None))
    assert doubts(found) == ["cool-down", "stalls"]


def test_a_slow_server_is_steady():
    assert doubts(point(repetition([0, 0, 1, 0, 0] * 20, think=None))) == []


def test_stalls_and_outliers_are_saved_without_a_steady_state():
    operations = [*[10 + index**4 // 10**5 for index in range(100)]]
    operations[60:63] = 0, 0, 0
    series = point(repetition(operations)).checks.repetitions[0].series
    assert not series.settles
    assert series.outliers
    dead = point(repetition([*steady(count=10), *[0] * 90])).checks.repetitions[0].series
    assert not dead.settles
    assert dead.outliers == tuple(range(10))


def test_the_lengths_of_transients_and_stalls_are_in_seconds():
    series = point(repetition(warm())).checks.repetitions[0].series
    assert series.warm_up == pytest.approx(0.2, abs=0.05)
    assert series.bias == pytest.approx(-0.08, abs=0.01)
    (stall,) = point(repetition(stalled())).checks.repetitions[0].series.stalls
    assert (stall.start, stall.seconds) == (0.5, 0.03)
    assert stall.lost == pytest.approx(300, abs=20)


def test_outliers_are_named_and_kept():
    repetitions = [
        repetition([round(1000 * share)] * 100, number=number, think=None)
        for number, share in enumerate((1, 1.01, 0.99, 1, 0.5), 1)
    ]
    found = point(*repetitions)
    assert found.checks.outliers == (5,)
    assert doubts(found) == ["outlier"]
    assert len(found.checks.repetitions) == 5


def test_the_law_of_closed_loops_is_not_tested_in_open_loops():
    found = point(repetition(steady()), rate=10_000.0)
    assert found.checks.repetitions[0].law is None


def test_files_of_earlier_versions_are_checked_second_by_second():
    series = tuple(Slice(second, 100) for second in range(40) if second != 7)
    old = repetition([100] * 4000, intervals=None, series=series, think_time=None)
    series = point(old).checks.repetitions[0].series
    assert [(stall.start, stall.seconds) for stall in series.stalls] == [(7, 1)]
    assert point(repetition([100] * 19)).checks.repetitions[0].series is None
    # Too short to find a warm-up, which is no reason for doubt.
    short = point(repetition(steady()[:40], think=None))
    assert not short.checks.repetitions[0].series.known
    assert doubts(short) == []


def test_results_are_checked_once(tmp_path):
    made = with_checks(results(clients=(10, 20)))
    save(made, tmp_path)
    assert load(tmp_path) == made
    assert all(one.checks is not None for one in made.points)
    assert with_checks(made) == made
    burst = results(kind="concurrent")
    assert with_checks(burst) is burst


def test_doubts_are_summarised_in_one_warning():
    made = dataclasses.replace(results(clients=(1,)), points=(point(repetition(drifting())),) * 3)
    (warning,) = [one for one in warnings(made) if "doubt" in one]
    assert warning.startswith("Checks cast doubt on 3 of 3 measurements: memory at 10 clients (")
    assert warning.endswith(" and others.")


def test_the_table():
    made = dataclasses.replace(
        results(clients=(1,)), points=(point(repetition(warm()), generator_limited=True),)
    )
    (row,) = check_rows(made)
    assert row["clients"] == "10"
    assert row["think"] == "20 µs"
    assert row["warm_up"] == "200 ms"
    assert row["doubts"].startswith("generator, ")
    open_loop = dataclasses.replace(made, points=(point(repetition([1] * 5), rate=5.0),))
    (row,) = check_rows(open_loop)
    assert {row[name] for name in ("difference", "trend", "warm_up", "within")} == {"–"}


# Intervals


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(0, 1000), (0.1, 10), (1, 10), (1.2, 10), (2, 20), (5, 50), (10, 100), (30, 250), (60, 500),
     (61, 1000), (3600, 1000)],
)  # fmt: skip
def test_the_length_of_intervals(seconds, milliseconds):
    assert interval_for(seconds) == milliseconds * 1_000_000


def test_intervals_and_seconds_of_a_repetition():
    recording = Recording(
        began=10**9,
        ended=10**9 + 2_250_000_000,
        interval=500_000_000,
        intervals={0: ({10: 3}, 3, 0), 1: ({30: 1}, 1, 1), 4: ({50: 2}, 2, 0)},
        response={"get": {10: 3, 30: 1, 50: 2}},
        thought=12_000,
    )
    found = repetition_of(recording, 1, 0.0)
    assert found.intervals == Intervals(
        0.5, [3, 1, 0, 0], [10.0, 30.0, None, None], [10.0, 30.0, None, None]
    )
    assert found.series == [Slice(0, 4, 1, 10.0, 30.0), Slice(2, 2, 0, 50.0, 50.0)]
    assert found.think_time == 2.0
