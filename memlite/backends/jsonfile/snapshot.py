"""Writes snapshots, and detects changes to the last one by other programs."""

import contextlib
import os
import zlib
from pathlib import Path
from typing import TypeAlias

from memlite.backends.jsonfile.format import snapshot_end
from memlite.backends.jsonfile.journal import sync_folder

__all__ = ["SnapshotFile", "SnapshotWriter"]

_Identity: TypeAlias = tuple[int, int, int, int]
# Device, inode, size, and time of the last change in nanoseconds.


class SnapshotFile:
    """The file with the last snapshot.

    Args:
        path: the file.

    Attributes:
        temporary: where the next snapshot is written before it replaces this one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(path.name + ".tmp")
        self._identity: _Identity | None = None

    def recognize(self) -> None:
        """Treat the existing file as the last snapshot."""
        self._identity = _identity_of(self.path)

    @property
    def changed(self) -> bool:
        """Whether another program removed, replaced or changed the file."""
        return _identity_of(self.path) != self._identity

    def replace(self) -> None:
        """Replace this file by the temporary one, durably."""
        self.temporary.replace(self.path)
        self.recognize()
        sync_folder(self.path)


def _identity_of(path: Path) -> _Identity | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class SnapshotWriter:
    """Writes a snapshot beside the old one. Its methods block.

    Attributes:
        size: bytes of the snapshot, once it is finished.
    """

    def __init__(self, path: Path, head: bytes) -> None:
        self._path = path
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._file.write(head)
        self._crc = zlib.crc32(head)
        self._count = 0

    def write(self, items: list[bytes]) -> None:
        """Write the lines of items."""
        if not items:
            return
        # Commas separate items, so there is one before each item except the first.
        data = (b",\n" if self._count else b"") + b",\n".join(items)
        self._count += len(items)
        self._crc = zlib.crc32(data, self._crc)
        self._file.write(data)

    def finish(self) -> None:
        """Write the last line, and make the file durable."""
        self.write_end()
        self.size = self._file.tell()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def write_end(self) -> None:
        """Write the last line."""
        if self._count:
            self._crc = zlib.crc32(b"\n", self._crc)
            self._file.write(b"\n")
        self._file.write(snapshot_end(self._count, self._crc))

    def abandon(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):  # closing writes the buffer, and the disk may be full
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
