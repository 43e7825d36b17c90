"""Why figures do not bear a conclusion."""

from collections.abc import Sequence
from typing import Final

from memlite.loadtest.results import Point
from memlite.loadtest.units import percent

__all__ = ["doubt_about_saturation"]

# The half-width of a confidence interval, as a share of the mean, above which repetitions differ
# too much to tell a plateau from chance.
_MOST_SPREAD: Final = 0.1
# A server that answers from memory and uses less of a processor is waiting for something else.
_BUSY: Final = 0.85
_FROM_MEMORY: Final = ("memory", "server")


def doubt_about_saturation(points: Sequence[Point], kind: str) -> str:
    """Return why the points do not show where a target saturates; empty if they do.

    Args:
        points: those of one target from where it seems to saturate upwards.
        kind: the kind of the target, see `TargetInfo`. A file or a bucket may be the limit while
            the server's processor is idle.
    """
    if any(point.throughput.low is None for point in points):
        return "there is only one repetition"
    if any(point.generator_limited for point in points):
        return "the load generator is the limit"
    spread = max(map(_spread, points))
    if spread > _MOST_SPREAD:
        return f"throughput varies by ±{percent(spread)} between repetitions"
    shares = [
        repetition.server.cpu_share
        for point in points
        for repetition in point.repetitions
        if repetition.server is not None
    ]
    if kind in _FROM_MEMORY and shares and max(shares) < _BUSY:
        return f"the server was busy for at most {percent(max(shares))} of the time"
    return ""


def _spread(point: Point) -> float:
    interval = point.throughput
    if interval.high is None or not interval.mean:
        return 0.0
    return (interval.high - interval.mean) / interval.mean
