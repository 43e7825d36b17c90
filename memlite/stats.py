"""Counters and latency histograms: plain numbers, no clock, no output format."""

from collections.abc import Iterator
from operator import attrgetter, sub
from typing import ClassVar

__all__ = ["COMMAND_CLASSES", "Counters", "LatencyHistogram"]

COMMAND_CLASSES = ("get", "store", "delete", "arithmetic", "touch", "other")


class Counters:
    """What memcached counts, under memcached's names (``doc/protocol.txt``, "Statistics").

    Attributes are plain ints, incremented where the thing happens. But the most frequent of all,
    hits on the straight path, only count down to the one that is to be measured: so that counting
    them and choosing one cost no more than either.

    Attributes:
        hits: of get and gets, but for those that the next counts.
        until_sample: hits on the straight path until one is measured, including that.
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
    __slots__ = ("_countdown", "hits", "until_sample", *sorted({*NAMES} - {"get_hits"}))

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
    _countdown: int

    def __init__(self) -> None:
        self._countdown = self.until_sample = 1
        self.reset()

    @property
    def get_hits(self) -> int:
        """Keys that get and gets have found."""
        return self.hits + self._countdown - self.until_sample

    @get_hits.setter
    def get_hits(self, hits: int) -> None:
        self.hits = hits - self._countdown + self.until_sample

    def sample_after(self, hits: int) -> None:
        """Begin to count down anew: the last one of so many `hits` is to be measured."""
        self.hits = self.get_hits
        self._countdown = self.until_sample = hits

    def reset(self) -> None:
        """Set every counter to zero (``stats reset``)."""
        for name in self.NAMES:
            setattr(self, name, 0)

    def snapshot(self) -> tuple[int, ...]:
        """Return every counter, for `since`."""
        return _every_counter(self)

    def since(self, snapshot: tuple[int, ...]) -> tuple[int, ...]:
        """Return by how much each counter has grown since a `snapshot`."""
        return tuple(map(sub, _every_counter(self), snapshot))

    def subtract(self, growth: tuple[int, ...]) -> None:
        """Take back what `since` returned."""
        for name, by in zip(self.NAMES, growth, strict=True):
            if by:
                setattr(self, name, max(0, getattr(self, name) - by))

    @property
    def cmd_get(self) -> int:
        """Keys asked for by get and gets."""
        return self.get_hits + self.get_misses

    @property
    def operations(self) -> int:
        """Commands on keys so far; a get of n keys counts n."""
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
    """Durations in log-linear buckets: 32 to each power of two, so at most 3% off.

    Recording is a shift and a list increment; the memory is fixed (about 1,900 buckets).
    The unit is nanoseconds throughout.
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

    def percentiles(self, *percents: float) -> Iterator[int]:
        """Yield for each of `percents`, ascending, the duration it takes at most; 0 when empty."""
        wanted = iter(percents)
        seen = 0
        current = next(wanted, None)
        for index, hits in enumerate(self._buckets):
            if not hits:
                continue
            seen += hits
            while current is not None and seen >= self.count * current / 100:
                yield min(_upper_edge(index), self.maximum)
                current = next(wanted, None)
            if current is None:
                return
        while current is not None:
            yield self.maximum
            current = next(wanted, None)


def _upper_edge(index: int) -> int:
    """Return the largest value that falls into bucket `index`."""
    if index < 2 * _SUB_BUCKETS:
        return index
    shift = (index >> _SUB_BITS) - 1
    return ((index - (shift << _SUB_BITS) + 1) << shift) - 1
