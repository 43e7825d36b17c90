"""The figures of the last hour, in bounded memory, and the current ones."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from memlite.telemetry.points import Point, point
from memlite.telemetry.snapshot import Snapshot

__all__ = ["POINTS", "STEP_SECONDS", "Recorder"]

STEP_SECONDS: Final = 5
"""The time that each point of the history covers, in seconds."""

POINTS: Final = 720
"""The number of points kept: an hour."""


class Recorder:
    """Takes snapshots every few seconds, or every second while a client follows.

    Args:
        snapshot: returns the server's figures.
        clock: returns seconds, never decreasing.

    Attributes:
        history: a point for every `STEP_SECONDS`, the oldest first.
        latest: what happened since the snapshot before the last one; None at first.
        snapshot: the last snapshot.
    """

    def __init__(
        self, snapshot: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._take = snapshot
        self._clock = clock
        self._streams: set[asyncio.Queue[str | None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = 0
        self.history: deque[Point] = deque(maxlen=POINTS)
        self.latest: Point | None = None
        self.snapshot: Snapshot

    def start(self) -> None:
        """Begin to take snapshots; the event loop must be running."""
        self.snapshot = self._of_step = self._take()
        self._taken = self._clock()
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        self._wait()

    def stop(self) -> None:
        """Stop, and end all streams."""
        if self._timer is not None:
            self._timer.cancel()
        for stream in self._streams:
            stream.put_nowait(None)

    def follow(self) -> "asyncio.Queue[str | None]":
        """Return a queue of events: ``now``, ``point``, or None at the end.

        Pass the queue to `unfollow` when done. Events are dropped for clients that are slow to take
        them.
        """
        stream: asyncio.Queue[str | None] = asyncio.Queue()
        self._streams.add(stream)
        return stream

    def unfollow(self, stream: "asyncio.Queue[str | None]") -> None:
        """Stop adding events to a queue that `follow` returned."""
        self._streams.discard(stream)

    @property
    def followers(self) -> int:
        """How many queues are in use."""
        return len(self._streams)

    def look(self) -> None:
        """Take a snapshot now, if the last one is at least a second old."""
        if self.latest is None or self._clock() - self._taken >= 1:
            self._renew()

    def _renew(self) -> None:
        now = self._take()
        self.latest, self.snapshot, self._taken = point(self.snapshot, now), now, self._clock()

    def _wait(self) -> None:
        self._due = max(self._due + 1, self._loop.time())
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._wait()
        self._seconds += 1
        ends_step = self._seconds % STEP_SECONDS == 0
        if not ends_step and not self._streams:
            return
        self._renew()
        self._tell("now")
        if ends_step:
            self.history.append(point(self._of_step, self.snapshot))
            self._of_step = self.snapshot
            self._tell("point")

    def _tell(self, event: str) -> None:
        for stream in self._streams:
            if stream.qsize() < 2:
                stream.put_nowait(event)
