"""``lru_crawler metadump`` and ``mgdump``: memcached's lines on every backend, without blocking."""

import asyncio
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memlite.testing.gcs_emulator import GcsEmulator
from tests.support.patience import patiently
from tests.support.servers import RunningServer, Wire, memcached_version, needs_memcached, running

Start = Callable[..., RunningServer]

TOOL = Path("/usr/share/memcached/scripts/memcached-tool")
OURS = ["memlite", "memlite-asyncio", "memlite-near", "memlite-file"]
MEMORY_FIRST = ["memlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in OURS[1:])]
# Keep each of memcached's items in its queue: its crawler may show an item that is moved to another
# queue meanwhile twice, or not at all.
STEADY = ("-o", "no_lru_maintainer")


@pytest.fixture(scope="module", params=[*OURS, pytest.param("memcached", marks=needs_memcached)])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """memlite on each backend, and memcached, in turn: all must pass the same cases."""
    with running(request.param, *(STEADY if request.param == "memcached" else ())) as server:
        yield server


def older(server: RunningServer) -> bool:
    """Return whether the server is a memcached older than 1.6.45."""
    return server.kind == "memcached" and memcached_version() < (1, 6, 45)


def begin(server: RunningServer, wire: Wire, request: bytes) -> bytes:
    """Send a request to the crawler, and return the first line of its reply.

    memcached's crawler also starts by itself, and becomes free a little after it has sent the end
    of a dump: a memcached is asked again until it is free.
    """
    while (line := wire.ask(request)).startswith(b"BUSY"):
        assert server.kind == "memcached", line
    return line


def metadump(server: RunningServer, wire: Wire, which: bytes = b"all") -> list[bytes]:
    line = begin(server, wire, b"lru_crawler metadump %b\r\n" % which)
    if line == b"END\r\n":  # an older memcached's empty dump, which has no OK
        return []
    rest = list(iter(wire.line, b"END\r\n"))
    return rest if line == b"OK\r\n" else [line, *rest]


def mgdump(server: RunningServer, wire: Wire, which: bytes = b"all") -> list[bytes]:
    assert begin(server, wire, b"lru_crawler mgdump %b\r\n" % which) == b"OK\r\n"
    return list(iter(wire.line, b"EN\r\n"))


def fill(server: RunningServer, count: int, end: bytes = b"") -> None:
    """Store items whose keys have a number and the given suffix."""
    one = b"set key:%%07d%b 0 0 10 noreply\r\n0123456789\r\n" % end
    with server.connect() as wire:
        for start in range(0, count, 1000):
            wire.send(b"".join(one % n for n in range(start, min(start + 1000, count))))
        wire.send(b"version\r\n")
        assert wire.line().startswith(b"VERSION")


# A dump of so many items with such keys is 9 MB, which does not fit into a connection's buffers.
MANY, END = 30_000, b"." * 220


def test_metadump_lines(server: RunningServer) -> None:
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n")
        assert metadump(server, wire) == []
        before = int(time.time())
        for request in (
            b"set a 0 0 10\r\n0123456789\r\n",
            b"set x#y 7 1000 500\r\n%b\r\n" % (b"x" * 500),
            b"set gone 0 -1 1\r\nx\r\n",
        ):
            assert wire.ask(request) == b"STORED\r\n"
        wire.send(b"gets a\r\n")
        unique = wire.until(b"END\r\n").split()[4]
        lines = sorted(metadump(server, wire))
        after = int(time.time())
        assert metadump(server, wire, b"hash")
        if older(server):  # its lines have no flags
            lines = [re.sub(rb"\n", b" flags=%d \n" % (7 * (b"x%23y" in line)), line)
                     for line in lines]  # fmt: skip
        assert len(lines) == 2
        times = []
        for line in lines:
            found = re.search(rb"exp=(-?\d+) la=(\d+) cas=(\d+) ", line)
            assert found
            times.append([int(part) for part in found.groups()])
            assert before - 1 <= times[-1][1] <= after + 1
        form = b"key=%b exp=%d la=%d cas=%d fetch=%b cls=%d size=%d flags=%d \n"
        assert lines == [
            form % (b"a", *times[0], b"yes", 1, 70, 0),
            form % (b"x%23y", *times[1], b"no", 9, 566, 7),
        ]
        assert (times[0][0], times[0][2]) == (-1, int(unique))
        assert before + 998 <= times[1][0] <= after + 1001


@needs_memcached
@pytest.mark.parametrize("kind", OURS)
def test_sizes_and_classes_equal_memcacheds(start: Start, kind: str) -> None:
    request = b"".join(
        b"set key%d %d 0 %d noreply\r\n%b\r\n" % (n, flags, size, b"x" * size)
        for n, (size, flags) in enumerate(
            ((0, 0), (1, 5), (10, 0), (100, 1), (1000, 2**32 - 1), (10_000, 0), (100_000, 0))
        )
    )
    dumps = []
    for server in (start(kind=kind), start(*STEADY, kind="memcached")):
        with server.connect() as wire:
            wire.send(request + b"version\r\n")
            wire.line()
            lines = sorted(metadump(server, wire))
            selected = sorted(metadump(server, wire, b"7,22"))
        assert selected
        shown = rb"key=\S+ exp=-1 |fetch=no cls=\d+ size=\d+"
        dumps.append([re.findall(shown, line) for line in [*lines, *selected]])
    assert dumps[0] == dumps[1]


def test_mgdump(server: RunningServer) -> None:
    if older(server):
        pytest.skip("this version has no mgdump")
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n")
        assert mgdump(server, wire) == []
        for request in (b"set a#b 0 0 1\r\n1\r\n", b"set c\xff 0 0 1\r\n1\r\n",
                        b"set gone 0 -1 1\r\nx\r\n", b"ms eCB5 1 b\r\n1\r\n",
                        b"ms cGxhaW4= 1 b\r\n1\r\n"):  # fmt: skip
            wire.ask(request)
        # Keys that came as base64 are dumped as base64, even if they need not be. Each line is a
        # request.
        lines = [b"mg a#b\r\n", b"mg cGxhaW4= b\r\n", b"mg c\xff\r\n", b"mg eCB5 b\r\n"]
        assert sorted(mgdump(server, wire)) == sorted(mgdump(server, wire, b"hash")) == lines
        wire.send(b"".join(lines))
        assert wire.exactly(16) == b"HD\r\n" * 4
        assert mgdump(server, wire, b"9") == []


def test_arguments(server: RunningServer) -> None:
    if older(server):
        pytest.skip("this version replies differently")
    with server.connect() as wire:
        for command in (b"metadump", b"mgdump"):
            line = b"lru_crawler %b" % command
            assert wire.ask(line + b"\r\n") == b"ERROR\r\n"
            assert wire.ask(line + b" all all\r\n") == b"ERROR\r\n"
            for which in (b"0", b"64", b"1,x", b"x", b"-1", b"1,64"):
                reply = wire.ask(line + b" %b\r\n" % which)
                assert reply == b"BADCLASS invalid class id\r\n", which
    if server.kind != "memcached":  # after that memcached cannot start its crawler
        assert server.ask(b"lru_crawler metadump ,\r\n") == b"NOTSTARTED no items to crawl\r\n"


def test_commands_may_not_be_pipelined_before_a_dump(server: RunningServer) -> None:
    if older(server):
        pytest.skip("this version allows it")
    with server.connect() as wire:
        for command in (b"metadump", b"mgdump"):
            wire.send(b"get nothing\r\nlru_crawler %b all\r\nget nothing\r\n" % command)
            error = b"ERROR cannot pipeline other commands before %b\r\n" % command
            expected = b"END\r\n" + error + b"END\r\n"
            assert wire.exactly(len(expected)) == expected


def test_commands_after_a_dump_are_answered_after_it(server: RunningServer) -> None:
    fill(server, 5000)
    with server.connect() as wire:
        wire.send(b"lru_crawler metadump all\r\nget key:0000001\r\nset x 0 0 3\r\n")
        time.sleep(0.05)
        wire.send(b"END\r\nget x\r\n")
        text = wire.until(b"VALUE x 0 3\r\nEND\r\nEND\r\n")
        tail = b"END\r\nVALUE key:0000001 0 10\r\n0123456789\r\nEND\r\nSTORED\r\n"
        assert text.endswith(tail + b"VALUE x 0 3\r\nEND\r\nEND\r\n")
        # memcached's dump may miss an item that it moves to another queue meanwhile.
        least = 4990 if server.kind == "memcached" else 5000
        assert least <= text.count(b"key=key%3A") <= 5000


def test_a_client_that_has_stopped_sending_gets_the_whole_dump(memlite: RunningServer) -> None:
    fill(memlite, 20_000)
    text = memlite.ask(b"lru_crawler metadump all\r\n")
    assert text.endswith(b"END\r\n")
    assert text.count(b"\n") >= 20_002


def test_dumps_can_be_disabled_at_startup(server: RunningServer, start: Start) -> None:
    if older(server):
        pytest.skip("this version replies differently")
    closed = start("-X", kind=server.kind)
    assert closed.ask(b"lru_crawler metadump all\r\n") == b"ERROR metadump not allowed\r\n"
    assert closed.ask(b"lru_crawler mgdump all\r\n") == b"ERROR key dump not allowed\r\n"


def test_the_crawler_can_be_disabled_and_enabled(server: RunningServer, start: Start) -> None:
    disabled = b"CLIENT_ERROR lru crawler disabled\r\n"
    one = start("-o", "no_lru_crawler", kind=server.kind)
    with one.connect() as wire:
        for command in (b"crawl", b"metadump", *([] if older(server) else [b"mgdump"])):
            assert wire.ask(b"lru_crawler %b all\r\n" % command) == disabled
        assert wire.stats("settings")["lru_crawler"] == "no"
        assert "lru_crawler_running" not in wire.stats()
        assert wire.ask(b"lru_crawler enable\r\n") == b"OK\r\n"
        assert wire.ask(b"lru_crawler enable\r\n").startswith(b"ERROR failed to start lru crawler")
        assert wire.stats("settings")["lru_crawler"] == "yes"
        assert wire.stats()["lru_crawler_running"] in ("0", "1")  # memcached's may begin at once
        if server.kind != "memcached":  # memcached's crawler may be busy now
            assert metadump(server, wire) == []
        assert wire.ask(b"lru_crawler disable\r\n") == b"OK\r\n"
        if server.kind != "memcached":  # memcached's thread ends some time later
            assert wire.ask(b"lru_crawler metadump all\r\n") == disabled


@pytest.mark.parametrize("kind", MEMORY_FIRST)
def test_a_dump_that_is_not_read_blocks_only_other_dumps(start: Start, kind: str) -> None:
    server = start("-m", "200", "-o", "idle_timeout=2", kind=kind)
    fill(server, MANY, END)
    with server.connect() as slow, server.connect() as wire:
        slow.send(b"lru_crawler metadump all\r\n")
        assert slow.line() == b"OK\r\n"
        memory = server.resident_kib()
        deadline = time.monotonic() + 4.5  # longer than the idle timeout
        while time.monotonic() < deadline:
            wire.send(b"get key:0000001%b\r\nset other 0 0 1\r\nx\r\n" % END)
            expected = b"VALUE key:0000001%b 0 10\r\n0123456789\r\nEND\r\nSTORED\r\n" % END
            assert wire.exactly(len(expected)) == expected
            time.sleep(0.005)
        assert server.resident_kib() - memory < 8 * 1024
        busy = b"BUSY currently processing crawler request\r\n"
        for command in (b"metadump all", b"mgdump hash", b"crawl all"):
            assert wire.ask(b"lru_crawler %b\r\n" % command) == busy
        stats = wire.stats()
        assert (stats["lru_crawler_running"], stats["lru_crawler_starts"]) == ("1", "1")
        # The dump shows items as they are when it reaches them.
        wire.ask(b"flush_all\r\n")
        rest = slow.until(b"END\r\n")
        assert rest.count(b"\n") < MANY
        assert slow.ask(b"get nothing\r\n") == b"END\r\n"
        assert wire.stats()["lru_crawler_running"] in ("0", "1")  # memcached's may begin at once


@pytest.mark.slow
def test_a_dump_is_abandoned_when_its_client_disconnects(start: Start) -> None:
    server = start("-m", "200")
    fill(server, MANY, END)
    with server.connect() as wire:
        for _ in range(3):
            with server.connect() as lost:
                lost.send(b"lru_crawler metadump all\r\n")
                assert lost.line() == b"OK\r\n"
            deadline = time.monotonic() + 60
            while wire.stats()["lru_crawler_running"] != "0":
                assert time.monotonic() < deadline
        assert len(mgdump(server, wire)) == MANY


@pytest.mark.slow
def test_the_server_stops_although_a_dump_is_not_read(start: Start) -> None:
    server = start("-m", "200")
    fill(server, MANY, END)
    with server.connect() as slow:
        slow.send(b"lru_crawler metadump all\r\n")
        assert slow.line() == b"OK\r\n"
        assert server.stop() == 0


@pytest.mark.parametrize("kind", MEMORY_FIRST)
def test_items_stored_and_deleted_during_a_dump(start: Start, kind: str) -> None:
    server = start("-m", "200", kind=kind)
    fill(server, 30_000)
    ended = threading.Event()

    def change() -> None:
        with server.connect() as wire:
            number = 0
            while not ended.is_set():
                number += 1
                wire.ask(b"set new:%d 0 0 1\r\nx\r\n" % number)
                wire.ask(b"delete key:%07d\r\n" % (30_000 - number))

    changer = threading.Thread(target=change)
    changer.start()
    try:
        with server.connect() as wire:
            keys = [line[3:-2] for line in mgdump(server, wire)]
    finally:
        ended.set()
        changer.join()
    assert len(set(keys)) == len(keys)
    untouched = {b"key:%07d" % number for number in range(10_000)}
    assert untouched <= set(keys)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("kind", OURS)
@patiently
def test_other_clients_are_served_while_many_items_are_dumped(start: Start, kind: str) -> None:
    count = 50_000 if kind in ("memlite-near", "memlite-file") else 100_000  # half a second's work
    server = start("-m", "1000", kind=kind)
    fill(server, count)
    waits: list[float] = []
    ended = threading.Event()

    def ping() -> None:
        with server.connect() as wire:
            while not ended.is_set():
                begun = time.perf_counter()
                wire.ask(b"get nothing\r\n")
                waits.append(time.perf_counter() - begun)
                time.sleep(0.001)

    pinging = threading.Thread(target=ping)
    pinging.start()
    try:
        with server.connect(60) as wire:
            wire.send(b"lru_crawler metadump all\r\n")
            lines = end = 0
            while not end:
                data = wire.sock.recv(1 << 20)
                assert data
                lines += data.count(b"\n")
                end = data.endswith(b"END\r\n")
    finally:
        ended.set()
        pinging.join()
    assert lines == count + 2
    waits.sort()
    # There is one pause at the start, to list the keys (8 ms for a million on a quiet machine), and
    # no other.
    assert waits[-1] < 0.25
    assert waits[int(len(waits) * 0.95)] < 0.02


async def test_a_dump_of_a_bucket(start: Start) -> None:
    async with GcsEmulator(["bucket"]) as emulator:
        for options in ([], ["--near-cache", "1m"], ["--write-back"]):
            url = f"gs://bucket/p{''.join(options[:1])}?endpoint={emulator.url}"
            await asyncio.to_thread(_dump_bucket, start, url, options)


def _dump_bucket(start: Start, url: str, options: list[str]) -> None:
    server = start("--backend", url, *options)
    with server.connect() as wire:
        for number in range(30):
            assert wire.ask(b"set key%d 3 100 5\r\nvalue\r\n" % number) == b"STORED\r\n"
        wire.ask(b"set gone 0 -1 1\r\nx\r\n")
        lines = metadump(server, wire)
        assert len(lines) == 30
        line = rb"key=key\d+ exp=\d+ la=\d+ cas=\d+ fetch=\w+ cls=1 size=\d+ flags=3 \n"
        assert all(re.fullmatch(line, one) for one in lines)
        assert sorted(mgdump(server, wire)) == sorted(
            b"mg key%d\r\n" % number for number in range(30)
        )


@pytest.fixture(params=["memlite", "memlite-file"])
def filled(request: pytest.FixtureRequest, start: Start) -> Iterator[RunningServer]:
    server = start("-o", "track_sizes", kind=request.param)
    server.ask(b"".join(b"set key:%d 5 0 4\r\nv\xc3\xa9%d\r\n" % (n, n) for n in range(10)))
    yield server


@pytest.mark.skipif(
    not (TOOL.exists() and shutil.which("perl")), reason="memcached-tool or Perl is not installed"
)
def test_memcached_tool(filled: RunningServer) -> None:
    def run(*words: str) -> str:
        command = ["perl", str(TOOL), f"127.0.0.1:{filled.port}", *words]
        run = subprocess.run(command, capture_output=True, check=True, timeout=60)
        return run.stdout.decode("latin-1")

    dump = run("dump")
    assert dump.count("add key:") == 10
    assert "add key:7 5 0 4\r\nv\xc3\xa97\r\n" in dump
    assert len(run("keys").splitlines()) == 10
    assert run("keys").startswith("key=key%3A0 exp=-1 la=")
    # memcached-tool is older than the reply "OK" and takes it for an item.
    assert run("keys", "3").count("key=") == 2
    assert re.search(r"^ +1 +96B .* 10 +yes ", run("display"), re.MULTILINE)
    assert re.search(r"^ +96 +10\r?$", run("sizes"), re.MULTILINE)
    assert re.search(r"^ +curr_items +10\r?$", run("stats"), re.MULTILINE)
    assert re.search(r"^ +dump_enabled +yes\r?$", run("settings"), re.MULTILINE)
