"""Statistics over repetitions: merged histograms, means and their confidence intervals."""

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from hdrh.histogram import HdrHistogram

from memlite.core.errors import ConfigError
from memlite.loadtest.results import Interval, Latency, Point, Repetition

_Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

__all__ = [
    "CONFIDENCE",
    "HIGHEST",
    "LOWEST",
    "MAX_LATENESS",
    "MAX_WORKER_UTILISATION",
    "SIGNIFICANT_DIGITS",
    "curve",
    "decode",
    "interval",
    "latency",
    "merge",
    "new_histogram",
    "percentiles",
    "point",
    "positive_interval",
    "ratio",
]

LOWEST = 1
"""The shortest latency a histogram can distinguish, in microseconds."""
HIGHEST = 3_600_000_000
"""The longest latency a histogram can hold, in microseconds: an hour."""
SIGNIFICANT_DIGITS = 3
CONFIDENCE = 0.95

MAX_WORKER_UTILISATION = 0.9
"""A worker that uses more than this share of a core counts as the bottleneck.

In an open loop, a worker counts as the bottleneck if it is idle for less than the rest of the time,
since it also uses all of a core while it waits for the next arrival.
"""
MAX_LATENESS = 1000.0
"""In an open loop, a generator that is later than this, in µs, counts as the bottleneck."""


def new_histogram() -> HdrHistogram:
    """Return an empty latency histogram in microseconds; all histograms share one configuration."""
    return HdrHistogram(LOWEST, HIGHEST, SIGNIFICANT_DIGITS)


def latency(histogram: HdrHistogram) -> Latency:
    """Summarise a histogram.

    Args:
        histogram: latencies in microseconds.

    Returns:
        Its percentiles and its encoded form; an empty `Latency` for an empty histogram.
    """
    count = histogram.get_total_count()
    if not count:
        return Latency()
    if histogram.counts_len != len(_bucket_midpoints()):
        histogram, other = new_histogram(), histogram
        histogram.add(other)
    at = percentiles(histogram, (50, 90, 99, 99.9))
    return Latency(
        count=int(count),
        # Do not use `@`: for an array of this size it occupies all cores for milliseconds.
        mean=float((_bucket_counts(histogram) * _bucket_midpoints()).sum()) / count,
        least=float(histogram.get_min_value()),
        p50=float(at[50]),
        p90=float(at[90]),
        p99=float(at[99]),
        p999=float(at[99.9]),
        most=float(histogram.get_max_value()),
        histogram=histogram.encode().decode("ascii"),
    )


def percentiles(histogram: HdrHistogram, wanted: Sequence[float]) -> dict[float, int]:
    """Return percentiles of a histogram, as `get_percentile_to_value_dict` does.

    The library's method iterates over the buckets in Python, which takes 5 ms.

    Args:
        histogram: latencies in microseconds; at least one.
        wanted: percentiles, above 0 and at most 100.
    """
    sums = np.cumsum(np.ctypeslib.as_array(histogram.counts))
    least = [histogram.get_target_count_at_percentile(one) for one in wanted]
    values = map(histogram.get_value_from_index, np.searchsorted(sums, least).tolist())
    return dict(zip(wanted, map(histogram.get_highest_equivalent_value, values), strict=True))


def decode(latency: Latency) -> HdrHistogram:
    """Decode the histogram of a `Latency`.

    Args:
        latency: as returned by `latency`; if it has no encoded histogram, the result is empty.

    Raises:
        ConfigError: the text is not an encoded histogram.
    """
    if not latency.histogram:
        return new_histogram()
    try:
        return HdrHistogram.decode(latency.histogram)
    except Exception as error:  # noqa: BLE001 - from zlib, base64, ctypes or the library itself
        raise ConfigError(f"a histogram of latencies cannot be read: {error}") from None


def merge(latencies: Iterable[Latency]) -> Latency:
    """Merge distributions.

    Args:
        latencies: any number of distributions, in microseconds.

    Raises:
        ConfigError: a histogram cannot be read.
    """
    merged = new_histogram()
    for one in latencies:
        merged.add(decode(one))
    return latency(merged)


def curve(latency: Latency) -> list[tuple[float, float]]:
    """Return a cumulative distribution.

    Args:
        latency: a distribution with a histogram.

    Returns:
        For each recorded latency in ascending order: the share of all latencies that do not exceed
        it, and the latency in microseconds. The last share is 1.

    Raises:
        ConfigError: the histogram cannot be read.
    """
    histogram = new_histogram()
    histogram.add(decode(latency))
    counts = _bucket_counts(histogram)
    recorded = np.flatnonzero(counts)
    shares = np.cumsum(counts[recorded]) / max(1, histogram.get_total_count())
    return list(zip(shares.tolist(), _bucket_midpoints()[recorded].tolist(), strict=True))


@functools.cache
def _bucket_midpoints() -> _Floats:
    """Return the midpoint of each bucket of a histogram, in microseconds.

    Computing a mean with the library's own iteration over the buckets takes 40 ms.
    """
    histogram = new_histogram()
    lowest = [histogram.get_value_from_index(index) for index in range(histogram.counts_len)]
    return np.array([histogram._hdr_median_equiv_value(value) for value in lowest], dtype=float)


def _bucket_counts(histogram: HdrHistogram) -> _Floats:
    return np.ctypeslib.as_array(histogram.counts).astype(float)


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values and its 95% confidence interval, using Student's t.

    Args:
        values: one or more; a single value has no interval.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Interval(mean)
    half = _quantile(len(values) - 1) * math.sqrt(_variance_of_mean(values))
    return Interval(mean, mean - half, mean + half)


def positive_interval(values: Sequence[float]) -> Interval:
    """Return the mean of positive values and a 95% confidence interval above zero.

    The bounds are those of the geometric mean: Student's t on the logarithms. On a log scale they
    never reach zero, however much the values vary.

    Args:
        values: one or more; there is no interval for a single value, or with values of 0.

    Raises:
        ValueError: there are no values.
    """
    mean = interval(values).mean
    if len(values) == 1 or min(values) <= 0:
        return Interval(mean)
    logs = [math.log(value) for value in values]
    middle = math.fsum(logs) / len(logs)
    half = _quantile(len(logs) - 1) * math.sqrt(_variance_of_mean(logs))
    return Interval(mean, _exp(middle - half), _exp(middle + half))


def ratio(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the ratio of the values to the others, and its 95% confidence interval.

    The interval is that of Welch's t-test on the logarithms, which allows for different variances.
    B. L. Welch, "The generalization of 'Student's' problem when several different population
    variances are involved", Biometrika 34 (1947).

    Args:
        values: one or more; there is no interval for a single value, or with values of 0.
        others: the divisors; see `values`.

    Raises:
        ValueError: there are no values.
    """
    divisor = interval(others).mean
    quotient = interval(values).mean / divisor if divisor else 0.0
    if min(len(values), len(others)) == 1 or min(*values, *others) <= 0:
        return Interval(quotient)
    logs = [[math.log(value) for value in some] for some in (values, others)]
    middle = math.fsum(logs[0]) / len(values) - math.fsum(logs[1]) / len(others)
    one, other = map(_variance_of_mean, logs)
    if not one + other:
        return Interval(quotient, quotient, quotient)
    freedom = (one + other) ** 2 / (
        one**2 / (len(values) - 1) + other**2 / (len(others) - 1)
    )  # fmt: skip
    half = _quantile(freedom) * math.sqrt(one + other)
    return Interval(_exp(middle), _exp(middle - half), _exp(middle + half))


def _quantile(freedom: float) -> float:
    """Return the quantile of Student's t for a two-sided interval."""
    # Imported here because it takes a fifth of a second; `scipy.stats` would take a whole second.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def _variance_of_mean(values: Sequence[float]) -> float:
    count, mean = len(values), math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count


def _exp(value: float) -> float:
    """Return e to the power of `value`, limited to avoid overflow."""
    return math.exp(min(value, 700.0))


def point(
    target: str,
    clients: int,
    rate: float,
    value_size: float,
    repetitions: Sequence[Repetition],
) -> Point:
    """Summarise the repetitions of one target at one load level.

    Args:
        target: the target's name.
        clients: number of concurrent connections.
        rate: for an open loop, operations per second; 0 for a closed loop.
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
    """Return the distinct names in order of first appearance."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _generator_limited(repetition: Repetition, rate: float) -> bool:
    if not rate:
        return repetition.generator_share > MAX_WORKER_UTILISATION
    busy = 1 - (1.0 if repetition.generator_idle is None else repetition.generator_idle)
    return repetition.lateness > MAX_LATENESS or busy > MAX_WORKER_UTILISATION
