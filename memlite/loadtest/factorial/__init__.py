"""Factorial experiments: measure all combinations of factors to find out which ones matter.

The runs are in random order, so that changes on the machine in the meantime are not mistaken for
effects. Each run is saved when it is over; the same command resumes where an earlier one stopped.
"""

__all__: list[str] = []
