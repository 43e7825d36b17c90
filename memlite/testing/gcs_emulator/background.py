"""Run the emulator in a thread or in a separate process, for synchronous code."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from memlite.testing.gcs_emulator.server import GcsEmulator

__all__ = ["emulator_process", "emulator_thread", "loop_factory"]

_STOP_SECONDS = 10.0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the emulator's event loop: uvloop's if installed, else None."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextlib.contextmanager
def emulator_thread(*arguments: Any, **options: Any) -> Iterator[GcsEmulator]:
    """Run an emulator in a thread while the context is active.

    Args:
        arguments: positional arguments of `GcsEmulator`.
        options: keyword arguments of `GcsEmulator`.

    Yields:
        The running emulator. Its `faults` may be changed from any thread.

    Raises:
        StartError: the emulator cannot listen.
    """
    emulator = GcsEmulator(*arguments, **options)
    started: Future[Callable[[], object]] = Future()

    async def serve() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        try:
            await emulator.start()
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            started.set_exception(error)
            return
        started.set_result(lambda: loop.call_soon_threadsafe(done.set))
        await done.wait()
        await emulator.stop()

    def run() -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="gcs-emulator", daemon=True)
    thread.start()
    stop = started.result()
    try:
        yield emulator
    finally:
        stop()
        thread.join(_STOP_SECONDS)


@contextlib.contextmanager
def emulator_process(*arguments: str) -> Iterator[str]:
    """Run an emulator in a separate process while the context is active.

    Args:
        arguments: arguments of ``memlite gcs-emulator``; the default port is any free one.

    Yields:
        The URL of the running emulator.

    Raises:
        RuntimeError: the emulator does not start; its message is on stderr.
    """
    command = [sys.executable, "-m", "memlite", "gcs-emulator", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise RuntimeError(f"the emulator did not start (exit code {process.wait()})")
            yield line.split()[0]
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
