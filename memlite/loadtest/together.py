"""Starts several servers at the same time, and stops them likewise."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["together"]

T = TypeVar("T")


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
            have been left again.
    """
    with ThreadPoolExecutor(max(1, len(contexts))) as threads:
        entering = [threads.submit(one.__enter__) for one in contexts]
        try:
            yield [one.result() for one in entering]
        finally:
            # The user may have interrupted it: what starts meanwhile is to be stopped as well.
            wait(entering)
            entered = [
                context
                for context, one in zip(contexts, entering, strict=True)
                if one.exception() is None
            ]
            for leaving in [threads.submit(one.__exit__, None, None, None) for one in entered]:
                leaving.result()
