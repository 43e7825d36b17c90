"""Low-overhead recording of one worker's measurements."""

from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["Counts", "Recorder", "Recording", "Tally", "percentile"]

_SECOND = 1_000_000_000
_NEVER = 1 << 63

Tally = dict[int, int]
"""The number of times each latency, in microseconds, was observed."""


@dataclass(slots=True)
class Counts:
    """Counters kept beside the latencies.

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
    """What one worker recorded, or the sum over several workers.

    Attributes:
        counts: the counters.
        response: tallies of response times by operation.
        service: tallies of service times by operation; empty for a closed loop.
        lateness: for an open loop, tally of how late requests were sent.
        seconds: by second: a tally over all operations, the number of operations, and of errors.
        began: when the first request was due, on the monotonic clock, in nanoseconds.
        ended: when the last reply arrived, on the same clock.
        cpu: processor time of all workers, in seconds.
        busiest: processor time of the busiest worker, in seconds.
    """

    counts: Counts = field(default_factory=Counts)
    response: dict[str, Tally] = field(default_factory=dict)
    service: dict[str, Tally] = field(default_factory=dict)
    lateness: Tally = field(default_factory=dict)
    seconds: dict[int, tuple[Tally, int, int]] = field(default_factory=dict)
    began: int = 0
    ended: int = 0
    cpu: float = 0.0
    busiest: float = 0.0

    def add(self, other: "Recording") -> None:
        """Add what another worker recorded at the same time."""
        self.counts.add(other.counts)
        for mine, theirs in (
            (self.response, other.response),
            (self.service, other.service),
        ):
            for kind, tally in theirs.items():
                _add(mine.setdefault(kind, {}), tally)
        _add(self.lateness, other.lateness)
        for second, (tally, operations, errors) in other.seconds.items():
            before, count, failed = self.seconds.get(second, ({}, 0, 0))
            _add(before, tally)
            self.seconds[second] = (before, count + operations, failed + errors)
        self.began = min(self.began, other.began) if self.began else other.began
        self.ended = max(self.ended, other.ended)
        self.cpu += other.cpu
        self.busiest = max(self.busiest, other.busiest)


class Recorder:
    """Tallies that a worker's clients update directly; a call per operation would cost too much.

    Attributes:
        response: tallies of response times in the current second, by operation.
        service: tallies of service times, by operation.
        lateness: tally of how late requests were sent.
        counts: the counters.
        turn: when the next second begins, in nanoseconds; a client that records something at or
            after that time calls `next_second` first.
        last: when the last reply arrived or the last error occurred, in nanoseconds.
        measuring: whether the measurement is running.
    """

    def __init__(self) -> None:
        self.measuring = False
        self._clear(0)
        self.turn = _NEVER

    def _clear(self, now: int) -> None:
        self.response: defaultdict[str, Tally] = defaultdict(dict)
        self.service: defaultdict[str, Tally] = defaultdict(dict)
        self.lateness: Tally = {}
        self.counts = Counts()
        self._recording = Recording(began=now)
        self._second = 0
        self._operations = 0
        self._errors = 0
        self.turn = now + _SECOND
        self.last = now

    def begin(self, now: int) -> None:
        """Start measuring, and discard everything recorded so far."""
        self._clear(now)
        self.measuring = True

    def end(self) -> Recording:
        """Stop measuring and return the recording; the caller adds its processor time."""
        self.measuring = False
        self.turn = _NEVER
        self._close_second()
        recording = self._recording
        recording.counts = self.counts
        recording.service = self.service
        recording.lateness = self.lateness
        recording.ended = self.last
        return recording

    def next_second(self, now: int) -> None:
        """Close all seconds that have ended by `now`."""
        while now >= self.turn:
            self._close_second()
            self._second += 1
            self.turn += _SECOND

    def _close_second(self) -> None:
        overall: Tally = {}
        for kind, tally in self.response.items():
            _add(overall, tally)
            _add(self._recording.response.setdefault(kind, {}), tally)
            tally.clear()
        operations = self.counts.operations - self._operations
        errors = sum(self.counts.errors.values()) - self._errors
        if operations or errors:
            self._recording.seconds[self._second] = (overall, operations, errors)
        self._operations += operations
        self._errors += errors

    def glance(self) -> tuple[int, int, float]:
        """Return the operations and errors so far and this second's 99th percentile, in µs."""
        tally: Tally = {}
        for one in self.response.values():
            _add(tally, one)
        return self.counts.operations, sum(self.counts.errors.values()), percentile(tally, 0.99)


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
