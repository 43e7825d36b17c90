"""How long a node may serve without having been heard of."""

import math
import os
import time
from collections.abc import Callable
from typing import Final

__all__ = [
    "EVERYBODY_KNOWS",
    "LEASE",
    "MARGIN",
    "MAX_DEADLINE",
    "READING",
    "RENEWAL",
    "Lease",
]

# Tests make everything shorter in all processes at once; it cannot be configured otherwise, as all
# have to agree.
LEASE: Final = float(os.environ.get("MEMLITE_TEST_LEASE_SECONDS", "15"))
"""Seconds after which a member that has not renewed may be removed."""

RENEWAL: Final = LEASE / 3
"""Seconds between renewals, and between looks at other members."""

MARGIN: Final = LEASE / 15
"""Seconds by which a node stops serving before its lease runs out, for clocks that differ."""

READING: Final = LEASE / 15
"""Seconds between two readings of the cluster by a proxy."""

EVERYBODY_KNOWS: Final = LEASE + MARGIN
"""Seconds after which a change of the cluster is known to each proxy that forwards requests."""

MAX_DEADLINE: Final = 3.0
"""Seconds within which nodes must answer a proxy: a change takes three steps of so long, and
whoever moves keys waits for those that began before."""


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

    @classmethod
    def unlimited(cls) -> "Lease":
        """Return one that does not run out."""
        lease = cls()
        lease.until = math.inf
        return lease

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
