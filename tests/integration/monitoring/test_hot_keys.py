"""``stats hotkeys`` finds the most requested key of a skewed load, on every command path."""

import random
from collections.abc import Callable

import pytest

from tests.support.servers import RunningServer, Wire

Start = Callable[..., RunningServer]


def load(wire: Wire, requests: int, at_once: int) -> None:
    """Request 5,000 keys, and one more, "hot", in three of ten requests."""
    numbers = random.Random(1)
    answers = b"END\r\n" * at_once
    for _ in range(requests // at_once):
        keys = [
            b"hot" if numbers.random() < 0.3 else b"cold%d" % numbers.randrange(5000)
            for _ in range(at_once)
        ]
        wire.send(b"".join(b"get %b\r\n" % key for key in keys))
        assert wire.exactly(len(answers)) == answers


@pytest.mark.parametrize(
    "kind",
    [
        "memlite",
        pytest.param("memlite-asyncio", marks=pytest.mark.slow),
        pytest.param("memlite-near", marks=pytest.mark.slow),
        "memlite-file",
    ],
)
@pytest.mark.parametrize("at_once", [1, pytest.param(16, marks=pytest.mark.slow)])
def test_a_hot_key_is_found(start: Start, kind: str, at_once: int) -> None:
    interval = 256 if kind in ("memlite", "memlite-asyncio") else 64
    # There are enough reads to measure about 64 or 96 of them. Here and below, the tolerance is at
    # least four standard deviations.
    requests = interval * (64 * at_once if at_once > 1 else 96)
    with start(kind=kind).connect() as wire:
        load(wire, requests, at_once)
        stats = wire.stats("hotkeys")
        assert stats["hotkeys:sample_interval"] == str(interval)
        assert int(stats["hotkeys:requests"]) == pytest.approx(requests, rel=0.5)
        assert stats["hotkeys:1:key"] == "hot"
        assert "hotkeys:2:key" not in stats or float(stats["hotkeys:2:share"]) < 5
        assert 10 < float(stats["hotkeys:1:share"]) < 60
        assert float(stats["hotkeys:1:per_second"]) > 0
        requests, error = (int(stats[f"hotkeys:1:{name}"]) for name in ("requests", "error"))
        assert 0 <= error <= requests / 2
        wire.ask(b"stats reset\r\n")
        assert wire.stats("hotkeys")["hotkeys:requests"] == "0"


def test_hits_on_the_fast_path_and_stores_count_too(start: Start) -> None:
    with start().connect() as wire:
        for _ in range(12_000):  # 140 are measured, two thirds of them for the one key
            wire.ask(b"set written 0 0 1\r\nx\r\n")
            wire.send(b"get written\r\n")
            wire.until(b"END\r\n")
            wire.ask(b"incr counted 1\r\n")
        stats = wire.stats("hotkeys")
        assert stats["hotkeys:1:key"] == "written"
        assert stats["hotkeys:2:key"] == "counted"
        assert int(stats["hotkeys:1:requests"]) > int(stats["hotkeys:2:requests"])


def test_sampling_does_not_synchronise_with_a_periodic_client(start: Start) -> None:
    """With as many keys in turn as the sampling interval, a fixed interval would sample one key."""
    with start().connect() as wire:
        for number in range(256 * 60):
            wire.ask(b"get key%d\r\n" % (number % 256))
        stats = wire.stats("hotkeys")
        assert float(stats["hotkeys:1:share"]) < 25
        assert "hotkeys:10:key" in stats


def test_hot_keys_are_hidden_where_dumping_is_disabled(start: Start) -> None:
    reply = b"CLIENT_ERROR stats hotkeys not allowed\r\n"
    assert start("-X").ask(b"stats hotkeys\r\n") == reply
