"""Where a system saturates, from its throughput with several numbers of clients.

The rule: the plateau consists of the loads with at least 95% of the highest throughput. With fewer
clients the system is under-saturated; with more clients than the best load, and less throughput
than the plateau, it is over-saturated. The knee is the first load of the plateau.

If throughput still rises at the last load, it is not known how much further it may rise. That load
is then certainly under-saturated only if throughput rises almost in proportion to clients up to it,
as it does while hardly any request waits (Jain 1991, section 33.6). Otherwise it may be on the
plateau.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from memlite.lab.series import Floats, student

__all__ = ["LoadRange", "LoadState", "Saturation", "find_saturation"]

_FEW_LOADS = 4
# Throughput rises almost in proportion to clients if it rises by at least their growth to this
# power: by 1.87 if clients double.
_PROPORTIONAL = 0.9
_Range = tuple[float, float]


class LoadState(StrEnum):
    """The state of a system at a load."""

    UNDER = "under-saturated"
    SATURATED = "saturated"
    OVER = "over-saturated"


@dataclass(frozen=True, slots=True)
class LoadRange:
    """A load, and the range it belongs to.

    Attributes:
        clients: the number of clients.
        throughput: its mean throughput.
        share: the throughput divided by the highest.
        interval: the confidence interval of the share, simultaneous for all loads.
        state: the range.
        certain: whether the range is the same for the whole interval.
    """

    clients: float
    throughput: float
    share: float
    interval: _Range
    state: LoadState
    certain: bool


@dataclass(frozen=True, slots=True)
class Saturation:
    """Where a system saturates.

    Attributes:
        loads: the loads, by number of clients.
        best: the number of clients with the highest throughput.
        knee: the fewest clients at which throughput is on the plateau; None if no load is.
        knee_interval: the knee is above the first number of clients and at most the second: that of
            the last load that is certainly under-saturated, 0 if none, and that of the first load
            that certainly is not, infinite if none.
        asymptotic_knee: N* = the highest throughput divided by that of one client at the lowest
            load, where the two bounds on throughput meet (Jain 1991, section 33.6): with fewer
            clients, hardly any request waits.
        most_power: the number of clients with the most throughput divided by response time,
            Kleinrock's power; None if response times are not known.
        warnings: what the data cannot support, each in a sentence.
    """

    loads: tuple[LoadRange, ...]
    best: float
    knee: float | None
    knee_interval: _Range
    asymptotic_knee: float
    most_power: float | None
    warnings: tuple[str, ...]

    def clients(self, state: LoadState) -> tuple[float, ...]:
        """Return the numbers of clients of the loads in a range."""
        return tuple(load.clients for load in self.loads if load.state == state)


def find_saturation(
    clients: Sequence[float],
    throughput: Sequence[Sequence[float]],
    response_time: Sequence[float] | None = None,
    plateau: float = 0.95,
    confidence: float = 0.95,
) -> Saturation:
    """Divide loads into under-saturated, saturated and over-saturated ones.

    The intervals assume that the logarithms of throughput have the same variance at each load, and
    hold for all loads simultaneously (Bonferroni).

    Args:
        clients: the number of clients of each load, in ascending order.
        throughput: the throughput of each repetition, for each load.
        response_time: the mean response time of each load; None if not known.
        plateau: the share of the highest throughput from which a load counts as saturated.
        confidence: the confidence level of the intervals, from 0 to 1.

    Raises:
        ValueError: there are fewer than two loads, they are not in order, they have no repetitions,
            a value is not a positive number, or an argument is out of range.
    """
    _check(clients, throughput, response_time, plateau)
    logs = [np.log(np.array(one, float)) for one in throughput]
    best = int(np.argmax([one.mean() for one in logs]))
    freedom = sum(len(one) - 1 for one in logs)
    reach = math.inf
    if freedom:
        each = 1 - (1 - confidence) / (len(logs) - 1)
        variance = sum(float(((one - one.mean()) ** 2).sum()) for one in logs) / freedom
        reach = student(freedom, each) * math.sqrt(variance)
    loads = [
        _load(number, count, logs[number], logs[best], reach, best, plateau)
        for number, count in enumerate(clients)
    ]
    loads[best] = _best(loads, best, plateau)
    knee, interval = _knee(loads, best)
    power = None
    if response_time is not None:
        powers = [load.throughput / one for load, one in zip(loads, response_time, strict=True)]
        power = float(clients[int(np.argmax(powers))])
    return Saturation(
        tuple(loads),
        float(clients[best]),
        knee,
        interval,
        loads[best].throughput * loads[0].clients / loads[0].throughput,
        power,
        tuple(_warnings(loads, best, freedom)),
    )


def _check(
    clients: Sequence[float],
    throughput: Sequence[Sequence[float]],
    response_time: Sequence[float] | None,
    plateau: float,
) -> None:
    if len(clients) < 2 or len(clients) != len(throughput):
        raise ValueError("at least two loads are needed, each with throughputs")
    if any(after <= before for before, after in itertools.pairwise(clients)):
        raise ValueError("clients must be in ascending order")
    if response_time is not None and len(response_time) != len(clients):
        raise ValueError("there must be one response time for each load")
    values = [*clients, *(response_time or ()), *(value for one in throughput for value in one)]
    if not all(map(len, throughput)) or not all(math.isfinite(one) and one > 0 for one in values):
        raise ValueError("clients, throughputs and response times must be positive numbers")
    if not 0 < plateau < 1:
        raise ValueError(f"plateau must be between 0 and 1, not {plateau:g}")


def _load(
    number: int,
    clients: float,
    logs: Floats,
    highest: Floats,
    reach: float,
    best: int,
    plateau: float,
) -> LoadRange:
    difference = float(logs.mean() - highest.mean())
    half = 0.0 if number == best else reach * math.sqrt(1 / len(logs) + 1 / len(highest))
    share = math.exp(difference)
    interval = (math.exp(difference - half), math.exp(min(difference + half, 700.0)))
    outside = LoadState.UNDER if number < best else LoadState.OVER
    return LoadRange(
        float(clients),
        float(np.exp(logs).mean()),
        share,
        interval,
        LoadState.SATURATED if share >= plateau else outside,
        certain=not interval[0] < plateau <= interval[1],
    )


def _best(loads: Sequence[LoadRange], best: int, plateau: float) -> LoadRange:
    """Return the best load with its range, and whether that is certain despite the selection."""
    if best == len(loads) - 1:
        # If throughput still rises, nothing shows whether this load is on a plateau.
        before = loads[best - 1]
        certain = before.certain
        if before.state == LoadState.UNDER:
            certain = certain and _proportional(before, loads[best])
        return replace(loads[best], state=before.state, certain=certain)
    certain = all(load.interval[1] * plateau <= 1 for load in loads[best + 1 :])
    return replace(loads[best], certain=certain)


def _proportional(before: LoadRange, best: LoadRange) -> bool:
    """Return whether throughput certainly rises almost in proportion to clients up to the best."""
    growth = -math.log(before.interval[1])
    return growth >= _PROPORTIONAL * math.log(best.clients / before.clients)


def _knee(loads: Sequence[LoadRange], best: int) -> tuple[float | None, _Range]:
    under = [load.clients for load in loads if load.state == LoadState.UNDER]
    above = max(under, default=0.0)
    knee = min((load.clients for load in loads if load.clients > above), default=None)
    surely = max(
        (load.clients for load in loads if load.state == LoadState.UNDER and load.certain),
        default=0.0,
    )
    on_plateau = (
        load.clients
        for load in loads
        if load.state != LoadState.UNDER and load.certain and load.clients > above
    )
    return knee, (surely, min(on_plateau, default=math.inf))


def _warnings(loads: Sequence[LoadRange], best: int, freedom: int) -> list[str]:
    found = []
    if not freedom:
        found.append("Each load was measured only once, so no finding is certain.")
    if len(loads) < _FEW_LOADS:
        found.append(f"{len(loads)} loads are too few to locate a knee reliably.")
    if loads[best].state == LoadState.UNDER:
        where = "is" if loads[best].certain else "may be"
        found.append(
            f"Throughput is still rising at {loads[best].clients:g} clients, the highest load "
            f"measured: the knee {where} at a higher load."
        )
    elif best == len(loads) - 1:
        found.append("Throughput is highest at the highest load: it may rise further.")
    if loads[0].state != LoadState.UNDER:
        found.append(
            f"The lowest load, {loads[0].clients:g} clients, is already saturated: the knee may be "
            "at a lower load."
        )
    return found
