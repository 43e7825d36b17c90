"""A file that keeps a shared table while no server runs (``-e``)."""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import time
import zlib
from typing import Final

from memlite.core.errors import StartError
from memlite.memory.shared.layout import (
    HEADER,
    KEPT,
    KEPT_AT,
    MAGIC,
    PARKED_AT,
    REGIONS,
    SEGMENT_HEADER,
    VERSION,
    Layout,
)

__all__ = ["MemoryFile", "begin", "close", "origin_of", "reopen"]

PATIENCE: float = 3.0
"""How long to wait for a file that is locked, in seconds."""
_POLL: Final = 0.02
_BLOCK: Final = 512
_REGION_SIZE: Final = 128
_SUMMED: Final = KEPT.size - 4
# Smaller differences between two servers' clocks are ignored: NTP keeps adjusting the system's.
_STEP: Final = 1.0
# Times of use are seconds since an origin, which is this long, two years, before the start: the
# 27 bits for them leave as much time after it.
_BEFORE: Final = 1 << 26


class MemoryFile:
    """The file of one server, locked while it runs.

    Args:
        path: its path, best on tmpfs; it is created if missing.

    Attributes:
        path: as above.
        descriptor: the open file.

    Raises:
        StartError: it cannot be used, or another server uses it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self.descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise StartError(f"-e: {path}: {error.strerror}") from None
        try:
            self._claim()
        except OSError as error:
            os.close(self.descriptor)
            taken = error.errno in (errno.EAGAIN, errno.EACCES)
            why = "in use by another server" if taken else error.strerror
            raise StartError(f"-e: {path}: {why}") from None
        except StartError:
            os.close(self.descriptor)
            raise

    def _claim(self) -> None:
        if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
            raise StartError(f"-e: {self.path}: not a regular file")
        _lock(self.descriptor)
        head = os.pread(self.descriptor, mmap.PAGESIZE, 0)
        if head.strip(b"\0") and not head.startswith(MAGIC):
            raise StartError(f"-e: {self.path}: not a memory file; name another, or remove it")

    @property
    def allocated(self) -> int:
        """Bytes already allocated to it."""
        return os.fstat(self.descriptor).st_blocks * _BLOCK

    def refusal(self, layout: Layout) -> str | None:
        """Return why its content cannot be used; None if it can, an empty string if it has none.

        Args:
            layout: the layout that it must have.
        """
        there = os.pread(self.descriptor, KEPT_AT + KEPT.size, 0)
        if not there.strip(b"\0"):
            return ""
        if len(there) < KEPT_AT + KEPT.size:
            return "it is truncated"
        _, version, regions, size, *numbers = HEADER.unpack_from(there)
        if (version, regions) != (VERSION, REGIONS):
            return "it was created by another version"
        if size != layout.size:
            return f"it was created with -m {size >> 20}"
        if os.fstat(self.descriptor).st_size != size:
            return "it is truncated"
        if numbers[2] != layout.segment_size:
            return "it was created with another -I"
        if not there.startswith(layout.header()):
            return "its header is damaged"
        return None

    def reserve(self, size: int, *, clear: bool) -> None:
        """Set its size, and allocate memory for all of it.

        Args:
            size: bytes.
            clear: whether to fill it with zeros.

        Raises:
            OSError: there is too little memory.
        """
        if clear:
            os.ftruncate(self.descriptor, 0)
        try:
            os.posix_fallocate(self.descriptor, 0, size)
        except OSError:
            if clear:
                with contextlib.suppress(OSError):
                    os.ftruncate(self.descriptor, 0)
            raise


def _lock(descriptor: int) -> None:
    """Lock a file that workers of a killed server may still have locked.

    Raises:
        OSError: other processes keep the lock.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(_POLL)


def begin(memory: memoryview | mmap.mmap, now: float) -> None:
    """Record in a new table the second from which uses are counted."""
    KEPT.pack_into(memory, KEPT_AT, 0, 0.0, 0.0, int(now) - _BEFORE, 0)


def origin_of(memory: memoryview | mmap.mmap) -> int:
    """Return the unix second from which uses are counted."""
    return int(KEPT.unpack_from(memory, KEPT_AT)[3])


def close(memory: mmap.mmap, layout: Layout, now: float, wall: float) -> None:
    """Mark a table as complete, once no process writes to it any more.

    Args:
        memory: the mapping.
        layout: its layout.
        now: the unix time by the server's clock.
        wall: the unix time by the system's clock.
    """
    origin = origin_of(memory)
    KEPT.pack_into(memory, KEPT_AT, 0, now, wall, origin, 0)
    KEPT.pack_into(memory, KEPT_AT, 0, now, wall, origin, _checksum(memory, layout))
    memory.flush()  # on a disk, write all else first, in case of a power failure
    memory[KEPT_AT] = 1
    memory.flush(0, mmap.PAGESIZE)


def reopen(memory: mmap.mmap, layout: Layout, now: float) -> tuple[float, int]:
    """Reopen a table that was closed, and mark it as incomplete until it is closed again.

    Args:
        memory: the mapping.
        layout: its layout.
        now: the unix time.

    Returns:
        The seconds to add to expiries, 0 unless a clock was set in the meantime, and the seconds
        to add to times of use.

    Raises:
        ValueError: it was not closed, or has been changed since.
    """
    whole, stopped, wall, origin, checksum = KEPT.unpack_from(memory, KEPT_AT)
    if whole != 1:
        raise ValueError("the server that used it was killed")
    memory[KEPT_AT] = 0
    memory.flush(0, mmap.PAGESIZE)
    if checksum != _checksum(memory, layout):
        raise ValueError("its header is damaged")
    # Time passes while no server runs, but it never goes back.
    shift = now - (stopped + max(0.0, now - wall))
    if abs(shift) < _STEP:
        shift = 0.0
    begin(memory, now)
    return shift, origin + round(shift) - origin_of(memory)


def _checksum(memory: mmap.mmap, layout: Layout) -> int:
    """Return a checksum of the headers needed to read the records."""
    regions_end = layout.regions_at + _REGION_SIZE * (REGIONS + 1)
    headers_end = layout.headers_at + SEGMENT_HEADER * layout.segments
    total = zlib.crc32(memory[: KEPT_AT + _SUMMED])
    total = zlib.crc32(memory[PARKED_AT : layout.regions_at], total)
    total = zlib.crc32(memory[layout.regions_at : regions_end], total)
    return zlib.crc32(memory[layout.headers_at : headers_end], total)
