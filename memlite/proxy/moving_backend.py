"""Two nodes as one versioned store, for the keys that move from one to the other."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, TypeVar

from memlite.backends import ANY, Anything, Backend, Record
from memlite.backends.record import Versioned
from memlite.cluster.membership.lease import Lease
from memlite.cluster.moving import marks
from memlite.cluster.moving.access import KeyAccess, Reading
from memlite.cluster.moving.answers import Ask, NodeRefusedError, Place, Steps, answer_of
from memlite.cluster.moving.marks import Marks
from memlite.cluster.moving.rewriting import Wish
from memlite.cluster.moving.steps import BusyKeyError, MovingKey
from memlite.cluster.topology import Phase
from memlite.core.clock import Clock
from memlite.core.errors import StorageError, VersionConflict
from memlite.core.meta_flags import MetaFlags
from memlite.proxy.async_requests import ask
from memlite.proxy.node import Node

__all__ = ["PairBackend"]

_T = TypeVar("_T")

_RELATIVE_UP_TO: Final = 30 * 24 * 3600
_LATEST: Final = 2**31 - 1
"""The latest exptime that meta commands can have."""
_EXPIRED: Final = 1.0
"""A unix time in the past."""


class _Token(NamedTuple):
    """The reading that a record was made from, and when the record expires."""

    reading: Reading
    expires: float


class PairBackend(Backend):
    """Reads and changes keys that move from one node to another.

    Versions are cas uniques of the nodes. See `memlite.cluster.moving.access`.

    Args:
        source: the node that has the keys before the move.
        destination: the node that has them afterwards.
        nonce: the nonce of the move.
        phase: how far the move is.
        lease: tells until when the phase is known.
        clock: tells when items expire.

    Attributes:
        phase: as above.
    """

    peeks = False  # every read is a request

    def __init__(
        self,
        source: Node,
        destination: Node,
        nonce: str,
        phase: Phase,
        lease: Lease,
        clock: Clock,
    ) -> None:
        self._nodes = {Place.SOURCE: source, Place.DESTINATION: destination}
        self._marks = Marks(nonce)
        self.phase = phase
        self._lease = lease
        self._clock = clock
        self._assigns: dict[Node, tuple[int, bool]] = {}

    # Asking nodes

    async def _access(self, key: bytes) -> KeyAccess:
        assigns = True
        for node in self._nodes.values():
            assigns = await self._lets_assign(node) and assigns
        return KeyAccess(MovingKey(key, self._marks, assigns), self.phase)

    async def _lets_assign(self, node: Node) -> bool:
        """Return whether a node lets cas uniques be assigned; True if it does not answer."""
        known = self._assigns.get(node)
        if known is not None and known[0] == node.connects:
            return known[1]
        try:
            lets = marks.assigns(await ask(node, marks.PROBE))
        except StorageError:
            return True
        self._assigns[node] = node.connects, lets
        return lets

    async def _run(self, steps: Steps[_T], until: float) -> _T:
        """Carry out steps, unless their phase is no longer valid.

        Args:
            steps: the steps.
            until: the monotonic time up to which their phase is valid.

        Raises:
            VersionConflict: raised by the steps.
            StorageError: a node has failed, or refused something.
        """
        try:
            asks = next(steps)
            while True:
                if time.monotonic() >= until:
                    raise StorageError("the cluster's nodes may have changed meanwhile")
                asks = steps.send(tuple(map(answer_of, await self._ask_all(asks))))
        except StopIteration as stop:
            result: _T = stop.value
            return result
        except NodeRefusedError as error:
            raise StorageError(str(error).removeprefix("SERVER_ERROR ")) from None
        except BusyKeyError as error:
            raise StorageError(str(error)) from None

    async def _ask_all(self, asks: tuple[Ask, ...]) -> list[bytes]:
        asked = [ask(self._nodes[place], request) for place, request in asks]
        found = await asyncio.gather(*asked, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return [one for one in found if isinstance(one, bytes)]

    # As a store

    async def get(self, key: bytes) -> Record | None:
        """Return the record of `key`; see `Backend.get`."""
        until = self._lease.until
        access = await self._access(key)
        reading = await self._run(access.get(), until)
        return None if reading.absent else self._record(key, reading)

    async def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> int:
        """Store a record; see `Backend.put`."""
        until = self._lease.until
        access = await self._access(record.key)
        token = _token_of(replacing)
        wish = self._wish(record, token)
        condition = token.reading if token is not None else replacing
        if condition is not None and not isinstance(condition, Reading) and condition is not ANY:
            raise VersionConflict
        return await self._run(access.put(wish, condition), until)

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Remove the record of `key`; see `Backend.delete`."""
        until = self._lease.until
        access = await self._access(key)
        if replacing is ANY:
            await self._run(access.delete(ANY), until)
            return
        token = _token_of(replacing)
        if token is None:
            raise VersionConflict
        await self._run(access.delete(token.reading), until)

    def _record(self, key: bytes, reading: Reading) -> Record:
        found, now = reading.found, self._clock.now()
        expires = 0.0
        if found.ttl is not None:
            expires = now + found.ttl if found.ttl > 0 else _EXPIRED
        meta_flags = None
        if found.stale or found.won or found.binary:
            meta_flags = MetaFlags(found.stale, found.won, found.binary)
        return Record(
            key,
            found.value,
            found.flags,
            expires,
            found.shown,
            self._clock.second - found.idle,
            found.fetched,
            meta_flags,
            _Token(reading, expires),
        )

    def _wish(self, record: Record, token: _Token | None) -> Wish:
        meta_flags = record.meta_flags or MetaFlags()
        kept = token is not None and token.expires == record.expires
        return Wish(
            record.value,
            record.flags,
            None if kept else self._exptime(record.expires),
            meta_flags.stale,
            meta_flags.won,
            meta_flags.unique,
            meta_flags.binary,
        )

    def _exptime(self, expires: float) -> int:
        if not expires:
            return 0
        left = round(expires - self._clock.now())
        if left <= 0:
            return -1
        return left if left <= _RELATIVE_UP_TO else min(round(expires), _LATEST)

    async def flush(self, at: float = 0.0) -> None:
        """Refuse: nodes are emptied as a whole."""
        raise StorageError("nodes are emptied as a whole")

    async def scan(self) -> AsyncIterator[Record]:
        """Refuse: nodes are asked for their items one by one."""
        raise StorageError("nodes are asked for their items one by one")
        yield


def _token_of(replacing: Versioned | Anything | None) -> _Token | None:
    """Return the token that `PairBackend.get` has put in a record; None if there is none."""
    token = getattr(replacing, "token", None)
    return token if isinstance(token, _Token) else None
