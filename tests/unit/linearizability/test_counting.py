"""Reads of counters, in order and out of order."""

from tests.support.linearizability import NEVER, Operation, Result
from tests.support.linearizability.counting import outdated


def reads(*numbers):
    """Return reads from triples: the start, the end and the number read."""
    return [
        Operation("c", "get", b"n", invoked, returned, Result("HIT", b"%d" % number))
        for invoked, returned, number in numbers
    ]


def test_reads_in_order():
    assert not outdated(reads((0, 1, 5), (2, 3, 5), (4, 5, 7)))


def test_a_read_that_goes_back():
    history = reads((0, 1, 5), (2, 3, 6), (3.5, 4, 5), (5, 6, 7))
    (found,) = outdated(history)
    assert found == (history[2], history[1])
    assert str(found)


def test_reads_that_overlap_may_come_in_any_order():
    assert not outdated(reads((0, 3, 6), (2, 4, 5), (3, 5, 5)))


def test_a_read_may_be_outdated_for_some_time():
    history = reads((0, 1, 6), (5, 6, 5))
    assert outdated(history, within=3.9)
    assert not outdated(history, within=4)


def test_results_without_a_number_do_not_matter():
    unknown = Operation("c", "incr", b"n", 0, NEVER, None)
    miss = Operation("c", "get", b"n", 1, 2, Result("MISS"))
    assert not outdated([unknown, miss, *reads((3, 4, 1))])
