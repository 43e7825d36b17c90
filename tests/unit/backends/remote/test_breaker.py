"""The circuit breaker, with a clock that only the tests advance."""

import logging

import pytest

from memlite.backends.remote.breaker import Breaker


class Moment:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Moment()


@pytest.fixture
def breaker(clock):
    return Breaker("gs://b/", failures=10, patience=1.0, pause=0.5, clock=clock)


def fail(breaker, clock, times, seconds=0.0):
    for _ in range(times):
        clock.now += seconds
        breaker.failed()


def test_it_opens_after_failures_that_last(breaker, clock):
    fail(breaker, clock, 9, 0.2)
    assert not breaker.is_open
    fail(breaker, clock, 1)
    assert breaker.is_open
    assert not breaker.lets_through()
    assert breaker.times_opened == 1


def test_many_failures_at_once_do_not_open_it(breaker, clock):
    fail(breaker, clock, 1000)
    assert not breaker.is_open
    clock.now += 1
    breaker.failed()
    assert breaker.is_open


def test_a_success_in_between_keeps_it_closed(breaker, clock):
    for _ in range(100):
        fail(breaker, clock, 9, 1.0)
        breaker.succeeded()
    assert not breaker.is_open


def test_probes_are_let_through_one_at_a_time_whatever_their_outcome(breaker, clock):
    fail(breaker, clock, 10, 0.2)
    passed = 0
    for _ in range(80):
        clock.now += 0.125
        passed += breaker.lets_through()
    assert passed == 20
    breaker.failed()
    assert breaker.is_open
    assert breaker.times_opened == 1


def test_the_first_success_closes_it(breaker, clock):
    fail(breaker, clock, 10, 0.2)
    clock.now += 0.5
    assert breaker.lets_through()
    breaker.succeeded()
    assert not breaker.is_open
    assert all(breaker.lets_through() for _ in range(10))
    fail(breaker, clock, 9, 0.2)
    assert not breaker.is_open


def test_it_says_when_it_opens_and_when_it_closes(breaker, clock, caplog):
    with caplog.at_level(logging.WARNING, "memlite"):
        fail(breaker, clock, 20, 0.2)
        breaker.succeeded()
        breaker.succeeded()
    opened, closed = caplog.messages
    assert opened == "gs://b/ is unavailable: 10 requests failed in 1.8 s; commands are refused"
    assert closed == "gs://b/ is available again after 3.8 s"
