"""Receivers that pass replies to functions."""

from collections.abc import Callable

__all__ = ["Answer"]


class Answer:
    """Passes a node's reply, or its failure, to a function.

    Args:
        took: called with the reply or the error line, and whether it is an error.
        reads: whether the request changes nothing.
    """

    __slots__ = ("_took", "reads")

    def __init__(self, took: Callable[[bytes, bool], None], *, reads: bool = False) -> None:
        self._took = took
        self.reads = reads

    def answer(self, reply: bytes) -> None:
        """Take the reply."""
        self._took(reply, False)

    def fail(self, error: bytes) -> None:
        """Take the error."""
        self._took(error, True)
