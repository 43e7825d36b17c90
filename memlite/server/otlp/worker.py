"""The exporting thread and its queue."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from memlite.telemetry.snapshot import Snapshot
from memlite.telemetry.spans import Span

__all__ = ["MAX_SPANS", "Receiver", "Worker"]

_log = logging.getLogger("memlite")

MAX_SPANS: Final = 4096
"""The maximum number of waiting spans; further ones are dropped and counted."""

_BATCH: Final = 512
_SECONDS: Final = 5.0
_BETWEEN_LINES: Final = 60.0
_STOPPING: Final = 2.0


class Receiver(Protocol):
    """The target of exports. Its methods block, and return an error message or an empty string."""

    def send_metrics(self, snapshot: Snapshot) -> str: ...  # noqa: D102 - see the class
    def send_spans(self, spans: Sequence[Span]) -> str: ...  # noqa: D102

    def close(self) -> None:
        """Abandon exports in progress; called by another thread."""


class Worker:
    """Exports in its own thread, so that a slow receiver does not block the server.

    The queue is bounded: it holds the last snapshot only, as it supersedes earlier ones, and a
    limited number of spans.

    Args:
        receiver: the target of exports.
        clock: returns seconds, never decreasing.

    Attributes:
        dropped: spans that were not exported, as too many were waiting or the receiver failed.
    """

    def __init__(self, receiver: Receiver, clock: Callable[[], float] = time.monotonic) -> None:
        self._receiver = receiver
        self._complaints = _Complaints(clock)
        self._snapshot: Snapshot | None = None
        self._spans: deque[Span] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self.dropped = 0

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Export a snapshot soon, replacing one that has not been exported yet."""
        if self._snapshot is not None:
            self._complaints.note("the receiver is not responding", self.dropped)
        self._snapshot = snapshot
        self._wake.set()

    def put_span(self, span: Span) -> None:
        """Export a span within some seconds, if there is room for it; any thread may call this."""
        if len(self._spans) >= MAX_SPANS:
            self.dropped += 1
            return
        self._spans.append(span)
        if len(self._spans) == _BATCH:
            self._wake.set()

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def stop(self) -> None:
        """Export the queue, for two seconds at most."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is None:
            return
        self._thread.join(_STOPPING)
        if self._thread.is_alive():
            lost = len(self._spans) + self.dropped
            _log.warning("--otlp: gave up on the last export; spans lost so far: %d", lost)
        self._receiver.close()

    def _run(self) -> None:
        stops = False
        while not stops:
            self._wake.wait(_SECONDS)
            self._wake.clear()
            stops = self._stopping
            self._export()

    def _export(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._complaints.note(self._receiver.send_metrics(snapshot), self.dropped)
        for _ in range(MAX_SPANS // _BATCH):
            spans = [self._spans.popleft() for _ in range(min(_BATCH, len(self._spans)))]
            if not spans:
                break
            trouble = self._receiver.send_spans(spans)
            if trouble:
                self.dropped += len(spans)
            self._complaints.note(trouble, self.dropped)
            if trouble:
                break


class _Complaints:
    """Logs that exports fail, at most once a minute, and that they work again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = float("-inf")
        self._failures = 0
        self._complained = False

    def note(self, trouble: str, dropped: int) -> None:
        """Record the outcome of an export: an error message or an empty string."""
        now = self._clock()
        if not trouble:
            if self._complained:
                _log.warning("--otlp: exports succeed again; spans lost so far: %d", dropped)
                self._next = now + _BETWEEN_LINES  # for a receiver that works now and then
            self._complained, self._failures = False, 0
            return
        self._failures += 1
        if now < self._next:
            return
        self._next, self._complained = now + _BETWEEN_LINES, True
        _log.warning(
            "--otlp: exports failed: %d; spans lost so far: %d; %s",
            self._failures,
            dropped,
            trouble,
        )
        self._failures = 0
