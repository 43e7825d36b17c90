"""``stats hotkeys``: which keys are asked for most, in bounded memory."""

import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappush, heapreplace
from random import Random

from memlite.clock import Clock

__all__ = ["HotKeys", "SpaceSaving"]


class SpaceSaving:
    """Counts the most frequent keys of a stream with a fixed number of counters.

    Space-Saving (Metwally, Agrawal and El Abbadi 2005): a key without a counter takes the one with
    the least count and goes on from there; that much the count may be too high. Every key with
    more than 1/`size` of the total has a counter.

    Args:
        size: counters.

    Attributes:
        total: of all weights.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.total = 0.0
        self._counts: dict[bytes, list[float]] = {}  # count and error
        # Each key once, with its count now or earlier: looked at only when a counter is taken, so
        # that counting a key that has one costs no more than the addition.
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
        self._renew_heap()

    def _renew_heap(self) -> None:
        self._heap = [(counter[0], key) for key, counter in self._counts.items()]
        heapify(self._heap)

    def compact(self) -> None:
        """Make keys and counters anew, one after the other, so that they lie together."""
        self._counts = {
            b"%b" % key: [count + 0.0, error + 0.0] for key, (count, error) in self._counts.items()
        }
        self._renew_heap()

    def top(self) -> list[tuple[bytes, float, float]]:
        """Return keys, counts and by how much each may be too high, the highest count first."""
        found = [(key, count, error) for key, (count, error) in self._counts.items()]
        return sorted(found, key=lambda entry: -entry[1])


class HotKeys:
    """The keys asked for most of late, of the requests that are sampled.

    What is counted loses half its weight every `HALF_LIFE` seconds. Rather than that counts
    are lowered, each new one weighs more (forward decay), until the weights have grown too large.

    Args:
        clock: tells how old counts are.
        interval: each sampled request stands for so many.
    """

    HALF_LIFE = 60.0
    """Seconds."""
    SHOWN = 20
    """Keys at most."""

    _KEYS_AT_MOST = 64  # of one command; a get may have a million
    _WEIGHT_AT_MOST = 2.0**64

    def __init__(self, clock: Clock, interval: int) -> None:
        self._clock = clock
        self._interval = interval
        self._random = Random()  # noqa: S311 - no secret
        self._sketch = SpaceSaving()
        self.clear()

    def clear(self) -> None:
        """Forget everything (``stats reset``)."""
        self._sketch.clear()
        self._since = self._origin = self._clock.now()
        self._weight_as_of = -1

    def compact(self) -> None:
        """Let what is kept lie together: a thousand small objects from as many moments."""
        self._sketch.compact()

    def record(self, keys: Sequence[bytes]) -> None:
        """Count the keys of a sampled command."""
        second = self._clock.second
        if second != self._weight_as_of:
            self._present_weight = self._weight()
            self._weight_as_of = second
        weight = self._present_weight
        if len(keys) > self._KEYS_AT_MOST:
            weight *= len(keys) / self._KEYS_AT_MOST
            keys = self._random.sample(keys, self._KEYS_AT_MOST)
        for key in keys:
            self._sketch.add(key, weight)

    def _weight(self) -> float:
        """Return what a request of now weighs, those at `_origin` weighing 1."""
        weight: float = 2.0 ** min((self._clock.now() - self._origin) / self.HALF_LIFE, 1000.0)
        if weight > self._WEIGHT_AT_MOST:
            self._sketch.scale(1 / weight)
            self._origin = self._clock.now()
            self._weight_as_of = -1
            return 1.0
        return weight

    def report(self) -> Iterator[tuple[str, object]]:
        """Yield what ``stats hotkeys`` shows."""
        from memlite.protocol.uris import uri_encoded  # the start need not wait for it

        sketch = self._sketch
        scale = self._interval / self._weight()
        # What a steady rate of 1 a second would have come to by now, from the last reset.
        age = max(1.0, self._clock.now() - self._since)
        seconds = self.HALF_LIFE / math.log(2) * (1 - 2 ** (-age / self.HALF_LIFE))
        yield "hotkeys:sample_interval", self._interval
        yield "hotkeys:half_life", int(self.HALF_LIFE)
        yield "hotkeys:requests", round(sketch.total * scale)
        yield "hotkeys:per_second", f"{sketch.total * scale / seconds:.1f}"
        # A count that is mostly error says no more than that there are many keys; and what was
        # asked for long ago is forgotten.
        known = [
            (key, count, error)
            for key, count, error in sketch.top()
            if 2 * error <= count and count * scale >= 1
        ]
        for rank, (key, count, error) in enumerate(known[: self.SHOWN], 1):
            yield f"hotkeys:{rank}:key", uri_encoded(key)
            yield f"hotkeys:{rank}:requests", round(count * scale)
            yield f"hotkeys:{rank}:error", round(error * scale)
            yield f"hotkeys:{rank}:per_second", f"{count * scale / seconds:.1f}"
            yield f"hotkeys:{rank}:share", f"{100 * count / sketch.total:.2f}"
