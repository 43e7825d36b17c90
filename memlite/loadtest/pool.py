"""The parent's side of the workers: it starts them, and adds up what they saw."""

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Self

from memlite import signals
from memlite.errors import StartError
from memlite.loadtest.machine import cores
from memlite.loadtest.recorder import Recording
from memlite.loadtest.results import Repetition
from memlite.loadtest.worker import Began, Failed, Glance, Ready, Task, main

__all__ = ["Interrupted", "Pool", "default_workers"]

_STOP_SECONDS = 5.0


def default_workers() -> int:
    """Return how many workers suit this machine: half its processors, the server has the others."""
    return max(1, cores() // 2)


class Interrupted(Exception):  # noqa: N818 - not an error
    """The user wants it to end.

    Attributes:
        recording: what was written down by then; None when nothing was.
        repetition: what was measured, when somebody has made that of it.
    """

    def __init__(self, recording: Recording | None, repetition: Repetition | None = None) -> None:
        super().__init__()
        self.recording = recording
        self.repetition = repetition


class Pool:
    """Worker processes, to be used as a context manager.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        signals.hold()  # which they inherit: Ctrl-C is for the parent
        try:
            for number in range(self.count):
                mine, theirs = context.Pipe()
                process = context.Process(
                    target=main, args=(theirs,), name=f"memlite-bench-{number}", daemon=True
                )
                process.start()
                theirs.close()
                self._processes.append(process)
                self._pipes.append(mine)
        finally:
            signals.release()
        return self

    def __exit__(self, *details: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(_STOP_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()

    def run(
        self,
        tasks: Sequence[Task],
        on_glance: Callable[[Sequence[Glance]], None],
        on_began: Callable[[], None] = lambda: None,
    ) -> Recording:
        """Carry out a task in each worker, all beginning together.

        Args:
            tasks: at most as many as there are workers.
            on_glance: is told now and then how it goes in each of them.
            on_began: is told when the first of them begins to measure.

        Raises:
            StartError: one of them cannot.
            Interrupted: the user wants it to end; the workers have stopped.
        """
        pipes = self._pipes[: len(tasks)]
        going = False
        try:
            for pipe, task in zip(pipes, tasks, strict=True):
                pipe.send(task)
            self._collect(pipes, Ready)
            for pipe in pipes:
                pipe.send("go")
            going = True
            return _sum(self._collect(pipes, Recording, on_glance, on_began))
        except (EOFError, ConnectionError):
            raise StartError("bench: a worker has died") from None
        except KeyboardInterrupt:
            signals.hold()  # once is enough
            recording = self._stop(pipes) if going else None
            raise Interrupted(recording) from None

    def _collect(
        self,
        pipes: Sequence[Connection],
        kind: type,
        on_glance: Callable[[Sequence[Glance]], None] | None = None,
        on_began: Callable[[], None] | None = None,
    ) -> list[object]:
        """Return a message of that kind from each."""
        found: dict[Connection, object] = {}
        glances: dict[Connection, Glance] = {}
        while len(found) < len(pipes):
            for pipe in wait([one for one in pipes if one not in found]):
                assert isinstance(pipe, Connection)  # noqa: S101 - for the type checker
                message = pipe.recv()
                if isinstance(message, Failed):
                    raise StartError(f"bench: {message.text}")
                if isinstance(message, kind):
                    found[pipe] = message
                elif isinstance(message, Began):
                    if on_began is not None:
                        on_began()
                        on_began = None
                elif isinstance(message, Glance):
                    glances[pipe] = message
                    if on_glance is not None and len(glances) == len(pipes):
                        on_glance(list(glances.values()))
                        glances.clear()
        return list(found.values())

    def _stop(self, pipes: Sequence[Connection]) -> Recording | None:
        with suppress(OSError, EOFError, StartError):
            for pipe in pipes:
                pipe.send("stop")
            return _sum(self._collect(pipes, Recording))
        return None


def _sum(recordings: Sequence[object]) -> Recording:
    total = Recording()
    for one in recordings:
        assert isinstance(one, Recording)  # noqa: S101 - for the type checker
        total.add(one)
    return total
