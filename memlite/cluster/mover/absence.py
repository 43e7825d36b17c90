"""Determines for the mover which nodes have failed."""

import time
from collections.abc import Callable
from typing import Final

from memlite.cluster.membership.document import Entry
from memlite.cluster.membership.lease import LEASE
from memlite.cluster.membership.registration import Registration, Standing, registration_name
from memlite.cluster.membership.store import Conflict, Store, Stored
from memlite.cluster.membership.warden import fence

__all__ = ["Absence"]


class Absence:
    """Determines whether unresponsive nodes have failed, and fences those that have.

    A node that has failed comes back without items, as another incarnation. This class does the
    work of the wardens, which may have failed as well.

    Args:
        store: holds the cluster's objects.
        clock: returns seconds that never decrease.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._seen: dict[Entry, tuple[Stored | None, float]] = {}
        self._gone: set[Entry] = set()

    def lose(self, entry: Entry) -> None:
        """Treat a node as failed, because the user says so."""
        self._gone.add(entry)

    def known(self, entry: Entry) -> bool:
        """Return whether a node is known to have failed."""
        return entry in self._gone

    async def look(self, entry: Entry) -> bool:
        """Check the lease of an unresponsive node; return whether the node has failed.

        Raises:
            StoreUnavailableError: the store is unavailable.
            DocumentError: the object is not a registration.
        """
        if entry in self._gone or not entry.leased:
            return entry in self._gone
        name = registration_name(entry.name)
        stored = await self._store.read(name)
        if stored is not None:
            registration = Registration.decode(name, stored.data)
            if registration.incarnation != entry.incarnation:
                return False  # it is coming back
            if registration.standing is not Standing.MEMBER:
                self._gone.add(entry)
                return True
        before, since = self._seen.get(entry, (None, self._clock()))
        same = entry in self._seen and (before and before.data) == (stored and stored.data)
        if not same:
            self._seen[entry] = stored, self._clock()
            return False
        if self._clock() - since < LEASE:
            return False
        try:
            await fence(self._store, entry, stored)
        except Conflict:
            return False
        self._gone.add(entry)
        return True
