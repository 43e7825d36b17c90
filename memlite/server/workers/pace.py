"""How often datagrams may ask all workers."""

import time
from typing import Final

from memlite.server.workers.board import Board, Control

__all__ = ["AT_ONCE", "Pace"]

AT_ONCE: Final = 16
"""How many may, one after the other, if none did before."""
_EACH: Final = 50_000_000
"""Nanoseconds between any two from then on."""


class Pace:
    """Bounds the requests over UDP that all workers have to take part in.

    A client on a connection waits for its reply, but anybody can send any number of datagrams:
    without a bound, the workers would do nothing but ask each other. A token bucket, for all of
    them together; see `memlite.server.auth.throttle.Throttle`.

    Args:
        board: what the workers share.
    """

    def __init__(self, board: Board) -> None:
        self._board = board

    def admits(self) -> bool:
        """Return whether one more may ask now, and count it."""
        now = time.monotonic_ns()
        # Two workers may do this at the same moment, and count one of the two.
        full_at = max(self._board.control(Control.PACE), now) + _EACH
        if full_at > now + AT_ONCE * _EACH:
            return False
        self._board.set_control(Control.PACE, full_at)
        return True
