"""Export to an OpenTelemetry receiver as a service of the server."""

import asyncio
from collections.abc import Callable

from memlite.server.otlp.worker import Worker
from memlite.telemetry.snapshot import Snapshot

__all__ = ["OtlpService"]


class OtlpService:
    """Hands snapshots to the thread that exports them.

    Args:
        worker: the thread.
        snapshot: returns the server's figures; None to export spans only.
        interval: seconds between two snapshots.
    """

    def __init__(
        self, worker: Worker, snapshot: Callable[[], Snapshot] | None, interval: float
    ) -> None:
        self._worker = worker
        self._snapshot = snapshot
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start. Needs a running event loop."""
        self._worker.start()
        self._wait()

    def stop(self) -> None:
        """Export a last snapshot and the waiting spans, for two seconds at most."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._hand_over()
        self._worker.stop()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._tick)

    def _tick(self) -> None:
        self._hand_over()
        self._wait()

    def _hand_over(self) -> None:
        if self._snapshot is not None:
            self._worker.put_snapshot(self._snapshot())
