"""Reasons why a server cannot serve."""

from collections.abc import Callable

from memlite.telemetry.snapshot import BackendStats, MemoryStats

__all__ = ["Condition"]


class Condition:
    """Determines whether a server can serve.

    Args:
        storage: returns the statistics of its store.
        draining: returns whether it is about to stop.
    """

    def __init__(
        self, storage: Callable[[], MemoryStats | BackendStats], draining: Callable[[], bool]
    ) -> None:
        self._storage = storage
        self._draining = draining

    def unavailable(self) -> bool:
        """Return whether the store is considered unavailable."""
        storage = self._storage()
        return isinstance(storage, BackendStats) and storage.unavailable

    def troubles(self) -> tuple[str, ...]:
        """Return the reasons why it cannot serve, in a few words each; empty if it can."""
        return (
            *(("draining",) if self._draining() else ()),
            *(("the store is unavailable",) if self.unavailable() else ()),
        )
