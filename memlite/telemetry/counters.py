"""Counters and latency histograms, independent of clocks and output formats."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar

__all__ = ["COMMAND_CLASSES", "Counters", "LatencyHistogram"]

COMMAND_CLASSES = ("get", "store", "delete", "arithmetic", "touch", "other")


class Counters:
    """Event counters under memcached's names (``doc/protocol.txt``, "Statistics").

    The attributes are plain ints that are incremented where events happen. The exception is the
    most frequent event: a hit on the fast path only decrements `until_sample`. That single step
    both counts the hit and selects the next read to sample.

    Attributes:
        hits: hits of get and gets, without those on the fast path since the countdown began.
        until_sample: reads on the fast path until the next sampled one, inclusive.
        until_slow_sample: the same for all other reads.
    """

    NAMES: ClassVar[tuple[str, ...]] = (
        "auth_cmds",
        "auth_errors",
        "bytes_read",
        "bytes_written",
        "cas_badval",
        "cas_hits",
        "cas_misses",
        "cmd_flush",
        "cmd_meta",
        "cmd_set",
        "cmd_touch",
        "conn_yields",
        "crawler_items_checked",
        "crawler_reclaimed",
        "decr_hits",
        "decr_misses",
        "delete_hits",
        "delete_misses",
        "evicted_unfetched",
        "evictions",
        "expired_unfetched",
        "get_expired",
        "get_flushed",
        "get_hits",
        "get_misses",
        "idle_kicks",
        "incr_hits",
        "incr_misses",
        "lru_crawler_starts",
        "reclaimed",
        "rejected_connections",
        "ssl_handshake_errors",
        "ssl_new_sessions",
        "ssl_proto_errors",
        "storage_errors",
        "store_no_memory",
        "store_too_large",
        "total_connections",
        "total_items",
        "touch_hits",
        "touch_misses",
        "udp_dropped",
        "udp_refused",
    )
    __slots__ = (
        "_countdown",
        "hits",
        "until_sample",
        "until_slow_sample",
        *sorted({*NAMES} - {"get_hits"}),
    )

    auth_cmds: int
    auth_errors: int
    bytes_read: int
    bytes_written: int
    cas_badval: int
    cas_hits: int
    cas_misses: int
    cmd_flush: int
    cmd_meta: int
    cmd_set: int
    cmd_touch: int
    conn_yields: int
    crawler_items_checked: int
    crawler_reclaimed: int
    decr_hits: int
    decr_misses: int
    delete_hits: int
    delete_misses: int
    evicted_unfetched: int
    evictions: int
    expired_unfetched: int
    get_expired: int
    get_flushed: int
    get_misses: int
    idle_kicks: int
    incr_hits: int
    incr_misses: int
    lru_crawler_starts: int
    reclaimed: int
    rejected_connections: int
    ssl_handshake_errors: int
    ssl_new_sessions: int
    ssl_proto_errors: int
    store_no_memory: int
    storage_errors: int
    store_too_large: int
    total_connections: int
    total_items: int
    touch_hits: int
    touch_misses: int
    udp_dropped: int
    udp_refused: int

    hits: int
    until_sample: int
    until_slow_sample: int
    _countdown: int

    def __init__(self) -> None:
        self._countdown = self.until_sample = self.until_slow_sample = 1
        self.reset()

    @property
    def get_hits(self) -> int:
        """Keys found by get and gets."""
        return self.hits + self._countdown - self.until_sample

    @get_hits.setter
    def get_hits(self, hits: int) -> None:
        self.hits = hits - self._countdown + self.until_sample

    def sample_after(self, reads: int) -> None:
        """Restart the countdown of `until_sample`."""
        self.hits = self.get_hits
        self._countdown = self.until_sample = reads

    def reset(self) -> None:
        """Reset every counter to zero (``stats reset``)."""
        for name in self.NAMES:
            setattr(self, name, 0)

    def take(self) -> Mapping[str, int]:
        """Return all nonzero counters by name, and reset them."""
        counted = {
            name: by for name, by in zip(self.NAMES, _every_counter(self), strict=True) if by
        }
        for name in counted:
            setattr(self, name, 0)
        return counted

    def values(self) -> Sequence[int]:
        """Return every counter, in the order of `NAMES`."""
        found: tuple[int, ...] = _every_counter(self)
        return found

    def add(self, counted: Mapping[str, int]) -> None:
        """Add counts that `take` returned."""
        for name, by in counted.items():
            setattr(self, name, getattr(self, name) + by)

    @property
    def cmd_get(self) -> int:
        """Keys requested by get and gets."""
        return self.get_hits + self.get_misses

    @property
    def operations(self) -> int:
        """Operations on keys; a get of n keys counts as n."""
        return (
            self.cmd_get
            + self.cmd_set
            + self.cmd_touch
            + self.delete_hits
            + self.delete_misses
            + self.incr_hits
            + self.incr_misses
            + self.decr_hits
            + self.decr_misses
        )


_SUB_BITS = 5
_SUB_BUCKETS = 1 << _SUB_BITS


_every_counter = attrgetter(*Counters.NAMES)


class LatencyHistogram:
    """Durations in log-linear buckets, 32 per power of two, for an error of at most 3%.

    Recording takes a shift and a list increment. Memory use is fixed (about 1,900 buckets). All
    durations are in nanoseconds.
    """

    __slots__ = ("_buckets", "count", "maximum", "total")

    def __init__(self) -> None:
        self._buckets = [0] * (_SUB_BUCKETS * (64 - _SUB_BITS))
        self.count = 0
        self.total = 0
        self.maximum = 0

    def record(self, nanoseconds: int) -> None:
        """Add one duration."""
        shift = nanoseconds.bit_length() - _SUB_BITS - 1
        index = nanoseconds if shift <= 0 else (shift << _SUB_BITS) + (nanoseconds >> shift)
        self._buckets[index] += 1
        self.count += 1
        self.total += nanoseconds
        if nanoseconds > self.maximum:
            self.maximum = nanoseconds

    def parts(self) -> tuple[int, int, dict[int, int]]:
        """Return the sum, the maximum, and the count of each bucket that is not empty."""
        filled = {place: count for place, count in enumerate(self._buckets) if count}
        return self.total, self.maximum, filled

    def merge(self, total: int, maximum: int, filled: Mapping[int, int]) -> None:
        """Add the durations of another histogram, given its `parts`."""
        for place, count in filled.items():
            self._buckets[place] += count
            self.count += count
        self.total += total
        self.maximum = max(self.maximum, maximum)

    def below(self, limits: Sequence[int]) -> list[int]:
        """Return how many durations were below each of `limits`, without going through them all.

        Args:
            limits: powers of two, 64 at least, in ascending order; for others, the counts would
                include durations up to 3% above.
        """
        counts: list[int] = []
        start = counted = 0
        for limit in limits:
            end = _index(limit)
            counted += sum(self._buckets[start:end])
            counts.append(counted)
            start = end
        return counts

    def percentiles(self, *percents: float) -> Iterator[int]:
        """Yield the percentile for each of `percents`, in ascending order; 0 without records."""
        remaining = iter(percents)
        seen = 0
        current = next(remaining, None)
        for index, hits in enumerate(self._buckets):
            if not hits:
                continue
            seen += hits
            while current is not None and seen >= self.count * current / 100:
                yield min(_upper_edge(index), self.maximum)
                current = next(remaining, None)
            if current is None:
                return
        while current is not None:
            yield self.maximum
            current = next(remaining, None)


def _index(nanoseconds: int) -> int:
    """Return the bucket of a duration; `LatencyHistogram.record` has this inline."""
    shift = nanoseconds.bit_length() - _SUB_BITS - 1
    return nanoseconds if shift <= 0 else (shift << _SUB_BITS) + (nanoseconds >> shift)


def _upper_edge(index: int) -> int:
    """Return the largest value that falls into bucket `index`."""
    if index < 2 * _SUB_BUCKETS:
        return index
    shift = (index >> _SUB_BITS) - 1
    return ((index - (shift << _SUB_BITS) + 1) << shift) - 1
