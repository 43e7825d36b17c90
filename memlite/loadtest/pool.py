"""The parent's side of the worker processes: starts them and sums their recordings."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Self

import psutil

from memlite.core import signals
from memlite.core.errors import StartError
from memlite.loadtest.limits import ClientRefusedError
from memlite.loadtest.machine import cores
from memlite.loadtest.messages import (
    Failed,
    MeasurementEnded,
    MeasurementStarted,
    ProgressUpdate,
    Ready,
    Task,
)
from memlite.loadtest.recorder import Recording
from memlite.loadtest.results import Repetition
from memlite.loadtest.worker import main

__all__ = ["Interrupted", "Pool", "default_workers"]

_STOP_SECONDS = 5.0


def default_workers() -> int:
    """Return the default number of workers: half the cores, leaving the rest to the server."""
    return max(1, cores() // 2)


class Interrupted(Exception):  # noqa: N818 - not an error
    """The user interrupted the run.

    Attributes:
        recording: the recording up to the interrupt; None if there is none.
        repetition: the measurement derived from `recording`, once there is one.
    """

    def __init__(self, recording: Recording | None, repetition: Repetition | None = None) -> None:
        super().__init__()
        self.recording = recording
        self.repetition = repetition


class Pool:
    """A pool of worker processes; a context manager.

    Args:
        count: the number of processes.

    Attributes:
        processes: this process and the workers, to read their CPU use.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.processes: list[psutil.Process] = []
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        # In the current run: workers that have not finished, and recordings of those that have.
        self._unfinished: list[Connection] = []
        self._recordings: list[Recording] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            signals.block()  # ignore further interrupts
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        signals.block()  # inherited by the workers: only the parent handles Ctrl-C
        try:
            for number in range(self.count):
                mine, theirs = context.Pipe()
                self._pipes.append(mine)
                process = context.Process(
                    target=main, args=(theirs,), name=f"memlite-bench-{number}", daemon=True
                )
                # Append before starting: another thread may let an interrupt through.
                self._processes.append(process)
                process.start()
                theirs.close()
        finally:
            signals.unblock()
        pids = [os.getpid(), *(process.pid for process in self._processes if process.pid)]
        self.processes = [psutil.Process(pid) for pid in pids]

    def __exit__(self, *details: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            if process.pid is None:
                continue  # the process was never started
            process.join(_STOP_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()

    def run(
        self,
        tasks: Sequence[Task],
        on_progress: Callable[[Sequence[ProgressUpdate]], None],
        on_start: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> Recording:
        """Run one task in each worker, all starting at the same time.

        Args:
            tasks: at most one task for each worker.
            on_progress: called periodically with one update from each worker.
            on_start: called when the first worker starts measuring.
            on_end: called when the last worker has stopped measuring.

        Raises:
            ClientRefusedError: a worker cannot run its task; all workers can take another task.
            StartError: a worker has died.
            Interrupted: the user interrupted the run; the workers have stopped.
        """
        pipes = self._pipes[: len(tasks)]
        self._unfinished, self._recordings = list(pipes), []
        running = False
        try:
            for pipe, task in zip(pipes, tasks, strict=True):
                pipe.send(task)
            self._wait_for(Ready, pipes)
            for pipe in pipes:
                pipe.send("go")
            running = True
            self._wait_for(Recording, pipes, on_progress, on_start, on_end)
        except ClientRefusedError:
            self._stop()
            raise
        except (EOFError, ConnectionError):
            raise StartError("bench: a worker process died") from None
        except KeyboardInterrupt:
            signals.block()  # ignore further interrupts
            if running:
                self._stop()
            complete = len(self._recordings) == len(pipes)
            raise Interrupted(_total(self._recordings) if complete else None) from None
        return _total(self._recordings)

    def _wait_for(
        self,
        kind: type,
        pipes: Sequence[Connection],
        on_progress: Callable[[Sequence[ProgressUpdate]], None] | None = None,
        on_start: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Wait for a message of type `kind` from each worker."""
        waiting = list(pipes)
        measuring = len(pipes)
        updates: dict[Connection, ProgressUpdate] = {}
        while waiting:
            for pipe, message in self._receive(waiting):
                if isinstance(message, Failed):
                    raise ClientRefusedError(message.reason, full=message.full)
                if isinstance(message, kind):
                    waiting.remove(pipe)
                elif isinstance(message, MeasurementStarted):
                    if on_start is not None:
                        on_start()
                        on_start = None
                elif isinstance(message, MeasurementEnded):
                    measuring -= 1
                    if on_end is not None and not measuring:
                        on_end()
                elif isinstance(message, ProgressUpdate):
                    updates[pipe] = message
                    if on_progress is not None and len(updates) == len(pipes):
                        on_progress(list(updates.values()))
                        updates.clear()

    def _receive(self, pipes: Sequence[Connection]) -> Iterator[tuple[Connection, object]]:
        """Wait for messages; yield one from each worker that has sent any."""
        for pipe in wait(pipes):
            assert isinstance(pipe, Connection)  # noqa: S101 - for the type checker
            message = pipe.recv()
            if isinstance(message, Recording | Failed):
                self._unfinished.remove(pipe)
            if isinstance(message, Recording):
                self._recordings.append(message)
            yield pipe, message

    def _stop(self) -> None:
        """Stop the workers that have not finished, and wait for them."""
        with suppress(OSError, EOFError):
            for pipe in self._unfinished:
                pipe.send("stop")
            while self._unfinished:
                for _ in self._receive(self._unfinished):
                    pass


def _total(recordings: Sequence[Recording]) -> Recording:
    total = Recording()
    for one in recordings:
        total.add(one)
    return total
