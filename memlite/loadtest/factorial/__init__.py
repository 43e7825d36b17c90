"""``memlite bench factorial``: measures all combinations of factors, and says what matters.

The runs are in random order, so that what changes meanwhile on the machine is not taken for an
effect. Each is saved when it is over; the same command goes on where an earlier one has stopped.
"""

from memlite.loadtest.factorial.command import measure_factorial

__all__ = ["measure_factorial"]
