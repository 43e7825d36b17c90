"""Service demands of nodes, from known traces of proxies."""

import numpy as np
import pytest

from memlite.loadtest.models.node_demands import node_demands
from memlite.loadtest.models.traces import Traced


def traced(requests: int, alone: dict[str, tuple[int, float]]) -> Traced:
    """Return a trace with a number of visits to each node, and their mean time."""
    found = Traced(1.0, requests)
    for seed, (name, (count, mean)) in enumerate(alone.items()):
        times = np.random.default_rng(seed).exponential(mean, count)
        found.nodes.setdefault(name, type(found.queue)()).add(times * mean / times.mean())
    return found


def test_visits_come_from_all_loads_and_times_from_the_first() -> None:
    loads = [
        {"proxy": traced(100, {"a": (60, 0.01), "b": (40, 0.02)})},
        {"proxy": traced(900, {"a": (640, 0.08), "b": (260, 0.05)})},
    ]
    found = node_demands(loads)
    assert list(found) == ["node a", "node b"]
    assert found["node a"].value == pytest.approx(0.7 * 0.01)
    assert found["node b"].value == pytest.approx(0.3 * 0.02)
    low, high = found["node a"].interval
    # A mean of 60 exponential times has a standard error of 13%.
    assert high - low == pytest.approx(2 * 1.96 * 0.13 * 0.007, rel=0.3)


def test_requests_to_several_nodes_at_once_give_no_demands() -> None:
    assert not node_demands([{"proxy": traced(200, {"a": (60, 0.01), "b": (40, 0.02)})}])


def test_too_few_requests_give_no_demands() -> None:
    few = {"proxy": traced(100, {"a": (95, 0.01), "b": (5, 0.02)})}
    many = {"proxy": traced(1000, {"a": (500, 0.01), "b": (500, 0.02)})}
    assert not node_demands([few, many])
    assert node_demands([many])
    assert not node_demands([{}])
