"""``memlite bench plan``: how many servers a load needs, from measurements.

A measurement shows the performance of one server, or one cluster, on one machine. For a rate and a
response time, the plan gives ranges, with the model they are based on and the extrapolation they
involve. It refuses questions that the measurement cannot answer.
"""

from memlite.loadtest.capacity.answer import Answer, answer
from memlite.loadtest.capacity.estimate import Estimate, Range, estimate
from memlite.loadtest.capacity.request import Request, UnknowableError

__all__ = ["Answer", "Estimate", "Range", "Request", "UnknowableError", "answer", "estimate"]
