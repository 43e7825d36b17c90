"""How long a node may serve without having been heard of."""

import time
from collections.abc import Callable
from typing import Final

__all__ = ["LEASE", "MARGIN", "RENEWAL", "Lease"]

LEASE: Final = 15.0
"""Seconds after which a member that has not renewed may be removed."""

RENEWAL: Final = 5.0
"""Seconds between renewals, and between looks at other members."""

MARGIN: Final = 1.0
"""Seconds by which a node stops serving before its lease runs out, for clocks that differ."""


class Lease:
    """Whether a node may serve now.

    A renewal counts from before it was sent, others count from when they have seen it: so a node
    stops before anybody takes it for gone, however slow the store was. This needs clocks that run
    at the same speed, and none that show the same time.

    Args:
        clock: returns seconds that never decrease, and that pass while the process is stopped.

    Attributes:
        until: when the node must stop serving, by this clock.
    """

    __slots__ = ("_clock", "until")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.until = 0.0

    def now(self) -> float:
        """Return the time by the lease's clock."""
        return self._clock()

    def renewed(self, sent: float) -> None:
        """Extend the lease; `sent` is from before the renewal was sent."""
        self.until = sent + LEASE - MARGIN

    def end(self) -> None:
        """Stop serving at once."""
        self.until = 0.0

    @property
    def valid(self) -> bool:
        """Whether the node may serve."""
        return self._clock() < self.until
