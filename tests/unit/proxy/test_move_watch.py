"""A proxy's knowledge of a move of keys."""

from dataclasses import replace

from memlite.cluster.membership.store import Stored
from memlite.cluster.mover.permit import MOVER, MoverNote
from memlite.proxy.move_watch import MoveWatch
from tests.support.waiting import eventually

NOTE = MoverNote("x", "process 1 on a", items=10, total=30)


class Store:
    """Holds the note of a process that moves keys."""

    def __init__(self) -> None:
        self.note: MoverNote | None = None
        self.reads = 0

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def read(self, name: str) -> Stored | None:
        assert name == MOVER
        self.reads += 1
        return None if self.note is None else Stored(self.note.encode(), 1)

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        raise AssertionError("nothing is written")


async def test_the_movers_note_is_known_until_the_move_has_ended() -> None:
    store = Store()
    watch = MoveWatch(store, lambda: True)
    await watch.look()
    assert watch.note is None
    store.note = NOTE
    await watch.look()
    assert watch.note == NOTE
    store.note = replace(NOTE, ended=True)
    await watch.look()
    assert watch.note is None


async def test_the_store_is_asked_only_while_keys_move() -> None:
    store = Store()
    store.note = NOTE
    asked: list[bool] = []

    def moving() -> bool:
        asked.append(True)
        return False

    idle = MoveWatch(store, moving)
    idle.start()
    assert await eventually(lambda: bool(asked))
    assert store.reads == 0
    idle.stop()
    watch = MoveWatch(store, lambda: True)
    watch.start()
    assert await eventually(lambda: watch.note == NOTE)
    watch.stop()
