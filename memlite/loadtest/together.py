"""Starts several servers at the same time, and stops them likewise."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

__all__ = ["together"]

T = TypeVar("T")
Details = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


@contextlib.contextmanager
def together(
    contexts: Sequence[contextlib.AbstractContextManager[T]],
) -> Iterator[list[T]]:
    """Enter contexts at the same time, each in a thread of its own, and leave them likewise.

    Args:
        contexts: those of servers that do not depend on each other.

    Yields:
        What each context gave, in the same order.

    Raises:
        Exception: that of the first context that could not be entered, once the others that could
            have been left again; or, if nothing went wrong before, that of the first that could not
            be left.
    """
    details: Details = (None, None, None)
    with ThreadPoolExecutor(max(1, len(contexts))) as threads:
        entering = [threads.submit(one.__enter__) for one in contexts]
        try:
            yield [one.result() for one in entering]
        except BaseException as error:
            details = type(error), error, error.__traceback__
            raise
        finally:
            # The user may have interrupted it: what starts meanwhile is to be stopped as well.
            wait(entering)
            entered = [
                context
                for context, one in zip(contexts, entering, strict=True)
                if one.exception() is None
            ]
            leaving = [threads.submit(one.__exit__, *details) for one in entered]
            wait(leaving)
            # What went wrong before says more than what could then not be left.
            if details[1] is None:
                for one in leaving:
                    one.result()
