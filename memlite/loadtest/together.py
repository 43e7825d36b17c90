"""Start and stop several servers concurrently."""

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
    """Enter contexts concurrently, each in its own thread, and leave them the same way.

    Args:
        contexts: contexts of servers that do not depend on each other.

    Yields:
        The result of entering each context, in the same order.

    Raises:
        Exception: raised by the first context that failed to enter, after the contexts that were
            entered have been left; or, without an earlier error, by the first that failed to exit.
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
            # On an interrupt, servers that are still starting must be stopped as well.
            wait(entering)
            entered = [
                context
                for context, one in zip(contexts, entering, strict=True)
                if one.exception() is None
            ]
            leaving = [threads.submit(one.__exit__, *details) for one in entered]
            wait(leaving)
            # An earlier error matters more than errors on exit.
            if details[1] is None:
                for one in leaving:
                    one.result()
