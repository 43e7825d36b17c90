"""The trace's file, and the process that writes it.

A separate process writes the file, so that the proxy never waits for a disk and needs no second
thread, with which every system call costs more (glibc's cancellation points, the kernel's reference
counts of open files). It runs this file without site packages, so that it starts in about 15 ms.
"""

import contextlib
import errno
import os
import signal
import struct
import sys

__all__ = ["BATCH", "RESULT", "TraceFile"]

BATCH = struct.Struct("=I")
"""Precedes each batch of lines: its size in bytes."""
RESULT = struct.Struct("=I")
"""The reply to each batch: 0 if it was written, or else the error number."""


class TraceFile:
    """The file. It is reopened if its path names another file, or none.

    Args:
        path: its path.
        header: the first line.
        descriptor: the open file; -1 to open it before the first write.
    """

    def __init__(self, path: str, header: bytes, descriptor: int = -1) -> None:
        self._path = path
        self._header = header
        self.descriptor = descriptor

    def open(self) -> None:
        """Open it, and write the first line if it is empty.

        Raises:
            OSError: it cannot be opened or written.
        """
        # Without O_NONBLOCK, a pipe without a reader would block startup.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        self.descriptor = os.open(self._path, flags, 0o640)
        try:
            if not os.fstat(self.descriptor).st_size:
                self._append(self._header)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def write(self, lines: bytes) -> None:
        """Append all of the lines, or none.

        Raises:
            OSError: none was written.
        """
        if self._moved():
            self.close()
            self.open()
        self._append(lines)

    def _moved(self) -> bool:
        if self.descriptor < 0:
            return True
        try:
            there = os.stat(self._path)  # noqa: PTH116 - pathlib is slow to import
        except FileNotFoundError:
            return True
        return not os.path.samestat(there, os.fstat(self.descriptor))

    def _append(self, data: bytes) -> None:
        size = os.fstat(self.descriptor).st_size
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, size)
            raise


def main(path: str, descriptor: int) -> None:
    """Write batches from standard input until it ends; reply to each on standard output.

    The first batch is the file's first line, and has no reply.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the proxy handles these, and closes the input
    file: TraceFile | None = None
    with open(0, "rb") as batches:
        while len(head := batches.read(BATCH.size)) == BATCH.size:
            (size,) = BATCH.unpack(head)
            lines = batches.read(size)
            if len(lines) < size:
                break  # the proxy was killed
            if file is None:
                file = TraceFile(path, lines, descriptor)
                continue
            error = 0
            try:
                file.write(lines)
            except OSError as caught:
                error = caught.errno or errno.EIO
            with contextlib.suppress(OSError):  # without the proxy, the rest is written as well
                os.write(1, RESULT.pack(error))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
