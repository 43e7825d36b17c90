"""The trace: one line of a CSV file for each request, written in the background."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memlite.config.parsers import nanoseconds
from memlite.core.errors import ConfigError
from memlite.proxy.cluster import Cluster
from memlite.proxy.queue import Ticket
from memlite.proxy.trace_rows import Row, lines_of, row_of, row_of_traced
from memlite.proxy.trace_writer import TraceWriter
from memlite.proxy.turns import Traced
from memlite.server.scheduler import Scheduler

__all__ = ["Choice", "Sample", "Trace", "Tracing", "parse_sample"]

_MAX_ROWS: Final = 100_000
"""The most rows that may wait to be written; further rows are dropped."""
_BATCH: Final = 500
"""The most rows that are formatted at a time, in about half a millisecond."""
_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Sample:
    """Which requests are traced.

    Attributes:
        every: one request in this many.
        slow: minimum nanoseconds from a request's arrival to its reply.
        failed: whether it must have failed.
    """

    every: int = 1
    slow: int = 0
    failed: bool = False

    def has(self, ticket: Ticket) -> bool:
        """Return whether a finished request is traced, regardless of `every`."""
        if self.failed and not ticket.failed:
            return False
        return ticket.replied_at - ticket.arrival >= self.slow


class Choice:
    """Chooses the requests that are traced.

    Args:
        sample: which requests.
        every: one in this many of the requests counted here.

    Attributes:
        sample: as above.
    """

    def __init__(self, sample: Sample, every: int) -> None:
        self.sample = sample
        self._every = every
        self._until_next = 1

    def counts(self) -> bool:
        """Count a request, and return whether it is chosen."""
        self._until_next -= 1
        if self._until_next:
            return False
        self._until_next = self._every
        return True


def parse_sample(text: str) -> Sample:
    """Parse ``all``, ``failed``, ``slow:10ms`` or ``1/100``.

    Raises:
        ConfigError: it is none of these.
    """
    if text == "all":
        return Sample()
    if text == "failed":
        return Sample(failed=True)
    kind, _, value = text.partition(":")
    if kind == "slow":
        with contextlib.suppress(ValueError):
            threshold = nanoseconds(value)
            if threshold:
                return Sample(slow=threshold)
    one, _, every = text.partition("/")
    if one == "1" and every.isdecimal() and 0 < int(every) <= 10**9:
        return Sample(every=int(every))
    raise ConfigError(f"must be all, failed, slow:10ms or 1/100, not {text!r}")


@dataclass(frozen=True, slots=True)
class Tracing:
    """The settings of the trace.

    Attributes:
        path: the file; lines are appended.
        sample: which requests are traced.
        names: whether keys are named, instead of counted.
    """

    path: Path
    sample: Sample
    names: bool = False


class Trace:
    """Takes finished requests, and has another process write them to a file.

    If the file cannot be written, one line in the log says so, and rows are dropped until it can be
    written again.

    Args:
        tracing: the settings.
        cluster: knows the version of the topology.
        scheduler: hands over the rows periodically.
        every: one in this many of the requests it receives is traced.

    Raises:
        StartError: the file cannot be opened.
    """

    def __init__(
        self, tracing: Tracing, cluster: Cluster, scheduler: Scheduler, every: int
    ) -> None:
        self._writer = TraceWriter(tracing.path)
        self._choice = Choice(tracing.sample, every)
        self._cluster = cluster
        self._scheduler = scheduler
        self._timer: asyncio.TimerHandle | None = None
        self._names = tracing.names
        self._offset = time.time_ns() - time.monotonic_ns()
        self._rows: list[Row] = []
        self._turns: Any = None
        self._traced: list[Traced] = []
        self._lost = 0

    def trace_in_c(self, turns: Any) -> None:
        """Take requests that were traced in C as well, without a `Ticket`.

        Args:
            turns: decides which.
        """
        self._turns = turns
        turns.cluster, turns.done = self._cluster, self._traced
        if not self._names:
            turns.offset = self._offset

    @property
    def written(self) -> int:
        """How many rows were written."""
        self._writer.advance()
        return self._writer.written

    @property
    def dropped(self) -> int:
        """How many rows were not written, for lack of memory or because writing failed."""
        self._writer.advance()
        return self._lost + self._writer.failed

    def begin(self, ticket: Ticket) -> None:
        """Do nothing: only finished requests are written."""

    def record(self, ticket: Ticket) -> None:
        """Take a finished request."""
        if not self._choice.counts() or not self._choice.sample.has(ticket):
            return
        if self._writer.waiting + len(self._rows) >= _MAX_ROWS:
            self._lost += 1
            return
        self._rows.append(row_of(ticket, self._offset, self._cluster.version, names=self._names))
        if len(self._rows) >= _BATCH:
            self.hand_over()

    def hand_over(self) -> None:
        """Hand the collected rows to the process, at most a batch of those that need a format."""
        if self._turns is not None:
            self._put(*self._turns.take_lines())
        if self._traced:
            batch = self._traced[:_BATCH]
            del self._traced[:_BATCH]  # C code refers to the list itself
            self._put(b"".join(map(self._line, batch)), len(batch))
        if self._rows:
            rows, self._rows = self._rows, []
            self._writer.put(lines_of(rows), len(rows))
        self._writer.advance()

    def _put(self, lines: bytes, count: int) -> None:
        if self._writer.waiting + count > _MAX_ROWS:
            self._lost += count
        elif count:
            self._writer.put(lines, count)

    def reopen(self) -> None:
        """Continue in a new file if the current one was renamed."""
        self.hand_over()
        self._writer.put(b"", 0)  # makes the process check the file
        self._writer.advance()

    def start(self) -> None:
        """Begin to write.

        Raises:
            StartError: the process cannot be started.
        """
        self._writer.start()
        self._again()

    def _again(self) -> None:
        self.hand_over()
        # Requests are served between two batches.
        self._timer = self._scheduler.call_later(0 if self._traced else _SECONDS, self._again)

    def stop(self) -> None:
        """Write the rest, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self.hand_over()
        while self._traced:
            self.hand_over()
        self._writer.stop()

    def _line(self, traced: Traced) -> bytes:
        return lines_of([row_of_traced(traced, self._offset, names=self._names)])
