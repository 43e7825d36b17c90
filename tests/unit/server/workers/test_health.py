"""Stuck workers are told apart from those that wait for a processor."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, repeat

import pytest

from memlite.server.workers.health import (
    Condition,
    ThreadState,
    Watch,
    read_thread_state,
    stuck_workers,
)
from tests.support.waiting import wait_until

CHECK = 0.1
MILLISECOND = 1_000_000

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux reports the states of threads"
)


def check(watch: Watch, now: ThreadState | None, beat: int = 1, work: int = 1) -> None:
    if watch.look(beat, work, serves=True, seconds=CHECK):
        watch.ask(now)


def watched(states: Iterator[ThreadState | None], seconds: float) -> Watch:
    """Return the watch of a worker that has had no heartbeat for some seconds."""
    watch = Watch()
    check(watch, None)
    for _ in range(round(seconds / CHECK)):
        check(watch, next(states))
    return watch


def stopped() -> Iterator[ThreadState]:
    while True:
        yield ThreadState("T", 5 * MILLISECOND, 3)


def asleep() -> Iterator[ThreadState]:
    while True:
        yield ThreadState("S", 5 * MILLISECOND, 3)


def computing() -> Iterator[ThreadState]:
    for number in count():
        yield ThreadState("R", 100 * MILLISECOND * number, 3)


def waiting() -> Iterator[ThreadState]:
    """Yield the states of a worker that could run but gets no processor."""
    while True:
        yield ThreadState("R", 5 * MILLISECOND, 3)


@pytest.mark.parametrize(
    ("states", "condition"),
    [
        (stopped, Condition.STOPPED),
        (asleep, Condition.ASLEEP),
        (computing, Condition.COMPUTING),
        (waiting, Condition.LATE),
    ],
)
def test_conditions_after_a_second(states, condition) -> None:
    assert watched(states(), 0.2).condition is Condition.WELL
    watch = watched(states(), 0.9)
    assert watch.condition is condition
    assert bool(stuck_workers([watch])) is (condition is not Condition.LATE)
    check(watch, None, beat=2)
    assert watch.condition is Condition.WELL


def test_a_worker_that_waits_for_a_processor_has_five_seconds() -> None:
    assert not stuck_workers([watched(waiting(), 4.9)])
    assert stuck_workers([watched(waiting(), 5.3)])


def test_a_worker_that_wakes_occasionally_is_not_asleep() -> None:
    turns = (ThreadState("S", turn, turn // 3) for turn in count())
    assert watched(turns, 4.9).condition is Condition.LATE


def test_a_long_turn_of_the_event_loop_is_no_reason_while_work_is_done() -> None:
    watch, busy = Watch(), computing()
    for step in range(300):
        check(watch, next(busy), work=step)
        assert not stuck_workers([watch])
    for step in range(600):  # but not indefinitely
        check(watch, next(busy), work=-step)
    assert stuck_workers([watch]) == [watch]


def test_a_starting_worker_has_a_minute() -> None:
    watch = Watch()
    for _ in range(590):
        watch.look(0, 0, serves=False, seconds=CHECK)
    assert not watch.look(0, 0, serves=False, seconds=CHECK)
    for _ in range(20):
        found = watch.look(0, 0, serves=False, seconds=CHECK)
    assert found
    watch.ask(ThreadState("R", 0, 0))
    assert stuck_workers([watch])


def test_a_sleeper_may_wait_for_a_worker_without_a_processor() -> None:
    sleeper, other = watched(asleep(), 1), watched(waiting(), 1)
    assert stuck_workers([sleeper, other]) == []
    assert stuck_workers([sleeper, watched(waiting(), 0.1)]) == [sleeper]
    assert stuck_workers([watched(asleep(), 6), other]), "but not forever"


def test_one_sleeper_is_stuck_and_none_if_another_worker_is() -> None:
    first, second = watched(asleep(), 1), watched(asleep(), 1.2)
    assert stuck_workers([first, second]) == [second]
    culprit = watched(stopped(), 1)
    assert stuck_workers([first, culprit, second]) == [culprit]


def test_without_kernel_states_the_limit_is_five_seconds() -> None:
    assert not stuck_workers([watched(repeat(None), 4.9)])
    assert stuck_workers([watched(repeat(None), 5.3)])


def test_a_worker_on_a_busy_machine_is_never_taken_for_stuck() -> None:
    """It runs, waits for times of any length below five seconds, and beats when it can."""
    chance = random.Random(4)
    watch, ran, beat, next_beat = Watch(), 0, 1, 0.0
    clock = 0.0
    for turns in range(20_000):
        wait = chance.choice([0.0, 0.05, 0.3, chance.uniform(0, 4.5)])
        for _ in range(round(wait / CHECK)):
            clock += CHECK
            check(watch, ThreadState("R", ran, turns), beat)
            assert not stuck_workers([watch])
        burst = chance.uniform(0, 0.2)
        clock, ran = clock + burst, ran + int(1e9 * burst)
        if clock >= next_beat:
            beat, next_beat = beat + 1, clock + 0.25


# States reported by a real kernel


def child(code: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize(
    ("code", "stop", "state"),
    [
        ("print('ready', flush=True)\nwhile True: pass", False, "R"),
        ("import time\nprint('ready', flush=True)\ntime.sleep(600)", False, "S"),
        ("import time\nprint('ready', flush=True)\ntime.sleep(600)", True, "T"),
    ],
)
def test_thread_states_are_read_from_the_kernel(code: str, stop: bool, state: str) -> None:
    with child(code) as process:
        try:
            if stop:
                os.kill(process.pid, signal.SIGSTOP)

            def state_now() -> ThreadState:
                found = read_thread_state(process.pid)
                assert found
                return found

            assert wait_until(lambda: state_now().state == state)
            first = state_now()
            if state == "R":
                assert wait_until(lambda: state_now().ran > first.ran + 20 * MILLISECOND)
            else:
                assert first.ran > 0
                assert state_now() == first
        finally:
            process.kill()
    assert read_thread_state(process.pid) is None


def test_states_unknown_to_the_kernel(tmp_path) -> None:
    assert read_thread_state(1, tmp_path) is None
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text("1 (a) b) S 0 0")
    (tmp_path / "1/schedstat").write_text("nothing\n")
    assert read_thread_state(1, tmp_path) is None
    (tmp_path / "1/schedstat").write_text("7 8 9\n")
    assert read_thread_state(1, tmp_path) == ThreadState("S", 7, 9)
