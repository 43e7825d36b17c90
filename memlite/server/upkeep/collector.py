"""Tuning of Python's garbage collector, which must not traverse every item."""

import gc
import itertools
from typing import Final

__all__ = ["collect_young", "drop_free_lists", "tune_collector"]

_YOUNG: Final = 1000
_MIDDLE: Final = 3
_OLD: Final = 10
_NEVER: Final = 1 << 30
_times: Final = itertools.count(1)


def tune_collector(*, leaves_rings: bool) -> None:
    """Collect the young and middle generations as usual, but avoid full collections.

    The collector looks for reference cycles. Items are never part of one, and yet a full collection
    traverses all of them: 0.4 seconds for a million. Collecting the young and middle generations
    takes 0.05 and 0.5 ms and finds short-lived cycles. Long-lived ones, such as those of
    connections, are broken explicitly when they are no longer needed.

    Args:
        leaves_rings: whether the event loop leaves long-lived cycles behind, as asyncio's own does:
            each of its transports refers to itself and would leak a kilobyte. In that case the old
            generation is collected too, by Python's usual rule: after 30,000 new objects have
            survived, if they make up a quarter of the total.
    """
    gc.collect()
    gc.freeze()  # imported modules are permanent
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD if leaves_rings else _NEVER)


def collect_young() -> None:
    """Collect the young generation, and every third time the middle one too.

    Call this after every few hundred new items. Python does this on its own once there are a
    thousand more objects than last time. But while items are evicted as fast as they are added,
    that never happens, and all new items stay young: collecting a million of them takes 75 ms.
    """
    gc.collect(0 if next(_times) % _MIDDLE else 1)


def drop_free_lists() -> None:
    """Clear Python's free lists, which may hold thousands of tuples, lists and other objects.

    A full collection does this. Existing objects are frozen first so that they are not traversed,
    and it takes no longer than collecting the middle generation. Does nothing if the old generation
    is in use, because frozen objects are never collected.
    """
    if gc.get_threshold()[2] == _NEVER:
        gc.collect(1)
        gc.freeze()
        gc.collect()
