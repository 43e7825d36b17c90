"""The metrics: names by the conventions, values from the snapshot, few labels."""

import re

import pytest

from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.metrics.exporter_names import EXPORTER_METRICS
from memlite.telemetry.metrics.proxy_metrics import PROXY_METRICS, PROXY_ONLY
from memlite.telemetry.snapshot import BackendStats, Durations
from tests.unit.telemetry.samples import (
    full_proxy_snapshot,
    full_snapshot,
    node_stats,
    proxy_snapshot,
    snapshot,
)

OURS = (*METRICS, *PROXY_ONLY)
ALL = (*OURS, *EXPORTER_METRICS)
BY_NAME = {metric.name: metric for metric in ALL}


def values(name, found):
    return {sample.labels: sample.value for sample in BY_NAME[name].read(found)}


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric):
    prefix = "memlite" if metric in OURS else "memcached"
    assert re.fullmatch(rf"{prefix}(_[a-z]+)+", metric.name)
    assert metric.meaning.endswith(".")
    ours = metric in OURS
    if ours:  # the exporter's uptime is a counter without the ending
        assert metric.name.endswith("_total") == (metric.kind == "counter")
    base = metric.name.removesuffix("_total")
    for unit in ("seconds", "bytes"):
        assert (metric.unit == unit) == base.endswith(f"_{unit}")


def test_names_are_unique():
    assert len(BY_NAME) == len(ALL)
    # Also in OpenMetrics, where counters' families lack the ending.
    families = [metric.name.removesuffix("_total") for metric in OURS]
    assert len(set(families)) == len(families)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_every_metric_has_a_value_somewhere(metric):
    full = full_proxy_snapshot() if metric in PROXY_ONLY else full_snapshot()
    both = [*metric.read(full), *metric.read(snapshot(udp_sockets=1))]
    assert both
    for sample in both:
        assert len(sample.labels) == len(metric.labels)
        assert isinstance(sample.value, Durations) == (metric.kind == "histogram")
    for found in (full, snapshot()):
        labels = [sample.labels for sample in metric.read(found)]
        assert len(set(labels)) == len(labels)


def test_commands_by_result():
    found = snapshot(
        get_hits=3, get_misses=2, cmd_set=10, cas_hits=1, cas_misses=2, cas_badval=3, cmd_flush=4
    )
    ours = values("memlite_commands_total", found)
    assert ours["get", "hit"] == 3
    assert ours["get", "miss"] == 2
    assert ours["set", "done"] == 4
    assert ours["cas", "changed"] == 3
    theirs = values("memcached_commands_total", found)
    assert theirs["set", "hit"] == 4
    assert theirs["cas", "badval"] == 3
    assert theirs["flush", "hit"] == 4
    # The counters differ only in their names.
    assert sum(ours.values()) == sum(theirs.values()) == 19


@pytest.mark.parametrize(
    ("figures", "up"),
    [
        ({"state": "available"}, {(): 1}),
        ({"state": "unavailable"}, {(): 0}),
        ({"last_write_error": "none"}, {(): 1}),
        ({"last_write_error": "No space left on device"}, {(): 0}),
        ({}, {}),
    ],
)
def test_whether_the_store_works(figures, up):
    found = snapshot(storage=BackendStats("x://", 0, figures))
    assert values("memlite_backend_up", found) == up


def test_a_server_in_memory_has_no_metrics_of_a_backend():
    found = snapshot()
    for metric in METRICS:
        if metric.name.startswith(("memlite_backend", "memlite_near", "memlite_journal")):
            assert not list(metric.read(found)), metric.name


def test_readiness():
    assert values("memlite_ready", snapshot()) == {(): 1}
    assert values("memlite_ready", snapshot(troubles=("draining",))) == {(): 0}


def test_evictions():
    found = full_snapshot()
    assert values("memlite_size_class_evictions_total", found) == {("3",): 10}
    assert values("memlite_size_class_evicted_idle_seconds", found) == {("3",): 60}
    found = snapshot(evictions=9, evicted_unfetched=2)
    assert values("memlite_evictions_total", found) == {("yes",): 7, ("no",): 2}


def test_a_server_has_no_metrics_of_a_proxy_and_a_proxy_none_of_items():
    for metric in PROXY_ONLY:
        assert not list(metric.read(full_snapshot()))
    names = {metric.name for metric in PROXY_METRICS}
    assert not names & {"memlite_items", "memlite_commands_total", "memlite_evictions_total"}
    assert {"memlite_ready", "memlite_open_connections"} < names


def test_states_of_nodes():
    nodes = (
        node_stats(),
        node_stats(name="b", up=0, state="down", error="no reply in 1 s"),
        node_stats(name="c", up=0, state="connecting"),
        node_stats(name="others", up=3, count=5, state=""),
        node_stats(name="g", up=0, state="down", role="gutter"),
    )
    found = proxy_snapshot(nodes=nodes)
    assert values("memlite_proxy_nodes", found) == {("up",): 4, ("down",): 3, ("connecting",): 1}
    assert values("memlite_proxy_node_up", found)["g", "gutter"] == 0
    assert ("g", "gutter") not in values("memlite_proxy_node_share_ratio", found)


def test_the_phase_of_a_move():
    phases = values("memlite_proxy_move_phase", full_proxy_snapshot())
    assert [phase for (phase,), value in phases.items() if value] == ["move"]
    assert set(values("memlite_proxy_move_phase", proxy_snapshot()).values()) == {0}
    assert values("memlite_proxy_move_items_moved", proxy_snapshot()) == {}


# Metrics by memcached_exporter, at its commit 0cbb0fb247, of `stats` and `stats settings`, without
# extstore and memcached's proxy, and of `stats items` about evictions. Names begin with memcached_.
EXPORTED = {
    "gauge": """
        up version time_seconds current_connections max_connections accepting_connections
        current_bytes limit_bytes current_items malloced_bytes lru_crawler_enabled
        lru_crawler_sleep lru_crawler_to_crawl lru_crawler_maintainer_thread
        lru_crawler_hot_percent lru_crawler_warm_percent lru_crawler_hot_max_factor
        lru_crawler_warm_max_factor
    """,
    "counter": """
        uptime_seconds process_user_cpu_seconds_total process_system_cpu_seconds_total
        commands_total read_bytes_total written_bytes_total connections_total
        connections_rejected_total connections_yielded_total
        connections_listener_disabled_total items_total items_evicted_total items_reclaimed_total
        item_too_large_total item_no_memory_total direct_reclaims_total lru_crawler_starts_total
        lru_crawler_reclaimed_total lru_crawler_items_checked_total
        lru_crawler_moves_to_cold_total lru_crawler_moves_to_warm_total
        lru_crawler_moves_within_lru_total slab_items_evicted_total
        slab_items_evicted_time_seconds
    """,
}
LABELS = {
    "memcached_version": ("version",),
    "memcached_commands_total": ("command", "status"),
    "memcached_slab_items_evicted_total": ("slab",),
    "memcached_slab_items_evicted_time_seconds": ("slab",),
}


def test_names_types_and_labels_are_those_of_memcached_exporter():
    theirs = {
        f"memcached_{name}": kind for kind, names in EXPORTED.items() for name in names.split()
    }
    assert {metric.name: metric.kind for metric in EXPORTER_METRICS} == theirs
    for metric in EXPORTER_METRICS:
        assert metric.labels == LABELS.get(metric.name, ())
