"""Agreement among workers on one store: which copies may be shown, and the epoch of flushes."""

import itertools
import multiprocessing
import os
import signal

import pytest

pytest.importorskip("fcntl", reason="workers share memory only on Linux")

from memlite.backends import Record
from memlite.backends.agreement import Agreement, SharedEpoch

KEY = b"key"


def state(version: int, expires: float = 0.0) -> Record:
    return Record(KEY, b"x", expires=expires, version=version)


@pytest.fixture
def agreement() -> Agreement:
    return Agreement(1000)


def agreed(agreement: Agreement, version: int) -> int:
    mark = agreement.agree(KEY, state(version), agreement.mark(KEY))
    assert mark is not None
    return mark


def test_copies_stay_valid_while_all_see_the_same_state(agreement: Agreement) -> None:
    mark = agreed(agreement, 1)
    assert agreement.mark(KEY) == mark
    assert agreed(agreement, 1) == mark
    assert agreement.agree(KEY, state(1), mark - 1) == mark, "even if it was read earlier"
    assert agreement.mark(KEY) == mark


@pytest.mark.parametrize("found", [state(2), state(1, 5.0), None], ids=["set", "flushed", "none"])
def test_a_different_state_invalidates_all_copies(
    agreement: Agreement, found: Record | None
) -> None:
    mark = agreed(agreement, 1)
    now = agreement.agree(KEY, found, mark)
    assert now != mark
    assert (now is None) == (found is None)
    assert agreement.mark(KEY) > mark


def test_no_copy_is_kept_of_a_read_begun_before_another_state_was_shown(
    agreement: Agreement,
) -> None:
    before = agreement.mark(KEY)
    shown = agreed(agreement, 2)
    assert agreement.agree(KEY, state(1), before) is None
    assert agreement.mark(KEY) > shown, "nor of the other, as either may be newer"
    assert agreement.agree(KEY, state(2), shown) is None


def test_states_read_before_a_flush_do_not_become_copies(agreement: Agreement) -> None:
    begun = agreement.mark(KEY)
    mark = agreed(agreement, 1)
    agreement.forget_all()
    assert agreement.mark(KEY) > mark
    assert agreement.agree(KEY, state(1), begun) is None
    assert agreement.agree(KEY, state(1), mark) is None
    assert agreed(agreement, 2)


def test_a_delayed_flush_is_due_once(agreement: Agreement) -> None:
    agreement.flush(100.0)
    mark = agreed(agreement, 1)
    agreement.forget_if_due(99.0)
    assert agreement.mark(KEY) == mark
    agreement.forget_if_due(100.0)
    later = agreement.mark(KEY)
    assert later > mark
    agreement.forget_if_due(200.0)
    assert agreement.mark(KEY) == later


def test_keys_in_the_same_slot_invalidate_each_others_copies(agreement: Agreement) -> None:
    alone = Agreement(16)
    assert alone.size == 16
    mark = alone.agree(b"a", state(1), alone.mark(b"a"))
    assert mark is not None
    other = alone.agree(b"b", state(1), alone.mark(b"b"))
    assert other == alone.mark(b"a") != mark
    assert alone.agree(b"a", state(1), mark) is None


def race(agreement: Agreement, number: int, results: "multiprocessing.SimpleQueue[object]") -> None:
    found = []
    for turn in range(500):
        version = (turn + number) % 3 + 1
        mark = agreement.agree(KEY, state(version), agreement.mark(KEY))
        if mark is not None:
            found.append((mark, version))
    results.put(found)


def test_processes_never_have_copies_of_two_states_under_one_mark(agreement: Agreement) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    processes = [context.Process(target=race, args=(agreement, at, results)) for at in range(3)]
    for process in processes:
        process.start()
    found = list(itertools.chain(*(results.get() for _ in processes)))  # type: ignore[call-overload]
    for process in processes:
        process.join()
    assert len(found) > 100
    versions: dict[int, int] = {}
    for mark, version in found:
        assert versions.setdefault(mark, version) == version


def test_a_process_that_dies_holding_the_lock_does_not_block_others(agreement: Agreement) -> None:
    mark = agreed(agreement, 1)
    child = os.fork()
    if not child:
        with agreement._locks.hold(agreement.place(KEY)):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert agreed(agreement, 2) > mark


def test_an_epoch_seen_by_one_worker_is_known_to_all() -> None:
    shared = SharedEpoch()
    assert shared.number(1000.0) == 0
    shared.learn(3)
    shared.learn(2)
    assert shared.number(1000.0) == 3


def test_a_later_epoch_is_shown_at_its_time_and_can_be_replaced() -> None:
    shared = SharedEpoch()
    shared.expect(100.0, 5)
    assert [shared.number(now) for now in (99.0, 100.0)] == [0, 5]
    shared.expect(50.0, 6)
    assert [shared.number(now) for now in (49.0, 50.0)] == [0, 6]
    shared.expect(10.0, 5)  # an epoch replaced long ago
    assert shared.number(20.0) == 0
    shared.learn(7)
    assert shared.number(60.0) == 7
