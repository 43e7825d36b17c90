"""Writes of which at most one attempt is carried out, and whose outcome is determined.

A write is a request on condition that a certain generation of the object is current. If the
response is lost, the request is repeated on the same condition. When it then fails, either an
earlier attempt was carried out, or another server was faster. The object shows which: each write
leaves a nonce in it, which later writers keep (see `Trail`). A generation never recurs, so no
attempt can still be carried out once another generation was seen.

An absent object has no generation. Therefore deletes leave tombstones, which keep the nonces, and
are removed once no attempt can still be under way (see `Tombstones`).
"""

import contextlib
import itertools
import secrets
from collections.abc import Iterator
from http import HTTPStatus

from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.codec import Trail
from memlite.backends.gcs.objects import Objects, State
from memlite.backends.record import Record
from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Epoch

__all__ = ["UNKNOWN_OUTCOME", "Writer", "is_generation"]

UNKNOWN_OUTCOME = "no response, and another server has changed the object since"

# Generations are signed 64-bit numbers. A state that no longer has one gets a number above them.
_NO_GENERATION = 1 << 63


def is_generation(version: int) -> bool:
    """Return whether a version is an object's generation, not the number of a replaced state."""
    return version < _NO_GENERATION


class Writer:
    """Writes records.

    Args:
        objects: the objects to write.
        client: counts the lost acknowledgements.
        epoch: determines the epoch in which a record is stored.
        strict: whether all servers on the bucket make all writes conditional. Only then can a
            writer rely on finding its nonce.
    """

    def __init__(
        self, objects: Objects, client: BucketClient, epoch: Epoch, *, strict: bool
    ) -> None:
        self._objects = objects
        self._client = client
        self._epoch = epoch
        self._strict = strict
        self._name = secrets.token_bytes(4)
        self._numbers = itertools.count(1)
        # Nonces of writes in progress.
        self._unsettled: set[bytes] = set()

    async def replace(self, call: Call, record: Record, before: State, epoch: int) -> int:
        """Store a record on condition that the state `before` is current.

        Args:
            call: the operation it belongs to.
            record: what to store.
            before: the state.
            epoch: the epoch in which it was read.

        Returns:
            The new version; 0 if `before` is not current. The record is not stored then.

        Raises:
            StorageError: the record could not be stored, or it is uncertain whether it was.
        """
        with self._new_nonce() as nonce:
            return await self._replace(call, record, before, epoch, nonce)

    async def overwrite(self, call: Call, record: Record) -> int:
        """Store a record unconditionally; see `replace`."""
        known = self._objects.known(record.key)
        version = known and await self.replace(call, record, known, self._epoch.now())
        if version:
            return version
        return await self._overwrite(call, record, await self._objects.look(call, record.key))

    async def set_blindly(self, call: Call, record: Record) -> int:
        """Store a record unconditionally, with a precondition only after a lost response.

        An attempt without a response may be carried out later, and overwrite newer records.
        """
        with self._new_nonce() as nonce:
            trail = Trail(nonce, (nonce,))
            reply = await self._objects.write(call, record, self._epoch.now(), trail, None)
            if reply.status == HTTPStatus.OK:
                return reply.generation
            if not call.uncertain:  # 412, although there is no condition
                raise self._client.requests.refusal(call, reply)
            found = await self._objects.look(call, record.key)
            if found.trail and nonce in found.trail.nonces:
                return self._acknowledge(nonce, found)
            # Other servers may already have built on this attempt. In that case it is carried out
            # twice.
            return await self._overwrite(call, record, found)

    async def _overwrite(self, call: Call, record: Record, before: State) -> int:
        while True:
            version = await self.replace(call, record, before, self._epoch.now())
            if version:
                return version
            before = await self._objects.look(call, record.key)
            await call.pause_after_race()

    async def _replace(
        self, call: Call, record: Record, before: State, epoch: int, nonce: bytes
    ) -> int:
        trail = Trail(nonce, (nonce,))
        if before.trail is not None:
            trail = before.trail.followed_by(nonce, self._unsettled)
        reply = await self._objects.write(call, record, epoch, trail, before.generation)
        if reply.status == HTTPStatus.OK:
            return reply.generation
        if not call.uncertain:
            return 0
        found = await self._objects.look(call, record.key)
        if found.trail and nonce in found.trail.nonces:
            return self._acknowledge(nonce, found)
        if found.generation == before.generation:
            raise self._client.requests.refusal(call, reply)
        if not self.would_show(found, before):
            raise call.error(UNKNOWN_OUTCOME)
        call.uncertain = False
        return 0

    def would_show(self, found: State, before: State) -> bool:
        """Return whether `found` would contain the nonce of any write that replaced `before`."""
        if found.trail is None:
            return False
        if before.trail is None:
            return self._strict and not before.generation and not found.trail.may_have_lost(None)
        return found.trail.birth == before.trail.birth and not found.trail.may_have_lost(
            before.trail
        )

    def _acknowledge(self, nonce: bytes, found: State) -> int:
        """Return the version of a write whose nonce was found in an object."""
        self._client.requests.counts["lost_acknowledgements"] += 1
        if found.trail and found.trail.nonces[0] == nonce:
            return found.generation
        # Another writer has replaced that state since. Its generation is unknown; any number that
        # no state ever has will do.
        return _NO_GENERATION | int.from_bytes(nonce)

    @contextlib.contextmanager
    def _new_nonce(self) -> Iterator[bytes]:
        nonce = self._name + (next(self._numbers) & 0xFFFFFFFF).to_bytes(4)
        self._unsettled.add(nonce)
        try:
            yield nonce
        finally:
            self._unsettled.discard(nonce)
