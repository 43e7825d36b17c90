"""Loads of changing value sizes that continue long after the budget is full."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harness.wire import Wire

__all__ = ["PHASES", "Phase", "churn"]

SMALLEST: Final = 10
LARGEST: Final = 10_000
# Rough overhead of an item in any server, in bytes. It only scales the load.
_OVERHEAD: Final = 200
_BATCH: Final = 200
_KEY: Final = b"churn-%014d"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the churn.

    Attributes:
        name: the name in the table.
        smallest: the smallest value, in bytes; sizes are log-uniformly distributed.
        largest: the largest value, in bytes.
        deletes: the share of requests that are deletes.
        expiring: the share of sets with a time to live of 1 to 3 seconds.
    """

    name: str
    smallest: int
    largest: int
    deletes: float = 0.0
    expiring: float = 0.0

    @property
    def mean_size(self) -> float:
        """The mean size of a value, in bytes."""
        if self.smallest == self.largest:
            return float(self.smallest)
        return (self.largest - self.smallest) / math.log(self.largest / self.smallest)


PHASES: Final = (
    Phase("filling, 10 to 10,000 bytes", SMALLEST, LARGEST),
    Phase("small, 10 to 100 bytes", SMALLEST, 100),
    Phase("large, 5,000 to 10,000 bytes", 5_000, LARGEST),
    Phase("mixed, a third deletes", SMALLEST, LARGEST, deletes=1 / 3),
    Phase("mixed, half with a TTL", SMALLEST, LARGEST, expiring=0.5),
    Phase("small again", SMALLEST, 100),
    Phase("middling, 500 to 2,000 bytes", 500, 2_000),
    Phase("large again", 5_000, LARGEST),
    Phase("mixed, 10 to 10,000 bytes", SMALLEST, LARGEST),
)


def churn(
    wire: Wire, phase: Phase, budget: int, times: float, seed: int, watch: Callable[[], object]
) -> Counter[bytes]:
    """Run a phase that writes `times` the budget; return a count of each reply.

    Args:
        wire: a connection to the server.
        phase: the phase.
        budget: the server's ``-m``, in bytes.
        times: the memory of the items written, as a multiple of the budget.
        seed: the seed of keys and sizes.
        watch: called between writes, every few milliseconds.
    """
    item = phase.mean_size + _OVERHEAD
    # More keys than any server can hold: about half of the writes create new items.
    keys = max(1, round(2 * budget / item))
    left = max(1, round(times * budget / item / (1 - phase.deletes)))
    requests = _requests(phase, keys, random.Random(seed))
    replies: Counter[bytes] = Counter()
    while left > 0:
        batch: Sequence[bytes] = [next(requests) for _ in range(min(_BATCH, left))]
        replies += wire.pipelined(batch)
        left -= len(batch)
        watch()
    return replies


def _requests(phase: Phase, keys: int, chance: random.Random) -> Iterator[bytes]:
    value = chance.randbytes(LARGEST)
    smallest = math.log(phase.smallest)
    width = math.log(phase.largest) - smallest
    while True:
        key = _KEY % int(chance.random() * keys)
        if chance.random() < phase.deletes:
            yield b"delete %b\r\n" % key
            continue
        size = int(math.exp(smallest + chance.random() * width))
        exptime = chance.randint(1, 3) if chance.random() < phase.expiring else 0
        yield b"set %b 0 %d %d\r\n%b\r\n" % (key, exptime, size, value[:size])
