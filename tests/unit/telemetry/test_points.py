"""Points: the changes between two snapshots."""

from memlite.telemetry.points import FIGURES, WAITING, point
from memlite.telemetry.proxy import QueueStats
from memlite.telemetry.snapshot import BackendStats, EvictedStats
from tests.unit.telemetry.samples import durations, node_stats, proxy_snapshot, snapshot


def figures(before, now):
    return dict(zip(FIGURES, point(before, now).figures, strict=True))


def test_rates_and_values():
    before = snapshot(time=100.0, get_hits=10, get_misses=5, cmd_get=15, cmd_set=1, operations=16)
    now = snapshot(
        time=105.0, get_hits=40, get_misses=15, cmd_get=55, cmd_set=11, delete_hits=5,
        operations=71, bytes_read=50, evictions=20, items=7, connections=9,
        storage=BackendStats("gs://b", 10, {}),
    )  # fmt: skip
    found = figures(before, now)
    assert found["time"] == 105
    assert found["hits_per_second"] == 6
    assert found["misses_per_second"] == 2
    assert found["stores_per_second"] == 2
    assert found["hit_ratio"] == 0.75
    assert found["received_bytes_per_second"] == 10
    assert found["evictions_per_second"] == 4
    assert (found["items"], found["open_connections"]) == (7, 9)
    assert found["failures_per_second"] == 2
    assert found["ready"] == 1


def test_absent_figures():
    found = figures(snapshot(time=1.0), snapshot(time=2.0, troubles=("draining",)))
    assert found["hit_ratio"] is None
    assert found["evicted_idle_seconds"] is None
    assert found["ready"] == 0


def test_nothing_is_negative_after_a_reset():
    before = snapshot(time=1.0, get_hits=100, cmd_get=100, operations=100, evictions=5)
    before = before.__class__(**{
        **{name: getattr(before, name) for name in before.__slots__},
        "commands": {"get": durations(5, 5, 5)},
    })  # fmt: skip
    now = snapshot(time=2.0, get_hits=1, commands={"get": durations(2000)})
    assert min(value for value in point(before, now).figures if value is not None) >= 0
    assert point(before, now).durations == {"get": ((1, 1),)}


def test_durations_are_counted_by_class():
    before = snapshot(commands={"get": durations(5, 3000), "store": durations(7)})
    now = snapshot(
        commands={"get": durations(5, 3000, 6, 1500, 1600, 2**40), "store": durations(7)}
    )
    # Below 1.024 µs, from there to 2.048 µs, and beyond the last limit.
    assert point(before, now).durations == {"get": ((0, 1), (1, 2), (25, 1))}


def test_how_old_evicted_items_were():
    before = snapshot(evicted=(EvictedStats(1, 5, 900), EvictedStats(2, 5, 800)))
    now = snapshot(
        evicted=(EvictedStats(1, 5, 900), EvictedStats(2, 6, 700), EvictedStats(3, 1, 600))
    )
    assert figures(before, now)["evicted_idle_seconds"] == 600


def test_a_proxys_commands_nodes_and_queue():
    before = proxy_snapshot(
        time=100.0, commands={("get", "hit"): 10, ("get", "miss"): 5}, moving_requests=3
    )
    now = proxy_snapshot(
        time=105.0,
        commands={
            ("get", "hit"): 40, ("get", "miss"): 15, ("get", "error"): 10, ("store", "stored"): 15,
            ("store", "not_stored"): 5, ("delete", "miss"): 5, ("other", "done"): 5,
        },
        nodes=(node_stats(pending=2), node_stats(name="b", up=0, pending=3)),
        queue=QueueStats(8, 8, 7, 9, 0, 0, 0, durations(1500), durations(), durations()),
        moving_requests=13,
    )  # fmt: skip
    found = figures(before, now)
    assert found["hits_per_second"] == 6
    assert found["misses_per_second"] == 2
    assert found["stores_per_second"] == 4
    assert found["others_per_second"] == 2
    assert found["failures_per_second"] == 2
    assert found["hit_ratio"] == 0.75
    assert found["items"] is found["items_bytes"] is found["evictions_per_second"] is None
    assert found["waiting_requests"] == 7
    assert found["pending_requests"] == 5
    assert found["nodes_up"] == 1
    assert found["moving_requests_per_second"] == 2
    assert point(before, now).durations == {WAITING: ((1, 1),)}
    assert figures(before, before)["waiting_requests"] is None


def test_a_server_has_no_queue_and_no_nodes():
    found = figures(snapshot(time=1.0), snapshot(time=2.0))
    assert found["waiting_requests"] is found["nodes_up"] is None
