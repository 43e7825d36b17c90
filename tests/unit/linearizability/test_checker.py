"""The checker accepts possible histories and rejects impossible ones."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.linearizability import NEVER, Operation, Result, check, check_each
from tests.support.linearizability.history import EVERY_KEY
from tests.support.linearizability.register import ABSENT, apply

KEY = b"key"


def op(times, name, result=None, value=b"", unique=0, *, client="c", key=KEY):
    """Return an operation that lasts between two times; without a result, its outcome is unknown.

    The result is ``WORD``, ``WORD value`` or ``WORD value unique``.
    """
    invoked, returned = times
    shown = None
    if result is not None:
        word, *more = result.split()
        shown = Result(word, *(more[:1] and [more[0].encode()]), *map(int, more[1:]))
    return Operation(client, name, key, invoked, returned, shown, value, unique)


def accepts(*operations):
    return check(operations) is None


# Violations by servers


def test_only_one_of_two_deletes_finds_the_item():
    item = op((0, 1), "set", "STORED", b"lock")
    assert accepts(item, op((2, 5), "delete", "DELETED"), op((3, 4), "delete", "NOT_FOUND"))
    assert not accepts(item, op((2, 5), "delete", "DELETED"), op((3, 4), "delete", "DELETED"))
    # Both may find it if it is set in between.
    again = op((3, 6), "set", "STORED", b"lock")
    assert accepts(item, again, op((2, 5), "delete", "DELETED"), op((3, 4), "delete", "DELETED"))


def test_a_delete_whose_outcome_is_unknown_may_have_found_it():
    item = op((0, 1), "set", "STORED", b"lock")
    unknown = op((2, NEVER), "delete")
    assert accepts(item, unknown, op((3, 4), "delete", "DELETED"))
    assert accepts(item, unknown, op((3, 4), "delete", "NOT_FOUND"))


@pytest.mark.parametrize(("answer", "valid"), [("STORED", True), ("EXISTS", False)])
def test_a_cas_that_was_carried_out_is_not_answered_exists(answer, valid):
    history = [
        op((0, 1), "set", "STORED", b"1"),
        op((1.1, 2), "gets", "HIT 1 77"),
        op((3, 9), "cas", answer, b"2", 77),
        op((4, 5), "gets", "HIT 2 78"),
        op((5.1, 6), "set", "STORED", b"3"),
        op((10, 11), "get", "HIT 3"),
    ]
    assert accepts(*history) is valid


def test_a_cas_whose_outcome_is_unknown_may_have_been_carried_out():
    seen = [op((0, 1), "set", "STORED", b"1"), op((1.1, 2), "gets", "HIT 1 77")]
    unknown = op((3, NEVER), "cas", None, b"2", 77)
    assert accepts(*seen, unknown, op((4, 5), "get", "HIT 2"))
    assert accepts(*seen, unknown, op((4, 5), "get", "HIT 1"), op((8, 9), "get", "HIT 2"))
    overwritten = op((4, 5), "set", "STORED", b"3")
    assert not accepts(*seen, unknown, overwritten, op((5.1, 6), "get", "HIT 3"),
                       op((7, 8), "get", "HIT 2"))  # fmt: skip


def test_reads_do_not_go_back_in_time():
    history = [op((0, 1), "set", "STORED", b"old"), op((2, 9), "set", "STORED", b"new")]
    new, old = op((3, 4), "gets", "HIT new 5"), op((5, 6), "get", "HIT old")
    assert accepts(*history, old)
    assert not accepts(*history, new, old)
    assert accepts(*history, new, replace(old, invoked=3.5))


def test_an_update_is_not_lost():
    history = [op((0, 1), "set", "STORED", b"5"), op((2, 5), "incr", "NUMBER 6", b"1")]
    assert accepts(*history, op((3, 4), "incr", "NUMBER 7", b"1"))
    assert not accepts(*history, op((3, 4), "incr", "NUMBER 6", b"1"))
    both = [*history, op((3, 4), "append", "STORED", b"0")]
    assert accepts(*both, op((6, 7), "get", "HIT 60"))
    assert not accepts(*both, op((6, 7), "get", "HIT 6"))


def test_a_set_does_not_arrive_after_a_later_one_was_acknowledged():
    first, second = op((0, 1), "set", "STORED", b"1"), op((2, 3), "set", "STORED", b"2")
    assert accepts(first, second, op((3.5, 4), "get", "HIT 2"))
    assert not accepts(first, second, op((3.5, 4), "get", "HIT 2"), op((7, 8), "get", "HIT 1"))
    # A set whose client gave up may arrive later,
    given_up = replace(first, returned=NEVER, result=None)
    assert accepts(given_up, second, op((3.5, 4), "get", "HIT 2"), op((7, 8), "get", "HIT 1"))
    # but not twice.
    third = op((8.5, 9), "set", "STORED", b"3")
    assert not accepts(
        given_up, second, op((7, 8), "get", "HIT 1"), third, op((10, 11), "get", "HIT 1")
    )


def test_a_command_on_a_killed_server_is_carried_out_before_the_kill_or_never():
    first, killed = op((0, 1), "set", "STORED", b"1"), op((2, 3), "set", None, b"2")
    assert accepts(first, killed, op((4, 5), "get", "HIT 1"), op((6, 7), "get", "HIT 1"))
    assert accepts(first, killed, op((4, 5), "get", "HIT 2"), op((6, 7), "get", "HIT 2"))
    assert not accepts(first, killed, op((4, 5), "get", "HIT 1"), op((6, 7), "get", "HIT 2"))


def test_a_set_that_failed_is_not_seen():
    assert not accepts(op((0, 1), "set", "STORED", b"1"), op((2, 3), "get", "HIT 2"))


def test_acknowledged_changes_are_not_lost():
    assert not accepts(op((0, 1), "set", "STORED", b"1"), op((2, 3), "get", "MISS"))


def test_only_one_of_two_adds_stores():
    first = op((0, 5), "add", "STORED", b"1")
    assert accepts(first, op((1, 4), "add", "NOT_STORED", b"2"))
    assert not accepts(first, op((1, 4), "add", "STORED", b"2"))


def test_a_touched_item_has_a_new_unique():
    history = [
        op((0, 1), "set", "STORED", b"1"),
        op((1.1, 2), "gets", "HIT 1 7"),
        op((3, 4), "touch", "TOUCHED"),
    ]
    assert accepts(*history, op((5, 6), "cas", "EXISTS", b"2", 7))
    assert not accepts(*history, op((5, 6), "cas", "STORED", b"2", 7))


def test_a_flush_is_an_operation_on_each_key():
    flush = op((2, 3), "flush_all", "OK", key=EVERY_KEY)
    history = [op((0, 1), "set", "STORED", b"1", key=key) for key in (b"a", b"b")]
    assert not check_each([*history, flush, op((4, 5), "get", "MISS", key=b"a")])
    (violation,) = check_each([*history, flush, op((4, 5), "get", "HIT 1", key=b"b")])
    assert violation.operation.key == b"b"
    # An unacknowledged flush may take effect, but must not be undone.
    unknown = op((2, NEVER), "flush_all", key=EVERY_KEY)
    missed, found = op((4, 5), "get", "MISS", key=b"a"), op((6, 7), "get", "HIT 1", key=b"a")
    assert not check_each([*history, unknown, missed])
    assert not check_each([*history, unknown, found])
    assert check_each([*history, unknown, missed, found])


# Any history


def histories(least=0, most=7, **options):
    counts = st.integers(least, most)
    return st.builds(
        lambda seed, count: made(seed, count, **options), st.integers(0, 2**32), counts
    )


NAMES = ["get", "gets", "set", "add", "replace", "append", "prepend", "cas", "incr", "delete",
         "touch", "gat", "flush_all"]  # fmt: skip
TEXT, NUMBER = b"<%d>", b"%d00000"
LENGTH = {False: 0.4, True: 4.0}


def made(seed, count, overlapping=True, unknown=0.15, clients=6, distinct=None):
    """Return a valid history: each operation is carried out at a moment between its ends.

    Args:
        seed: the seed of the random choices.
        count: the number of operations.
        overlapping: whether operations overlap.
        unknown: the share of operations whose outcomes are unknown.
        clients: the number of clients.
        distinct: a format that makes an unrepeated value of a number; None for few values.
    """
    rng = random.Random(seed)
    state, uniques, history = ABSENT, [], []
    free = [0.0] * clients  # the time of each client's last reply
    for at in range(1, count + 1):
        name = rng.choice(NAMES)
        value = b"%d" % rng.randrange(3) if distinct is None else distinct % at
        if name == "incr":
            value = b"1"
        if distinct == NUMBER and name in ("append", "prepend"):
            name = "set"
        unique = rng.choice(uniques) if uniques and name == "cas" else 0
        client = rng.choice([one for one in range(clients) if free[one] < at] or [0])
        length = LENGTH[overlapping]
        invoked = max(at - length * rng.random(), (free[client] + at) / 2)
        returned = at + length * rng.random()
        operation = Operation(f"{client}", name, KEY, invoked, returned, None, value, unique)
        if rng.random() < unknown:
            if name in ("get", "gets"):
                continue
            operation = replace(operation, returned=rng.choice([NEVER, returned]))
            history.append(operation)
            if rng.random() < 0.5:
                state = apply(state, operation)
            continue
        result = observed(state, operation, fresh=1000 + at)
        if result.unique is not None:
            uniques.append(result.unique)
        operation = replace(operation, result=result)
        history.append(operation)
        state = apply(state, operation)
        free[client] = returned
    return history


WORDS = ["HIT", "MISS", "STORED", "NOT_STORED", "EXISTS", "NOT_FOUND", "DELETED", "TOUCHED", "OK",
         "CLIENT_ERROR"]  # fmt: skip


def observed(state, operation, fresh):
    """Return the result of an operation in a state, found by trying all results."""
    numbers = [Result("NUMBER", b"%d" % (int(state.value) + 1))] if (
        state.value is not None and state.value.isdigit()) else []  # fmt: skip
    hit = Result("HIT", state.value)
    for result in [*map(Result, WORDS), hit, *numbers]:
        if apply(state, replace(operation, result=result)) is not None:
            if operation.name == "gets" and result.word == "HIT":
                return replace(result, unique=state.unique or fresh)
            return result
    raise AssertionError(operation)


def explained(history):
    """Check a small history by trying every order."""
    definite = [operation for operation in history if operation.result is not None]
    others = [operation for operation in history if operation.result is None]
    return any(
        possible(order)
        for count in range(len(others) + 1)
        for chosen in itertools.combinations(others, count)
        for order in itertools.permutations([*definite, *chosen])
    )


def possible(order):
    earliest = 0.0
    state = ABSENT
    for operation in order:
        earliest = max(earliest, operation.invoked)
        if operation.returned < earliest:
            return False
        state = apply(state, operation)
        if state is None:
            return False
    return True


@settings(max_examples=300)
@given(histories(most=60))
def test_a_valid_history_is_accepted(history):
    assert check(history) is None


@st.composite
def falsified(draw, **options):
    """Draw a history with one falsified result, which may still be possible."""
    history = draw(histories(least=1, **options).filter(some_return))
    at = draw(st.sampled_from([at for at, one in enumerate(history) if one.result is not None]))
    result = history[at].result
    word = draw(st.sampled_from([*WORDS, "NUMBER"]))
    false = Result(word, draw(st.sampled_from([None, b"0", b"1", b"2", b"never"])), result.unique)
    if (false.word, false.value) == (result.word, result.value):
        false = replace(false, value=b"never")
    history[at] = replace(history[at], result=false)
    return history


def some_return(history):
    return any(one.result is not None for one in history)


@settings(max_examples=200, derandomize=True)
@given(falsified(most=10, overlapping=False, unknown=0))
def test_any_false_result_is_rejected_if_nothing_overlaps(history):
    assert check(history) is not None


VERDICTS: Counter[bool] = Counter()


def test_all_orders_give_the_same_verdict():
    @settings(max_examples=400, derandomize=True)
    @given(st.one_of(histories(most=5), falsified(most=5)))
    def compare(history):
        verdict = check(history) is None
        assert verdict is explained(history)
        VERDICTS[verdict] += 1

    compare()
    assert min(VERDICTS[True], VERDICTS[False]) > 50


@settings(max_examples=100)
@given(falsified(most=30))
def test_the_part_shown_of_a_history_is_itself_impossible(history):
    violation = check(history)
    if violation is not None and len(history) <= 30:
        assert violation.states == [ABSENT]
        assert check(violation.operations) is not None
        assert violation.operation in violation.operations
        assert str(violation)


@pytest.mark.slow
def test_thousands_of_operations_on_one_key_take_seconds():
    history = made(seed=7, count=5000, unknown=0, clients=6)
    assert check(history) is None
    at = next(at for at, one in enumerate(history) if at > 4000 and one.result.word == "HIT")
    history[at] = replace(history[at], result=Result("HIT", b"never"))
    assert check(history).operation is history[at]


@pytest.mark.parametrize("distinct", [TEXT, NUMBER], ids=["text", "number"])
def test_operations_with_unknown_outcomes_stay_cheap(distinct):
    history = made(seed=8, count=1500, unknown=0.03, clients=6, distinct=distinct)
    assert sum(one.result is None for one in history) > 20
    assert check(history) is None
