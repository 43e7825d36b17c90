"""The proxy's side of the process that writes the trace; see `trace_file`."""

import contextlib
import fcntl
import logging
import os
import select
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

from memlite.core.errors import StartError
from memlite.proxy import trace_file
from memlite.proxy.trace_file import BATCH, RESULT, TraceFile
from memlite.proxy.trace_rows import COLUMNS, lines_of

__all__ = ["TraceWriter"]

_log = logging.getLogger("memlite")

_PIPE_BYTES: Final = 1 << 20
"""The size of the pipe to the process: the system's limit for users other than root."""
_STOPPING: Final = 5.0
"""Seconds to wait for the file on shutdown."""
_RESTART: Final = 1.0
"""The least seconds between two starts of the process."""


class TraceWriter:
    """Sends lines to the process, and counts those that it has written.

    Nothing here waits, except `stop`. A process that ends is replaced.

    Args:
        path: the file.

    Attributes:
        written: lines that were written.
        failed: lines that were not, or that a process had not confirmed when it ended.
        waiting: lines that are not confirmed yet.

    Raises:
        StartError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = lines_of([COLUMNS])
        self._file = TraceFile(os.fspath(path), self._header)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._input = self._output = -1
        self._unsent: deque[memoryview] = deque()
        self._unconfirmed: deque[int] = deque()  # the lines of each batch
        self._results = b""
        self._complaint = ""
        self.written = self.failed = self.waiting = 0
        try:
            self._file.open()
        except OSError as error:
            reason = error.strerror or error
            raise StartError(f"--trace: cannot write {path}: {reason}") from None

    def start(self) -> None:
        """Start the process.

        Raises:
            StartError: that fails.
        """
        try:
            self._launch()
        except OSError as error:
            reason = error.strerror or error
            raise StartError(f"--trace: cannot start a process: {reason}") from None

    def _launch(self) -> None:
        self._started = time.monotonic()
        given = self._file.descriptor
        with contextlib.ExitStack() as stack:
            source, self._input = os.pipe()
            stack.callback(os.close, source)
            self._output, target = os.pipe()
            stack.callback(os.close, target)
            try:
                self._process = subprocess.Popen(  # noqa: S603 - no input of others
                    [sys.executable, "-I", "-S", trace_file.__file__, self._path, str(given)],
                    stdin=source,
                    stdout=target,
                    pass_fds=() if given < 0 else (given,),
                    process_group=0,  # Ctrl+C is for the proxy
                )
            except OSError:
                self._close()
                raise
        self._file.close()
        for one in (self._input, self._output):
            os.set_blocking(one, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):  # on Linux
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._input, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._unsent.appendleft(_batch(self._header))

    def put(self, lines: bytes, count: int) -> None:
        """Send whole lines; if there are none, the process only checks for a renamed file."""
        self.waiting += count
        self._unconfirmed.append(count)
        self._unsent.append(_batch(lines))

    def advance(self) -> None:
        """Send what the pipe accepts, and take the results that have arrived."""
        if self._process is None and not self._restart():
            return
        try:
            self._send()
            self._receive()
        except OSError:
            self._lost()

    def _send(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            try:
                sent = os.write(self._input, first)
            except BlockingIOError:
                return
            if sent < len(first):
                self._unsent[0] = first[sent:]
            else:
                self._unsent.popleft()

    def _receive(self) -> None:
        """Take results.

        Raises:
            OSError: the process has ended.
        """
        while True:
            try:
                data = os.read(self._output, 4096)
            except BlockingIOError:
                return
            if not data:
                raise BrokenPipeError
            self._results += data
            whole = len(self._results) // RESULT.size * RESULT.size
            for (error,) in RESULT.iter_unpack(self._results[:whole]):
                self._confirmed(error)
            self._results = self._results[whole:]

    def _confirmed(self, error: int) -> None:
        count = self._unconfirmed.popleft()
        self.waiting -= count
        if not error:
            self.written += count
            if self._complaint:
                _log.info("--trace: %s can be written again", self._path)
            self._complaint = ""
            return
        self.failed += count
        self._complain(f"cannot write {self._path}: {os.strerror(error)}; rows are dropped")

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            _log.error("--trace: %s", text)
        self._complaint = text

    def _lost(self) -> None:
        """Note that the process has ended: which of the rest it has written is unknown."""
        self._close()
        self.failed += self.waiting
        self.waiting = 0
        self._unsent.clear()
        self._unconfirmed.clear()
        self._results = b""
        self._complain(f"the process that writes {self._path} has ended; rows may be missing")

    def _restart(self) -> bool:
        if not self._started or time.monotonic() - self._started < _RESTART:
            return False
        try:
            self._launch()
        except OSError:
            self._started = time.monotonic()
            return False
        return True

    def _close(self) -> None:
        self._close_input()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            # A process that waits for a disk does not end; init reaps it later.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def stop(self) -> None:
        """Wait until the rest is written, for a limited time, and end the process."""
        self._started = 0.0  # no other process is started
        process, until = self._process, time.monotonic() + _STOPPING
        if process is not None:
            with contextlib.suppress(BrokenPipeError):
                while self._unsent and _ready(self._input, select.POLLOUT, until):
                    self._send()
                self._close_input()
                while self._unconfirmed and _ready(self._output, select.POLLIN, until):
                    self._receive()
        if self.waiting:
            self._lost()
        elif process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0))
        self._close()
        self._file.close()


def _batch(lines: bytes) -> memoryview:
    return memoryview(BATCH.pack(len(lines)) + lines)


def _ready(descriptor: int, event: int, until: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(max(until - time.monotonic(), 0) * 1000))
