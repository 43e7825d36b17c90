"""The slow log of real servers and proxies: ``stats slow``, ``watch slow``, metrics and the API."""

import contextlib
import http.client
import json
import re
import signal
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


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_proxy_keeps_the_address_of_a_client_that_leaves_before_its_reply(loop: str) -> None:
    with (
        running("memlite") as node,
        proxy([node], "--slow-log", "10ms", "--loop", loop) as front,
    ):
        with front.connect() as wire:
            assert wire.ask(b"get first\r\n") == b"END\r\n"
            address, port = wire.sock.getsockname()[:2]
            node.pause()
            wire.send(b"get left\r\n")
        # The proxy answers the next request itself; by then it has seen the other client leave.
        assert wait_until(lambda: front.stats()["curr_connections"] == "1")
        node.process.send_signal(signal.SIGCONT)
        client = f"tcp:{address}:{port}"
        assert wait_until(lambda: (b"left", client) in slow_clients(front))


def slow_clients(front: RunningServer) -> list[tuple[bytes, str]]:
    """Return the first keys of slow requests, and their clients."""
    stats = front.stats("slow")
    ranks = range(1, int(stats["slow:count"]) + 1)
    return [(stats[f"slow:{n}:key"].encode(), stats[f"slow:{n}:client"]) for n in ranks]


@pytest.mark.parametrize("further", [[], ["--in-flight", "2"]])
def test_slow_requests_of_a_proxy_are_watched(further: list[str]) -> None:
    with (
        running("memlite") as node,
        proxy([node], "--slow-log", "1us", *further) as front,
        front.connect() as watcher,
        front.connect() as wire,
    ):
        assert watcher.ask(b"watch slow\r\n") == b"OK\r\n"
        assert wire.ask(b"set a%b 0 0 1\r\nx\r\n" % (b"#" * 3)) == b"STORED\r\n"
        wire.send(b"get a b c\r\n")
        assert wire.until(b"END\r\n") == b"END\r\n"
        address, port = wire.sock.getsockname()[:2]
        client = f"tcp:{address}:{port}".encode()
        for number, what in enumerate((b"set keys=1 key=a%23%23%23", b"get keys=3 key=a"), 1):
            assert re.fullmatch(
                rb"ts=\d+\.\d{6} gid=%d type=slow elapsed=\d+ cmd=%b client=%b\n"
                % (number, what, client),
                watcher.line(),
            )
        watcher.send(b"get a\r\n")  # is ignored, as by a server
        watcher.sock.close()
        assert wire.ask(b"get b\r\n") == b"END\r\n"
        with front.connect() as second:
            assert second.ask(b"watch slow\r\n") == b"OK\r\n"
            assert wire.ask(b"touch b 0\r\n") == b"NOT_FOUND\r\n"
            assert b" cmd=touch keys=1 key=b " in second.line()


def test_other_streams_that_can_be_watched_at_a_proxy() -> None:
    not_here = b"SERVER_ERROR not possible through a proxy; ask the nodes\r\n"
    with running("memlite") as node, proxy([node], "--slow-log", "1us") as front:
        for words in (b"", b" fetchers", b" slow mutations", b" evictions"):
            assert front.ask(b"watch%b\r\nquit\r\n" % words) == not_here
        assert front.ask(b"watch nothing\r\nquit\r\n") == b"ERROR\r\n"
        with front.connect() as wire:
            wire.send(b"get a\r\nwatch slow\r\n")
            assert wire.until(b"watch\r\n").endswith(
                b"ERROR cannot pipeline other commands before watch\r\n"
            )
        with front.connect() as watcher:
            assert watcher.ask(b"watch connevents\r\n") == b"OK\r\n"
            with front.connect() as wire:
                port = wire.sock.getsockname()[1]
                assert wire.ask(b"get a\r\n") == b"END\r\n"
            assert b" type=conn_new rip=127.0.0.1 rport=%d " % port in watcher.line()
            assert b" type=conn_close rip=127.0.0.1 rport=%d " % port in watcher.line()
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                assert stack.enter_context(front.connect()).ask(b"watch slow\r\n") == b"OK\r\n"
            reply = front.ask(b"watch slow\r\nquit\r\n")
            assert reply == b"WATCHER_TOO_MANY log watcher limit reached\r\n"


@pytest.mark.slow
def test_a_watcher_of_a_proxy_that_does_not_read_delays_no_other_client() -> None:
    with (
        running("memlite") as node,
        proxy([node], "--slow-log", "1us") as front,
        front.connect() as deaf,
        front.connect() as wire,
    ):
        assert deaf.ask(b"watch slow\r\n") == b"OK\r\n"
        before = front.resident_kib()
        lines = b"".join(b"get %b%d\r\n" % (b"k" * 90, number % 100) for number in range(500))
        for _ in range(80):  # some 7 MB of lines
            wire.send(lines)
            for _ in range(500):
                assert wire.line() == b"END\r\n"
        assert front.resident_kib() - before < 20_000
        assert deaf.line()


def test_a_proxy_without_a_slow_log_says_so() -> None:
    with running("memlite") as node, proxy([node]) as front:
        assert front.ask(b"stats slow\r\nwatch slow\r\nquit\r\n") == 2 * REFUSED
