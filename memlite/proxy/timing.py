"""Where requests spend their time, sampled once per millisecond."""

import time
from typing import Any

from memlite.telemetry.counters import LatencyHistogram

__all__ = ["Timing"]


class Timing:
    """Times of requests to all nodes together, and when the next one is measured.

    When a measurement of a reply begins, the next request that is put into an empty queue of a node
    is timed as well, and so is the next client that is replied to.

    Attributes:
        due: the earliest time of the next measurement of a reply, by `time.monotonic`.
        waits: whether to time the next request that is put into an empty queue.
        thinks: whether to time the next client with no other request in progress.
        queueing: the time that such a request waits until it is written to its node, with the
            requests queued after it.
        service: the time from a write to the reply to its last request.
        thinking: the time from a client's reply to its next request.
        lengths: the sum of the lengths of the queues when they were written.
        longest: the longest of them.
    """

    __slots__ = (
        "due", "lengths", "longest", "queueing", "service", "thinking", "thinks", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = 0.0
        self.waits = self.thinks = False
        self.reset()

    def reset(self) -> None:
        """Discard all measurements."""
        self.queueing, self.service = LatencyHistogram(), LatencyHistogram()
        self.thinking = LatencyHistogram()
        self.lengths = self.longest = 0

    def written(self, since: int, length: int) -> None:
        """Note that a queue is written.

        Args:
            since: when its first request was put into it, by `time.monotonic_ns`.
            length: how many requests are in it.
        """
        self.queueing.record(time.monotonic_ns() - since)
        self.lengths += length
        self.longest = max(self.longest, length)

    def begin_thinking(self, lone: Any) -> None:
        """Note that the client with this `Lone` has all replies, if one is to be timed."""
        if self.thinks:
            self.thinks = False
            lone.since = time.monotonic_ns()

    def end_thinking(self, lone: Any) -> None:
        """Note that this client has sent a request; `since` is not 0."""
        self.thinking.record(time.monotonic_ns() - lone.since)
        lone.since = 0
