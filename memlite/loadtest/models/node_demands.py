"""The service demand of requests at each node, from the traces of proxies."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from memlite.lab import Estimate, Times
from memlite.loadtest.models.traces import Traced

__all__ = ["node_demands"]

# The quantile of the normal distribution for intervals of 95%, of means over many requests.
_NORMAL: Final = 1.96
# With fewer requests, the variance is not known well enough.
_FEWEST: Final = 20
# If more requests go to several nodes at once, nodes are not stations visited one after another.
_MAX_TO_SEVERAL: Final = 0.1


def node_demands(loads: Sequence[Mapping[str, Traced]]) -> dict[str, Estimate]:
    """Return each node's service demand: visits per request, multiplied by the time of a visit.

    The time is that of the load with the fewest clients, where requests hardly wait at the nodes;
    the visits are those of all loads. The time on the way to the node and back is included, as a
    proxy cannot distinguish it from the service.

    Args:
        loads: the proxies' traces of each load, by the proxy's name; the fewest clients first.

    Returns:
        The demands in seconds with their 95% confidence intervals, keyed by ``node`` and its
        address; empty if there are too few requests, or too many go to several nodes at once.
    """
    first = _by_node(loads[:1])
    visits = {
        name: sum(one.count for one in times) for name, times in sorted(_by_node(loads).items())
    }
    total = sum(visits.values())
    requests = sum(one.requests for load in loads for one in load.values())
    if not total or total < (1 - _MAX_TO_SEVERAL) * requests:
        return {}
    if min(sum(one.count for one in first.get(name, [])) for name in visits) < _FEWEST:
        return {}
    return {f"node {name}": _demand(first[name], count, total) for name, count in visits.items()}


def _by_node(loads: Sequence[Mapping[str, Traced]]) -> dict[str, list[Times]]:
    found: dict[str, list[Times]] = {}
    for load in loads:
        for traced in load.values():
            for name, times in traced.nodes.items():
                found.setdefault(name, []).append(times)
    return found


def _demand(times: Sequence[Times], visits: int, total: int) -> Estimate:
    """Return the product of the mean time and of the share of visits.

    Args:
        times: the times of the visits, by proxy.
        visits: the number of visits to this node.
        total: the number of all visits.
    """
    count = sum(one.count for one in times)
    mean = math.fsum(one.count * one.mean for one in times) / count
    squares = math.fsum(one.count * (one.variance + one.mean**2) for one in times) / count
    share = visits / total
    error = math.hypot(
        share * math.sqrt(max(squares - mean**2, 0.0) / count),
        mean * math.sqrt(share * (1 - share) / total),
    )
    reach = _NORMAL * error
    return Estimate(share * mean, max(share * mean - reach, 0.0), share * mean + reach)
