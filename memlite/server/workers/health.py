"""Tells a stuck worker from one whose heartbeat is late because it waits for a processor.

On a busy machine a worker may wait for seconds until the kernel runs it. Replacing it then would
not help and would lose its connections. The kernel knows the difference (proc(5)): a process that
computed, slept or was stopped the whole time did not have to wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = ["Condition", "ThreadState", "Watch", "read_thread_state", "stuck_workers"]

# After this time without a heartbeat, in seconds, ask the kernel for the worker's state. It is
# longer than the time between two heartbeats.
_SUSPECT_SECONDS: Final = 0.3
# From then on, a worker is stuck if it sleeps, is stopped, or computes for this long without any
# change. No client request computes for so long without being counted.
_SLEEP_SECONDS: Final = 0.35
_COMPUTE_SECONDS: Final = 0.45
# Longer than any command takes, even if the machine is slow.
_STUCK_SECONDS: Final = 5.0
_START_SECONDS: Final = 60.0
# Longer than any turn of a worker's event loop.
_TURN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ThreadState:
    """The state of a process's main thread as reported by the kernel.

    Attributes:
        state: R (running or runnable), S (sleeping), T (stopped) and so on.
        ran: nanoseconds that it has run.
        turns: how often it was scheduled on a processor.
    """

    state: str
    ran: int
    turns: int


def read_thread_state(pid: int, proc: Path = Path("/proc")) -> ThreadState | None:
    """Return the kernel's report on a process; None if there is none."""
    try:
        state = (proc / f"{pid}/stat").read_bytes().rpartition(b") ")[2][:1].decode()
        ran, _, turns = (proc / f"{pid}/schedstat").read_text().split()
        return ThreadState(state, int(ran), int(turns))
    except (OSError, ValueError):
        return None


class Condition(Enum):
    """The condition of a worker."""

    WELL = "well"
    LATE = "late"
    """It may hold a lock that other workers wait for."""
    ASLEEP = "blocked"
    """It is stuck, unless it waits for a lock that another worker holds."""
    STOPPED = "stopped"
    COMPUTING = "busy without progress"
    SILENT = "not responding"


class Watch:
    """Watches one worker.

    Attributes:
        late: seconds without a heartbeat or progress.
        condition: the result of the last check.
    """

    def __init__(self) -> None:
        self._beat = self._work = 0
        self._since_beat = 0.0
        self._most = _START_SECONDS
        self._first: ThreadState | None = None
        self._asked = 0.0
        self.reset()

    def reset(self) -> None:
        """Start over with a healthy worker."""
        self.late = 0.0
        self.condition = Condition.WELL

    @property
    def suspect(self) -> bool:
        """Whether the worker may be stuck."""
        return self.condition is not Condition.WELL

    @property
    def overdue(self) -> bool:
        """Whether the worker has exceeded the limit for its phase."""
        return self.late > self._most

    def look(self, beat: int, work: int, *, serves: bool, seconds: float) -> bool:
        """Record a worker's heartbeat and work; return whether to call `ask`.

        Args:
            beat: see `Cell.BEAT`.
            work: see `Cell.WORK`.
            serves: whether it has started.
            seconds: the time since the last call; less if the caller itself was not scheduled.
        """
        beats, works = beat != self._beat, work != self._work
        self._beat, self._work = beat, work
        self._since_beat = 0.0 if beats else self._since_beat + seconds
        if beats or (works and self._since_beat < _TURN_SECONDS):
            self.reset()
            return False
        self._most = _STUCK_SECONDS if serves else _START_SECONDS
        self.late += seconds
        return self.overdue or (serves and self.late > _SUSPECT_SECONDS)

    def ask(self, now: ThreadState | None) -> None:
        """Update the condition from the kernel's report."""
        if now is not None and now.state == "S" and self.overdue:
            self.condition = Condition.ASLEEP
        elif self.overdue:
            self.condition = Condition.SILENT
        elif now is None:
            self.condition = Condition.LATE
        elif self.condition is Condition.WELL or self._first is None or _differ(self._first, now):
            self._first, self._asked = now, self.late
            self.condition = Condition.LATE
        elif now.state in _STILL:
            if self.late - self._asked >= _SLEEP_SECONDS:
                self.condition = _STILL[now.state]
        elif now.ran - self._first.ran >= _COMPUTE_SECONDS * 1e9:
            self.condition = Condition.COMPUTING


_STILL: Final = {"S": Condition.ASLEEP, "T": Condition.STOPPED}


def _differ(first: ThreadState, now: ThreadState) -> bool:
    """Return whether a process has gone to sleep or woken up in between."""
    return now.state != first.state or (now.state in _STILL and now.turns != first.turns)


def stuck_workers(watches: Sequence[Watch]) -> list[Watch]:
    """Return the workers to replace."""
    found = [one for one in watches if one.condition in _STUCK]
    if found:
        return found
    # A sleeping worker may just be waiting for a key that another worker holds. If no other worker
    # can be holding it while waiting for a processor, replace the worker that is latest.
    asleep = [one for one in watches if one.condition is Condition.ASLEEP]
    if any(one.condition is Condition.LATE for one in watches):
        asleep = [one for one in asleep if one.overdue]
    return [max(asleep, key=lambda one: one.late)] if asleep else []


_STUCK: Final = (Condition.STOPPED, Condition.COMPUTING, Condition.SILENT)
