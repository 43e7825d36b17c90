"""The request that a plan answers."""

from dataclasses import dataclass

from memlite.core.errors import MemliteError

__all__ = ["Request", "UnknowableError"]


class UnknowableError(MemliteError):
    """The measurement does not answer the request; the text says why, and which one would."""


@dataclass(frozen=True, slots=True)
class Request:
    """The load to plan for, and its users' expectations.

    Attributes:
        rate: operations per second.
        p99: the highest acceptable 99th percentile of response times, in microseconds.
        keys: the number of items; None if memory does not matter.
        value_size: bytes of a value; None for the measurement's value size.
        hit_ratio: the share of reads that find an item; None for the measurement's hit ratio.
    """

    rate: float
    p99: float
    keys: int | None = None
    value_size: int | None = None
    hit_ratio: float | None = None
