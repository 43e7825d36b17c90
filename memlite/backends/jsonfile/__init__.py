"""``file://``: a human-readable snapshot, and a journal of the changes since."""

__all__ = ["FileBackend", "make"]

from memlite.backends.jsonfile.backend import FileBackend, make
