"""Replies to CLUSTER SLOTS."""

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends.valkey.topology import slots_of


def test_masters_and_replicas():
    reply = [
        [0, 99, [b"10.0.0.1", 7000, b"id", []], [b"10.0.0.2", 7001, b"id", []]],
        [100, 16383, [b"", 7002, b"id"]],
        [200, 300, [None, 7003, b"id"]],
    ]
    assert slots_of(reply, "asked") == [
        (0, 99, ("10.0.0.1", 7000)),
        (100, 16383, ("asked", 7002)),
        (200, 300, ("asked", 7003)),
    ]


@pytest.mark.parametrize("reply", [None, b"OK", [1], [[0, 1]], [[0, 1, [3, 7000]]]])
def test_other_replies(reply):
    with pytest.raises(ValueError):
        slots_of(reply, "asked")
