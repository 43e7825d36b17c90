"""Follows a cluster, so that a proxy knows its nodes."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from memlite.cluster.membership.document import TOPOLOGY, Document
from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.membership.lease import LEASE, READING, Lease
from memlite.cluster.membership.store import Store, StoreUnavailableError
from memlite.cluster.topology import Topology
from memlite.core.logs import failure

__all__ = ["FOLLOWS_WITHIN", "Follower"]

_log = logging.getLogger("memlite")

FOLLOWS_WITHIN: Final = 2 * READING
"""Seconds after which followers usually know a change of the cluster."""


class Follower:
    """Reads the object that describes the cluster every second.

    Args:
        store: the store that holds it.
        changed: called with each new topology and its epoch.
        unknown: called with the reason why the nodes are unknown: there are none, or the store has
            not answered for as long as a lease. Nodes may have been replaced by then.
        clock: returns seconds that never decrease, and that advance while the process is stopped.
        lease: how long the last reading is valid; renewed with each reading.
    """

    def __init__(
        self,
        store: Store,
        changed: Callable[[Topology, int], None],
        unknown: Callable[[str], None],
        lease: Lease | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store: Final = store
        self._changed: Final = changed
        self._unknown: Final = unknown
        self._lease: Final = lease
        self._epoch = -1  # of the last topology passed on; -1 for none
        self._clock: Final = clock
        self._read_at = clock()
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch last passed on; None while the nodes are unknown."""
        return None if self._epoch < 0 else self._epoch

    def start(self) -> None:
        """Start to follow. Needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        while True:
            await self.step()
            await asyncio.sleep(READING)

    async def step(self) -> None:
        """Read once."""
        started = self._clock()
        try:
            stored = await self._store.read(TOPOLOGY)
            document = Document.decode(None if stored is None else stored.data)
        except (StoreUnavailableError, DocumentError) as error:
            self._note_trouble(str(error))
            return
        if self._trouble:
            _log.info("the cluster's store can be read again")
            self._trouble = ""
        if started - self._read_at >= LEASE:
            # The process was stopped, or the store was slow. Other processes rely on no follower
            # continuing then.
            self._lose_track("the state of the cluster was not read in time")
        self._read_at = started
        topology = document.topology()
        if topology is None:
            self._lose_track("the cluster has no nodes")
        elif document.epoch != self._epoch:
            self._epoch = document.epoch
            self._changed(topology, document.epoch)
        if self._lease is not None:
            self._lease.renewed(started)

    def _note_trouble(self, text: str) -> None:
        if not self._trouble:
            _log.warning(
                "cannot read the cluster's store: %s", text, extra=failure("cluster_unreadable")
            )
        self._trouble = text
        if self._clock() - self._read_at >= LEASE:
            self._lose_track(f"the cluster's store cannot be read: {text}")

    def _lose_track(self, reason: str) -> None:
        self._epoch = -1
        self._unknown(reason)
