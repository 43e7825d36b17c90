"""The periodic line of statistics in the log."""

from memlite.telemetry import line
from tests.unit.telemetry.samples import general_stats


def test_rates_and_growth_since_the_previous_line():
    before = general_stats(operations=100, get_hits=50, get_misses=10, evictions=1)
    now = general_stats(operations=125, get_hits=60, get_misses=12, evictions=1, items=9)
    assert line.figures(before, now, 10) == {
        "operations_per_second": 2.5,
        "hits": 10,
        "misses": 2,
        "evictions": 0,
        "items": 9,
        "bytes": 500,
        "connections": 3,
    }


def test_a_reset_in_between_gives_no_negative_values():
    figures = line.figures(general_stats(operations=100, get_hits=50), general_stats(), 10)
    assert figures["operations_per_second"] == figures["hits"] == 0


def test_as_text():
    assert line.as_text({"hits": 1, "operations_per_second": 2.5}) == (
        "hits=1 operations_per_second=2.5"
    )
