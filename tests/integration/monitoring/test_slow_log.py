"""The slow log of real servers and proxies: ``stats slow``, ``watch slow``, metrics and the API."""

import http.client
import json
import re
from collections.abc import Callable

import pytest

from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]

REFUSED = b"CLIENT_ERROR slow commands are not logged; start the server with --slow-log\r\n"


def listed(stats: dict[str, str]) -> list[tuple[str, str]]:
    """Return commands and their first keys, the oldest first."""
    ranks = sorted(int(name.split(":")[1]) for name in stats if name.endswith(":command"))
    assert ranks == list(range(1, len(ranks) + 1))
    return [
        (stats[f"slow:{rank}:command"], stats.get(f"slow:{rank}:key", ""))
        for rank in reversed(ranks)
    ]


@pytest.mark.parametrize("kind", ["memlite", "memlite-asyncio", "memlite-near", "memlite-file"])
def test_slow_commands_are_listed_and_watched(start: Start, kind: str) -> None:
    server = start("--slow-log", "1us", kind=kind)
    with server.connect() as watcher, server.connect() as wire:
        assert watcher.ask(b"watch slow\r\n") == b"OK\r\n"
        assert wire.ask(b"set a%b 0 0 1\r\nx\r\n" % (b"k" * 150)) == b"STORED\r\n"
        address, port = wire.sock.getsockname()[:2]
        wire.send(b"get b c\r\n")
        assert wire.until(b"END\r\n") == b"END\r\n"
        stats = wire.stats("slow")
        assert stats["slow:threshold_us"] == "1.0"
        assert listed(stats)[-2:] == [("set", "a" + "k" * 99 + "..."), ("get", "b")]
        assert stats["slow:1:keys"] == "2"
        assert stats["slow:1:client"] == f"tcp:{address}:{port}"
        assert 1 <= float(stats["slow:1:elapsed_us"]) < 60e6
        lines = [watcher.line() for _ in range(3)]
        assert re.fullmatch(
            rb"ts=\d+\.\d{6} gid=3 type=slow elapsed=\d+ cmd=get keys=2 key=b client=tcp:%b:%d\n"
            % (address.encode(), port),
            lines[-1],
        )
        assert wire.ask(b"stats reset\r\n") == b"RESET\r\n"
        assert listed(wire.stats("slow")) == [("stats", "")]


def test_a_bound_that_is_not_reached_and_none(start: Start) -> None:
    server = start("--slow-log", "3600s")
    with server.connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert wire.stats("slow") == {"slow:threshold_us": "3600000000.0", "slow:count": "0"}
    server = start()
    assert server.ask(b"stats slow\r\nwatch slow\r\nquit\r\n") == 2 * REFUSED


def test_keys_are_hidden_from_clients_that_may_not_see_keys(start: Start) -> None:
    server = start("--slow-log", "1us", "-X")
    with server.connect() as wire:
        assert wire.ask(b"set secret 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert listed(wire.stats("slow")) == [("set", "")]


@pytest.mark.parametrize("names", [False, True])
def test_metrics_and_what_the_dashboard_reads(start: Start, names: bool) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    server = start("--slow-log", "1us", "--http", "0", *(["--http-keys"] if names else []))
    with server.connect() as wire:
        assert wire.ask(b"set secret 0 0 1\r\nx\r\n") == b"STORED\r\n"

    def read(path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    assert b"\nmemlite_slow_commands_total 1\n" in read("/metrics")
    assert wait_until(lambda: json.loads(read("/api/now"))["slow"]["count"])
    slow = json.loads(read("/api/now"))["slow"]
    assert slow["threshold_seconds"] == 1e-6
    (one,) = slow["commands"]
    assert (one["command"], one["keys"]) == ("set", 1)
    assert one["key"] == ("secret" if names else None)
    assert 1e-6 <= one["seconds"] < 60


@pytest.mark.parametrize("further", [[], ["--in-flight", "2"]])
def test_a_proxy_lists_requests(further: list[str], tmp_path: object) -> None:
    trace = ["--trace", f"{tmp_path}/trace.csv", "--trace-sample", "1/2"]
    with (
        running("memlite") as one,
        running("memlite") as other,
        proxy([one, other], "--slow-log", "1us", *trace, *further) as front,
        front.connect() as wire,
    ):
        assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        keys = b" ".join(b"k%d" % number for number in range(20))
        for _ in range(2):  # the second time the line is known
            wire.send(b"get %b\r\n" % keys)
            assert wire.until(b"END\r\n") == b"END\r\n"
        wire.send(b"get a\r\n")
        assert wire.until(b"END\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"
        address, port = wire.sock.getsockname()[:2]
        stats = wire.stats("slow")
        assert [name for name, _ in listed(stats)] == ["set", "get", "get", "get"]
        assert stats["slow:2:keys"] == "20"
        assert stats["slow:1:key"] == "a"
        assert stats["slow:1:client"] == f"tcp:{address}:{port}"
        assert wait_until(lambda: wire.stats("proxy")["trace_written"] == "2")
        assert wire.ask(b"stats reset\r\n") == b"RESET\r\n"
        assert wire.stats("slow")["slow:count"] == "0"


def test_a_proxy_without_a_slow_log_says_so() -> None:
    with running("memlite") as node, proxy([node]) as front:
        assert front.ask(b"stats slow\r\nquit\r\n") == REFUSED
