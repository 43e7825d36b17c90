"""Several workers behind one port act as one server (``-t``), whichever worker a client talks to.

Commands are sent to one worker, and their effects are checked at the others.
"""

import contextlib
import re
from collections.abc import Iterator

import pytest

from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WORKERS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(
        "memlite", "-t", str(WORKERS), "-m", "64", "-c", "50", "--debug-commands"
    ) as server:
        yield server


@pytest.fixture
def wires(server: RunningServer) -> Iterator[list[Wire]]:
    """Connections to each worker, in the order of their numbers."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Wire] = {}
        while len(found) < WORKERS:
            wire = stack.enter_context(server.connect())
            found.setdefault(wire.stats("workers")["answering"], wire)
        wires = [found[str(number)] for number in range(WORKERS)]
        assert wires[0].ask(b"flush_all\r\n") == b"OK\r\n"
        assert wires[0].ask(b"stats detail off\r\n") == b"OK\r\n"  # tests may run in any order
        wires[0].ask(b"lru_crawler enable\r\n")  # an error if it is enabled already
        assert wires[0].ask(b"stats reset\r\n") == b"RESET\r\n"
        yield wires


def get(wire: Wire, key: bytes) -> bytes:
    wire.send(b"get %b\r\n" % key)
    return wire.until(b"END\r\n")


SEEN = {
    "verbosity 2": ("verbosity 0", "settings", "verbosity", "2"),
    "verbosity 0": ("verbosity 2", "settings", "verbosity", "0"),
    "lru_crawler disable": ("lru_crawler tocrawl 0", "settings", "lru_crawler", "no"),
    "lru_crawler enable": ("lru_crawler disable", "settings", "lru_crawler", "yes"),
    "stats detail on": ("stats detail off", "settings", "detail_enabled", "yes"),
    "stats detail off": ("stats detail on", "settings", "detail_enabled", "no"),
}
"""Commands, one that comes before, and a statistic that shows their effect."""


@pytest.mark.parametrize("command", SEEN)
def test_a_command_to_one_worker_is_seen_at_all_of_them(wires: list[Wire], command: str) -> None:
    before, group, name, value = SEEN[command]
    assert wires[2].ask(before.encode() + b"\r\n") == b"OK\r\n"
    assert wires[1].ask(command.encode() + b"\r\n") == b"OK\r\n"
    assert [wire.stats(group)[name] for wire in wires] == [value] * WORKERS


def test_every_worker_reports_the_counts_of_the_server(wires: list[Wire]) -> None:
    for number, wire in enumerate(wires):
        assert wire.ask(b"set k%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
    for wire in wires:
        assert get(wire, b"k0") != get(wire, b"absent")
        assert wire.ask(b"incr k0 1\r\n").startswith(b"CLIENT_ERROR")
        assert wire.ask(b"delete absent\r\n") == b"NOT_FOUND\r\n"
    wanted = {
        "cmd_set": 3,
        "cmd_get": 6,
        "get_hits": 3,
        "get_misses": 3,
        "delete_misses": 3,
        "curr_items": 3,
        "total_items": 3,
        "threads": WORKERS,
    }
    for wire in wires:
        stats = wire.stats()
        assert {name: int(stats[name]) for name in wanted} == wanted
    assert wires[2].ask(b"stats reset\r\n") == b"RESET\r\n"
    for wire in wires:
        stats = wire.stats()
        assert (stats["cmd_set"], stats["cmd_get"], stats["curr_items"]) == ("0", "0", "3")


def test_expired_and_flushed_items_are_counted_when_they_are_found(wires: list[Wire]) -> None:
    first, second, third = wires
    for key in (b"a", b"b", b"c", b"d", b"e", b"f"):
        assert first.ask(b"set %b 0 %d 1\r\nx\r\n" % (key, 10 if key < b"d" else 0)) == (
            b"STORED\r\n"
        )
    assert second.ask(b"debugtime 20\r\n") == b"OK\r\n"
    assert get(third, b"a") == b"END\r\n"
    assert first.ask(b"set b 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert second.ask(b"delete c\r\n") == b"NOT_FOUND\r\n"
    assert int(third.stats()["get_expired"]) == 3
    assert first.ask(b"flush_all\r\n") == b"OK\r\n"
    assert get(third, b"d") == b"END\r\n"
    assert second.ask(b"set e 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert third.ask(b"delete f\r\n") == b"NOT_FOUND\r\n"
    stats = first.stats()
    assert (stats["get_flushed"], stats["reclaimed"]) == ("3", "2")
    assert second.ask(b"debugtime -20\r\n") == b"OK\r\n"


def test_a_delayed_flush_happens_once_and_for_all(wires: list[Wire]) -> None:
    first, second, third = wires
    assert first.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert second.ask(b"flush_all 100\r\n") == b"OK\r\n"
    oldest = {wire.stats("settings")["oldest"] for wire in wires}
    assert len(oldest) == 1
    assert oldest != {"0"}
    for wire in wires:
        assert get(wire, b"a") != b"END\r\n"
    assert third.ask(b"debugtime 101\r\n") == b"OK\r\n"
    assert get(first, b"a") == b"END\r\n"
    assert second.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    for wire in wires:
        assert get(wire, b"a") != b"END\r\n"
        assert wire.stats("settings")["oldest"] == "0"
    assert third.ask(b"debugtime -101\r\n") == b"OK\r\n"


def test_the_memory_limit_cannot_be_changed_and_says_so(wires: list[Wire]) -> None:
    assert wires[0].ask(b"cache_memlimit 100\r\n").startswith(b"MEMLIMIT_ADJUST_FAILED")
    assert wires[1].stats()["limit_maxbytes"] == str(64 * 1024 * 1024)


def test_a_watcher_is_sent_the_events_of_all_workers(wires: list[Wire]) -> None:
    watcher, second, third = wires
    assert watcher.ask(b"watch mutations deletions\r\n") == b"OK\r\n"
    assert second.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    line = watcher.line()
    assert b"type=item_store key=a status=stored" in line
    assert third.ask(b"delete a\r\n") == b"DELETED\r\n"
    other = watcher.line()
    assert b"type=deleted key=a" in other
    assert line.split()[1] != other.split()[1], "numbers of events are unique"
    stats = third.stats()
    assert (stats["log_watchers"], stats["log_watcher_sent"]) == ("1", "2")
    watcher.sock.close()
    assert wait_until(lambda: second.stats()["log_watchers"] == "0")


EVICTED = re.compile(
    rb"ts=[0-9.]+ gid=(\d+) type=eviction key=k(\d+) fetch=no ttl=(\d+|-1) la=\d+ clsid=35 "
    rb"size=200000\n"
)


def test_a_watcher_is_sent_evictions_by_any_worker(wires: list[Wire]) -> None:
    watcher, others = wires[0], wires[1:]
    assert watcher.ask(b"watch evictions\r\n") == b"OK\r\n"
    value, count = b"x" * 200_000, 600
    for number in range(count):
        # Some have an expiry.
        request = b"set k%d 0 %d 200000\r\n%b\r\n" % (number, number % 2 * 1000, value)
        assert others[number // 100 % 2].ask(request) == b"STORED\r\n"
    evicted = int(others[0].stats()["evictions"])
    assert evicted > 100
    found = [EVICTED.fullmatch(watcher.line()) for _ in range(evicted)]
    lines = [one.groups() for one in found if one]
    assert len(lines) == evicted
    assert len({gid for gid, _, _ in lines}) == evicted
    keys = {int(key) for _, key, _ in lines}
    assert keys == {one for one in range(count) if get(others[0], b"k%d" % one) == b"END\r\n"}
    for _, key, ttl in lines:
        assert 900 < int(ttl) <= 1000 if int(key) % 2 else ttl == b"-1"


def test_many_lines_reach_a_watcher_of_another_worker(wires: list[Wire]) -> None:
    watcher, second, third = wires
    assert watcher.ask(b"watch mutations deletions\r\n") == b"OK\r\n"
    count = 1000
    for wire in (second, third):
        wire.send(b"".join(b"set k%d 0 0 1 noreply\r\nx\r\n" % one for one in range(count)))
        assert wire.ask(b"mn\r\n") == b"MN\r\n"
    numbers = [int(watcher.line().split()[1][4:]) for _ in range(2 * count)]
    assert len(set(numbers)) == 2 * count
    stats = second.stats()
    assert int(stats["log_watcher_sent"]) == 2 * count
    assert stats["log_watcher_skipped"] == "0"


def test_keys_and_prefixes_are_counted_over_all_workers(wires: list[Wire]) -> None:
    assert wires[0].ask(b"set hot:1 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert wires[0].ask(b"stats detail on\r\n") == b"OK\r\n"
    count = 700
    for wire in wires:
        wire.send(b"mg hot:1\r\n" * count + b"mn\r\n")
        assert wire.until(b"MN\r\n").count(b"HD\r\n") == count
    for wire in wires:
        wire.send(b"stats detail dump\r\n")
        counts = b"PREFIX hot get %d hit %d set 0 del 0\r\nEND\r\n" % ((WORKERS * count,) * 2)
        assert wire.until(b"END\r\n") == counts
    assert wires[1].ask(b"stats detail off\r\n") == b"OK\r\n"


def test_hot_keys_are_those_of_all_workers(wires: list[Wire]) -> None:
    assert wires[0].ask(b"set hot 0 0 1\r\nx\r\n") == b"STORED\r\n"
    # Of so many reads, each worker samples at least one, which counts for 256.
    for wire in wires:
        for _ in range(512):
            get(wire, b"hot")
    for wire in wires:
        stats = wire.stats("hotkeys")
        assert stats["hotkeys:1:key"] == "hot"
        assert int(stats["hotkeys:1:requests"]) > 2.5 * 256


def test_sockets_are_those_of_all_workers(wires: list[Wire]) -> None:
    for wire in wires:
        conns = wire.stats("conns")
        own = {wire.sock.getsockname()[1] for wire in wires}
        shown = {int(name.rpartition(":")[2]) for key, name in conns.items() if ":addr" in key}
        assert own <= shown
        assert sum(":listen_addr" in key for key in conns) == int(wire.stats()["curr_connections"])


def test_a_dump_has_the_items_of_all(wires: list[Wire]) -> None:
    for number, wire in enumerate(wires):
        assert wire.ask(b"set k%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
    wires[1].send(b"lru_crawler metadump all\r\n")
    dump = wires[1].until(b"END\r\n")
    assert sorted(line.split()[0] for line in dump.splitlines()[:-1] if line != b"OK") == [
        b"key=k0", b"key=k1", b"key=k2"
    ]  # fmt: skip


def test_one_dump_is_sent_at_a_time(server: RunningServer, wires: list[Wire]) -> None:
    value = b"x" * 200
    for number in range(0, 20_000, 1000):
        wires[0].send(b"".join(
            b"set key-%d-%b 0 0 200 noreply\r\n%b\r\n" % (one, b"k" * 200, value)
            for one in range(number, number + 1000)
        ))  # fmt: skip
    assert wires[0].ask(b"mn\r\n") == b"MN\r\n"
    with server.connect() as slow:
        slow.send(b"lru_crawler metadump all\r\n")
        assert slow.line() == b"OK\r\n"
        # The client stops reading, and there is more than the sockets hold.
        for wire in wires:
            assert wire.ask(b"lru_crawler mgdump all\r\n").startswith(b"BUSY ")
            assert wire.stats()["lru_crawler_running"] == "1"
    assert wait_until(lambda: wires[0].stats()["lru_crawler_running"] == "0")
    wires[1].send(b"lru_crawler metadump all\r\n")
    assert wires[1].until(b"END\r\n").count(b"key=") > 10_000


def test_connections_have_one_limit(server: RunningServer, wires: list[Wire]) -> None:
    open_now = int(wires[0].stats()["curr_connections"])
    with contextlib.ExitStack() as stack:
        more = [stack.enter_context(server.connect()) for _ in range(50 - open_now)]
        for wire in more:
            assert wire.ask(b"mn\r\n") == b"MN\r\n"
        with server.connect() as refused:
            assert refused.line() == b"ERROR Too many open connections\r\n"
        assert wires[1].stats()["rejected_connections"] == "1"
    assert wait_until(lambda: wires[2].stats()["curr_connections"] == str(open_now))
    with server.connect() as wire:
        assert wire.ask(b"mn\r\n") == b"MN\r\n"


@pytest.mark.parametrize("command", [b"mg k T-1 v", b"mg k T-1 s k", b"gat -1 k", b"touch k -1"])
def test_items_that_expire_when_read_count_as_read(wires: list[Wire], command: bytes) -> None:
    wires[0].ask(b"set k 0 0 1\r\nx\r\n")
    wires[1].send(command + b"\r\nmn\r\n")
    assert not wires[1].until(b"MN\r\n").startswith(b"EN")
    assert get(wires[2], b"k") == b"END\r\n"
    stats = wires[0].stats()
    assert (stats["touch_hits"], stats["get_expired"]) == ("1", "1")
    assert stats["expired_unfetched"] == "0"


def test_a_large_value_is_replaced(wires: list[Wire]) -> None:
    value = b"x" * 700_000
    for word in (b"set", b"replace", b"replace"):  # old and new together exceed a segment
        assert wires[0].ask(b"%b large 0 0 700000\r\n%b\r\n" % (word, value)) == b"STORED\r\n"
    assert wires[1].ask(b"ms large 700000 T0\r\n%b\r\n" % value) == b"HD\r\n"


def test_winning_the_right_to_recache_keeps_the_cas_unique(wires: list[Wire]) -> None:
    wires[0].ask(b"set k 0 20 1\r\na\r\n")
    unique = wires[1].ask(b"mg k c\r\n").split()[1][1:]
    assert wires[1].ask(b"mg k c R30\r\n") == b"HD c%b W\r\n" % unique
    assert wires[2].ask(b"cas k 0 0 1 %b\r\nb\r\n" % unique) == b"STORED\r\n"


def test_a_number_that_was_read_counts_as_read_when_it_changes(wires: list[Wire]) -> None:
    wires[0].ask(b"set n 0 0 2\r\n10\r\n")
    get(wires[1], b"n")
    assert wires[2].ask(b"incr n 1\r\n") == b"11\r\n"
    assert wires[0].ask(b"mg n h\r\n") == b"HD h1\r\n"


def test_gets_are_counted_by_prefix(wires: list[Wire]) -> None:
    wires[0].ask(b"set p:k 0 0 1\r\nx\r\n")
    get(wires[0], b"p:k")
    wires[1].ask(b"stats detail on\r\n")
    get(wires[0], b"p:k")
    wires[2].send(b"stats detail dump\r\n")
    assert wires[2].until(b"END\r\n").startswith(b"PREFIX p get 1 hit 1 ")
    wires[1].ask(b"stats detail off\r\n")


def test_the_bytes_of_items_are_counted(wires: list[Wire]) -> None:
    wires[0].ask(b"set k 0 0 1000\r\n%b\r\n" % (b"x" * 1000))
    assert int(wires[1].stats()["bytes"]) > 1000
