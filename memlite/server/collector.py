"""Python's garbage collector, kept from looking at every item."""

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
    """Let the collector look at what is new, and never at everything.

    It looks for objects that only refer to each other, which counting references does not free.
    Items refer to nothing that refers back, and yet a full collection visits each of them: 0.4
    seconds for a million. The young and middle generations are collected as always (which takes
    0.05 and 0.5 ms), so rings that are let go of soon after they were made are found. Those that
    last, connections and what belongs to them, are taken apart by hand when they end.

    Args:
        leaves_rings: whether the event loop leaves some all the same, as asyncio's own does: each
            of its transports refers to itself, a kilobyte that would stay for good. Then the old
            generation is collected, too, by Python's rule: after 30,000 new objects that last, if
            these are a quarter of all.
    """
    gc.collect()
    gc.freeze()  # what was imported stays
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD if leaves_rings else _NEVER)


def collect_young() -> None:
    """Collect the young generation, and now and then the middle one: after some hundred items.

    Python does so itself when there are a thousand objects more than the last time. While as many
    items go as come that does not happen, and all that came stay young: a million of them, when it
    does at last, take 75 ms.
    """
    gc.collect(0 if next(_times) % _MIDDLE else 1)


def drop_free_lists() -> None:
    """Free the tuples, lists and others that Python keeps for the next time, up to thousands.

    A full collection does that. What there is is frozen before, so that none of it is looked at:
    it takes as long as one of the middle generation. Does nothing where the old generation is
    collected: nothing frozen ever is.
    """
    if gc.get_threshold()[2] == _NEVER:
        gc.collect(1)
        gc.freeze()
        gc.collect()
