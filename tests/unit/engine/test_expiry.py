"""Expiry, flushes, and how the engine reclaims the memory of expired and flushed items."""

import pytest

from memlite.engine import Mode, Outcome
from tests.unit.engine.fixture import DAY, START

# Time


@pytest.mark.parametrize("exptime", [1, 10, 30 * DAY, int(START) + 5])
def test_an_item_lives_until_it_expires(one, exptime):
    lives = exptime - START if exptime > START else exptime
    one.set(b"a", exptime=exptime)
    one.wait(lives - 0.01)
    assert one.engine.fetch(b"a") is not None
    one.wait(0.02)
    assert one.engine.fetch(b"a") is None


@pytest.mark.parametrize("exptime", [-1, 30 * DAY + 1, int(START) - 1])
def test_an_item_that_has_expired_already_is_absent(one, exptime):
    one.set(b"a", exptime=exptime)
    assert one.engine.fetch(b"a") is None
    assert one.counted("cmd_set", "total_items", "get_expired") == (1, 1, 1)


def test_an_item_without_exptime_stays(one):
    one.set(b"a")
    one.wait(100 * 365 * DAY)
    assert one.engine.fetch(b"a") is not None


@pytest.mark.parametrize(
    ("command", "result"),
    [
        (lambda engine: engine.delete(b"a"), False),
        (lambda engine: engine.touch(b"a", 0), False),
        (lambda engine: engine.fetch_and_touch(b"a", 0), None),
        (lambda engine: engine.incr(b"a", 1), Outcome.NOT_FOUND),
        (lambda engine: engine.decr(b"a", 1), Outcome.NOT_FOUND),
        (lambda engine: engine.add(b"a", 0, 0, b"new"), Outcome.STORED),
        (lambda engine: engine.replace(b"a", 0, 0, b"new"), Outcome.NOT_STORED),
        (lambda engine: engine.append(b"a", 0, 0, b"new"), Outcome.NOT_STORED),
        (lambda engine: engine.prepend(b"a", 0, 0, b"new"), Outcome.NOT_STORED),
        (lambda engine: engine.cas(b"a", 0, 0, b"new", 1), Outcome.NOT_FOUND),
    ],
    ids=["delete", "touch", "gat", "incr", "decr", "add", "replace", "append", "prepend", "cas"],
)
@pytest.mark.parametrize("gone", ["expired", "flushed"])
def test_commands_do_not_find_expired_or_flushed_items(one, command, result, gone):
    one.set(b"a", b"1", exptime=10)
    if gone == "expired":
        one.wait(10)
    else:
        one.engine.flush_all(0)
    assert command(one.engine) is result
    assert one.value(b"a") == (b"new" if result is Outcome.STORED else None)


def test_an_expired_miss_is_counted_once_as_expired(one):
    one.set(b"a", exptime=10)
    one.set(b"b", exptime=10)
    one.engine.fetch(b"b")
    one.wait(10)
    for _ in range(2):
        assert one.engine.fetch(b"a") is None
        assert one.engine.fetch(b"b") is None
    assert one.counted("get_hits", "get_misses", "get_expired") == (1, 4, 2)
    assert one.counters.expired_unfetched == 1
    assert len(one.engine.table) == 0


def test_touch(one):
    one.set(b"a", exptime=10)
    assert one.engine.touch(b"a", 100) is True
    assert one.engine.touch(b"b", 100) is False
    one.wait(99)
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert one.value(b"a") is None
    assert one.counted("cmd_touch", "touch_hits", "touch_misses") == (2, 1, 1)
    assert one.counted("cmd_get", "cmd_set") == (0, 1)


def test_touch_with_zero_never_expires_and_negative_expires_at_once(one):
    one.set(b"a", exptime=10)
    one.engine.touch(b"a", 0)
    one.wait(1000)
    assert one.value(b"a") == b"value"
    one.engine.touch(b"a", -1)
    assert one.value(b"a") is None


def test_fetch_and_touch(one):
    one.set(b"a", exptime=10)
    assert one.engine.fetch_and_touch(b"a", 100).value == b"value"
    assert one.engine.fetch_and_touch(b"b", 100) is None
    one.wait(99)
    assert one.value(b"a") == b"value"
    # As memcached does, gat counts as touch, not as get.
    assert one.counted("cmd_touch", "touch_hits", "touch_misses", "cmd_get") == (2, 1, 1, 0)


# Flushing


def test_flush_now(one):
    one.set(b"a")
    one.engine.flush_all(0)
    assert one.engine.fetch(b"a") is None
    assert one.engine.fetch(b"a") is None
    assert len(one.engine.table) == 0
    assert one.counted("get_misses", "get_flushed") == (2, 1)


@pytest.mark.parametrize("exptime", [0, -1])
def test_an_item_set_right_after_a_flush_is_visible(one, exptime):
    one.set(b"a", b"old")
    one.engine.flush_all(exptime)
    one.set(b"a", b"new")
    one.set(b"b", b"new")
    assert (one.value(b"a"), one.value(b"b")) == (b"new", b"new")
    one.wait(5)
    assert (one.value(b"a"), one.value(b"b")) == (b"new", b"new")


def test_delayed_flush(one):
    one.set(b"a")
    one.engine.flush_all(10)
    assert one.engine.flush_pending == START + 10
    one.wait(9)
    one.set(b"b")
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert (one.value(b"a"), one.value(b"b")) == (None, None)
    assert one.engine.flush_pending == 0
    one.set(b"a")
    one.wait(100)
    assert one.value(b"a") == b"value"


@pytest.mark.parametrize(
    "command",
    [
        lambda one: one.engine.try_get(b"get a\r\n"),
        lambda one: one.engine.fetch(b"a"),
        lambda one: one.engine.collect([b"a", b"b"], []),
        lambda one: one.engine.delete(b"a") or None,
        lambda one: one.engine.touch(b"a", 0) or None,
    ],
    ids=["hit", "get", "get of two", "delete", "touch"],
)
def test_a_command_at_the_time_of_a_delayed_flush_finds_nothing(one, command):
    one.set(b"a")
    one.engine.flush_all(2)
    one.monotonic += 1.999
    assert one.engine.try_get(b"get a\r\n")
    one.monotonic += 0.0011  # without a tick
    assert command(one) is None
    assert one.engine.flush_pending == 0
    one.set(b"a")
    assert one.engine.try_get(b"get a\r\n")


def test_a_set_at_the_time_of_a_delayed_flush_is_not_flushed(one):
    one.set(b"a")
    one.set(b"b")
    one.engine.flush_all(2)
    one.monotonic += 2
    one.set(b"a")
    assert (one.value(b"a"), one.value(b"b")) == (b"value", None)


def test_delayed_flush_at_a_unix_time(one):
    one.set(b"a")
    one.engine.flush_all(int(START) + 100)
    one.wait(99)
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert one.value(b"a") is None


def test_delayed_flush_at_a_past_time_is_immediate(one):
    one.set(b"a")
    one.engine.flush_all(int(START) - 100)
    assert one.value(b"a") is None
    assert one.engine.flush_pending == 0


@pytest.mark.parametrize(("second", "flushed_after"), [(20, 20), (5, 5)])
def test_a_later_delayed_flush_replaces_the_pending_one(one, second, flushed_after):
    one.set(b"a")
    one.engine.flush_all(10)
    one.engine.flush_all(second)
    one.wait(flushed_after - 1)
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert one.value(b"a") is None
    one.set(b"a")
    one.wait(30)
    assert one.value(b"a") == b"value"


def test_an_immediate_flush_cancels_the_pending_one(one):
    one.engine.flush_all(10)
    one.engine.flush_all(0)
    one.set(b"a")
    one.wait(20)
    assert one.value(b"a") == b"value"


def test_flushed_items_are_freed_by_sweeping_a_few_at_a_time(one):
    for number in range(5):
        one.set(b"%d" % number)
    one.engine.flush_all(0)
    assert one.engine.sweep(3)
    assert one.engine.sweep(3)
    assert not one.engine.sweep(3)
    assert one.engine.table.reclaim(1) == 0


# Reclaiming


def test_storing_over_an_expired_item_reclaims(one):
    one.set(b"unfetched", exptime=10)
    one.set(b"fetched", exptime=10)
    one.engine.fetch(b"fetched")
    one.wait(10)
    one.set(b"unfetched")
    assert one.counted("reclaimed", "expired_unfetched") == (1, 1)
    one.engine.add(b"fetched", 0, 0, b"x")
    assert one.counted("reclaimed", "expired_unfetched") == (2, 1)
    assert one.engine.sizes.evictions[1].reclaimed == 2
    one.set(b"fetched")
    assert one.counters.reclaimed == 2


def test_storing_over_a_flushed_item_reclaims(one):
    for key in (b"a", b"b", b"c"):
        one.set(key)
    one.engine.flush_all(0)
    one.set(b"a")
    assert one.counters.reclaimed == 1
    one.set(b"a")
    assert one.counters.reclaimed == 1


def sweep(one):
    while one.engine.sweep(3):
        pass


def test_crawl_removes_expired_items(one):
    one.set(b"keeps")
    one.set(b"later", exptime=100)
    one.set(b"unfetched", exptime=10)
    one.set(b"fetched", exptime=10)
    one.engine.fetch(b"fetched")
    one.wait(10)
    one.engine.crawl()
    sweep(one)
    assert [key for key, _ in one.engine.table.scan()] == [b"keeps", b"later"]
    assert one.counted(
        "lru_crawler_starts", "crawler_items_checked", "crawler_reclaimed", "expired_unfetched"
    ) == (1, 4, 2, 1)
    one.engine.crawl()
    sweep(one)
    assert one.counted("lru_crawler_starts", "crawler_items_checked", "crawler_reclaimed") == (
        2, 6, 2,
    )  # fmt: skip


def test_crawling_takes_small_steps(one):
    for number in range(10):
        one.set(b"%d" % number, exptime=5)
    one.wait(5)
    one.engine.crawl()
    assert one.engine.sweep(4)
    assert one.counters.crawler_items_checked == 4
    assert len(one.engine.table) == 6
    assert one.engine.crawling
    one.engine.crawl()  # continues, and does not start over
    sweep(one)
    assert one.counted("lru_crawler_starts", "crawler_items_checked") == (1, 10)
    assert not one.engine.crawling


def test_automatic_crawls_become_rarer_when_they_find_nothing(one):
    starts = []
    one.set(b"a", exptime=100)
    for second in range(1, 2000):
        one.wait(1)
        if one.engine.crawling:
            starts.append(second)
        sweep(one)
    # The first crawl found something, the fourth nothing.
    assert starts == [60, 180, 240, 360, 600, 1080, 1980]
    assert one.counters.crawler_reclaimed == 1
    one.engine.crawls = False
    for _ in range(2000):
        one.wait(1)
    assert not one.engine.crawling


@pytest.mark.parametrize(
    "command",
    [
        lambda engine: engine.set(b"a", 0, 0, b"new"),
        lambda engine: engine.set_framed(b"a", 0, b"VALUE a 0 1\r\nx\r\nEND\r\n"),
        lambda engine: engine.add(b"a", 0, 0, b"new"),
        lambda engine: engine.replace(b"a", 0, 0, b"new"),
        lambda engine: engine.append(b"a", 0, 0, b"new"),
        lambda engine: engine.cas(b"a", 0, 0, b"new", 1),
        lambda engine: engine.store(Mode.SET, b"a", 0, 0, b"new"),
        lambda engine: engine.store(Mode.REPLACE, b"a", 0, 0, b"new"),
        lambda engine: engine.refuse_large(b"a", removes=True),
        lambda engine: engine.look_up(b"a"),
    ],
    ids=["set", "framed", "add", "replace", "append", "cas", "ms", "ms MR", "too large", "me"],
)
@pytest.mark.parametrize("gone", ["expired", "flushed"])
def test_commands_count_expired_or_flushed_items_once(one, command, gone):
    one.set(b"a", b"1", exptime=10)
    if gone == "expired":
        one.wait(10)
    else:
        one.engine.flush_all(0)
    for _ in range(2):
        command(one.engine)
    counted = (1, 0) if gone == "expired" else (0, 1)
    assert one.counted("get_expired", "get_flushed") == counted
