"""When requests are sent in open loop, regardless of the replies to earlier ones."""

import random
from collections.abc import Iterator

__all__ = ["arrivals"]

_SECOND = 1_000_000_000


def arrivals(rate: float, kind: str, seed: int, share: float = 0.0) -> Iterator[int]:
    """Yield the times of arrivals, in nanoseconds from the start, without end.

    Args:
        rate: arrivals a second.
        kind: ``constant``, or ``poisson`` for exponential gaps.
        seed: the seed of the random gaps of ``poisson``.
        share: the fraction of a gap before the first arrival of ``constant``, so that several
            workers take turns.
    """
    gap = _SECOND / rate
    if kind == "constant":
        number = share
        while True:
            yield int(number * gap)
            number += 1
    source, time = random.Random(seed), 0.0  # noqa: S311 - no secret
    while True:
        time += source.expovariate(1 / gap)
        yield int(time)
