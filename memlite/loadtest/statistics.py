"""What repetitions come to: merged histograms, means and their confidence intervals."""

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from hdrh.histogram import HdrHistogram

from memlite.errors import ConfigError
from memlite.loadtest.results import Interval, Latency, Point, Repetition

_Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

__all__ = [
    "BUSY",
    "CONFIDENCE",
    "HIGHEST",
    "LATE",
    "LOWEST",
    "SIGNIFICANT_DIGITS",
    "curve",
    "decode",
    "interval",
    "latency",
    "merge",
    "new_histogram",
    "point",
]

LOWEST = 1
"""Microseconds: the shortest time a histogram tells from others."""
HIGHEST = 3_600_000_000
"""Microseconds, an hour: the longest time a histogram takes."""
SIGNIFICANT_DIGITS = 3
CONFIDENCE = 0.95

BUSY = 0.9
"""The share of a core from which a worker counts as the limit, in closed loop."""
LATE = 1000.0
"""Microseconds: a generator that sends later than this, in open loop, counts as the limit."""


def new_histogram() -> HdrHistogram:
    """Return an empty histogram of microseconds, of the kind all of a run's are."""
    return HdrHistogram(LOWEST, HIGHEST, SIGNIFICANT_DIGITS)


def latency(histogram: HdrHistogram) -> Latency:
    """Sum a histogram up.

    Args:
        histogram: of microseconds.

    Returns:
        Its percentiles, and itself as text; an empty `Latency` for an empty histogram.
    """
    count = histogram.get_total_count()
    if not count:
        return Latency()
    if histogram.counts_len != len(_values()):
        histogram, other = new_histogram(), histogram
        histogram.add(other)
    at = histogram.get_percentile_to_value_dict([50, 90, 99, 99.9])
    return Latency(
        count=int(count),
        mean=float(_counts(histogram) @ _values()) / count,
        least=float(histogram.get_min_value()),
        p50=float(at[50]),
        p90=float(at[90]),
        p99=float(at[99]),
        p999=float(at[99.9]),
        most=float(histogram.get_max_value()),
        histogram=histogram.encode().decode("ascii"),
    )


def decode(latency: Latency) -> HdrHistogram:
    """Return the histogram that a `Latency` carries as text.

    Args:
        latency: as `latency` makes it; without text the histogram is empty.

    Raises:
        ConfigError: the text is no histogram.
    """
    if not latency.histogram:
        return new_histogram()
    try:
        return HdrHistogram.decode(latency.histogram)
    except Exception as error:  # noqa: BLE001 - zlib's, base64's, ctypes' and its own
        raise ConfigError(f"a histogram of latencies cannot be read: {error}") from None


def merge(latencies: Iterable[Latency]) -> Latency:
    """Return one distribution of all that was recorded.

    Args:
        latencies: any number of them, in microseconds.

    Raises:
        ConfigError: a histogram cannot be read.
    """
    merged = new_histogram()
    for one in latencies:
        merged.add(decode(one))
    return latency(merged)


def curve(latency: Latency) -> list[tuple[float, float]]:
    """Return a distribution as a curve.

    Args:
        latency: with a histogram.

    Returns:
        For each time that was recorded, from the shortest on: which share of all took at most as
        long, and the time in microseconds. The last share is 1.

    Raises:
        ConfigError: the histogram cannot be read.
    """
    histogram = new_histogram()
    histogram.add(decode(latency))
    counts = _counts(histogram)
    recorded = np.flatnonzero(counts)
    shares = np.cumsum(counts[recorded]) / max(1, histogram.get_total_count())
    return list(zip(shares.tolist(), _values()[recorded].tolist(), strict=True))


@functools.cache
def _values() -> _Floats:
    """Return the middle of what each count of a histogram stands for, in microseconds.

    The library's own walk over a histogram, which it takes for a mean, lasts 40 ms.
    """
    histogram = new_histogram()
    lowest = [histogram.get_value_from_index(index) for index in range(histogram.counts_len)]
    return np.array([histogram._hdr_median_equiv_value(value) for value in lowest], dtype=float)


def _counts(histogram: HdrHistogram) -> _Floats:
    return np.ctypeslib.as_array(histogram.counts).astype(float)


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values and its 95% confidence interval, by Student's t.

    Args:
        values: one or more; one alone has no interval.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean)
    # Imported here: it takes longer than a short measurement.
    from scipy import stats

    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    half = quantile * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half)


def point(
    target: str,
    clients: int,
    rate: float,
    value_size: float,
    repetitions: Sequence[Repetition],
) -> Point:
    """Sum up the repetitions of one target under one load.

    Args:
        target: its name.
        clients: connections at once.
        rate: operations a second that were to be sent; 0 in closed loop.
        value_size: bytes of a value.
        repetitions: one or more.

    Raises:
        ValueError: there are no repetitions.
        ConfigError: a histogram cannot be read.
    """
    all_times = [one.response["all"] for one in repetitions if "all" in one.response]
    return Point(
        target=target,
        clients=clients,
        rate=rate,
        value_size=value_size,
        repetitions=tuple(repetitions),
        throughput=interval([one.throughput for one in repetitions]),
        seconds=interval([one.seconds for one in repetitions]),
        p50=interval([times.p50 for times in all_times] or [0.0]),
        p99=interval([times.p99 for times in all_times] or [0.0]),
        response={
            name: merge(one.response[name] for one in repetitions if name in one.response)
            for name in _names(one.response for one in repetitions)
        },
        service={
            name: merge(one.service[name] for one in repetitions if name in one.service)
            for name in _names(one.service for one in repetitions)
        },
        generator_limited=any(_generator_limited(one, rate) for one in repetitions),
    )


def _names(mappings: Iterable[Iterable[str]]) -> list[str]:
    """Return each name once, in the order they come up."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _generator_limited(repetition: Repetition, rate: float) -> bool:
    if rate:
        return repetition.lateness > LATE
    return repetition.generator_share > BUSY
