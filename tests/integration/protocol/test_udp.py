"""UDP: the same datagrams as from the real memcached, and resistance to floods."""

import contextlib
import itertools
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.datagrams import QUIET_SECONDS, Datagram, Datagrams, framed
from tests.support.servers import (
    PEER_VARIABLE,
    RunningServer,
    Wire,
    memcached_path,
    memcached_version,
    needs_memcached,
    running,
)

RECENT = memcached_version() >= (1, 6, 45)
KINDS = ["memlite", "memlite-asyncio", "memlite-near", "memlite-file"]
SECONDS = 0.3  # of each flood: some thousand datagrams

Start = Callable[..., RunningServer]


@pytest.fixture(scope="module", params=[*KINDS, pytest.param("memcached", marks=needs_memcached)])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(request.param, "-U", "-1", "-t", "1") as server:
        yield server


@pytest.fixture(scope="module", params=KINDS)
def memlite(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(request.param, "-U", "-1") as server:
        yield server


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    with (
        running("memlite", "-U", "-1") as ours,
        running("memcached", "-U", "-1", "-t", "1") as theirs,
    ):
        yield ours, theirs


# The same as memcached

VALUE = bytes(itertools.islice(itertools.cycle(range(256)), 20_000))
SETS = b"".join(
    b"set %b 5 0 %d\r\n%b\r\n" % (key, len(value), value)
    for key, value in {
        b"a": b"1",
        b"b": b"two",
        b"c": b"x" * 1361,  # one byte less than fills a datagram, exactly that, and one more
        b"d": b"x" * 1362,
        b"e": b"x" * 1363,
        b"big": VALUE,
        b"%b" % (b"k" * 250): b"long key",
    }.items()
)
REQUESTS = [
    b"get a\r\n", b"get nope\r\n", b"get big\r\n", b"get c\r\n", b"get d\r\n", b"get e\r\n",
    b"get " + b"k" * 250 + b"\r\n", b"get a\n", b"gat 0 b\r\n",
    # Each of several commands gets its own message.
    b"get a\r\nget b\r\nget nope\r\n", b"get a\r\nget big\r\nget b\r\n",
    b"set f 0 0 1 noreply\r\n1\r\nget f\r\n", b"delete a noreply\r\ndelete b noreply\r\n",
    b"set a 1 0 2\r\nhi\r\n", b"add a 0 0 1\r\n1\r\n", b"replace a 0 0 1\r\n2\r\n",
    b"append a 0 0 1\r\n3\r\n", b"prepend a 0 0 1\r\n1\r\n", b"get a\r\n", b"incr a 5\r\n",
    b"decr a 1000\r\n", b"touch a 0\r\n", b"cas a 0 0 1 18446744073709551615\r\n1\r\n",
    b"incr a 1 noreply\r\n", b"get a\r\n", b"delete a\r\n", b"delete a\r\n",
    b"mn\r\n", b"ms f 2\r\nhi\r\n", b"mg f v k\r\n", b"mg nope v q\r\nmg f v q\r\nmn\r\n",
    b"md f q\r\nmn\r\n",
    # Errors.
    b"nonsense\r\n", b"   \r\n", b"set a 0 0 1\r\n12345\r\n", b"incr b x\r\n",
    b"touch b x\r\n", b"delete " + b"k" * 251 + b"\r\n", b"x" * 3000 + b"\r\n",
    b"verbosity 0\r\n", b"verbosity 0 noreply\r\n", b"stats nonsense\r\n", b"stats reset\r\n",
    b"flush_all 1000000 noreply\r\n", b"cache_memlimit 64\r\n",
    # Incomplete commands are not kept.
    b"get a", b"\0", b"x" * 3000, b"set a 0 0 1", b"get big\r\nget a",
    *([b"\r\n", b"get\r\n", b"shutdown\r\n"] if RECENT else []),
]  # fmt: skip
HEADERS = [
    {}, {"sequence": 5}, {"reserved": 77}, {"request_id": 0}, {"request_id": 65535},
    {"total": 0}, {"total": 2}, {"total": 256}, {"total": 257}, {"total": 65535},
    {"total": 2, "sequence": 1},
]  # fmt: skip


def unpadded(datagrams: list[Datagram]) -> list[Datagram]:
    """Remove the padding of numbers.

    memcached changes a number in place and pads a shorter one, unless its other thread refers to
    the item at this moment, as after a get.
    """
    return [
        (header, re.sub(rb"(VALUE a \d+) \d+\r\n(\d+) *\r\n", rb"\1 \2\r\n", data))
        for header, data in datagrams
    ]


@needs_memcached
def test_datagrams_equal_memcacheds(pair: tuple[RunningServer, RunningServer]) -> None:
    for server in pair:
        assert server.ask(SETS) == b"STORED\r\n" * SETS.count(b"set ")
    with Datagrams(pair[0]) as ours, Datagrams(pair[1]) as theirs:
        answered = 0
        for request in REQUESTS:
            for client in (ours, theirs):
                client.send(request)
            expected = theirs.until_answered()
            found = ours.until_answered(least=len(expected))
            assert unpadded(found) == unpadded(expected), request
            answered += bool(found)
        assert len(REQUESTS) - 9 <= answered < len(REQUESTS)


@needs_memcached
@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_frames_are_parsed_as_by_memcached(
    header: dict[str, int], pair: tuple[RunningServer, RunningServer]
) -> None:
    with Datagrams(pair[0]) as ours, Datagrams(pair[1]) as theirs:
        for client in (ours, theirs):
            client.send(b"get nope\r\n", **header)
        expected = theirs.until_answered()
        found = ours.until_answered(least=len(expected))
        assert found == expected
        assert len(found) == int(header.get("total", 1) == 1)


@needs_memcached
@pytest.mark.parametrize("command", [b"get", b"gat 0"])
def test_a_reply_for_several_keys_is_one_message(
    command: bytes, pair: tuple[RunningServer, RunningServer]
) -> None:
    """memcached 1.6 sends one per key, and an empty one for the first miss; the bytes are equal."""
    found = []
    for server in pair:
        server.ask(SETS)
        with Datagrams(server) as client:
            client.send(command + b" nope a big b nope\r\n")
            found.append(client.until_answered(least=15))
    ours, theirs = found
    assert [header for header, _ in ours] == [(7, number, 15, 0) for number in range(15)]
    assert b"".join(data for _, data in ours) == b"".join(data for _, data in theirs)
    assert sum(8 + len(data) for _, data in ours) <= sum(8 + len(data) for _, data in theirs)


def test_commands_in_sequence(server: RunningServer) -> None:
    with Datagrams(server) as client:
        assert client.ask(b"set a 3 0 5\r\nhello\r\n", 1) == b"STORED\r\n"
        assert client.ask(b"get a\r\n", 2) == b"VALUE a 3 5\r\nhello\r\nEND\r\n"
        assert server.ask(b"get a\r\n") == b"VALUE a 3 5\r\nhello\r\nEND\r\n"
        value = random.Random(1).randbytes(60_000)
        assert client.ask(b"set big 0 0 60000\r\n%b\r\n" % value, 3) == b"STORED\r\n"
        assert client.ask(b"get big\r\n", 4) == b"VALUE big 0 60000\r\n%b\r\nEND\r\n" % value
        assert client.ask(b"stats\r\n", 5).endswith(b"END\r\n")
        assert client.ask(b"delete a\r\n", 6) == b"DELETED\r\n"
        assert client.works()


@needs_memcached
def test_statistics_equal_memcacheds(pair: tuple[RunningServer, RunningServer]) -> None:
    shown = []
    for server in pair:
        with server.connect() as wire, Datagrams(server) as client:
            client.ask(b"get a\r\n")
            before = wire.stats()
            assert client.ask(b"get nope\r\n") == b"END\r\n"
            after = wire.stats()
            settings, connections = wire.stats("settings"), wire.stats("conns")
        number = next(name.split(":")[0] for name in connections if name.endswith(":UDP"))
        mine = {name: text for name, text in connections.items() if name.startswith(f"{number}:")}
        assert mine.pop(f"{number}:addr") == f"udp:127.0.0.1:{server.udp_port}"
        assert int(mine.pop(f"{number}:secs_since_last_cmd")) <= 2
        shown.append(
            {
                "settings": settings["num_threads_per_udp"],
                "conns": {name.split(":")[1]: text for name, text in mine.items()},
                "connections": before["curr_connections"],
                "bytes_read": int(after["bytes_read"]) - int(before["bytes_read"]),
                "get_misses": int(after["get_misses"]) - int(before["get_misses"]),
            }
        )
        assert settings["udpport"] in (str(server.udp_port), "-1")
    ours, theirs = shown
    assert ours == theirs


def test_memcacheds_own_test(tmp_path: Path) -> None:
    """The whole test, including binary requests."""
    path = memcached_path()
    script = Path(path or "").parent / "t" / "udp.t"
    perl = shutil.which("perl")
    if not script.is_file() or perl is None:
        pytest.skip(f"no perl, or no test-suite beside the memcached that {PEER_VARIABLE} names")
    for name, text in {
        "memcached-debug": f'exec {sys.executable} -m memlite "$@"\n',
        "timedrun": 'shift; exec "$@"\n',
    }.items():
        (tmp_path / name).write_text("#!/bin/sh\n" + text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [perl, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("not ok")]
    assert not failed, done.stdout
    assert sum(line.startswith("ok ") for line in lines) >= 50, done.stdout + done.stderr


# Limits


def test_the_length_of_replies_to_one_datagram_is_limited(memlite: RunningServer) -> None:
    value = b"x" * 1_000_000
    assert memlite.ask(b"set huge 0 0 1000000\r\n%b\r\n" % value) == b"STORED\r\n"
    with Datagrams(memlite) as client:
        client.send(b"get" + b" huge" * 250 + b"\r\nget a\r\n")
        assert client.until_quiet(1, first=20) == [
            ((7, 0, 1, 0), b"SERVER_ERROR reply too large for UDP\r\n")
        ]
        client.send(b"get huge\r\n" * 1000)
        assert sum(len(data) for _, data in client.until_quiet(1, first=20)) < 1_100_000
        assert client.works()


def test_half_a_value_is_not_kept(memlite: RunningServer) -> None:
    memlite.ask(b"set half 0 0 3\r\nold\r\nset large 0 0 3\r\nold\r\n")
    with Datagrams(memlite) as client:
        client.send(b"set half 0 0 100\r\nabc")
        client.send(b"x" * 97 + b"\r\n")
        client.send(b"set half 0 0 100 noreply\r\n")
        # The rest of the value is parsed as a command, which is unknown.
        assert client.until_quiet(1, first=20) == [((7, 0, 1, 0), b"ERROR\r\n")]
        assert client.ask(b"get half\r\n") == b"VALUE half 0 3\r\nold\r\nEND\r\n"
        # As over TCP, a set with a value that cannot be stored removes the old item.
        reply = client.ask(b"set large 0 0 2000000\r\n" + b"x" * 1000)
        assert reply == b"SERVER_ERROR object too large for cache\r\n"
        assert client.ask(b"get large\r\n") == b"END\r\n"


def test_a_server_does_not_answer_replies(start: Start) -> None:
    """Otherwise, one datagram with a forged sender could keep two servers replying forever."""
    server = start("-U", "-1")
    with Datagrams(server) as client:
        for reply in (b"ERROR\r\n", b"CLIENT_ERROR x\r\n", b"END\r\n", b"STORED\r\n", b"HD\r\n"):
            client.send(reply)
        assert client.until_quiet() == []
    assert server.stats("udp") == {"requests_under_way": "0", "refused": "5", "dropped": "0"}


def test_a_server_does_not_answer_itself(start: Start) -> None:
    server = start("-U", "-1")
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    except PermissionError:
        pytest.skip("forging a sender requires CAP_NET_RAW")
    address = socket.inet_aton("127.0.0.1")
    payload = framed(b"nonsense\r\n")
    header = struct.pack(
        ">BBHHHBBH4s4s",
        *(0x45, 0, 28 + len(payload), 0, 0, 64, socket.IPPROTO_UDP, 0, address, address),
    )
    ports = struct.pack(">HHHH", server.udp_port, server.udp_port, 8 + len(payload), 0)
    with raw:
        raw.sendto(header + ports + payload, ("127.0.0.1", 0))
    with Datagrams(server) as client:
        time.sleep(QUIET_SECONDS)
        assert client.works()
    assert server.stats("udp")["refused"] == "1"


# Floods


def _gets(rng: random.Random) -> bytes:
    return framed(b"get flood%d\r\n" % rng.randrange(100))


def _sets(rng: random.Random) -> bytes:
    return framed(b"set flood%d 0 0 1000\r\n%b\r\n" % (rng.randrange(100), b"x" * 1000))


def _large_replies(rng: random.Random) -> bytes:
    return framed(b"get huge\r\n" * 5)


def _pipelines(rng: random.Random) -> bytes:
    return framed(b"get a\r\nx\r\nx y\r\n" * 4000)


def _statistics(rng: random.Random) -> bytes:
    return framed(b"stats\r\nstats items\r\n" * 2900)


def _many_keys(rng: random.Random) -> bytes:
    return framed(b"get " + b"k " * 30_000 + b"\r\n")


def _longest(rng: random.Random) -> bytes:
    return framed(b"x" * 65_499)


def _half_values(rng: random.Random) -> bytes:
    return framed(b"set half%d 0 0 1000000\r\n" % rng.randrange(10**6) + b"x" * 60_000)


def _fragments(rng: random.Random) -> bytes:
    total = rng.choice([0, 2, 3, 256, 65535])
    return framed(b"get a\r\n", rng.randrange(65536), rng.randrange(65536), total)


def _short(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(9))


def _garbage(rng: random.Random) -> bytes:
    return framed(rng.randbytes(rng.randrange(1400)))


def _binary(rng: random.Random) -> bytes:
    return framed(b"\x80" + rng.randbytes(rng.randrange(60)))


FLOODS = [
    _gets, _sets, _large_replies, _pipelines, _statistics, _many_keys, _longest, _half_values,
    _fragments, _short, _garbage, _binary,
]  # fmt: skip


# The second server has every feature that the first lacks.
@pytest.fixture(
    scope="module",
    params=[
        ["memlite"],
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (
                ["memlite-file", "--loop", "asyncio", "--near-cache", "64m"],
                *([kind] for kind in KINDS[1:]),
            )
        ),
    ],
    ids=" ".join,
)
def flooded(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(*request.param, "-U", "-1") as server:
        yield server


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__.strip("_"))
def test_a_flood_does_not_harm_other_clients(
    flood: Callable[[random.Random], bytes], flooded: RunningServer
) -> None:
    """The flood comes from 250 addresses, without a pause, while a client continues over TCP."""
    huge = b"set huge 0 0 1000000\r\n%b\r\n" % (b"x" * 1_000_000)
    assert flooded.ask(huge + b"set tcp 0 0 1\r\n1\r\n") == b"STORED\r\n" * 2
    rng = random.Random(1)
    requests = [flood(rng) for _ in range(200)]
    before = flooded.resident_kib()
    begun, over = threading.Event(), threading.Event()

    def send() -> None:
        sources = [Datagrams(flooded, f"127.0.{number // 250}.{number % 250 + 1}").sock
                   for number in range(250)]  # fmt: skip
        try:
            for source, request in zip(itertools.cycle(sources), itertools.cycle(requests)):
                if over.is_set():
                    return
                with contextlib.suppress(ConnectionRefusedError):
                    source.send(request)
                begun.set()
        finally:
            for source in sources:
                source.close()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        assert begun.wait(30)
        _ask_for(SECONDS, flooded)
    finally:
        over.set()
        thread.join()
    assert flooded.process.poll() is None
    with Datagrams(flooded) as client:
        assert client.works()
    assert flooded.resident_kib() - before < 64 * 1024
    deadline = time.monotonic() + 60
    while flooded.stats("udp")["requests_under_way"] != "0":
        assert time.monotonic() < deadline, flooded.stats("udp")
        time.sleep(0.02)
    log = flooded.log.read_text()
    assert "Traceback" not in log
    assert "Exception" not in log


def _ask_for(seconds: float, server: RunningServer) -> None:
    """Send requests over TCP, one at a time; none takes as long as the socket's timeout."""
    with server.connect() as wire:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            _get(wire)


def _get(wire: Wire) -> None:
    wire.send(b"get tcp\r\n")
    assert wire.until(b"END\r\n") == b"VALUE tcp 0 1\r\n1\r\nEND\r\n"


# Start and stop


def test_udp_is_off_by_default(start: Start) -> None:
    server = start()
    assert server.udp_port == 0
    assert server.stats("settings")["udpport"] == "0"
    assert not [name for name in server.stats("conns") if name.endswith(":UDP")]


def test_a_warning_about_access_is_logged(start: Start) -> None:
    text = start("-U", "-1", "-l", "0.0.0.0").log.read_text()
    assert "without authentication" in text
    assert "(UDP) without authentication" in text
    assert "flood others" in text
    assert start("-U", "-1").log.read_text() == ""


def test_a_port_in_use_is_refused(start: Start) -> None:
    server = start("-U", "-1")
    done = subprocess.run(
        [sys.executable, "-m", "memlite", "-l", "127.0.0.1", "-p", "0", "-U", str(server.udp_port)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 71
    assert done.stderr == (
        f"memlite: failed to listen on UDP port {server.udp_port} of 127.0.0.1: {os.strerror(98)}\n"
    )


def test_the_port_is_free_again_after_a_stop(start: Start) -> None:
    server = start("-U", "-1")
    with Datagrams(server) as client:
        assert client.works()
    assert server.stop() == 0
    assert server.log.read_text() == ""
    again = start("-U", str(server.udp_port))
    assert again.udp_port == server.udp_port


@pytest.mark.parametrize("kind", ["memlite", "memlite-near"])
@pytest.mark.parametrize("mode", [b"", b" graceful"])
def test_shutdown(start: Start, kind: str, mode: bytes) -> None:
    server = start("-U", "-1", "-A", kind=kind)
    with Datagrams(server) as client:
        client.send(b"shutdown%b\r\n" % mode)
        assert server.process.wait(60) == 0
    assert server.log.read_text() == ""


def test_traces_with_vv(start: Start) -> None:
    server = start("-U", "-1", "-vv")
    with Datagrams(server) as client:
        assert client.ask(b"get traced\r\n") == b"END\r\n"
    wanted = [f"server listening (udp:127.0.0.1:{server.udp_port})", "get traced", ">"]
    deadline = time.monotonic() + 60
    while any(part not in server.log.read_text() for part in wanted):
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.05)


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_ipv6(start: Start) -> None:
    server = start("-U", "-1", "-l", "::1")
    found = [text for name, text in server.stats("conns").items() if name.endswith(":addr")]
    label = next(text for text in found if text.startswith("udp6:[::1]:"))
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.settimeout(60)
        sock.sendto(framed(b"get a\r\n"), ("::1", int(label.rpartition(":")[2])))
        assert sock.recv(100) == framed(b"END\r\n")
