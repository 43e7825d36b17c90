"""The schedule of epochs under changes by servers whose clocks differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.backends.remote.epoch import Schedule


def test_a_flush_counts_up():
    assert Schedule(3, 0.0, 3).flushed(0.0, 100.0).epoch_at(100.0) == 4


def test_a_delayed_flush_counts_up_later():
    schedule = Schedule(3, 0.0, 3).flushed(200.0, 100.0)
    assert [schedule.epoch_at(now) for now in (100.0, 199.9, 200.0, 300.0)] == [3, 3, 4, 4]


def test_a_later_flush_replaces_a_pending_one():
    schedule = Schedule(3, 0.0, 3).flushed(200.0, 100.0)
    later = schedule.flushed(300.0, 150.0)
    assert later.epoch_at(250.0) == 3
    assert schedule.flushed(0.0, 150.0).at == 0.0


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.one_of(st.just(0.0), st.floats(1, 60))), max_size=12)
)
def test_flushed_items_stay_flushed(flushes):
    """Whatever epoch a clock shows before a flush, every clock shows a later one after it."""
    schedule, now = Schedule(), 1000.0
    for skew, delay in flushes:
        now += 10
        seen_before = max(schedule.epoch_at(now + 5), schedule.epoch_at(now - 5))
        schedule = schedule.flushed(now + skew + delay if delay else 0.0, now + skew)
        if not delay:
            assert schedule.epoch_at(now - 5) > seen_before
        assert schedule.epoch_at(now + 1000) > seen_before


def test_the_content():
    for schedule in (Schedule(1, 0.0, 1), Schedule(1, 2.5, 7)):
        assert Schedule.parse(schedule.content()) == schedule
    assert Schedule(1, 0.0, 1).content() == b'{"epoch":1,"at":null,"then":1}'


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"3", b'{"epoch":"x","at":null,"then":1}'])
def test_other_content(text):
    with pytest.raises(ValueError):
        Schedule.parse(text)
