"""What one worker measures, as cheaply as it can be written down."""

from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["Counts", "Recorder", "Recording", "Tally", "percentile"]

_SECOND = 1_000_000_000
_NEVER = 1 << 63

Tally = dict[int, int]
"""How often each latency, in microseconds, was seen."""


@dataclass(slots=True)
class Counts:
    """What is counted beside latencies.

    Attributes:
        operations: finished without error.
        hits: keys found.
        misses: keys asked for and not found.
        sent: bytes.
        received: bytes.
        errors: by kind.
    """

    operations: int = 0
    hits: int = 0
    misses: int = 0
    sent: int = 0
    received: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        """Add what another counted."""
        self.operations += other.operations
        self.hits += other.hits
        self.misses += other.misses
        self.sent += other.sent
        self.received += other.received
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count


@dataclass(slots=True)
class Recording:
    """What a worker measured; all of them are added up.

    Attributes:
        counts: as above.
        response: tallies by operation.
        service: likewise; empty in closed loop.
        lateness: tally of how late requests were sent in open loop.
        seconds: tally of all operations, operations and errors, by second.
        began: when the first request was to be sent, by the monotonic clock, in nanoseconds.
        ended: when the last reply came.
        cpu: seconds of processor time the workers took.
        busiest: those of the one that took most.
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
        """Add what another worker measured at the same time."""
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
    """Tallies, which a worker's clients write into directly: a call for each would cost too much.

    Attributes:
        response: tally of the second that runs, by operation.
        service: tally by operation.
        lateness: a tally.
        counts: as above.
        turn: when the next second begins, in nanoseconds; whoever writes after it calls
            `next_second` first.
        measuring: whether what happens now counts.
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
        """Start measuring; what was written before is forgotten."""
        self._clear(now)
        self.measuring = True

    def end(self) -> Recording:
        """Return what was measured; the caller adds its processor time."""
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
        """Close the seconds that are over."""
        while now >= self.turn:
            self._close_second()
            self._second += 1
            self.turn += _SECOND

    def _close_second(self) -> None:
        all_of_it: Tally = {}
        for kind, tally in self.response.items():
            _add(all_of_it, tally)
            _add(self._recording.response.setdefault(kind, {}), tally)
            tally.clear()
        operations = self.counts.operations - self._operations
        errors = sum(self.counts.errors.values()) - self._errors
        if operations or errors:
            self._recording.seconds[self._second] = (all_of_it, operations, errors)
        self._operations += operations
        self._errors += errors

    def glance(self) -> tuple[int, int, float]:
        """Return operations and errors so far, and the 99th percentile of this second, in µs."""
        tally: Tally = {}
        for one in self.response.values():
            _add(tally, one)
        return self.counts.operations, sum(self.counts.errors.values()), percentile(tally, 0.99)


def _add(mine: Tally, other: Tally) -> None:
    for value, count in other.items():
        mine[value] = mine.get(value, 0) + count


def percentile(tally: Tally, share: float) -> float:
    """Return the latency that `share` of all do not exceed; 0 when there are none."""
    left = share * sum(tally.values())
    value = 0
    for value in sorted(tally):
        left -= tally[value]
        if left <= 0:
            break
    return float(value)
