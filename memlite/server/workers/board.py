"""Communication between the workers of a server: numbers in shared memory, reports, datagrams.

Every worker has a row of numbers that it alone writes and that all workers read. A datagram tells
it that another worker needs current numbers (`Topic`). It answers with a number in its row, for
which the other worker waits. So nothing is shared until a worker asks, and an ordinary command
costs nothing.
"""

import marshal
import mmap
import os
import socket
from enum import IntEnum, auto
from typing import Any, Final

from memlite.telemetry.counters import Counters

__all__ = ["Board", "Cell", "Control", "Topic"]


class Topic(IntEnum):
    """A request to a worker."""

    COUNTS = 0
    """Publish its counters and all other numbers."""
    CONTROL = 1
    """Act on the controls."""
    REPORT = 2
    """Publish statistics that are not single numbers."""


class Cell(IntEnum):
    """A number in a worker's row."""

    PID = 0
    """0 unless the worker serves."""
    BEAT = 1
    """The monotonic clock at which its event loop last ran, in nanoseconds."""
    ENDED = 2
    """Connections passed to the worker that have ended."""
    OPEN = 3
    HANDSHAKES = 4
    INPUT_HELD = 5
    USER = 6
    """Processor time, in nanoseconds."""
    SYSTEM = 7
    WATCHED = 8
    """One bit for each stream of events that its clients watch."""
    WATCHERS = 9
    EVENTS_WRITTEN = 10
    EVENTS_SENT = 11
    EVENTS_SKIPPED = 12
    WRITING = 13
    """Odd while the worker writes its report."""
    ASKED = 14
    """For each topic, how often the worker has asked."""
    ANSWERED = 17
    """For each topic, the sum of all `ASKED` that the worker has answered."""
    DATAGRAMS = 20
    """Requests over UDP in progress."""
    SLOW = 21
    """Slow commands."""
    ITEMS = 22
    """Items in the worker's own memory: copies in its near cache."""
    BYTES = 23
    """Bytes used by these items."""
    WORK = 24
    """Changes while the worker makes progress, even between two runs of its event loop."""
    DUMPING = 25
    """1 while the worker sends a dump of all items."""
    COUNTERS = 26
    """`Counters.NAMES`, in their order."""


class Control(IntEnum):
    """A number for all workers, written by the worker that received a command."""

    VERBOSITY = 0
    CRAWLER = auto()
    PREFIXES = auto()
    SHIFT = auto()
    """Seconds by which the clock was moved."""
    RESETS = auto()
    """How often statistics were reset."""
    RELOADS = auto()
    """How often a reload of the certificates was requested."""
    PACE = auto()
    """The monotonic time at which the full burst is available again, in nanoseconds; see `Pace`."""


GAUGES: Final = (
    Cell.OPEN,
    Cell.HANDSHAKES,
    Cell.INPUT_HELD,
    Cell.WATCHED,
    Cell.WATCHERS,
    Cell.ENDED,
    Cell.DATAGRAMS,
    Cell.ITEMS,
    Cell.BYTES,
    Cell.DUMPING,
)
"""Numbers that become zero when a worker ends."""
_ROW: Final = 128
_LENGTH: Final = 8
_NUMBERS: Final = len(Counters.NAMES)


class Board:
    """The numbers of all workers. Created before the workers are forked.

    Args:
        workers: the number of workers.

    Attributes:
        workers: as above.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        memory = mmap.mmap(-1, 8 * _ROW * (workers + 1))
        self._cells = memoryview(memory).cast("q")
        self._reports = [os.memfd_create("memlite report") for _ in range(workers)]
        self._bells = [
            socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            for _ in range(workers)
        ]

    # Numbers

    def read(self, worker: int, cell: int) -> int:
        """Return a number of a worker."""
        return self._cells[_ROW * (worker + 1) + cell]

    def write(self, worker: int, cell: int, value: int) -> None:
        """Set a number of a worker."""
        self._cells[_ROW * (worker + 1) + cell] = value

    def sum(self, cell: int) -> int:
        """Return the sum of a number over all workers."""
        return sum(self._cells[_ROW + cell :: _ROW])

    def control(self, control: Control) -> int:
        """Return a control."""
        return self._cells[control]

    def set_control(self, control: Control, value: int) -> None:
        """Set a control; see `Member.tell`."""
        self._cells[control] = value

    def counters(self, worker: int) -> list[int]:
        """Return a worker's counters."""
        at = _ROW * (worker + 1) + Cell.COUNTERS
        return self._cells[at : at + _NUMBERS].tolist()

    def write_counters(self, worker: int, values: list[int]) -> None:
        """Set a worker's counters."""
        at = _ROW * (worker + 1) + Cell.COUNTERS
        for place, value in enumerate(values, at):
            self._cells[place] = value

    def total(self, *workers: int) -> Counters:
        """Return the sum of the counters of the given workers, by default all; see `mark_dead`."""
        rows = [self.counters(worker) for worker in workers or range(self.workers)]
        total = Counters()
        total.add(dict(zip(Counters.NAMES, map(sum, zip(*rows, strict=True)), strict=True)))
        return total

    def others(self, worker: int) -> list[int]:
        """Return the serving workers other than the given one."""
        return [one for one in range(self.workers) if one != worker and self.read(one, Cell.PID)]

    def served(self, worker: int) -> bool:
        """Return whether a worker with this number has ever served."""
        return self.read(worker, Cell.BEAT) != 0

    def leave(self, worker: int) -> None:
        """Record that a worker no longer serves."""
        self.write(worker, Cell.PID, 0)

    def mark_dead(self, worker: int) -> None:
        """Record that a worker and its connections have ended; its counts are kept."""
        if self.read(worker, Cell.PID):  # otherwise it published a complete final report
            self.write_report(worker, None)
        self.leave(worker)
        for cell in GAUGES:
            self.write(worker, cell, 0)

    # Datagrams

    def bell(self, worker: int) -> socket.socket:
        """Return the socket from which a worker reads messages."""
        return self._bells[worker][0]

    def send(self, worker: int, message: bytes) -> bool:
        """Send a worker a message; return False if it is not reading its messages."""
        try:
            self._bells[worker][1].send(message)
        except OSError:
            return False
        return True

    # Reports

    def write_report(self, worker: int, report: Any) -> None:
        """Publish a worker's report, which consists of plain values only."""
        data = marshal.dumps(report)
        self.write(worker, Cell.WRITING, self.read(worker, Cell.WRITING) | 1)
        os.pwrite(self._reports[worker], len(data).to_bytes(_LENGTH, "little") + data, 0)
        self.write(worker, Cell.WRITING, self.read(worker, Cell.WRITING) + 1)

    def read_report(self, worker: int) -> Any:
        """Return a worker's report; None if there is no complete one."""
        file = self._reports[worker]
        for _ in range(100):
            before = self.read(worker, Cell.WRITING)
            length = int.from_bytes(os.pread(file, _LENGTH, 0), "little")
            data = os.pread(file, length, _LENGTH)
            if before and not before & 1 and self.read(worker, Cell.WRITING) == before:
                return marshal.loads(data)  # noqa: S302 - written by this program
        return None
