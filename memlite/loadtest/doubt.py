"""Reasons why figures do not support a conclusion, and comparisons with their uncertainty."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.loadtest.results import Interval, Point, Repetition
from memlite.loadtest.statistics import ratio
from memlite.loadtest.units import grouped, percent

__all__ = [
    "NO_DIFFERENCE",
    "Comparison",
    "compare",
    "doubt_about_saturation",
    "machine_doubt",
    "spread",
]

# The half-width of a confidence interval, as a share of the mean, above which repetitions differ
# too much to tell a plateau from chance.
_MAX_SPREAD: Final = 0.1
# If a server answers from memory and its busiest thread uses less of a core than this, something
# else is the bottleneck.
_BUSY: Final = 0.85
_FROM_MEMORY: Final = ("memory", "server", "cluster")
# Shares of the machine's processors that other programs and the hypervisor may use without
# changing the figures much.
_MAX_OTHER_LOAD: Final = 0.1
_MAX_STEAL: Final = 0.05

NO_DIFFERENCE: Final = "the difference is within the variation between repetitions"
"""The doubt about a comparison that shows no difference, as opposed to one with too little data."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two targets by their repetitions.

    Attributes:
        ratio: the slower target's value divided by the faster one's, with its confidence interval.
        doubt: why the figures do not show which value is larger; empty if they do.
        bound: whether the load generator limited the faster target, which may be faster still.
    """

    ratio: Interval
    doubt: str
    bound: bool = False

    def times(self, bound: str) -> str:
        """Return the ratio in words: "0.45 times (0.43 to 0.47)".

        Args:
            bound: wording used if the load generator limited the faster target: "at most" or
                "at least".
        """
        # Near 1, two digits would often hide the difference.
        digits = 2 if abs(self.ratio.mean - 1) > 0.05 else 3
        mean, low, high = (
            f"{value:.{digits}g}" if value < 10 else grouped(value)
            for value in (
                self.ratio.mean,
                self.ratio.low or self.ratio.mean,
                self.ratio.high or self.ratio.mean,
            )
        )
        if self.bound:
            return f"{bound} {mean} times"
        return f"{mean} times" if low == high else f"{mean} times ({low} to {high})"


def doubt_about_saturation(points: Sequence[Point], kind: str) -> str:
    """Return why the points do not show where a target saturates; empty if they do.

    Args:
        points: the points of one target, from the load at which it seems to saturate upwards.
        kind: the target's kind, see `TargetInfo`. A file or a bucket may be the bottleneck while
            the server's processor is idle.
    """
    if any(point.throughput.low is None for point in points):
        return "there is only one repetition"
    doubt = machine_doubt(points)
    if doubt:
        return doubt
    if any(point.generator_limited for point in points):
        return "the load generator is the bottleneck"
    most = max(map(spread, points))
    if most > _MAX_SPREAD:
        return f"throughput varies by ±{percent(most)} between repetitions"
    shares = [
        repetition.server.thread_share or repetition.server.cpu_share
        for point in points
        for repetition in point.repetitions
        if repetition.server is not None
    ]
    if kind in _FROM_MEMORY and shares and max(shares) < _BUSY:
        return f"the server was busy for at most {percent(max(shares))} of the time"
    return ""


def compare(
    slower: Point,
    faster: Point,
    value: Callable[[Repetition], float],
    beside: Sequence[Point] = (),
) -> Comparison:
    """Compare two targets, one of which appears to be slower.

    Args:
        slower: the target that appears to be slower.
        faster: the other target.
        value: returns the value of a repetition to compare.
        beside: points whose measurements alternated with these. They show how busy the machine was
            if `slower` and `faster` were too short to tell.
    """
    values = [[value(one) for one in point.repetitions] for point in (slower, faster)]
    found = ratio(*values)
    doubt = _doubt_about_difference(slower, faster, found, beside)
    return Comparison(found, doubt, faster.generator_limited)


def _doubt_about_difference(
    slower: Point, faster: Point, found: Interval, beside: Sequence[Point]
) -> str:
    if min(len(slower.repetitions), len(faster.repetitions)) < 2:
        return "there is only one repetition"
    doubt = machine_doubt([slower, faster, *beside])
    if doubt:
        return doubt
    if slower.generator_limited:
        return f"the load generator limits {slower.target}"
    if found.low is None or found.high is None:
        return "some repetitions completed no operations"
    if found.low <= 1 <= found.high:
        return NO_DIFFERENCE
    return ""


def machine_doubt(points: Sequence[Point]) -> str:
    """Return which other load kept the machine busy during the measurements; empty if none.

    Args:
        points: one or more.
    """
    used = [one.machine for point in points for one in point.repetitions if one.machine is not None]
    other = max((one.other for one in used), default=0.0)
    steal = max((one.steal for one in used), default=0.0)
    if other > _MAX_OTHER_LOAD:
        return f"other programs used up to {other:.0%} of the machine's processors"
    if steal > _MAX_STEAL:
        return f"the hypervisor took up to {steal:.0%} of the machine's processors"
    return ""


def spread(point: Point) -> float:
    """Return the half-width of the interval of a point's throughput, as a share of the mean.

    It is 0 if there is no interval.
    """
    interval = point.throughput
    if interval.high is None or not interval.mean:
        return 0.0
    return (interval.high - interval.mean) / interval.mean
