"""Locks for forked processes: the kernel releases the locks of a process that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Locks"]


class Locks:
    """Numbered locks for processes, not for threads. Create them before forking the processes."""

    def __init__(self) -> None:
        self._file = os.memfd_create("memlite locks")

    @contextmanager
    def hold(self, number: int) -> Iterator[None]:
        """Hold a lock."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, number)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)
