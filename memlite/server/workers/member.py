"""A worker's side of the board: it publishes, asks, and acts on the controls."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from memlite.core.clock import Clock
from memlite.server.scheduler import Scheduler
from memlite.server.workers.board import Board, Cell, Control, Topic
from memlite.telemetry.counters import Counters

__all__ = ["BEAT_SECONDS", "Member"]

BEAT_SECONDS: Final = 0.25
"""How often a worker shows that its event loop runs, in seconds."""

# How long to wait for the answers of other workers, in seconds: as long as one command may take. A
# worker that did not answer is not waited for again until its event loop has run.
_PATIENCE: Final = 1.0
_POLL: Final = 0.0001


class Member:
    """Lets a worker act as one server with the other workers.

    Args:
        board: the memory that all workers share.
        number: this worker's.
        counters: its counters.
        clock: its clock.
        scheduler: its event loop.

    Attributes:
        actions: called with the new value when a control has changed.
        board: as above.
        gauges: writes its own numbers to the board.
        number: as above.
        changed: called when a control may have changed.
        receive: called with each message from another worker.
        report: returns its report, of plain values.
        work: returns a number that changes as it makes progress, in addition to its counters.
    """

    def __init__(
        self, board: Board, number: int, counters: Counters, clock: Clock, scheduler: Scheduler
    ) -> None:
        self.board = board
        self.number = number
        self._counters = counters
        self._clock = clock
        self._scheduler = scheduler
        self.actions: Mapping[Control, Callable[[int], None]] = {}
        self.gauges: Callable[[], None] = lambda: None
        self.report: Callable[[], object] = lambda: None
        self.receive: Callable[[bytes], None] = lambda message: None
        self.changed: Callable[[], None] = lambda: None
        self.work: Callable[[], int] = lambda: 0
        self._seen = dict.fromkeys(Control, 0)
        # Counts of earlier workers with the same number.
        self._before = board.counters(number)
        self._spent = [board.read(number, cell) for cell in (Cell.USER, Cell.SYSTEM)]
        self._late: dict[int, int] = {}
        self._next: asyncio.TimerHandle | None = None
        self._ended = threading.Event()

    # A service; see `memlite.server.lifecycle.Service`

    def start(self) -> None:
        """Join: act on the controls, and answer from now on."""
        for control in (Control.RESETS, Control.RELOADS):
            self._seen[control] = self.board.control(control)
        self._answer(force=True)
        self._scheduler.loop.add_reader(self.board.bell(self.number), self._read)
        self.board.write(self.number, Cell.PID, os.getpid())
        self._beat()
        threading.Thread(target=self._show_work, daemon=True).start()

    def stop(self) -> None:
        """Leave."""
        if self._next is not None:
            self._next.cancel()
            self._scheduler.loop.remove_reader(self.board.bell(self.number))
            self._publish_report()
            self.board.leave(self.number)
        self._ended.set()

    def beat(self) -> None:
        """Show that the event loop runs."""
        self.board.write(self.number, Cell.BEAT, time.monotonic_ns())

    def _beat(self) -> None:
        self.beat()
        self.publish()
        self._next = self._scheduler.call_later(BEAT_SECONDS, self._beat)

    def _show_work(self) -> None:
        """Publish progress while the event loop is within one turn; runs in a thread.

        With thousands of busy connections a turn may take seconds.
        """
        while not self._ended.wait(BEAT_SECONDS):
            self.board.write(self.number, Cell.WORK, sum(self._counters.values()) + self.work())

    # Answering

    def _read(self) -> None:
        bell = self.board.bell(self.number)
        try:
            while True:
                message = bell.recv(65536)
                if message:
                    self.receive(message)
        except BlockingIOError:
            pass
        self._answer()

    def _answer(self, *, force: bool = False) -> None:
        """Publish what other workers have asked for."""
        board, number = self.board, self.number
        for topic, answer in (
            (Topic.CONTROL, self._apply),
            (Topic.COUNTS, self.publish),
            (Topic.REPORT, self._publish_report),
        ):
            asked = board.sum(Cell.ASKED + topic)
            if force or board.read(number, Cell.ANSWERED + topic) < asked:
                answer()
                board.write(number, Cell.ANSWERED + topic, asked)

    def publish(self) -> None:
        """Write this worker's numbers to the board."""
        self.gauges()
        values = [
            before + now for before, now in zip(self._before, self._counters.values(), strict=True)
        ]
        self.board.write_counters(self.number, values)
        now = os.times()
        user, system = self._spent
        self.board.write(self.number, Cell.USER, user + int(now.user * 1e9))
        self.board.write(self.number, Cell.SYSTEM, system + int(now.system * 1e9))

    def _publish_report(self) -> None:
        self.publish()
        self.board.write_report(self.number, self.report())

    def _apply(self) -> None:
        for control, action in self.actions.items():
            value = self.board.control(control)
            if value != self._seen[control]:
                self._seen[control] = value
                action(value)
        self.changed()

    # Asking

    def set_control(self, control: Control, value: int) -> None:
        """Change a control, and wait until all workers have acted on it."""
        self.board.set_control(control, value)
        self._apply()
        self.ask(Topic.CONTROL)

    def ask(self, topic: Topic) -> None:
        """Ask all workers to publish or act, and wait until they have."""
        board, cell = self.board, Cell.ASKED + topic
        board.write(self.number, cell, board.read(self.number, cell) + 1)
        asked = board.sum(cell)
        waiting = [one for one in board.others(self.number) if not self._is_late(one)]
        for one in waiting:
            board.send(one, b"")
        deadline = time.monotonic() + _PATIENCE
        while True:
            self._answer()  # others may wait for this worker
            waiting = [
                one
                for one in waiting
                if board.read(one, Cell.ANSWERED + topic) < asked and board.read(one, Cell.PID)
            ]
            if not waiting:
                return
            if time.monotonic() > deadline:
                break
            board.write(self.number, Cell.BEAT, time.monotonic_ns())  # waiting, not stuck
            time.sleep(_POLL)
        for one in waiting:
            self._late[one] = board.read(one, Cell.BEAT)

    def _is_late(self, worker: int) -> bool:
        return self._late.get(worker) == self.board.read(worker, Cell.BEAT)

    def reset(self) -> None:
        """Start counting from zero, also for workers that have ended."""
        self._before = [0] * len(self._before)
        for one in range(self.board.workers):
            if not self.board.read(one, Cell.PID):
                self.board.write_counters(one, self._before)
                self.board.write(one, Cell.SLOW, 0)

    def unique_number(self, number: int) -> int:
        """Return a number for a file descriptor, unique among all workers; -1 is unchanged."""
        return number if number < 0 else number * self.board.workers + self.number
