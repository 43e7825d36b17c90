"""The load that a server can take before it is too slow for its users."""

import math

from memlite.lab.queues import mmm

__all__ = ["sustainable_rate"]


def sustainable_rate(
    demand: float, servers: int, limit: float, *, fixed: float = 0.0, share: float = 0.99
) -> float:
    """Return the highest arrival rate at which an M/M/m queue is fast enough.

    Args:
        demand: mean service time of a request.
        servers: the number of servers of one queue.
        limit: the longest acceptable response time.
        fixed: additional time that a response takes, such as that of the network.
        share: the share of responses that must be within the limit, such as 0.99.

    Returns:
        The rate, per unit of time; 0 if even a server without load is too slow.

    Raises:
        ValueError: an argument is out of range.
    """
    if not (demand > 0 and math.isfinite(demand)):
        raise ValueError(f"demand must be a positive number, not {demand:g}")
    if not (limit > 0 and fixed >= 0):
        raise ValueError("limit must be positive, and fixed at least 0")

    def fast_enough(rate: float) -> bool:
        return fixed + mmm(rate, 1 / demand, servers).response_percentile(share) <= limit

    slowest, fastest = 0.0, servers / demand
    if not fast_enough(slowest):
        return 0.0
    while fastest - slowest > 1e-6 * fastest:
        middle = (slowest + fastest) / 2
        if fast_enough(middle):
            slowest = middle
        else:
            fastest = middle
    return slowest
