"""The permit to move keys, and the note about the move that is stored with it."""

import pytest

from memlite.cluster.membership.encoding import DocumentError, encode
from memlite.cluster.membership.store import Stored
from memlite.cluster.mover.permit import MOVER, MoverNote, Permit


class Store:
    """Holds one object."""

    def __init__(self) -> None:
        self.stored: Stored | None = None

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def read(self, name: str) -> Stored | None:
        assert name == MOVER
        return self.stored

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        assert (name, replacing) == (MOVER, self.stored)
        self.stored = Stored(data, None)

    async def delete(self, name: str, stored: Stored) -> None:
        raise AssertionError(f"{name} is deleted")


async def noted(store: Store) -> MoverNote:
    stored = await store.read(MOVER)
    assert stored is not None
    return MoverNote.decode(stored.data)


async def test_progress_is_known_to_the_next_two_processes() -> None:
    store = Store()
    first = Permit(store, print)
    await first.acquire()
    assert first.before is None
    first.progress = lambda: {"items": 3, "move": "m", "planned": 9, "moved": 5, "size": 70}
    await first.release()
    for _ in range(2):  # the second reports no progress of its own
        permit = Permit(store, print)
        await permit.acquire()
        assert permit.before is not None
        assert permit.before.ended
        note = await noted(store)
        assert (note.move, note.planned, note.moved, note.size) == ("m", 9, 5, 70)
        assert (note.items, note.ended) == (0, False)
        await permit.release()


def test_a_note_of_a_later_version_is_read() -> None:
    fields = {"holder": "x", "where": "y", "sequence": 1, "later": [1]}
    assert MoverNote.decode(encode(fields)) == MoverNote("x", "y", 1)
    with pytest.raises(DocumentError):
        MoverNote.decode(encode({**fields, "moved": "5"}))
