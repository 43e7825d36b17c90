"""Removes members whose lease has expired; done by the preceding member."""

import logging
import time
from collections.abc import Callable, Container
from typing import Final

from memlite.cluster.membership.document import Document, Entry
from memlite.cluster.membership.lease import LEASE
from memlite.cluster.membership.member import change_topology
from memlite.cluster.membership.registration import Registration, Standing, registration_name
from memlite.cluster.membership.store import Conflict, Store, Stored

__all__ = ["Warden", "fence"]

_log = logging.getLogger("memlite")


class Warden:
    """Watches the member after a node, in the order of their names, and removes it if it fails.

    So each member is watched by one other, and the store gets one request per member and interval.
    A member is first fenced: its registration is replaced, on condition that it has not changed for
    a whole lease. From then on it cannot renew. Only then is it removed.

    While keys move, a failed member keeps its place. The next member is watched instead, and the
    failed one is removed after the move.

    Args:
        store: holds the cluster's objects.
        name: the node's name.
        clock: returns seconds that never decrease.
        wall: returns unix time.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store: Final = store
        self._name: Final = name
        self._clock: Final = clock
        self._wall: Final = wall
        self._seen: tuple[Entry, bytes | None] | None = None
        self._since = 0.0
        self._kept: set[Entry] = set()  # failed members

    async def step(self, document: Document) -> None:
        """Check the member after this one.

        Args:
            document: the present cluster.

        Raises:
            StoreUnavailableError: the store is unavailable; call again.
            DocumentError: the object is not a registration.
        """
        if document.move is None:
            self._kept.clear()
        entry = _after(self._name, document, self._kept)
        if entry is None:
            self._seen = None
            return
        stored = await self._store.read(registration_name(entry.name))
        seen = entry, None if stored is None else stored.data
        if seen != self._seen:
            self._seen, self._since = seen, self._clock()
        elif self._clock() - self._since >= LEASE:
            await self._remove(entry, stored)

    async def _remove(self, entry: Entry, stored: Stored | None) -> None:
        try:
            await fence(self._store, entry, stored)
        except Conflict:
            self._seen = None  # it is alive
            return
        document = await change_topology(
            self._store,
            lambda document: document.without(entry.name, entry.incarnation, self._wall()),
        )
        self._seen = None
        gone = f"{entry.name} ({entry.address})"
        if document.entry(entry.name) == entry:
            self._kept.add(entry)
            _log.warning(
                "the lease of %s has expired; it keeps its place until the move of keys has "
                "finished",
                gone,
            )
        else:
            _log.warning("removed %s from the cluster: its lease has expired", gone)


async def fence(store: Store, entry: Entry, stored: Stored | None) -> None:
    """Make sure that a node whose lease has expired cannot renew it.

    Args:
        store: holds the cluster's objects.
        entry: the node.
        stored: its registration, which has not changed for a whole lease.

    Raises:
        Conflict: it has just changed.
        StoreUnavailableError: it is unknown whether the node can still renew.
        DocumentError: the object is not a registration.
    """
    name = registration_name(entry.name)
    if stored is None:
        registration = Registration(entry.incarnation, 0, entry.address)
    else:
        registration = Registration.decode(name, stored.data)
    if registration.standing is Standing.MEMBER:
        await store.write(name, registration.next(Standing.FENCED).encode(), stored)


def _after(name: str, document: Document, without: Container[Entry]) -> Entry | None:
    """Return the next leased node after this name; the first one follows the last."""
    others = [
        entry
        for entry in document.nodes
        if entry.leased and entry.name != name and entry not in without
    ]
    return next((entry for entry in others if entry.name > name), others[0] if others else None)
