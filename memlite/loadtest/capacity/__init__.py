"""``memlite bench plan``: how many servers a load needs, from measurements.

A measurement says what one server, or one cluster, does on one machine. The plan answers for a
rate and a response time with ranges, names the model they are based on and how far they
extrapolate, and refuses questions that the measurement cannot answer.
"""

from memlite.loadtest.capacity.answer import Answer, answer
from memlite.loadtest.capacity.estimate import Estimate, Range, estimate
from memlite.loadtest.capacity.request import Request, UnknowableError

__all__ = ["Answer", "Estimate", "Range", "Request", "UnknowableError", "answer", "estimate"]
