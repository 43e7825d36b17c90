"""What keeps a server from serving."""

from collections.abc import Callable

from memlite.telemetry.snapshot import BackendStats, MemoryStats

__all__ = ["Condition"]


class Condition:
    """Knows what keeps a server from serving.

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
        """Return whether the store is taken for unavailable."""
        storage = self._storage()
        return isinstance(storage, BackendStats) and storage.unavailable

    def troubles(self) -> tuple[str, ...]:
        """Return what keeps it, in a few words each; nothing if it can serve."""
        return (
            *(("draining",) if self._draining() else ()),
            *(("the store is unavailable",) if self.unavailable() else ()),
        )
