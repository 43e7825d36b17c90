"""The parent's side of the load tester's processes, with threads in place of the processes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from memlite.core import signals
from memlite.loadtest.limits import ClientRefusedError
from memlite.loadtest.messages import Failed, MeasurementStarted, ProgressUpdate, Ready
from memlite.loadtest.pool import Interrupted, Pool
from memlite.loadtest.recorder import Recording

TASK: Any = "a task"
Worker = Callable[[Connection], None]


@pytest.fixture
def run() -> Iterator[Callable[..., Recording]]:
    """Run workers; at the end, check that all have ended and have read all their messages."""
    threads, pipes = [], []

    def run(*workers: Worker, **callbacks: Any) -> Recording:
        pool = Pool(len(workers))
        for worker in workers:
            mine, theirs = multiprocessing.Pipe()
            pool._pipes.append(mine)
            pipes.append(theirs)
            threads.append(threading.Thread(target=worker, args=(theirs,), daemon=True))
            threads[-1].start()
        return pool.run([TASK] * len(workers), lambda _updates: None, **callbacks)

    yield run
    signals.unblock()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not any(pipe.poll() for pipe in pipes)


def begin(pipe: Connection) -> None:
    assert pipe.recv() == TASK
    pipe.send(Ready())
    assert pipe.recv() == "go"


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_between_two_recordings_waits_for_the_second(run) -> None:
    """The first worker gets no command to stop: it would mistake it for its next task."""
    first = threading.Event()

    def quick(pipe: Connection) -> None:
        begin(pipe)
        pipe.send(Recording())
        first.set()

    def slow(pipe: Connection) -> None:
        begin(pipe)
        assert first.wait(20)
        pipe.send(ProgressUpdate(0, 0, 0.0))  # the recording is read before or with this
        pipe.send(MeasurementStarted())  # upon which the user presses Ctrl-C
        assert pipe.recv() == "stop"
        pipe.send(Recording())

    with pytest.raises(Interrupted) as caught:
        run(quick, slow, on_start=interrupt)
    assert caught.value.recording is not None


def test_if_a_client_is_refused_the_other_workers_are_stopped(run) -> None:
    def refused(pipe: Connection) -> None:
        assert pipe.recv() == TASK
        pipe.send(Failed("too many connections", full=True))

    def ready(pipe: Connection) -> None:
        assert pipe.recv() == TASK
        pipe.send(Ready())
        assert pipe.recv() == "stop"
        pipe.send(Recording())

    with pytest.raises(ClientRefusedError, match="too many connections") as caught:
        run(ready, refused)
    assert caught.value.full


def test_an_interrupt_while_workers_start_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers ignore signals, and the process would wait for them forever."""
    start = multiprocessing.process.BaseProcess.start

    def start_and_interrupt(process: multiprocessing.process.BaseProcess) -> None:
        start(process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start_and_interrupt)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Pool(2):
            pytest.fail("the pool has started")
    finally:
        signals.unblock()
        signal.signal(signal.SIGINT, handler)
    assert multiprocessing.active_children() == []
