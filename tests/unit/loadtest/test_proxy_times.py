"""Means between two readings of counters that proxies have kept since they started."""

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.core.errors import StartError
from memlite.loadtest.proxy_times import read, times_between
from memlite.loadtest.results import ProxyTimes
from tests.support.ports import unused_port


def test_means_between_readings() -> None:
    before = {"queue": (10, 1000.0), "service": (10, 500.0), "node:a:service": (2, 100.0)}
    after = {
        "queue": (30, 2000.0),
        "queue_length": (20, 50.0),
        "service": (30, 4500.0),
        "think": (0, 0.0),
        "node:a:service": (4, 500.0),
        "node:b:service": (1, 80.0),
        "node:c:service": (0, 0.0),
    }
    assert times_between(before, after) == ProxyTimes(
        2.5, 50.0, 200.0, None, {"a": 200.0, "b": 80.0}
    )


def test_without_requests_there_are_no_means() -> None:
    sums = {"queue": (10, 1000.0), "node:a:service": (2, 100.0)}
    assert times_between(sums, sums) is None
    assert times_between({}, {}) is None
    assert read([]) == {}


def test_a_proxy_that_cannot_be_reached() -> None:
    with pytest.raises(StartError, match=r"bench: the proxy at 127\.0\.0\.1:\d+: .*refused"):
        read([("127.0.0.1", unused_port())])
