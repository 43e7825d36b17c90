"""Determines the number of keys from which spreading them over several nodes pays off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from memlite.loadtest.multigets.runs import Run
from memlite.loadtest.results import Interval, Latency
from memlite.loadtest.statistics import curve, decode, merge, percentiles, positive_interval
from memlite.loadtest.units import grouped, percent

__all__ = ["PERCENTILES", "Comparison", "Side", "buckets", "compare_sizes", "doubts", "sentence"]

PERCENTILES: Final = (25, 50, 75, 90, 99)

NO_GAIN: Final = 0.05
"""Sharding that makes a get faster by at most this share does not pay off."""

_Floats = npt.NDArray[np.float64]

_PER_DECADE: Final = 12
# The shares that a load generator, and other programs, may use without affecting the figures.
_MAX_GENERATOR: Final = 0.9
_MAX_OTHER: Final = 0.1


@dataclass(frozen=True, slots=True)
class Side:
    """One way of getting a number of keys, over all repetitions. Times are in microseconds.

    Attributes:
        requests: gets per second.
        mean: response time at the clients.
        client: percentiles at the clients, of all repetitions together; see `PERCENTILES`.
        proxy: likewise at the proxy; empty if it has no traced requests.
        at_client: the distribution of response times at the clients.
        at_proxy: likewise at the proxy.
    """

    requests: Interval
    mean: Interval
    client: tuple[float, ...]
    proxy: tuple[float, ...]
    at_client: Latency
    at_proxy: Latency


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both ways of getting a number of keys.

    Attributes:
        size: the number of keys.
        sharded: keys that are spread over all nodes.
        together: keys that are on one node.
        ratio: the mean response time of sharded gets divided by that of gets from one node: the
            mean over the repetitions, each of which measures both in turn, and its interval.
        tail: the same for the 99th percentile.
    """

    size: int
    sharded: Side
    together: Side
    ratio: Interval
    tail: Interval

    @property
    def pays(self) -> bool:
        """Whether sharding is faster, with a confidence of 95%; one key is never sharded."""
        return self.size > 1 and self.ratio.high is not None and self.ratio.high < 1

    @property
    def costs(self) -> bool:
        """Whether sharding is slower, likewise."""
        return self.size > 1 and self.ratio.low is not None and self.ratio.low > 1

    @property
    def decision(self) -> str:
        """The effect of sharding, in a word or two; a dash for one key."""
        if self.size == 1:
            return "–"
        return "faster" if self.pays else "slower" if self.costs else "not significant"


def compare_sizes(runs: Sequence[Run]) -> list[Comparison]:
    """Return a comparison for each size measured both ways, in order.

    Raises:
        ConfigError: a histogram cannot be read.
    """
    found = []
    for size in sorted({run.size for run in runs}):
        sides = {
            sharded: {
                run.number: run for run in runs if run.size == size and run.sharded == sharded
            }
            for sharded in (True, False)
        }
        numbers = sorted(sides[True].keys() & sides[False].keys())
        if not numbers:
            continue
        pairs = [(sides[True][number], sides[False][number]) for number in numbers]
        found.append(
            Comparison(
                size,
                _side([one for one, _ in pairs]),
                _side([other for _, other in pairs]),
                _ratio(pairs, lambda run: run.client.mean),
                _ratio(pairs, lambda run: run.client.p99),
            )
        )
    return found


def _side(runs: Sequence[Run]) -> Side:
    client = merge(run.client for run in runs)
    proxy = merge(run.proxy for run in runs if run.proxy is not None)
    return Side(
        positive_interval([run.requests for run in runs]),
        positive_interval([run.client.mean for run in runs]),
        _percentiles(client),
        _percentiles(proxy),
        client,
        proxy,
    )


def _percentiles(times: Latency) -> tuple[float, ...]:
    if not times.count:
        return ()
    found = percentiles(decode(times), PERCENTILES)
    return tuple(float(found[one]) for one in PERCENTILES)


def _ratio(pairs: Sequence[tuple[Run, Run]], value: Callable[[Run], float]) -> Interval:
    """Return the mean ratio of values measured in turn, by Student's t on the logarithms."""
    return positive_interval([value(one) / value(other) for one, other in pairs])


def buckets(times: Sequence[Latency]) -> tuple[_Floats, list[_Floats]]:
    """Sort times into the same buckets, twelve for each power of ten.

    Args:
        times: distributions.

    Returns:
        The bounds of the buckets, in microseconds, and for each distribution the number of times in
        each bucket.

    Raises:
        ConfigError: a histogram cannot be read.
    """
    known = [one for one in times if one.count]
    least = min((one.least for one in known), default=1.0)
    most = max((one.most for one in known), default=10.0)
    first = np.floor(np.log10(max(least, 1.0)) * _PER_DECADE)
    last = np.floor(np.log10(max(most, 1.0)) * _PER_DECADE) + 1
    bounds: _Floats = 10 ** (np.arange(first, last + 1) / _PER_DECADE)
    return bounds, [_sorted(one, bounds) for one in times]


def _sorted(times: Latency, bounds: _Floats) -> _Floats:
    shares, values = np.array(curve(times) or [(0.0, 1.0)]).T
    counts = np.diff(shares, prepend=0.0) * times.count
    # The midpoint of a bucket may lie just outside the distribution's minimum and maximum.
    inside = np.clip(values, bounds[0], np.nextafter(bounds[-1], 0))
    found: _Floats = np.histogram(inside, bounds, weights=counts)[0]
    return found


def doubts(runs: Sequence[Run]) -> list[str]:
    """Return reasons to doubt the measurement, in sentences."""
    found = []
    busiest = max((run.generator_share for run in runs), default=0.0)
    if busiest > _MAX_GENERATOR:
        found.append(
            f"A load generator process used up to {percent(busiest)} of a core, and response times "
            "include its own delays."
        )
    other = max((run.other or 0.0 for run in runs), default=0.0)
    if other > _MAX_OTHER:
        found.append(f"Other programs used up to {percent(other)} of the machine's processors.")
    errors, misses = sum(run.errors for run in runs), sum(run.misses for run in runs)
    if errors:
        found.append(f"{grouped(errors)} requests failed.")
    if misses:
        found.append(f"{grouped(misses)} keys were not found.")
    return found


def sentence(found: Sequence[Comparison]) -> str:
    """Return the size from which sharding pays off, with its uncertainty."""
    several = [one for one in found if one.size > 1]
    if not several:
        return "Only gets of one key were measured, which are never sharded."
    if all(one.ratio.high is None for one in several):
        return "With one repetition, the size from which sharding pays off cannot be determined."
    for decide, verb, comparative in (
        (lambda one: one.pays, "pays off", "faster"),
        (lambda one: one.costs, "is slower", "slower"),
    ):
        tail = _tail(several, decide)
        if tail:
            return _from(several, tail, verb, comparative)
    return _without_an_end(several)


def _without_an_end(several: Sequence[Comparison]) -> str:
    """Return what is known if the largest size is undecided."""
    pays = [one.size for one in several if one.pays]
    costs = [one.size for one in several if one.costs]
    most = several[-1].size
    undecided = [one for one in several if not (one.pays or one.costs)]
    gains = [1 - one.ratio.low for one in several if one.ratio.low is not None]
    if not pays and len(gains) == len(several) and max(gains) <= NO_GAIN:
        text = f"Sharding does not pay off at any size up to {most} keys"
        if costs:
            text += f": it is slower with {_numbers(costs)}"
        return f"{text}; if it is faster at all, by at most {max(*gains, 0.0):.0%}."
    parts = [f"Up to {most} keys, the size from which sharding pays off cannot be determined"]
    if pays:
        parts.append(f"it is faster with {_numbers(pays)}")
    if costs:
        parts.append(f"it is slower with {_numbers(costs)}")
    if pays or costs:
        sizes = _numbers([one.size for one in undecided])
        parts.append(f"the difference is not statistically significant with {sizes}")
    return f"{'; '.join(parts)}."


def _tail(
    several: Sequence[Comparison], decide: Callable[[Comparison], bool]
) -> Sequence[Comparison]:
    """Return the longest run of sizes, up to the largest, that are all decided the same way."""
    start = len(several)
    while start and decide(several[start - 1]):
        start -= 1
    return several[start:]


def _from(
    several: Sequence[Comparison], tail: Sequence[Comparison], verb: str, comparative: str
) -> str:
    first, last = tail[0], tail[-1]
    before = [one for one in several if one.size < first.size]
    text = f"Sharding {verb} with {first.size} or more keys"
    text += f": with {last.size} keys a get is {_times(last.ratio)} {comparative}"
    undecided = [one.size for one in before if not (one.pays or one.costs)]
    decided = [one for one in before if one.pays or one.costs]
    if undecided:
        text += f"; not significant with {_numbers(undecided)}"
    if decided:
        other = "faster" if decided[0].pays else "slower"
        text += f"; {other} with {_numbers([one.size for one in decided])}"
    return f"{text}."


def _times(ratio: Interval) -> str:
    """Return the size of the effect, as "12% (9% to 15%)"."""
    low, high = ratio.low or ratio.mean, ratio.high or ratio.mean
    bounds = sorted(abs(one - 1) for one in (low, high))
    return f"{abs(ratio.mean - 1):.0%} ({bounds[0]:.0%} to {bounds[1]:.0%})"


def _numbers(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return f"{sizes[0]}"
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
