"""Changes that a mover makes to the object that describes the cluster."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from memlite.cluster.membership.document import Document, Moving
from memlite.cluster.membership.member import change_topology
from memlite.cluster.membership.store import Store
from memlite.cluster.topology import Phase
from memlite.core.errors import MemliteError

__all__ = ["MoveChangedError", "MoveControl"]

_NONCE_BYTES: Final = 16
# The phases that may precede each phase. A delayed process must not return a move to an earlier
# phase.
_BEFORE: Final = {
    Phase.PREPARE: (Phase.GATHER,),
    Phase.MOVE: (Phase.PREPARE,),
    Phase.SETTLE: (Phase.MOVE,),
    Phase.BACK: (Phase.MOVE,),
}


class MoveChangedError(MemliteError):
    """Another process has changed the move or given it up."""


class MoveControl:
    """Begins, advances and ends a move, provided that no other process has.

    Each method returns the resulting document.

    Args:
        store: holds the cluster's objects.
        wall: returns unix time.
    """

    def __init__(self, store: Store, wall: Callable[[], float] = time.time) -> None:
        self._store: Final = store
        self._wall: Final = wall

    async def begin(self, change: Callable[[Document, str], Document]) -> Document:
        """Begin a move.

        Args:
            change: returns a document with the move, given a document without one and a nonce; if
                that is impossible, it raises an error, which is passed to the caller.

        Raises:
            MoveChangedError: there is a move already.
            StoreUnavailableError: it is unknown whether the move has begun.
        """
        nonce = secrets.token_hex(_NONCE_BYTES)

        def changed(document: Document) -> Document:
            if document.move is not None:
                raise MoveChangedError("another move of keys is in progress")
            return change(document, nonce)

        return await change_topology(self._store, changed)

    async def enter(
        self, move: Moving, phase: Phase, check: Callable[[Document], None] = lambda document: None
    ) -> Document:
        """Enter a phase, if the move is in a preceding phase or already in this one.

        Args:
            move: the move.
            phase: the phase.
            check: raises an error if a document does not permit it.
        """

        def changed(document: Document) -> Document:
            present = _same(document, move)
            if present.phase is phase:
                return document
            if present.phase not in _BEFORE[phase]:
                raise MoveChangedError(f"the move of keys is in phase {present.phase.value}")
            check(document)
            return document.in_phase(phase, self._wall())

        return await change_topology(self._store, changed)

    async def go_on_without(
        self, move: Moving, names: Sequence[str], check: Callable[[Document], None]
    ) -> Document:
        """Leave out destinations, if the move is unchanged and items are moving.

        Args:
            move: the move.
            names: the names of the nodes.
            check: see `enter`.
        """

        def changed(document: Document) -> Document:
            present = document.move
            same = present is not None and present.nonce == move.nonce
            if present is not None and same and set(present.lost).issuperset(names):
                return document  # done by an earlier attempt
            if _same(document, move).phase is not Phase.MOVE:
                raise MoveChangedError("the move of keys has already entered another phase")
            check(document)
            return document.going_on_without(names, self._wall())

        return await change_topology(self._store, changed)

    async def finish(self, move: Moving) -> Document:
        """End a move that is in its last phase, with all keys where they belong.

        With replicas, copies may still have to be made afterwards, in the phase `Phase.SPREAD`.
        """

        def changed(document: Document) -> Document:
            match _same(document, move).phase:
                case Phase.SETTLE:
                    return document.moved(self._wall())
                case Phase.BACK | Phase.PREPARE | Phase.GATHER | Phase.SPREAD:
                    return document.not_moved(self._wall())
                case phase:
                    raise MoveChangedError(f"the move of keys is in phase {phase.value}")

        return await change_topology(self._store, changed)


def _same(document: Document, move: Moving) -> Moving:
    present = document.move
    if present is None or present.nonce != move.nonce:
        raise MoveChangedError("the move of keys was cancelled or has finished")
    if present.lost != move.lost:
        raise MoveChangedError("the move of keys has been resumed without failed nodes")
    return present
