"""``file://``: a snapshot people can read, and a journal of what has changed since."""

__all__ = ["FileBackend", "make"]

from memlite.backends.jsonfile.backend import FileBackend, make
