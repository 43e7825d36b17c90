"""The stats groups, compared field by field with the real memcached's."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.servers import RunningServer, memcached_version, needs_memcached, running

Start = Callable[..., RunningServer]

# Fields that memcached shows if it was built with TLS, extstore or the proxy.
EXTRA = re.compile(
    r"ssl_|time_since_server_cert|ext_|extstore|slab_automove_freeratio|proxy_|badcrc|get_.*ext"
    r"|recache_|miss_from_ext|memory_file"
)


@needs_memcached
@pytest.mark.parametrize("options", [[], ["-o", "no_lru_crawler,no_lru_maintainer"],
                                     ["-o", "idle_timeout=100"]])  # fmt: skip
def test_same_fields_in_the_same_order(start: Start, options: list[str]) -> None:
    if memcached_version() < (1, 6, 45):
        # Some counters exist in only one of the two versions; all others are in the same order.
        changed = {
            "slab_reassign_evictions_nomem", "slab_reassign_busy_nomem",
            "slab_reassign_last_busy_status", "slab_reassign_chunk_rescues",
        }  # fmt: skip
    else:
        changed = set()
    names = []
    for kind in ("memlite", "memcached"):
        server = start(*options, kind=kind)
        names.append([name for name in server.stats() if name not in changed])
    names[0].remove("memlite_version")
    assert names[0] == [name for name in names[1] if not EXTRA.match(name)]


def test_there_are_84_fields_as_in_memcacheds_own_test(start: Start) -> None:
    server = start("-I", "1024", "-o", "slab_chunk_max=1,no_lru_crawler,no_lru_maintainer")
    assert len(server.stats().keys() - {"memlite_version"}) == 84


@needs_memcached
def test_same_settings(start: Start) -> None:
    options = ["-c", "77", "-m", "99", "-R", "7", "-b", "55", "-C", "-A", "-F", "-X", "-M",
               "-I", "2m", "-D", "/", "-o", "idle_timeout=33,track_sizes"]  # fmt: skip
    ours = start(*options).stats("settings")
    theirs = start(*options, kind="memcached").stats("settings")
    shared = [name for name in theirs if not EXTRA.match(name)]
    assert ours.pop("build") in ("pure", "interpreted", "compiled")  # memlite's own fields
    assert ours.pop("eviction_policy") == "s3fifo"  # memlite's own fields
    # Debian's memcached does not have client_flags_size yet.
    assert [name for name in ours if not EXTRA.match(name) and name != "client_flags_size"] == [
        name for name in shared if name in ours and name != "client_flags_size"
    ]
    for name in (
        "maxbytes", "maxconns", "udpport", "inter", "verbosity", "evictions", "domain_socket",
        "umask", "shutdown_command", "growth_factor", "chunk_size", "stat_key_prefix",
        "detail_enabled", "reqs_per_event", "cas_enabled", "tcp_backlog", "binding_protocol",
        "auth_enabled_sasl", "auth_enabled_ascii", "item_size_max", "maxconns_fast",
        "flush_enabled", "dump_enabled", "idle_timeout", "track_sizes",
    ):  # fmt: skip
        assert ours[name] == theirs[name], name
    assert ours["client_flags_size"] == "4"


def test_commands_are_counted_as_by_memcached(server: RunningServer) -> None:
    server.ask(b"flush_all\r\nstats reset\r\n")
    with server.connect() as wire:
        before = wire.stats()
        wire.send(
            b"set a 0 0 1\r\n1\r\nadd a 0 0 1\r\n1\r\nget a b a\r\ngets a\r\n"
            b"incr a 1\r\nincr b 1\r\ndecr a 1\r\ndecr b 1\r\n"
            b"touch a 0\r\ntouch b 0\r\ngat 0 a b\r\n"
            b"cas a 0 0 1 0\r\n1\r\ncas b 0 0 1 1\r\n1\r\n"
            b"delete a\r\ndelete a\r\n"
            b"set c 0 -1 1\r\n1\r\nget c\r\nset c 0 0 2000000\r\n" + b"x" * 2_000_000 + b"\r\n"
            b"set d 0 0 1\r\n1\r\n"
        )
        time.sleep(0.2)
        wire.send(b"get d\r\n")
        wire.until(b"STORED\r\nVALUE d 0 1\r\n1\r\nEND\r\n")
        after = wire.stats()
    delta = {name: int(after[name]) - int(before[name]) for name in (
        "cmd_get", "cmd_set", "cmd_touch", "get_hits", "get_misses", "get_expired",
        "delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses",
        "cas_hits", "cas_misses", "cas_badval", "touch_hits", "touch_misses", "store_too_large",
    )}  # fmt: skip
    assert delta == {
        "cmd_get": 6, "cmd_set": 6, "cmd_touch": 4, "get_hits": 4, "get_misses": 2,
        "get_expired": 1, "delete_hits": 1, "delete_misses": 1, "incr_hits": 1,
        "incr_misses": 1, "decr_hits": 1, "decr_misses": 1, "cas_hits": 0, "cas_misses": 1,
        "cas_badval": 1, "touch_hits": 2, "touch_misses": 2, "store_too_large": 1,
    }  # fmt: skip


def test_flushed_misses_and_reclaimed_items(memlite: RunningServer) -> None:
    with memlite.connect() as wire:
        before = wire.stats()
        wire.send(
            b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nset c 0 -1 1\r\n1\r\n"
            b"flush_all\r\nget a\r\nset b 0 0 1\r\n1\r\nset d 0 -1 1\r\n1\r\nset d 0 0 1\r\n1\r\n"
        )
        expected = b"STORED\r\n" * 3 + b"OK\r\nEND\r\n" + b"STORED\r\n" * 3
        assert wire.exactly(len(expected)) == expected
        after = wire.stats()
    # As in memcached, a set also counts the item that it finds.
    assert int(after["get_flushed"]) - int(before["get_flushed"]) == 2
    assert int(after["reclaimed"]) - int(before["reclaimed"]) == 2
    assert int(after["cmd_flush"]) - int(before["cmd_flush"]) == 1


@needs_memcached
def test_items_by_size_class(start: Start) -> None:
    request = b"".join(
        b"set key%d 0 0 %d\r\n%b\r\n" % (n, size, b"B" * size)
        for n, size in enumerate((1, 10, 100, 500, 1000, 10_000, 66_560, 400_000))
    )
    groups = []
    for kind in ("memlite", "memcached"):
        server = start(kind=kind)
        server.ask(request)
        items, slabs = server.stats("items"), server.stats("slabs")
        groups.append(
            {name: value for name, value in items.items()
             if name.endswith((":number", ":mem_requested", ":evicted", ":reclaimed"))}
            | {name: value for name, value in slabs.items()
               if name.endswith((":chunk_size", ":chunks_per_page", ":used_chunks"))}
        )  # fmt: skip
    assert groups[0] == groups[1]
    assert groups[0]["items:31:number"] == "1"


@needs_memcached
def test_sizes(start: Start) -> None:
    request = b"set a 0 0 10\r\n%b\r\nset b 0 0 10\r\n%b\r\nset c 0 0 300\r\n%b\r\n" % (
        b"x" * 10, b"x" * 10, b"x" * 300,
    )  # fmt: skip
    groups = []
    for kind in ("memlite", "memcached"):
        server = start("-o", "track_sizes", kind=kind)
        server.ask(request)
        groups.append(server.stats("sizes"))
    assert groups[0] == groups[1]


def test_evictions_show_in_their_class(start: Start) -> None:
    server = start("-m", "3")
    server.ask(
        b"".join(b"set key%d 0 %d 66560\r\n%b\r\n" % (n, n % 2 * 600, b"B" * 66_560)
                 for n in range(100))
    )  # fmt: skip
    items, general = server.stats("items"), server.stats()
    assert int(general["evictions"]) > 40
    assert items["items:31:evicted"] == general["evictions"] == general["evicted_unfetched"]
    assert 0 < int(items["items:31:evicted_nonzero"]) < int(items["items:31:evicted"])
    assert int(general["bytes"]) <= int(general["limit_maxbytes"]) == 3 * 1024 * 1024
    assert int(general["curr_items"]) == 100 - int(general["evictions"])
    server.ask(b"stats reset\r\n")
    assert server.stats("items")["items:31:evicted"] == "0"
    assert server.stats()["evictions"] == "0"


def test_dumping_can_be_disabled(server: RunningServer, start: Start) -> None:
    closed = start("-X", kind=server.kind)
    if server.kind != "memcached" or memcached_version() >= (1, 6, 45):
        assert closed.ask(b"stats detail on\r\n") == b"CLIENT_ERROR stats detail not allowed\r\n"
    assert closed.ask(b"stats cachedump 1 1\r\n") == b"CLIENT_ERROR stats cachedump not allowed\r\n"
    closed = start("-F", kind=server.kind)
    assert closed.ask(b"flush_all\r\n") == b"CLIENT_ERROR flush_all not allowed\r\n"


def test_latency(start: Start) -> None:
    server = start()
    with server.connect() as wire:
        interval = int(wire.stats("latency")["sample_interval"])
        requests = 100 * interval
        for number in range(requests):
            wire.ask(b"set a 0 0 1\r\n1\r\n" if number % 2 else b"get nothing\r\n")
        stats = wire.stats("latency")
    measured = sum(int(stats[f"{name}:samples"]) for name in ("get", "store", "other"))
    # Which reads are sampled is random; the tolerance is six standard deviations.
    assert 65 <= measured <= 135
    some = next(name for name in ("get", "store") if int(stats[f"{name}:samples"]))
    values = [float(stats[f"{some}:{part}_us"]) for part in ("p50", "p90", "p99", "p999", "max")]
    assert 0 < values[0] <= values[1] <= values[2] <= values[3] <= values[4]


def test_bytes_and_connections(memlite: RunningServer) -> None:
    with memlite.connect() as wire:
        before = wire.stats()
        wire.ask(b"get nothing\r\n")
        after = wire.stats()
        assert int(after["bytes_read"]) - int(before["bytes_read"]) == len(
            b"get nothing\r\nstats\r\n"
        )
        assert int(after["bytes_written"]) > int(before["bytes_written"]) + 5
        with memlite.connect() as other:
            other.ask(b"get nothing\r\n")
            later = wire.stats()
        assert int(later["total_connections"]) == int(before["total_connections"]) + 1
        assert int(later["curr_connections"]) == int(before["curr_connections"]) + 1


@pytest.fixture(scope="module")
def many_items() -> Iterator[RunningServer]:
    """A server with 100,000 items."""
    with running("memlite", "-m", "512", "-o", "track_sizes") as server:
        with server.connect() as wire:
            for begin in range(0, 100_000, 1000):
                keys = range(begin, begin + 1000)
                sets = (b"set key%d 0 0 10 noreply\r\n0123456789\r\n" % key for key in keys)
                wire.send(b"".join(sets))
            assert wire.ask(b"mn\r\n") == b"MN\r\n"
        yield server


@pytest.mark.parametrize("command", [b"stats items", b"stats slabs", b"stats sizes",
                                     b"stats cachedump 1 0"])  # fmt: skip
def test_others_are_served_while_all_items_are_scanned(
    many_items: RunningServer, command: bytes
) -> None:
    def hit(key: bytes) -> bytes:
        return b"VALUE %b 0 10\r\n0123456789\r\nEND\r\n" % key

    with many_items.connect() as busy, many_items.connect() as other:

        def served() -> bool:
            other.send(b"get key0\r\n")
            return other.exactly(len(hit(b"key0"))) == hit(b"key0")

        # Commands sent before the scan are answered before it, and commands sent after it, after
        # it.
        busy.send(b"get key1\r\n" + command + b"\r\nget key2\r\n")
        assert busy.exactly(len(hit(b"key1"))) == hit(b"key1")
        busy.sock.setblocking(False)
        answer, gets = b"", 0
        while not answer.endswith(b"\r\nEND\r\n" + hit(b"key2")):
            assert served()
            gets += 1
            with contextlib.suppress(BlockingIOError):
                answer += busy.sock.recv(1 << 20)
        assert gets > 20
        if command == b"stats items":
            assert b":number 100000\r\n" in answer
