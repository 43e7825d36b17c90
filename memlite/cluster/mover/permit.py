"""A lease in the store that lets only one process at a time move keys."""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final

from memlite.cluster.membership.encoding import DocumentError, check, decode, encode
from memlite.cluster.membership.lease import LEASE, READING, RENEWAL
from memlite.cluster.membership.store import Conflict, Store, Stored, StoreUnavailableError
from memlite.core.errors import MemliteError

__all__ = ["MOVER", "MoverNote", "Permit", "PermitLostError"]

MOVER: Final = "mover"
"""The name of the object about the process that moves keys."""

_HOLDER_BYTES: Final = 8


class PermitLostError(MemliteError):
    """Another process moves keys."""


@dataclass(frozen=True, slots=True)
class MoverNote:
    """The published state of a process that moves keys.

    Attributes:
        holder: identifies the process.
        where: its machine and process, for display.
        sequence: rises with each renewal, so that no two contents are the same.
        ended: whether it has stopped moving keys.
        items: number of items done in the present step.
        total: their total number, as far as is known.
        move: the nonce of the move; empty before it has moved any.
        planned: how many items were to move when the move began; 0 if they were not counted.
        moved: number of items moved, by this process and earlier ones.
        size: total size of their values, in bytes.
    """

    holder: str
    where: str
    sequence: int = 0
    ended: bool = False
    items: int = 0
    total: int = 0
    move: str = ""
    planned: int = 0
    moved: int = 0
    size: int = 0

    def encode(self) -> bytes:
        """Return the object's content."""
        return encode(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> "MoverNote":
        """Return what an object holds.

        Raises:
            DocumentError: the object is not a valid note.
        """
        try:
            known = {one.name for one in fields(cls)}
            note = cls(**{name: its for name, its in decode(data).items() if name in known})
            check(isinstance(note.sequence, int) and isinstance(note.ended, bool), "sequence")
            for number in (note.items, note.total, note.planned, note.moved, note.size):
                check(isinstance(number, int), "a number of items")
        except (ValueError, TypeError) as error:
            raise DocumentError(f"{MOVER}: not a valid mover object: {error}") from None
        return note


def _new_note() -> MoverNote:
    return MoverNote(
        secrets.token_hex(_HOLDER_BYTES), f"process {os.getpid()} on {socket.gethostname()}"
    )


@dataclass
class Permit:
    """The right to move keys.

    It keeps two processes from hindering each other. Moving keys concurrently would still be
    correct.

    Args:
        store: holds the cluster's objects.
        waiting: called with the reason for waiting.
        clock: returns seconds that never decrease.

    Attributes:
        before: the last note of the previous holder; None if there was none.
        progress: returns the changed attributes of this process's note.
    """

    store: Store
    waiting: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    before: MoverNote | None = None
    progress: Callable[[], Mapping[str, int | str]] = dict
    _note: MoverNote = field(default_factory=_new_note)

    async def acquire(self) -> None:
        """Acquire the right, if necessary after the lease of a dead process has expired.

        Raises:
            PermitLostError: another process has it.
            StoreUnavailableError: the store is unavailable.
            DocumentError: the object is not a valid note.
        """
        seen: Stored | None = None
        since = self.clock()
        while True:
            stored = await self.store.read(MOVER)
            other = None if stored is None else MoverNote.decode(stored.data)
            free = other is None or other.ended
            if seen is not None and not free and (stored and stored.data) != seen.data:
                raise self._taken(other)
            if free or self.clock() - since >= LEASE:
                if other is not None:
                    # Even if this process is killed before it writes a note of its own.
                    self.before = other
                    self._note = replace(
                        self._note,
                        move=other.move,
                        planned=other.planned,
                        moved=other.moved,
                        size=other.size,
                    )
                try:
                    await self._write(stored)
                except Conflict:
                    raise self._taken(other) from None
                return
            if seen is None and other is not None:
                self.waiting(f"waiting for the lease of {other.where} to expire")
            seen = stored
            await asyncio.sleep(READING)

    async def hold(self) -> None:
        """Renew the lease until cancelled.

        A store outage is no reason to stop: if another process takes the right meanwhile, this is
        detected afterwards.

        Raises:
            PermitLostError: another process has taken the right.
        """
        while True:
            await asyncio.sleep(RENEWAL)
            with contextlib.suppress(StoreUnavailableError, DocumentError):
                await self._renew(ended=False)

    async def release(self) -> None:
        """Release the right; if that fails, its lease expires."""
        try:
            await self._renew(ended=True)
        except (StoreUnavailableError, DocumentError, PermitLostError):
            return

    async def _renew(self, *, ended: bool) -> None:
        stored = await self.store.read(MOVER)
        note = None if stored is None else MoverNote.decode(stored.data)
        if note is None or note.holder != self._note.holder:
            raise self._taken(note)
        self._note = replace(self._note, ended=ended, **self.progress())  # type: ignore[arg-type]
        try:
            await self._write(stored)
        except Conflict:
            raise self._taken(note) from None

    async def _write(self, replacing: Stored | None) -> None:
        self._note = replace(self._note, sequence=self._note.sequence + 1)
        await self.store.write(MOVER, self._note.encode(), replacing)

    def _taken(self, other: MoverNote | None) -> PermitLostError:
        where = "another process" if other is None else other.where
        return PermitLostError(f"keys are already being moved by {where}")
