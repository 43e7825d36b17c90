"""Low-overhead recording of one worker's measurements."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from memlite.loadtest.occupancy import Occupancy

__all__ = ["SECOND", "Counts", "Recorder", "Recording", "Tally", "interval_for", "percentile"]

SECOND = 1_000_000_000
_NEVER = 1 << 63
# The lengths of intervals, each of which divides a second, and the maximum number of intervals per
# measurement: enough to find a warm-up, and few enough to keep the results file small.
_LENGTHS = tuple(milliseconds * 1_000_000 for milliseconds in (10, 20, 50, 100, 250, 500))
_MAX_INTERVALS = 120
# Closed intervals are summed only after the measurement, so that summing does not delay clients.
# Each takes memory, so long measurements sum the oldest ones earlier.
_MAX_WAITING = 150

Tally = dict[int, int]
"""The number of times each latency, in microseconds, was observed."""


@dataclass(slots=True)
class Counts:
    """Counters kept alongside the latencies.

    Attributes:
        operations: operations completed without error.
        hits: keys found.
        misses: keys requested but not found.
        sent: bytes sent.
        received: bytes received.
        errors: errors by kind.
    """

    operations: int = 0
    hits: int = 0
    misses: int = 0
    sent: int = 0
    received: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        """Add the counts of `other`."""
        self.operations += other.operations
        self.hits += other.hits
        self.misses += other.misses
        self.sent += other.sent
        self.received += other.received
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count


@dataclass(slots=True)
class Recording:
    """The recording of one worker, or the sum over several workers.

    Attributes:
        counts: the counters.
        response: tallies of response times by operation.
        service: tallies of service times by operation; empty for a closed loop.
        lateness: in an open loop, tally of the delays with which requests were sent.
        thought: in a closed loop, the time between replies and the requests that followed them,
            summed over all requests, in nanoseconds.
        waited: in an open loop, the time that requests spent in the system during the measurement,
            summed over all requests, in nanoseconds. It is derived from counts of requests, not
            from response times.
        cut_off: in an open loop, the number of requests in the system at the beginning of the
            measurement, plus that at the end.
        interval: the length of an interval, in nanoseconds.
        intervals: by interval: a tally over all operations, the number of operations, and the
            number of errors.
        began: time at which the first request was due, on the monotonic clock, in nanoseconds.
        ended: time of the last reply, on the same clock.
        cpu: processor time of all workers, in seconds.
        busiest: processor time of the busiest worker, in seconds.
        idle: in an open loop, the share of the time until the last arrival in which the busiest
            worker had nothing to do; 1 in a closed loop.
    """

    counts: Counts = field(default_factory=Counts)
    response: dict[str, Tally] = field(default_factory=dict)
    service: dict[str, Tally] = field(default_factory=dict)
    lateness: Tally = field(default_factory=dict)
    thought: int = 0
    waited: int = 0
    cut_off: int = 0
    interval: int = SECOND
    intervals: dict[int, tuple[Tally, int, int]] = field(default_factory=dict)
    began: int = 0
    ended: int = 0
    cpu: float = 0.0
    busiest: float = 0.0
    idle: float = 1.0

    def add(self, other: "Recording") -> None:
        """Add another worker's recording of the same time, with intervals of the same length."""
        self.counts.add(other.counts)
        for mine, theirs in (
            (self.response, other.response),
            (self.service, other.service),
        ):
            for kind, tally in theirs.items():
                _add(mine.setdefault(kind, {}), tally)
        _add(self.lateness, other.lateness)
        self.thought += other.thought
        self.waited += other.waited
        self.cut_off += other.cut_off
        self.interval = other.interval
        for number, (tally, operations, errors) in other.intervals.items():
            before, count, failed = self.intervals.get(number, ({}, 0, 0))
            _add(before, tally)
            self.intervals[number] = (before, count + operations, failed + errors)
        self.began = min(self.began, other.began) if self.began else other.began
        self.ended = max(self.ended, other.ended)
        self.cpu += other.cpu
        self.busiest = max(self.busiest, other.busiest)
        self.idle = min(self.idle, other.idle)


class Recorder:
    """Tallies that a worker's clients update directly; a call per operation would cost too much.

    Args:
        interval: the length of the intervals of the time series, in nanoseconds.

    Attributes:
        response: tallies of response times in the current interval, by operation.
        service: tallies of service times, by operation.
        lateness: tally of the delays with which requests were sent.
        counts: the counters.
        thought: in a closed loop, the time between replies and the requests that followed them, in
            nanoseconds.
        polled: in an open loop, the time for which the worker polled for the next arrival and had
            nothing to do, in nanoseconds.
        spun: processor time of that polling, in nanoseconds; less if the worker was preempted.
        slept: in an open loop, the time for which it slept until shortly before the next arrival.
        until: in an open loop, when the worker stopped making requests; 0 before.
        occupancy: in an open loop, counts the requests in the system.
        turn: start of the next interval, in nanoseconds; a client that records something at or
            after that time calls `next_interval` first.
        last: time of the last reply or error, in nanoseconds.
        measuring: whether the measurement is running.
    """

    def __init__(self, interval: int = SECOND) -> None:
        self._interval = interval
        self.measuring = False
        self.occupancy = Occupancy()
        self._clear(0)
        self.turn = _NEVER

    def _clear(self, now: int) -> None:
        self.response: defaultdict[str, Tally] = defaultdict(dict)
        self.service: defaultdict[str, Tally] = defaultdict(dict)
        self.lateness: Tally = {}
        self.counts = Counts()
        self.thought = 0
        self.polled = self.spun = self.slept = self.until = 0
        self._recording = Recording(began=now, interval=self._interval)
        self._waiting: deque[tuple[int, dict[str, Tally], int, int]] = deque()
        self._number = 0
        self._operations = 0
        self._errors = 0
        self.turn = now + self._interval
        self.last = now

    def begin(self, now: int) -> None:
        """Start measuring, and discard everything recorded so far."""
        self._clear(now)
        self.occupancy.begin(now)
        self.measuring = True

    def end(self) -> Recording:
        """Stop measuring and return the recording; the caller adds its processor time."""
        self.measuring = False
        self.turn = _NEVER
        self._close_interval()
        while self._waiting:
            self._sum_up(*self._waiting.popleft())
        recording = self._recording
        recording.counts = self.counts
        recording.service = self.service
        recording.lateness = self.lateness
        recording.thought = self.thought
        recording.waited, recording.cut_off = self.occupancy.end(self.last)
        recording.ended = self.last
        if self.until > recording.began:
            recording.idle = (self.polled + self.slept) / (self.until - recording.began)
        return recording

    def next_interval(self, now: int) -> None:
        """Close all intervals that have ended by `now`."""
        while now >= self.turn:
            self._close_interval()
            self._number += 1
            self.turn += self._interval

    def _close_interval(self) -> None:
        operations = self.counts.operations - self._operations
        errors = sum(self.counts.errors.values()) - self._errors
        if operations or errors:
            self._waiting.append((self._number, self.response, operations, errors))
            self.response = defaultdict(dict)
        self._operations += operations
        self._errors += errors
        if len(self._waiting) > _MAX_WAITING:
            self._sum_up(*self._waiting.popleft())

    def _sum_up(
        self, number: int, response: dict[str, Tally], operations: int, errors: int
    ) -> None:
        overall: Tally = {}
        for kind, tally in response.items():
            _add(overall, tally)
            _add(self._recording.response.setdefault(kind, {}), tally)
        self._recording.intervals[number] = (overall, operations, errors)

    def glance(self) -> tuple[int, int, float]:
        """Return the operations and errors so far and the last intervals' p99, in µs."""
        tally: Tally = {}
        before = self._waiting[-1][1] if self._waiting else {}
        for one in (*before.values(), *self.response.values()):
            _add(tally, one)
        return self.counts.operations, sum(self.counts.errors.values()), percentile(tally, 0.99)


def interval_for(seconds: float) -> int:
    """Return the length of the intervals of a measurement's time series, in nanoseconds.

    Args:
        seconds: the measurement's planned length; 0 if unknown.
    """
    shortest = seconds * SECOND / _MAX_INTERVALS
    fine = (length for length in _LENGTHS if length >= shortest)
    return next(fine, SECOND) if seconds else SECOND


def _add(mine: Tally, other: Tally) -> None:
    for value, count in other.items():
        mine[value] = mine.get(value, 0) + count


def percentile(tally: Tally, share: float) -> float:
    """Return the latency that a `share` of the values do not exceed; 0 for an empty tally."""
    remaining = share * sum(tally.values())
    value = 0
    for value in sorted(tally):
        remaining -= tally[value]
        if remaining <= 0:
            break
    return float(value)
