"""Where requests spend their time, by one in a millisecond."""

import time
from typing import Any

from memlite.telemetry.counters import LatencyHistogram

__all__ = ["Timing"]


class Timing:
    """Times of requests to all nodes together, and when one is measured next.

    When the time of a reply begins to be measured, the next request that is put into the empty
    queue of a node is timed as well, and so is the client that is replied to next.

    Attributes:
        due: the time of a reply is not measured before this, by `time.monotonic`.
        waits: whether the next request that is put into an empty queue is timed.
        thinks: whether the next client with no other request in progress is timed.
        queueing: from there until a request is written to its node, with those behind it.
        service: from then until the reply to the last of these.
        thinking: from a client's reply to its next request.
        lengths: how many requests there were in the queues at those times.
        longest: the most of them.
    """

    __slots__ = (
        "due", "lengths", "longest", "queueing", "service", "thinking", "thinks", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = 0.0
        self.waits = self.thinks = False
        self.reset()

    def reset(self) -> None:
        """Start measuring afresh."""
        self.queueing, self.service = LatencyHistogram(), LatencyHistogram()
        self.thinking = LatencyHistogram()
        self.lengths = self.longest = 0

    def written(self, since: int, length: int) -> None:
        """Note that a queue is written.

        Args:
            since: when its first request was put into it, by `time.monotonic_ns`.
            length: how many requests there are in it.
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
