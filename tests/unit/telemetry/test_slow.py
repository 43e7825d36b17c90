"""The slow log: the last slow commands, in bounded memory."""

from memlite.telemetry import memcached_stats
from memlite.telemetry.slow import MAX_COMMANDS, MAX_KEY_LENGTH, SlowCommand, SlowLog, SlowStats

CLIENT = "tcp:127.0.0.1:50000"


class Clock:
    def now(self) -> float:
        return 1_800_000_000.1234


def log() -> SlowLog:
    return SlowLog(10_000_000, Clock())  # type: ignore[arg-type]


def test_the_last_commands_are_kept_and_all_are_counted() -> None:
    one = log()
    for number in range(MAX_COMMANDS + 5):
        one.record("get", [b"k%d" % number], 10_000_000 + number, CLIENT)
    stats = one.stats()
    assert stats.threshold == 10_000_000
    assert stats.count == MAX_COMMANDS + 5
    assert len(stats.commands) == MAX_COMMANDS
    assert stats.commands[0] == SlowCommand(
        1_800_000_000.1234, 10_000_132, "get", 1, b"k132", False, CLIENT
    )
    assert stats.commands[-1].key == b"k5"
    one.clear()
    assert one.stats() == SlowStats(10_000_000, 0, ())


def test_long_keys_are_cut() -> None:
    one = log()
    for size in (MAX_KEY_LENGTH, MAX_KEY_LENGTH + 1):
        one.record("delete", [b"x" * size], 1, CLIENT)
    cut, whole = one.stats().commands
    assert (whole.key, whole.cut) == (b"x" * MAX_KEY_LENGTH, False)
    assert (cut.key, cut.cut) == (b"x" * MAX_KEY_LENGTH, True)


def test_a_watcher_is_given_each_command() -> None:
    one, seen = log(), []
    one.record("get", [b"a"], 1, CLIENT)
    one.watcher = seen.append
    one.record("get", [b"b", b"c"], 1, CLIENT)
    one.watcher = None
    one.record("get", [b"d"], 1, CLIENT)
    assert [(found.key, found.keys) for found in seen] == [(b"b", 2)]


def test_stats() -> None:
    one = log()
    one.record("flush_all", [], 2_000_000_000, CLIENT)
    one.record("get", [b"a b", b"c"], 10_000_400, CLIENT)
    one.record("set", [b"x" * 200], 12_345_678, CLIENT)
    shown = dict(memcached_stats.slow(one.stats(), shows_keys=True))
    assert shown == {
        "slow:threshold_us": "10000.0",
        "slow:count": 3,
        "slow:1:time": "1800000000.123",
        "slow:1:elapsed_us": "12345.7",
        "slow:1:command": "set",
        "slow:1:keys": 1,
        "slow:1:key": "x" * MAX_KEY_LENGTH + "...",
        "slow:1:client": CLIENT,
        "slow:2:time": "1800000000.123",
        "slow:2:elapsed_us": "10000.4",
        "slow:2:command": "get",
        "slow:2:keys": 2,
        "slow:2:key": "a%20b",
        "slow:2:client": CLIENT,
        "slow:3:time": "1800000000.123",
        "slow:3:elapsed_us": "2000000.0",
        "slow:3:command": "flush_all",
        "slow:3:keys": 0,
        "slow:3:client": CLIENT,
    }
    hidden = dict(memcached_stats.slow(one.stats(), shows_keys=False))
    assert shown.keys() - hidden.keys() == {"slow:1:key", "slow:2:key"}
