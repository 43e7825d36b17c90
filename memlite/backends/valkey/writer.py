"""Writes, and the recovery of their outcome when the reply is lost.

The writer of a state chooses its version, so a state identifies its writer. If a reply is lost, the
writer reads the key. A state with its version, or with a trail that contains it, means that the
write was carried out. If the state to be replaced is still current, the write is repeated on the
same condition. The condition holds for only one of the attempts, as no version ever recurs. If the
trail shows that another write replaced that state, the race is lost. Otherwise the outcome remains
unknown, and the client gets an error that says so. A paused server may carry out a request later,
so a write without such a condition is never repeated.
"""

from collections.abc import Awaitable

from memlite.backends.record import Record
from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Epoch
from memlite.backends.valkey.codec import VERSION_AT, Origin, encode, versions_in
from memlite.backends.valkey.commands import LOST, Commands
from memlite.backends.valkey.exchange import Arguments, Late
from memlite.backends.valkey.items import Items
from memlite.backends.valkey.scripts import REPLACE
from memlite.core.errors import VersionConflict

__all__ = ["Writer"]


class Writer:
    """Writes records.

    All methods raise `StorageError` if the record could not be written, or if the outcome is
    uncertain.

    Args:
        commands: sends the writes.
        items: provides names, versions and current states.
        epoch: determines the epoch in which a record is stored.
    """

    def __init__(self, commands: Commands, items: Items, epoch: Epoch) -> None:
        self._commands = commands
        self._items = items
        self._epoch = epoch

    def add(self, call: Call, record: Record) -> Awaitable[int]:
        """Store a record if the key has none, and return its version.

        Raises:
            VersionConflict: the key has one.
        """
        return self.set(call, record, "NX")

    async def set(self, call: Call, record: Record, *condition: str) -> int:
        """Store a record unconditionally, or on a condition of SET; return its version.

        Raises:
            VersionConflict: the condition does not hold.
        """
        version = self._items.new_version()
        name = self._items.name_of(record.key)

        def made() -> Arguments:
            # As late as possible: a set with the old epoch that reaches the store after a flush,
            # and after another client's set, would hide the latter.
            expiry = self._items.lifetime(record)
            options: tuple[str | int, ...] = ("PX", *expiry) if expiry else ()
            content = encode(record, version, self._epoch.now())
            return ("SET", name, content, *options, *condition)

        reply = await self._commands.change(call, name, Late("set", made))
        if reply is LOST:
            if _contains(await self._look(call, record.key), version):
                self._commands.carried_out(call)
            else:
                raise call.error(call.trouble)
        elif reply is None:
            raise VersionConflict
        return version

    async def replace(self, call: Call, record: Record, before: int, origin: Origin) -> int:
        """Store a record in place of the state with the version `before`; return the new version.

        Raises:
            VersionConflict: that state is not current.
        """
        version = self._items.new_version()
        content = encode(record, version, origin.as_of, origin.followed(before))
        change: tuple[bytes | int, ...] = (content, *self._items.lifetime(record))
        await self._replace(call, record.key, before, version, *change)
        return version

    async def confirm(self, call: Call, record: Record) -> None:
        """Store a state in place of itself, so that it is confirmed like any other change.

        Raises:
            VersionConflict: it is not current.
        """
        assert isinstance(record.token, Origin)  # noqa: S101 - as it was read
        version, origin = record.version, record.token
        content = encode(record, version, origin.epoch, origin.trail)
        change: tuple[bytes | int, ...] = (content, *self._items.lifetime(record))
        await self._replace(call, record.key, version, version, *change)

    async def remove(self, call: Call, key: bytes, before: int) -> None:
        """Remove the state with the version `before`.

        Raises:
            VersionConflict: that state is not current.
        """
        await self._replace(call, key, before, 0)

    async def _replace(
        self, call: Call, key: bytes, before: int, version: int, *change: bytes | int
    ) -> None:
        expected = b"%016x" % before
        name = self._items.name_of(key)
        while True:
            reply = await self._commands.run(call, REPLACE, name, *VERSION_AT, expected, *change)
            if reply is not LOST:
                # After a lost reply, the conflict was detected below, unless the state has changed
                # since.
                if reply != 1 and not call.uncertain:
                    raise VersionConflict
                if reply == 1:
                    return
            if self._settled(call, await self._look(call, key), before, version):
                return
            await call.pause()

    def _settled(self, call: Call, found: Record | None, before: int, version: int) -> bool:
        """Return whether a write was carried out; False if it has to be repeated.

        Raises:
            VersionConflict: it was not carried out, and never will be.
        """
        if version and _contains(found, version):
            self._commands.carried_out(call)
            return True
        if found is not None:
            if found.version == before:
                return False
            if before in _replaced(found):
                call.uncertain = False
                raise VersionConflict
        raise call.error("no reply, and the item has changed since")

    async def delete(self, call: Call, key: bytes) -> None:
        """Remove any record."""
        name = self._items.name_of(key)
        if await self._commands.change(call, name, ("DEL", name)) is LOST:
            raise call.error(call.trouble)

    async def _look(self, call: Call, key: bytes) -> Record | None:
        trouble = call.trouble
        try:
            return await self._items.read(call, key)
        finally:
            call.trouble = trouble


def _contains(found: Record | None, version: int) -> bool:
    """Return whether a state has a version, or follows the state that has it."""
    return found is not None and (found.version == version or version in _replaced(found))


def _replaced(found: Record) -> list[int]:
    """Return the versions that a state has replaced, newest first."""
    assert isinstance(found.token, Origin)  # noqa: S101 - as it was read
    return versions_in(found.token.trail)
