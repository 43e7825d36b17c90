"""The rules of each command as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.backends.conversion import item_of
from memlite.backends.record import Record
from memlite.core.meta_flags import MetaFlags
from memlite.engine import semantics
from memlite.engine.semantics import Content, Mode, Outcome
from memlite.memory import FullItem

NOW = 1_800_000_000.5
NEW = Content(b"new", 7, 99.0)
DAY = 86400


def item(value=b"old", flags=3, expires=50.0, version=11):
    return item_of(Record(b"k", value, flags, expires, version), FullItem)


# Expiry


@pytest.mark.parametrize(
    ("exptime", "expires"),
    [
        (0, 0),
        (1, NOW + 1),
        (30 * DAY, NOW + 30 * DAY),
        (30 * DAY + 1, 30 * DAY + 1),  # a unix time, and one long ago
        (1_900_000_000, 1_900_000_000),
        (2**32, 2**32),
    ],
)
def test_expiry(exptime, expires):
    assert semantics.expiry(exptime, NOW) == expires


@pytest.mark.parametrize("exptime", [-1, -100, -(2**31)])
def test_a_negative_exptime_means_expired_rather_than_never(exptime):
    assert 0 < semantics.expiry(exptime, NOW) < NOW


@given(st.integers(-(2**31), 2**31 - 1).filter(bool), st.floats(1, 2**40))
def test_only_zero_means_never(exptime, now):
    assert semantics.expiry(exptime, now) > 0


# Storing


@pytest.mark.parametrize(
    ("decide", "when_absent", "when_present"),
    [
        (semantics.add, (Outcome.STORED, NEW), (Outcome.NOT_STORED, None)),
        (semantics.replace, (Outcome.NOT_STORED, None), (Outcome.STORED, NEW)),
        (
            semantics.append,
            (Outcome.NOT_STORED, None),
            (Outcome.STORED, Content(b"oldnew", 3, 50.0)),
        ),
        (
            semantics.prepend,
            (Outcome.NOT_STORED, None),
            (Outcome.STORED, Content(b"newold", 3, 50.0)),
        ),
    ],
)
def test_stores(decide, when_absent, when_present):
    assert decide(None, NEW) == when_absent
    assert decide(item(), NEW) == when_present


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_joined_values_may_be_any_bytes(old, new):
    content = Content(new, 0, 0.0)
    assert semantics.append(item(old), content)[1].value == old + new
    assert semantics.prepend(item(old), content)[1].value == new + old


@pytest.mark.parametrize(
    ("current", "unique", "decision"),
    [
        (None, 11, (Outcome.NOT_FOUND, None)),
        (None, 0, (Outcome.NOT_FOUND, None)),
        (item(), 11, (Outcome.STORED, NEW)),
        (item(), 10, (Outcome.EXISTS, None)),
        (item(), 0, (Outcome.EXISTS, None)),
        (item(), 2**64 - 1, (Outcome.EXISTS, None)),
    ],
)
def test_cas(current, unique, decision):
    assert semantics.cas(current, NEW, unique) == decision


# Counting


@pytest.mark.parametrize(
    ("value", "delta", "number", "stored"),
    [
        (b"5", 3, 8, b"8"),
        (b"9", 1, 10, b"10"),
        (b"99", 1, 100, b"100"),
        (b"5", 0, 5, b"5"),
        (b"18446744073709551615", 0, 2**64 - 1, b"18446744073709551615"),
        (b"18446744073709551615", 1, 0, b"0".ljust(20)),
        (b"18446744073709551615", 2, 1, b"1".ljust(20)),
        (b"1", 2**64 - 1, 0, b"0"),
        (b"10", 2**64 - 1, 9, b"9 "),
        (b"10", -1, 9, b"9 "),
        (b"100", -1, 99, b"99 "),
        (b"1000", -999, 1, b"1   "),
        (b"10", -10, 0, b"0 "),
        (b"10", -11, 0, b"0 "),
        (b"18446744073709551615", -(2**64 - 1), 0, b"0".ljust(20)),
        # The length stays the same if the number fits, even if it shrank before.
        (b"9 ", 1, 10, b"10"),
        (b"9 ", 91, 100, b"100"),
        # As strtoull() reads it.
        (b"007", 1, 8, b"8  "),
        (b" 5", 1, 6, b"6 "),
        (b"\t\n\v\f\r 5", 1, 6, b"6      "),
        (b"+5", 1, 6, b"6 "),
        (b" +5", 1, 6, b"6  "),
        (b"5 6", 1, 6, b"6  "),
        (b"5\n", 1, 6, b"6 "),
        (b"5\r\nx", 1, 6, b"6   "),
        (b"5\0x", 1, 6, b"6  "),
        (b"0" * 60 + b"5", 1, 6, b"6".ljust(61)),
        (b" " * 60 + b"5", 1, 6, b"6".ljust(61)),
        (b"0" * 60, 1, 1, b"1".ljust(60)),
        (b"0" * 60 + b"18446744073709551615", 0, 2**64 - 1, b"18446744073709551615".ljust(80)),
        pytest.param(
            b"5".ljust(512 * 1024), 1, 6, b"6".ljust(512 * 1024), id="the longest that is parsed"
        ),
    ],
)
def test_count(value, delta, number, stored):
    assert semantics.count(item(value), delta) == (Outcome.STORED, number, Content(stored, 3, 50.0))


@pytest.mark.parametrize(
    "value",
    [
        b"", b" ", b"x", b"5x", b"x5", b"1.5", b"1_0", b"0x10", b"+", b"++5", b"+ 5", b"-1",
        b"-9223372036854775808", b"18446744073709551616", b"18446744073709551617", b"9" * 20,
        b"0" * 60 + b"18446744073709551616", b"184467440737095516150", b"9" * 100, b"\0", b"\x005",
        b"5\x80", b"\xa05", "٣".encode(), b"1" * (512 * 1024 + 1), b"5" + b" " * (512 * 1024),
    ],
    ids=lambda value: repr(value[:20]),
)  # fmt: skip
def test_non_numeric(value):
    assert semantics.count(item(value), 1) == (Outcome.NON_NUMERIC, 0, None)


def test_a_long_value_that_fits_in_one_memcached_chunk_can_be_counted():
    outcome, number, content = semantics.count(item(b"5" + b" " * 100_000), 1)
    assert (outcome, number, len(content.value)) == (Outcome.STORED, 6, 100_001)


def test_absent_is_not_found():
    assert semantics.count(None, 1) == (Outcome.NOT_FOUND, 0, None)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_incr_wraps_and_decr_stops(start, delta):
    value = b"%d" % start
    assert semantics.count(item(value), delta)[1] == (start + delta) % 2**64
    assert semantics.count(item(value), -delta)[1] == max(0, start - delta)


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(-(2**64) + 1, 2**64 - 1), max_size=10))
def test_results_of_counting_can_be_counted_again(number, deltas):
    value = b"%d" % number
    for delta in deltas:
        outcome, number, content = semantics.count(item(value), delta)
        assert outcome is Outcome.STORED
        assert int(content.value) == number
        assert len(content.value) == max(len(value), len(b"%d" % number))
        value = content.value


# Storing as the meta and binary protocols do

OLD, WON = (
    Content(b"new", 7, 50.0, MetaFlags(stale=True)),
    Content(b"new", 7, 50.0, MetaFlags(True, True)),
)
JOINED = Content(b"oldnew", 3, 50.0)


@pytest.mark.parametrize(
    ("mode", "current", "options", "outcome", "content"),
    [
        (Mode.SET, None, {}, Outcome.STORED, NEW),
        (Mode.SET, item(), {}, Outcome.STORED, NEW),
        (Mode.SET, None, {"unique": 5}, Outcome.NOT_FOUND, None),
        (Mode.SET, item(), {"unique": 11}, Outcome.STORED, NEW),
        (Mode.SET, item(), {"unique": 12}, Outcome.EXISTS, None),
        (Mode.SET, item(), {"unique": 0}, Outcome.EXISTS, None),
        (Mode.SET, item(version=0), {"unique": 0}, Outcome.EXISTS, None),
        (Mode.REPLACE, item(), {"unique": 11}, Outcome.STORED, NEW),
        (Mode.REPLACE, None, {"unique": 11}, Outcome.NOT_FOUND, None),
        (Mode.REPLACE, None, {}, Outcome.NOT_STORED, None),
        (Mode.ADD, None, {"unique": 5}, Outcome.STORED, NEW),
        (Mode.ADD, item(), {"unique": 11}, Outcome.NOT_STORED, None),
        (Mode.APPEND, item(), {}, Outcome.STORED, JOINED),
        (Mode.APPEND, item(), {"unique": 11}, Outcome.STORED, JOINED),
        (Mode.APPEND, item(), {"unique": 0}, Outcome.STORED, JOINED),
        (Mode.APPEND, item(), {"unique": 12}, Outcome.EXISTS, None),
        (Mode.APPEND, None, {"unique": 12}, Outcome.NOT_STORED, None),
        (Mode.APPEND, None, {"vivify": True}, Outcome.STORED, NEW),
        (Mode.PREPEND, None, {"vivify": True}, Outcome.STORED, NEW),
        (Mode.REPLACE, None, {"vivify": True}, Outcome.NOT_STORED, None),
        # Older than the stored item: stored as stale, with that item's remaining time.
        (Mode.SET, item(), {"unique": 10, "accept_older": True}, Outcome.STORED, OLD),
        (Mode.SET, item(), {"unique": 12, "accept_older": True}, Outcome.EXISTS, None),
        (Mode.SET, item(), {"unique": 12, "accept_older": True, "ordered": False},
         Outcome.STORED, OLD),
        (Mode.SET, item(), {"unique": 0, "accept_older": True}, Outcome.EXISTS, None),
        (Mode.SET, item(), {"unique": 11, "accept_older": True}, Outcome.STORED, NEW),
        (Mode.APPEND, item(), {"unique": 10, "accept_older": True}, Outcome.EXISTS, None),
    ],
)  # fmt: skip
def test_store(mode, current, options, outcome, content):
    assert semantics.store(current, NEW, mode, **options) == (outcome, content)


def test_storing_as_stale_leaves_the_win_with_its_holder():
    current = item()
    current.meta_flags = MetaFlags(stale=True, won=True)
    stored = semantics.store(current, NEW, Mode.SET, unique=5, accept_older=True)
    assert stored == (Outcome.STORED, WON)


def test_a_unique_assigned_by_a_client_is_the_one_compared():
    current = item()
    current.meta_flags = MetaFlags(unique=70)
    assert semantics.store(current, NEW, Mode.SET, unique=70)[0] is Outcome.STORED
    assert semantics.store(current, NEW, Mode.SET, unique=11)[0] is Outcome.EXISTS
    assert semantics.cas(current, NEW, 70)[0] is Outcome.STORED


def test_counting_keeps_meta_flags_but_drops_an_assigned_unique():
    current = item(b"5")
    current.meta_flags = MetaFlags(True, True, True, 70)
    content = semantics.count(current, 1)[2]
    assert content.meta_flags == MetaFlags(True, True, True, None)
