"""Detection of the most requested keys in bounded memory (``stats hotkeys``)."""

import math
from collections.abc import KeysView, Sequence
from heapq import heapify, heappush, heapreplace
from random import Random
from typing import TYPE_CHECKING

from memlite.core.clock import Clock

if TYPE_CHECKING:
    from memlite.telemetry.snapshot import HotKeysStats

__all__ = ["Estimates", "HotKeys", "SpaceSaving", "merge_estimates"]

Estimates = tuple[float, float, list[tuple[bytes, float, float, float]]]
"""The estimated number of all requests, seconds since the first, and estimates for each key, the
hottest first: requests for it, by how much that number may be too high, and how many were not mere
reads."""


class SpaceSaving:
    """Counts the most frequent keys of a stream with a fixed number of counters.

    Space-Saving (Metwally, Agrawal and El Abbadi 2005): a key without a counter takes over the
    counter with the lowest count and continues from that count, which is the key's maximum error.
    Every key with more than 1/`size` of the total is guaranteed a counter.

    Args:
        size: the number of counters.

    Attributes:
        total: the sum of all weights.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self.clear()

    def clear(self) -> None:
        """Discard all counts."""
        self.total = 0.0
        self._counts: dict[bytes, list[float]] = {}  # count and error
        # Each key once, with its current or an earlier count. Updated only when a counter is taken
        # over, so that counting a key that has a counter is a single addition.
        self._heap: list[tuple[float, bytes]] = []

    def add(self, key: bytes, weight: float = 1.0) -> None:
        """Count a key."""
        self.total += weight
        counts, heap = self._counts, self._heap
        counter = counts.get(key)
        if counter is not None:
            counter[0] += weight
        elif len(counts) < self._size:
            counts[key] = [weight, 0.0]
            heappush(heap, (weight, key))
        else:
            least, victim = heap[0]
            while (count := counts[victim][0]) != least:
                heapreplace(heap, (count, victim))
                least, victim = heap[0]
            del counts[victim]
            counts[key] = [least + weight, least]
            heapreplace(heap, (least + weight, key))

    def scale(self, factor: float) -> None:
        """Multiply all counts."""
        self.total *= factor
        for counter in self._counts.values():
            counter[0] *= factor
            counter[1] *= factor
        self._rebuild_heap()

    def _rebuild_heap(self) -> None:
        self._heap = [(counter[0], key) for key, counter in self._counts.items()]
        heapify(self._heap)

    def compact(self) -> None:
        """Copy all keys and counters in sequence, so that they share memory pages."""
        self._counts = {
            b"%b" % key: [count + 0.0, error + 0.0] for key, (count, error) in self._counts.items()
        }
        self._rebuild_heap()

    def keys(self) -> KeysView[bytes]:
        """Return the keys that have counters."""
        return self._counts.keys()

    def top(self) -> list[tuple[bytes, float, float]]:
        """Return keys, counts and the maximum error of each count, the highest count first."""
        found = [(key, count, error) for key, (count, error) in self._counts.items()]
        return sorted(found, key=lambda entry: -entry[1])


class HotKeys:
    """The most requested keys of the recent past, estimated from sampled requests.

    A request loses half its weight every `HALF_LIFE` seconds. Instead of reducing old counts, new
    requests get ever larger weights (forward decay), and everything is rescaled once the weights
    become too large.

    Args:
        clock: the clock.
        interval: the number of requests that each sampled request stands for.
    """

    HALF_LIFE = 60.0
    """Seconds after which a request counts half."""
    SHOWN = 20
    """The most keys to report."""

    _MAX_KEYS = 64  # keys to count per command; a get may have a million
    _MAX_WEIGHT = 2.0**64
    _MOST_CHANGES = 1024  # keys; above that, keys without a counter are forgotten

    def __init__(self, clock: Clock, interval: int) -> None:
        self._clock = clock
        self._interval = interval
        self._random = Random()  # noqa: S311 - no secret
        self._sketch = SpaceSaving()
        self._changes: dict[bytes, float] = {}
        self.clear()

    def clear(self) -> None:
        """Discard all counts (``stats reset``)."""
        self._sketch.clear()
        self._changes.clear()
        self._since = self._origin = self._clock.now()
        self._weight_as_of = -1

    def compact(self) -> None:
        """Copy the counts, so that a thousand small objects do not pin as many memory pages."""
        self._sketch.compact()

    def record_changes(self, keys: Sequence[bytes]) -> None:
        """Count the keys of a sampled command that is not a mere read, in addition to `record`."""
        changes = self._changes
        if len(changes) > self._MOST_CHANGES:
            counted = self._sketch.keys()
            for key in [key for key in changes if key not in counted]:
                del changes[key]
        weight = self._weight_now()
        for key in keys[: self._MAX_KEYS]:
            changes[key] = changes.get(key, 0.0) + weight

    def _weight_now(self) -> float:
        second = self._clock.second
        if second != self._weight_as_of:
            self._present_weight = self._weight()
            self._weight_as_of = second
        return self._present_weight

    def record(self, keys: Sequence[bytes]) -> None:
        """Count the keys of a sampled command."""
        weight = self._weight_now()
        if len(keys) > self._MAX_KEYS:
            weight *= len(keys) / self._MAX_KEYS
            keys = self._random.sample(keys, self._MAX_KEYS)
        for key in keys:
            self._sketch.add(key, weight)

    def _weight(self) -> float:
        """Return the weight of a request made now, relative to one made at `_origin`."""
        weight: float = 2.0 ** min((self._clock.now() - self._origin) / self.HALF_LIFE, 1000.0)
        if weight > self._MAX_WEIGHT:
            self._sketch.scale(1 / weight)
            self._changes = {key: count / weight for key, count in self._changes.items()}
            self._origin = self._clock.now()
            self._weight_as_of = -1
            return 1.0
        return weight

    def estimates(self) -> Estimates:
        """Return the estimated counts of all keys that have counters."""
        scale = self._interval / self._weight()
        keys = [
            (key, count * scale, error * scale, min(self._changes.get(key, 0.0), count) * scale)
            for key, count, error in self._sketch.top()
        ]
        return self._sketch.total * scale, max(1.0, self._clock.now() - self._since), keys

    def snapshot(self) -> "HotKeysStats":
        """Return the most requested keys and their estimated counts."""
        return self.summarize(self.estimates())

    def summarize(self, estimates: Estimates) -> "HotKeysStats":
        """Return the most requested keys among estimates."""
        # Imported lazily for a faster start.
        from memlite.telemetry.snapshot import HotKey, HotKeysStats

        total, age, keys = estimates
        # The count that a steady rate of one per second since the last reset would have reached.
        seconds = self.HALF_LIFE / math.log(2) * (1 - 2 ** (-age / self.HALF_LIFE))
        # Skip keys whose count is mostly error, which result from many keys sharing a counter, and
        # keys whose requests have decayed to less than one.
        known = [one for one in keys if 2 * one[2] <= one[1] and one[1] >= 1]
        return HotKeysStats(
            sample_interval=self._interval,
            half_life=self.HALF_LIFE,
            requests=total,
            per_second=total / seconds,
            keys=tuple(
                HotKey(
                    key=key,
                    requests=requests,
                    changes=changes,
                    error=error,
                    per_second=requests / seconds,
                    percent=100 * requests / total,
                )
                for key, requests, error, changes in known[: self.SHOWN]
            ),
        )


def merge_estimates(found: Sequence[Estimates]) -> Estimates:
    """Return the combined estimates of several processes, the hottest key first."""
    sums: dict[bytes, list[float]] = {}
    for _, _, keys in found:
        for key, *figures in keys:
            sums[key] = [a + b for a, b in zip(sums.get(key, [0.0] * 3), figures, strict=True)]
    ranked = sorted(sums.items(), key=lambda one: -one[1][0])
    return (
        sum(one[0] for one in found),
        max(one[1] for one in found),
        [(key, requests, error, changes) for key, (requests, error, changes) in ranked],
    )
