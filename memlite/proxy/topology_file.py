"""The topology file of a running proxy, which may change."""

import logging
from collections.abc import Callable
from pathlib import Path

from memlite.cluster.topology import Topology, read_topology
from memlite.core.errors import ConfigError

__all__ = ["TopologyFile"]

_log = logging.getLogger("memlite")


class TopologyFile:
    """Reads a topology file again when it has changed.

    Args:
        path: the file, which has been read once; relative to the current working directory.
        changed: called with the topology that was read.
    """

    def __init__(self, path: Path, changed: Callable[[Topology], None]) -> None:
        self._path = path.absolute()
        self._changed = changed
        self._seen = self._state()

    def _state(self) -> tuple[int, ...] | None:
        """Return values that differ when the file has changed; None if there is no file."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> None:
        """Read the file now.

        Raises:
            ConfigError: it cannot be used; the old topology is kept.
        """
        self._seen = self._state()
        self._changed(read_topology(self._path, patience=0.0))

    def read_if_changed(self, _second: int) -> None:
        """Read the file if it has changed; log an error, and keep the old topology."""
        # A file that is being replaced may be missing for a moment.
        state = self._state()
        if state is None or state == self._seen:
            return
        try:
            self.read()
        except ConfigError as error:
            _log.error("topology not reloaded: %s", error)
