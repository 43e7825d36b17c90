"""From measurements to what is said about them."""

import math
import statistics
from collections.abc import Mapping, Sequence

from hdrh.histogram import HdrHistogram

from memlite.loadtest.results import Interval, Latency, Point, Repetition

__all__ = ["decode", "interval", "latency", "new_histogram", "point"]

_LEAST_MICROSECONDS = 1
_MOST_MICROSECONDS = 3_600_000_000
_DIGITS = 3
_CONFIDENCE = 0.95
# Of a worker's time; above it the generator, not the server, is what is measured.
_BUSY = 0.9
# Microseconds that requests of the open loop may be late.
_LATE = 1000.0


def new_histogram() -> HdrHistogram:
    """Return an empty histogram of microseconds, up to an hour, in three significant digits."""
    return HdrHistogram(_LEAST_MICROSECONDS, _MOST_MICROSECONDS, _DIGITS)


def latency(histogram: HdrHistogram) -> Latency:
    """Return what is saved of a histogram."""
    count = histogram.get_total_count()
    if not count:
        return Latency()
    at = histogram.get_value_at_percentile
    return Latency(
        count=count,
        mean=round(histogram.get_mean_value(), 1),
        least=float(histogram.get_min_value()),
        p50=float(at(50)),
        p90=float(at(90)),
        p99=float(at(99)),
        p999=float(at(99.9)),
        most=float(histogram.get_max_value()),
        histogram=histogram.encode().decode("ascii"),
    )


def decode(one: Latency) -> HdrHistogram:
    """Return the histogram that was saved; an empty one of an empty distribution."""
    return HdrHistogram.decode(one.histogram) if one.histogram else new_histogram()


def interval(values: Sequence[float]) -> Interval:
    """Return the mean and its 95% confidence interval by Student's t."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean)
    # Imported here: it takes most of a second.
    from scipy.stats import t

    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = float(t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)) * error
    return Interval(mean, mean - reach, mean + reach)


def point(
    target: str, clients: int, rate: float, value_size: float, repetitions: Sequence[Repetition]
) -> Point:
    """Return what repetitions of the same measurement come to."""
    every = [one.response.get("all", Latency()) for one in repetitions]
    return Point(
        target=target,
        clients=clients,
        rate=rate,
        value_size=value_size,
        repetitions=repetitions,
        throughput=interval([one.throughput for one in repetitions]),
        seconds=interval([one.seconds for one in repetitions]),
        p50=interval([one.p50 for one in every]),
        p99=interval([one.p99 for one in every]),
        response=_merged([one.response for one in repetitions]),
        service=_merged([one.service for one in repetitions]),
        generator_limited=any(
            one.lateness > _LATE if one.service else one.generator_share > _BUSY
            for one in repetitions
        ),
    )


def _merged(parts: Sequence[Mapping[str, Latency]]) -> dict[str, Latency]:
    totals: dict[str, HdrHistogram] = {}
    for part in parts:
        for kind, one in part.items():
            if one.histogram:
                totals.setdefault(kind, new_histogram()).add(decode(one))
    return {kind: latency(total) for kind, total in totals.items()}
