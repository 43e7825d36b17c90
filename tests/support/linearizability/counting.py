"""Checks that reads of counters, which only grow, are in order and recent."""

from collections.abc import Iterable
from typing import NamedTuple

from tests.support.linearizability.history import NEVER, Operation

__all__ = ["Outdated", "outdated"]


class Outdated(NamedTuple):
    """A smaller number than one shown before.

    Attributes:
        operation: the operation that showed it.
        before: the operation that had shown the greater number.
    """

    operation: Operation
    before: Operation

    def __str__(self) -> str:
        return f"{self.operation}\nalthough before\n{self.before}"


def outdated(history: Iterable[Operation], within: float = 0.0) -> list[Outdated]:
    """Return the operations that show less than others that returned before these were sent.

    Args:
        history: operations on one counter, such as ``incr`` and ``get``.
        within: the minimum number of seconds in between.
    """
    numbers = [
        (int(one.result.value), one)
        for one in history
        if one.returned != NEVER and one.result is not None and one.result.value is not None
    ]
    returned = sorted(numbers, key=lambda number: number[1].returned)
    found = []
    greatest: tuple[int, Operation] | None = None
    at = 0
    for number, operation in sorted(numbers, key=lambda number: number[1].invoked):
        while at < len(returned) and returned[at][1].returned + within < operation.invoked:
            if greatest is None or returned[at][0] > greatest[0]:
                greatest = returned[at]
            at += 1
        if greatest is not None and number < greatest[0]:
            found.append(Outdated(operation, greatest[1]))
    return found
