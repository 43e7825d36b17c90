"""Contexts that are entered at the same time."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from memlite.loadtest.together import together


def test_all_are_entered_at_the_same_time_and_left_in_the_end() -> None:
    meeting = threading.Barrier(3, timeout=60)
    left: list[int] = []

    @contextlib.contextmanager
    def one(number: int) -> Iterator[int]:
        meeting.wait()  # the others start only if this one does not block them
        yield number
        meeting.wait()
        left.append(number)

    with together([one(number) for number in range(3)]) as entered:
        assert entered == [0, 1, 2]
        assert not left
    assert sorted(left) == [0, 1, 2]


def test_if_one_fails_the_others_are_left() -> None:
    entered = threading.Event()
    left: list[str] = []

    @contextlib.contextmanager
    def works() -> Iterator[None]:
        entered.set()
        try:
            yield
        finally:
            left.append("left")

    @contextlib.contextmanager
    def fails() -> Iterator[None]:
        assert entered.wait(60)
        raise ValueError("no")
        yield

    with pytest.raises(ValueError, match="no"), together([fails(), works()]):
        raise AssertionError("not reached")
    assert left == ["left"]


def test_an_error_inside_ends_all_and_is_passed_to_them() -> None:
    told: list[BaseException] = []
    interrupted = KeyboardInterrupt()

    @contextlib.contextmanager
    def one() -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            told.append(error)
            raise

    with pytest.raises(KeyboardInterrupt), together([one(), one()]):
        raise interrupted
    assert told == [interrupted] * 2


@contextlib.contextmanager
def cannot_be_left() -> Iterator[None]:
    try:
        yield
    finally:
        raise ValueError("no")


def test_an_error_on_exit_does_not_replace_an_earlier_one() -> None:
    with pytest.raises(KeyboardInterrupt), together([cannot_be_left(), cannot_be_left()]):
        raise KeyboardInterrupt


def test_all_are_left_before_an_error_on_exit_is_raised() -> None:
    left: list[str] = []

    @contextlib.contextmanager
    def one() -> Iterator[None]:
        yield
        left.append("left")

    with pytest.raises(ValueError, match="no"), together([cannot_be_left(), one()]):
        pass
    assert left == ["left"]


def test_no_contexts() -> None:
    nothing: list[contextlib.AbstractContextManager[None]] = []
    with together(nothing) as entered:
        assert entered == []
