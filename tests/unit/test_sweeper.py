"""Work behind the scenes, with a clock of our own: how long its steps are, and who waits."""

from types import SimpleNamespace

import pytest

from memlite.config import Config
from memlite.server import sweeper as module
from memlite.server.server import Server

TENTH = 0.0001  # seconds that 32 items take here


class Work:
    """A server whose engine has something to do, and a loop that keeps what is to be called."""

    def __init__(self, monkeypatch, **options):
        self.server = Server(Config(**options), [])
        self.server.loop = self
        self.server.engine = SimpleNamespace(sweep=self.sweep)
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
        """Have items take more than they may, until `sweep` was called so many times."""
        table = self.server.table
        table.used = table._room + 1000 * steps
        self.excess = steps
        self.left = steps + 1

    def next(self):
        """Do what is due next; return after how many seconds it is, and how many it takes."""
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
    work.server.sweeper.wake()
    assert work.time - begin <= 0.0005 + 2 * TENTH
    steps = []
    while work.later:
        steps.append(work.next())
    assert work.left == 0
    assert len(steps) >= 3
    for pause, taken in steps:
        assert pause == 0.005
        assert taken <= 0.0005 + 2 * TENTH


def test_when_all_is_done_nothing_is_due(work):
    work.server.sweeper.wake()
    assert work.later == []


def test_whoever_wakes_it_while_it_is_due_changes_nothing(work):
    work.left = 20
    work.server.sweeper.wake()
    work.server.sweeper.wake()
    assert len(work.later) == 1


def test_where_there_is_room_nobody_waits(work):
    called = []
    work.server.sweeper.when_there_is_room(lambda: called.append(1))
    assert called == [1]
    assert work.later == []


def test_who_waits_for_room_is_called_when_there_is_some(work):
    work.be_over(20)
    called = []
    for number in range(3):
        work.server.sweeper.when_there_is_room(lambda number=number: called.append(number))
    assert called == []
    while work.server.table.over:
        pause, taken = work.next()
        assert pause == 0.0  # in a hurry
        assert taken <= 0.0005 + 2 * TENTH
    assert called in ([], [0])
    while work.later:
        before = len(called)
        work.next()
        assert len(called) - before <= 1  # what it stores may be too much for the next
    assert called == [0, 1, 2]


def test_who_waits_does_not_wait_for_what_is_due_later(work):
    work.left = 20
    work.server.sweeper.wake()
    assert [seconds for seconds, _ in work.later] == [0.005]
    work.be_over(20)
    work.server.sweeper.when_there_is_room(lambda: None)
    assert [seconds for seconds, _ in work.later] == [0.0]


def test_who_waits_where_no_more_can_go_is_called_all_the_same(work):
    work.be_over(1000)
    work.excess = work.left = 0
    called = []
    work.server.sweeper.when_there_is_room(lambda: called.append(1))
    assert called == []
    work.next()
    assert called == [1]
    assert work.server.table.over
    assert work.later == []


def test_where_nothing_may_go_nobody_waits(monkeypatch):
    work = Work(monkeypatch, disable_evictions=True)
    work.be_over(1000)
    called = []
    work.server.sweeper.when_there_is_room(lambda: called.append(1))
    assert called == [1]
