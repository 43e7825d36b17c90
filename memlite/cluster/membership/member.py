"""A node as a member: it joins, renews its lease and leaves."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from memlite.cluster.membership.document import TOPOLOGY, Document, Entry
from memlite.cluster.membership.lease import ALL_INFORMED, LEASE, Lease
from memlite.cluster.membership.registration import Registration, Standing, registration_name
from memlite.cluster.membership.store import Conflict, Store, Stored
from memlite.core.errors import MemliteError
from memlite.core.logs import failure

__all__ = ["Identity", "KeysMoveError", "Member", "NameTakenError", "change_topology"]

_log = logging.getLogger("memlite")


class NameTakenError(MemliteError):
    """Another node has this name; the text says where it is.

    Attributes:
        alive: whether it renewed its lease while this node waited.
    """

    def __init__(self, text: str, *, alive: bool = False) -> None:
        super().__init__(text)
        self.alive = alive


class KeysMoveError(MemliteError):
    """A node cannot become a member while keys move; the text says what to wait for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A node's identity.

    Attributes:
        name: its name.
        address: where clients and proxies reach it, ``HOST:PORT``.
        weight: its share of the keys.
    """

    name: str
    address: str
    weight: int = 1


async def change_topology(store: Store, change: Callable[[Document], Document]) -> Document:
    """Change the object about the cluster, retrying if others change it concurrently.

    Args:
        store: the store that holds it.
        change: returns the new document; called again if another change came first.

    Returns:
        The resulting document.

    Raises:
        StoreUnavailableError: it is unknown whether the object was changed.
        DocumentError: the object is invalid.
    """
    while True:
        stored = await store.read(TOPOLOGY)
        document = Document.decode(None if stored is None else stored.data)
        changed = change(document)
        if changed is document:
            return document
        try:
            await store.write(TOPOLOGY, changed.encode(), stored)
        except Conflict:
            continue
        return changed


class Member:
    """One node's membership.

    A node serves while its `lease` is valid. It joins as a new incarnation, without items: others
    may have changed its keys since it last served. `step` does all due work; it is called every
    `RENEWAL` seconds.

    Args:
        store: holds the cluster's objects.
        identity: the node's identity.
        lease: says whether it may serve.
        empty: removes all items.
        wall: returns unix time.
        spare: whether a new node joins as a spare.

    Attributes:
        document: the cluster as last read.
        joined: whether the node is a member or a spare, as far as it knows.
    """

    def __init__(
        self,
        store: Store,
        identity: Identity,
        lease: Lease,
        empty: Callable[[], Awaitable[None]],
        wall: Callable[[], float] = time.time,
        *,
        spare: bool = False,
    ) -> None:
        self._store: Final = store
        self._identity: Final = identity
        self._object: Final = registration_name(identity.name)
        self._lease: Final = lease
        self._empty: Final = empty
        self._wall: Final = wall
        self._spare = spare  # its status when it rejoins: a drained node stays a spare
        self._registration: Registration | None = None  # the last one written, if any
        self._rival: tuple[str, float] | None = None  # another node's registration, when first seen
        self._away: float | None = None  # when it ceased to be a member, with replicas
        self.document = Document()
        self.joined = False

    async def step(self) -> None:
        """Join, or renew the lease.

        Raises:
            StoreUnavailableError: the store is unavailable; call again.
            NameTakenError: another node renews a lease of this name; call again.
            KeysMoveError: keys move at the moment; call again.
            DocumentError: an object in the store is invalid.
        """
        if self.joined:
            await self._renew()
        if not self.joined:
            await self._join()

    async def leave(self) -> None:
        """Leave the cluster, so that others take over. The node may serve until it has stopped.

        Raises:
            StoreUnavailableError: it is unknown whether the node has left; its lease will expire.
        """
        registration = self._registration
        if registration is None or not self.joined:
            return
        self.joined = False
        await self._remove(registration.incarnation)
        stored = await self._read()
        if stored is not None and stored[1].incarnation == registration.incarnation:
            await self._write(stored[1].next(Standing.LEFT), stored[0])

    # Joining

    async def _join(self) -> None:
        self._lease.end()
        document = Document.decode(await self._data(TOPOLOGY))
        self._check_place(document)
        found = await self._read()
        stored, last = None, 0
        if found is not None:
            stored, other = found
            self._check_rival(other)
            last = other.incarnation
            if document.replicas > 1:
                await self._give_place_up(document)
        incarnation = max(last + 1, int(self._wall()))
        sent = self._lease.now()
        registration = Registration(incarnation, 1, self._identity.address)
        await self._write(registration, stored)
        await self._empty()
        entry = Entry(
            self._identity.name,
            self._identity.address,
            incarnation,
            int(self._wall()),
            self._identity.weight,
        )
        self.document = await change_topology(
            self._store,
            lambda document: document.with_node(entry, self._wall(), spare=self._spare),
        )
        if self.document.entry(entry.name) != entry:
            self._check_place(self.document)
            return  # another node has taken the name meanwhile
        self.joined = True
        self._away = None
        self._lease.renewed(sent)
        self._note_place()
        members = self.document.members
        place = "a spare" if self._spare else f"{entry.name}, of {len(members)}"
        _log.info("joined the cluster as %s, epoch %d", place, self.document.epoch)

    def _check_place(self, document: Document) -> None:
        """Check whether the node may join now.

        Raises:
            KeysMoveError: it would become a member while keys move.
            NameTakenError: it has the name of a node without a lease.
        """
        name = self._identity.name
        entry = document.entry(name)
        if entry is not None and not entry.leased:
            raise NameTakenError(
                f"the name {name} is in use by the node at {entry.address}, which was added by hand"
            )
        if document.waits(name, spare=self._spare):
            raise KeysMoveError(f"waiting to join as {name} until the move of keys has finished")

    async def _give_place_up(self, document: Document) -> None:
        """Leave the keys to nodes that have copies, and wait until all proxies know.

        Raises:
            KeysMoveError: some proxies may not know yet.
        """
        entry = document.entry(self._identity.name)
        if entry is not None and document.is_member(entry.name) and len(document.members) > 1:
            await self._remove(entry.incarnation)
            self._away = None
        now = self._lease.now()
        if self._away is None:
            self._away = now
        if now - self._away < ALL_INFORMED:
            raise KeysMoveError("waiting until all proxies know that other nodes have taken over")

    def _note_place(self) -> None:
        self._spare = not self.document.is_member(self._identity.name)

    def _check_rival(self, other: Registration) -> None:
        """Check that no other node of this name is alive.

        A node with the same address is this node's predecessor, which no longer listens.

        Raises:
            NameTakenError: it may still be alive.
        """
        gone = other.standing is not Standing.MEMBER or other.address == self._identity.address
        if gone:
            self._rival = None
            return
        seen = f"{other.incarnation} {other.sequence}"
        now = self._lease.now()
        if self._rival is None or self._rival[0] != seen:
            alive = self._rival is not None
            self._rival = seen, now
            raise NameTakenError(
                f"the name {self._identity.name} is in use by the node at {other.address}",
                alive=alive,
            )
        if now - self._rival[1] < LEASE:
            raise NameTakenError(
                f"waiting for the lease of {self._identity.name} at {other.address} to expire"
            )

    # Renewing

    async def _renew(self) -> None:
        mine = self._registration
        found = await self._read()
        if (
            mine is None
            or found is None
            or found[1].incarnation != mine.incarnation
            or found[1].standing is not Standing.MEMBER
        ):
            self._fence("its lease has expired")
            return
        sent = self._lease.now()
        try:
            await self._write(found[1].next(), found[0])
        except Conflict:
            return  # fenced, as the next step will find
        self.document = Document.decode(await self._data(TOPOLOGY))
        entry = self.document.entry(self._identity.name)
        if entry is None or entry.incarnation != mine.incarnation:
            self._fence("it was removed")
            return
        self._lease.renewed(sent)
        self._note_place()

    def _fence(self, reason: str) -> None:
        self._lease.end()
        self.joined = False
        _log.warning(
            "no longer in the cluster: %s; rejoining without items",
            reason,
            extra=failure("left_cluster"),
        )

    # The store

    async def _data(self, name: str) -> bytes | None:
        stored = await self._store.read(name)
        return None if stored is None else stored.data

    async def _read(self) -> tuple[Stored, Registration] | None:
        stored = await self._store.read(self._object)
        if stored is None:
            return None
        return stored, Registration.decode(self._object, stored.data)

    async def _write(self, registration: Registration, replacing: Stored | None) -> None:
        await self._store.write(self._object, registration.encode(), replacing)
        self._registration = registration

    async def _remove(self, incarnation: int) -> None:
        name = self._identity.name
        await change_topology(
            self._store, lambda document: document.without(name, incarnation, self._wall())
        )
