"""Factorial experiments: all combinations of factors are measured, to say what matters.

The runs are in random order, so that what changes meanwhile on the machine is not taken for an
effect. Each is saved when it is over; the same command goes on where an earlier one has stopped.
"""

__all__: list[str] = []
