"""Background sweeping on a simulated clock: the length of its steps, and waiting for room."""

from types import SimpleNamespace

import pytest

from memlite.config import Config
from memlite.server.server import Server
from memlite.server.upkeep import sweeper as module

TENTH = 0.0001  # seconds that 32 items take here


class Work:
    """A server whose engine has work to do, and a loop that records scheduled calls."""

    def __init__(self, monkeypatch, **options):
        self.server = Server(Config(**options), [])
        self.server.scheduler.loop = self
        self.server.upkeep.sweeper._sweep = self.sweep
        self.time = 100.0
        self.left = 0  # calls of `sweep` until all is done
        self.later = []
        self.excess = 0
        monkeypatch.setattr(module, "perf_counter", lambda: self.time)

    def sweep(self, at_most):
        assert at_most == 32
        self.time += TENTH
        self.left = max(0, self.left - 1)
        if self.excess:
            self.excess -= 1
            self.server.table.used -= 1000
        return self.left > 0

    def call_later(self, seconds, function):
        due = (seconds, function)
        self.later.append(due)
        return SimpleNamespace(cancel=lambda: self.later.remove(due))

    def call_soon(self, function):
        self.call_later(0.0, function)

    def be_over(self, steps):
        """Keep items over their limit until `sweep` has been called a given number of times."""
        table = self.server.table
        table.used = table._room + 1000 * steps
        self.excess = steps
        self.left = steps + 1

    def next(self):
        """Run the next scheduled call; return its delay and its duration in seconds."""
        seconds, function = self.later.pop(0)
        before = self.time
        function()
        return seconds, self.time - before


@pytest.fixture
def work(monkeypatch):
    return Work(monkeypatch)


def test_a_step_takes_half_a_millisecond_and_the_next_comes_five_later(work):
    work.left = 20
    begin = work.time
    work.server.upkeep.sweeper.wake()
    assert work.time - begin <= 0.0005 + 2 * TENTH
    steps = []
    while work.later:
        steps.append(work.next())
    assert work.left == 0
    assert len(steps) >= 3
    for pause, taken in steps:
        assert pause == 0.005
        assert taken <= 0.0005 + 2 * TENTH


def test_nothing_is_scheduled_once_the_work_is_done(work):
    work.server.upkeep.sweeper.wake()
    assert work.later == []


def test_waking_it_while_a_step_is_scheduled_changes_nothing(work):
    work.left = 20
    work.server.upkeep.sweeper.wake()
    work.server.upkeep.sweeper.wake()
    assert len(work.later) == 1


def test_no_waiting_if_there_is_room(work):
    called = []
    work.server.upkeep.sweeper.when_there_is_room(lambda: called.append(1))
    assert called == [1]
    assert work.later == []


def test_waiters_are_called_when_there_is_room(work):
    work.be_over(20)
    called = []
    for number in range(3):
        work.server.upkeep.sweeper.when_there_is_room(lambda number=number: called.append(number))
    assert called == []
    while work.server.table.over:
        pause, taken = work.next()
        assert pause == 0.0  # in a hurry
        assert taken <= 0.0005 + 2 * TENTH
    assert called in ([], [0])
    while work.later:
        before = len(called)
        work.next()
        assert len(called) - before <= 1  # its store may leave no room for the next
    assert called == [0, 1, 2]


def test_waiters_do_not_wait_for_a_step_scheduled_later(work):
    work.left = 20
    work.server.upkeep.sweeper.wake()
    assert [seconds for seconds, _ in work.later] == [0.005]
    work.be_over(20)
    work.server.upkeep.sweeper.when_there_is_room(lambda: None)
    assert [seconds for seconds, _ in work.later] == [0.0]


def test_waiters_are_called_if_nothing_more_can_be_evicted(work):
    work.be_over(1000)
    work.excess = work.left = 0
    called = []
    work.server.upkeep.sweeper.when_there_is_room(lambda: called.append(1))
    assert called == []
    work.next()
    assert called == [1]
    assert work.server.table.over
    assert work.later == []


def test_no_waiting_if_evictions_are_disabled(monkeypatch):
    work = Work(monkeypatch, disable_evictions=True)
    work.be_over(1000)
    called = []
    work.server.upkeep.sweeper.when_there_is_room(lambda: called.append(1))
    assert called == [1]
