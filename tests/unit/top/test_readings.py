"""Figures computed from two readings of statistics."""

import pytest

from memlite.top.readings import Figures, HotKey, Reading, figures, hot_keys, numbers, totals

STATS = {
    "pid": "7", "uptime": "100", "version": "1.6.45", "cmd_get": "1000", "get_hits": "900",
    "cmd_set": "200", "cmd_touch": "5", "delete_hits": "3", "delete_misses": "2",
    "incr_hits": "1", "incr_misses": "1", "decr_hits": "1", "decr_misses": "1", "bytes": "500",
    "limit_maxbytes": "2000", "curr_items": "10", "evictions": "40", "curr_connections": "8",
}  # fmt: skip


def reading(at: float, latency: dict[str, str] | None = None, **changes: int) -> Reading:
    """Return a reading in which counters have grown."""
    stats = {name: str(int(STATS[name]) + by) for name, by in changes.items()}
    return Reading(at, {**STATS, **stats}, latency or {}, ())


def test_rates_cover_the_time_between_two_readings() -> None:
    before = reading(10.0)
    now = reading(
        12.0, uptime=2, cmd_get=100, get_hits=75, cmd_set=20, cmd_touch=2, delete_hits=2,
        delete_misses=2, incr_hits=2, incr_misses=2, decr_hits=2, decr_misses=2, evictions=6,
    )  # fmt: skip
    found = figures(before, now)
    assert (found.gets, found.sets, found.evictions) == (50, 10, 3)
    assert found.operations == 67
    assert found.hit_ratio == 0.75
    assert (found.memory, found.memory_limit, found.memory_share) == (500, 2000, 0.25)
    assert (found.items, found.connections) == (10, 8)
    assert found.latency is None


def test_figures_from_a_single_reading() -> None:
    found = figures(None, reading(10.0, {"get:p99_us": "1500.0", "get:samples": "4"}))
    assert found == Figures(latency=0.0015, memory=500, memory_limit=2000, items=10, connections=8)
    assert found.hit_ratio is None


def test_without_samples_there_is_no_latency() -> None:
    assert figures(None, reading(1.0, {"get:p99_us": "0.0", "get:samples": "0"})).latency is None


@pytest.mark.parametrize("changes", [{"pid": 1}, {"uptime": -50}])
def test_after_a_restart_rates_are_not_known(changes: dict[str, int]) -> None:
    assert figures(reading(10.0), reading(11.0, cmd_get=-900, **changes)).gets is None


def test_after_stats_reset_rates_are_not_negative() -> None:
    found = figures(reading(10.0), reading(11.0, uptime=1, cmd_get=-900, get_hits=-800))
    assert (found.gets, found.hits, found.hit_ratio) == (0, 0, None)


def test_servers_that_report_few_statistics() -> None:
    found = figures(None, Reading(1.0, {"uptime": "5", "version": "x"}, {}, ()))
    assert found == Figures()
    assert found.memory_share is None


def test_totals() -> None:
    one = Figures(operations=10, gets=8, hits=8, latency=0.001, memory=5, memory_limit=10)
    other = Figures(operations=30, gets=8, hits=0, latency=0.003, memory=15, memory_limit=10)
    found = totals([one, other, Figures()])
    assert (found.operations, found.gets, found.memory, found.memory_limit) == (40, 16, 20, 20)
    assert found.hit_ratio == 0.5  # of all requests, not the mean of the ratios
    assert found.latency == 0.003
    assert found.items is None
    assert totals([]) == Figures()


def test_hot_keys() -> None:
    stats = {"hotkeys:requests": "5"}
    for rank, key in enumerate(("a%20b", "c"), 1):
        stats |= {
            f"hotkeys:{rank}:key": key,
            f"hotkeys:{rank}:per_second": f"{10 / rank}",
            f"hotkeys:{rank}:share": "12.50",
        }
    assert hot_keys(stats) == [HotKey("a%20b", 10.0, 12.5), HotKey("c", 5.0, 12.5)]
    del stats["hotkeys:2:share"]
    assert hot_keys(stats) == [HotKey("a%20b", 10.0, 12.5)]
    assert hot_keys({}) == []


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "1e308", "x", ""])
def test_invalid_counts_are_left_out(text: str) -> None:
    assert numbers({"bytes": text, "pid": "7"}) == {"pid": 7}
    assert hot_keys({f"hotkeys:1:{name}": text for name in ("key", "per_second", "share")}) == []
