"""How long a node may serve without renewing its lease."""

import math
import os
import time
from collections.abc import Callable
from typing import Final

__all__ = [
    "ALL_INFORMED",
    "LEASE",
    "MARGIN",
    "MAX_DEADLINE",
    "READING",
    "RENEWAL",
    "Lease",
]

# Tests shorten all times in all processes at once. They are not configurable otherwise, because all
# processes have to agree.
LEASE: Final = float(os.environ.get("MEMLITE_TEST_LEASE_SECONDS", "15"))
"""Seconds after which a member that has not renewed may be removed."""

RENEWAL: Final = LEASE / 3
"""Seconds between renewals, and between looks at other members."""

MARGIN: Final = LEASE / 15
"""Seconds by which a node stops serving before its lease runs out, for clocks that differ."""

READING: Final = LEASE / 15
"""Seconds between a proxy's readings of the cluster."""

ALL_INFORMED: Final = LEASE + MARGIN
"""Seconds after which every proxy that forwards requests knows a change of the cluster."""

MAX_DEADLINE: Final = 3.0
"""Seconds within which nodes must answer a proxy: a change takes three steps of up to this time,
and a mover waits for changes that began earlier."""


class Lease:
    """Whether a node may serve now.

    A node counts a renewal from before it was sent, and others count from when they saw it: so a
    node stops before any other treats it as failed, however slow the store is. Clocks must run at
    the same rate, but need not show the same time.

    Args:
        clock: returns seconds that never decrease, and that pass while the process is stopped.

    Attributes:
        until: when the node must stop serving, by this clock.
    """

    __slots__ = ("_clock", "until")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.until = 0.0

    @classmethod
    def unlimited(cls) -> "Lease":
        """Return a lease that never expires."""
        lease = cls()
        lease.until = math.inf
        return lease

    def now(self) -> float:
        """Return the time by the lease's clock."""
        return self._clock()

    def renewed(self, sent: float) -> None:
        """Extend the lease; `sent` is a time before the renewal was sent."""
        self.until = sent + LEASE - MARGIN

    def end(self) -> None:
        """Stop serving at once."""
        self.until = 0.0

    @property
    def valid(self) -> bool:
        """Whether the node may serve."""
        return self._clock() < self.until
