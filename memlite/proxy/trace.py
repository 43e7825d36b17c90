"""The trace: one line of a CSV file for each request, written in the background."""

import asyncio
import contextlib
import csv
import io
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from memlite.config.parsers import nanoseconds
from memlite.core.errors import ConfigError, StartError
from memlite.proxy.cluster import Cluster
from memlite.proxy.queue import Ticket
from memlite.proxy.trace_rows import COLUMNS, Row, row_of, row_of_traced
from memlite.proxy.turns import Traced
from memlite.server.scheduler import Scheduler

__all__ = ["Choice", "Sample", "Trace", "Tracing", "parse_sample"]

_log = logging.getLogger("memlite")

_MAX_ROWS: Final = 100_000
"""The most rows that may wait to be written; further rows are dropped."""
_BATCH: Final = 1000
_SECONDS: Final = 0.2
_STOPPING: Final = 5.0
"""Seconds to wait for the file on shutdown."""


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
    """Takes finished requests, and writes them to a file in the background.

    The event loop only makes the rows; a thread formats and writes them. If the file cannot be
    written, one line in the log says so, and rows are dropped until it can be written again.

    Args:
        tracing: the settings.
        cluster: knows the version of the topology.
        scheduler: hands over the rows periodically.
        every: one in this many of the requests it receives is traced.

    Attributes:
        dropped: rows that were not written.
        written: rows that were written.
        traced: receives finished requests that were traced in C.

    Raises:
        StartError: the file cannot be opened.
    """

    def __init__(
        self, tracing: Tracing, cluster: Cluster, scheduler: Scheduler, every: int
    ) -> None:
        path = tracing.path
        self._file = _File(path)
        self._choice = Choice(tracing.sample, every)
        self._cluster = cluster
        self._scheduler = scheduler
        self._timer: asyncio.TimerHandle | None = None
        self._names = tracing.names
        self._offset = time.time_ns() - time.monotonic_ns()
        self._rows: list[Row] = []
        self.traced: list[Traced] = []
        self._batches: queue.SimpleQueue[list[Row] | list[Traced] | None] = queue.SimpleQueue()
        self._handed_over = 0
        self._lost = 0
        self._thread = threading.Thread(target=self._write, name="trace", daemon=True)
        try:
            self._file.open()
        except OSError as error:
            reason = error.strerror or error
            raise StartError(f"--trace: cannot write {path}: {reason}") from None

    @property
    def written(self) -> int:
        """How many rows were written."""
        return self._file.written

    @property
    def dropped(self) -> int:
        """How many rows were not written, for lack of memory or because the file failed."""
        return self._lost + self._file.failed

    def begin(self, ticket: Ticket) -> None:
        """Do nothing: only finished requests are written."""

    def record(self, ticket: Ticket) -> None:
        """Take a finished request."""
        if not self._choice.counts() or not self._choice.sample.has(ticket):
            return
        waiting = self._handed_over - self._file.written - self._file.failed
        if waiting + len(self._rows) >= _MAX_ROWS:
            self._lost += 1
            return
        self._rows.append(row_of(ticket, self._offset, self._cluster.version, names=self._names))
        if len(self._rows) >= _BATCH:
            self.hand_over()

    def hand_over(self) -> None:
        """Hand the collected rows to the thread."""
        if self.traced:
            waiting = self._handed_over - self._file.written - self._file.failed
            traced = self.traced[: max(_MAX_ROWS - waiting, 0)]
            self._lost += len(self.traced) - len(traced)
            self.traced.clear()  # C code refers to the list itself
            self._handed_over += len(traced)
            self._batches.put(traced)
        if self._rows:
            rows, self._rows = self._rows, []
            self._handed_over += len(rows)
            self._batches.put(rows)

    def reopen(self) -> None:
        """Continue in a new file if the current one was renamed."""
        self.hand_over()
        self._batches.put([])  # makes the thread check the file

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._again()

    def _again(self) -> None:
        self.hand_over()
        self._timer = self._scheduler.call_later(_SECONDS, self._again)

    def stop(self) -> None:
        """Write the rest, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self.hand_over()
        self._batches.put(None)
        if self._thread.ident is not None:
            self._thread.join(_STOPPING)

    def _write(self) -> None:
        while (rows := self._batches.get()) is not None:
            self._file.write(self._lines(rows), len(rows))
        self._file.close()

    def _lines(self, rows: list[Row] | list[Traced]) -> bytes:
        if not rows or isinstance(rows[0], tuple):
            return _lines(cast("list[Row]", rows))
        if self._names:
            return b"".join(map(self._line, rows))
        offset = self._offset
        return b"".join([one.line(offset) or self._line(one) for one in rows])

    def _line(self, traced: Traced) -> bytes:
        return _lines([row_of_traced(traced, self._offset, names=self._names)])


class _File:
    """The file, as the thread sees it.

    Attributes:
        written: rows that were written.
        failed: rows that could not be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._complaint = ""
        self.written = self.failed = 0

    def open(self) -> None:
        # Without O_NONBLOCK, a pipe without a reader would block startup.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags, 0o640)
        try:
            if not os.fstat(self._descriptor).st_size:
                self._append(_lines([COLUMNS]))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, lines: bytes, count: int) -> None:
        try:
            if self._moved():
                self.close()
                self.open()
            self._append(lines)
        except OSError as error:
            self.failed += count
            reason = error.strerror or str(error)
            if reason != self._complaint:
                _log.error("--trace: cannot write %s: %s; rows are dropped", self._path, reason)
            self._complaint = reason
            return
        if self._complaint:
            _log.info("--trace: %s can be written again", self._path)
            self._complaint = ""
        self.written += count

    def _moved(self) -> bool:
        """Return whether the path now names another file, or none."""
        if self._descriptor < 0:
            return True
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return True
        return not os.path.samestat(there, os.fstat(self._descriptor))

    def _append(self, data: bytes) -> None:
        """Write all of the data, or none of it on failure."""
        size = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise


def _lines(rows: list[Row]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
