"""``memlite bench plan``: how many servers a load needs, from what was measured.

A measurement says what one server, or one cluster, does on one machine. The plan answers for a
rate and a response time with ranges, says which model is behind them and how far they extrapolate,
and refuses what the measurement cannot tell.
"""

from memlite.loadtest.capacity.answer import Answer, answer
from memlite.loadtest.capacity.estimate import Estimate, Range, estimate
from memlite.loadtest.capacity.request import Request, UnknowableError

__all__ = ["Answer", "Estimate", "Range", "Request", "UnknowableError", "answer", "estimate"]
