"""Progress of a move of keys, as noted in the cluster's store by the process that moves them."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.membership.store import Store, StoreUnavailableError
from memlite.cluster.mover.permit import MOVER, MoverNote

__all__ = ["MoveWatch"]

_INTERVAL: Final = 2.0


class MoveWatch:
    """Reads the note of the process that moves keys, while keys move.

    Args:
        store: the cluster's store.
        moving: returns whether keys move.

    Attributes:
        note: its last note; None if there is no such process, as far as is known.
    """

    def __init__(self, store: Store, moving: Callable[[], bool]) -> None:
        self._store = store
        self._moving = moving
        self._task: asyncio.Task[None] | None = None
        self.note: MoverNote | None = None

    def start(self) -> None:
        """Start watching. Needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            if self._moving():
                with contextlib.suppress(StoreUnavailableError, DocumentError):
                    await self.look()
            else:
                self.note = None
            await asyncio.sleep(_INTERVAL)

    async def look(self) -> None:
        """Read the note now.

        Raises:
            StoreUnavailableError: the store cannot be read.
            DocumentError: the store holds something else.
        """
        stored = await self._store.read(MOVER)
        note = None if stored is None else MoverNote.decode(stored.data)
        self.note = None if note is None or note.ended else note
