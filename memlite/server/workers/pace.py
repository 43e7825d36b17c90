"""Rate limit for datagrams that involve all workers."""

import time
from typing import Final

from memlite.server.workers.board import Board, Control

__all__ = ["AT_ONCE", "Pace"]

AT_ONCE: Final = 16
"""The size of a burst after an idle period."""
_EACH: Final = 50_000_000
"""Nanoseconds between two requests after the burst."""


class Pace:
    """Limits the rate of requests over UDP in which all workers take part.

    A client on a connection waits for its reply, but any host can send any number of datagrams.
    Without a limit, the workers would do nothing but ask each other. All workers share one token
    bucket; see `memlite.server.auth.throttle.Throttle`.

    Args:
        board: the memory that the workers share.
    """

    def __init__(self, board: Board) -> None:
        self._board = board

    def admits(self) -> bool:
        """Return whether one more request is admitted now, and count it."""
        now = time.monotonic_ns()
        # If two workers do this at the same moment, only one of the two requests is counted.
        full_at = max(self._board.control(Control.PACE), now) + _EACH
        if full_at > now + AT_ONCE * _EACH:
            return False
        self._board.set_control(Control.PACE, full_at)
        return True
