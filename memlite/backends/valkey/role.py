"""Checks whether the server is still the master: replicas report it only in reply to changes."""

import asyncio
from collections.abc import Callable

from memlite.backends.valkey.node import Address, LostError, NotSentError
from memlite.backends.valkey.topology import Topology

__all__ = ["RoleWatch"]

# INFO rather than ROLE: users need the permission for it anyway. Without it, the reply is an error,
# which has no effect.
_QUESTION = ("INFO", "replication")
_REPLICA = b"\r\nrole:slave\r\n"


class RoleWatch:
    """Asks a server for its role, and renews connections once it is a replica.

    By then, its name may refer to another server, or a Sentinel may know the new master. Servers of
    a cluster are not asked: as replicas, they redirect reads, too.

    Args:
        topology: the servers of the store.
        demoted: called with the address of a server that is a replica now.
    """

    def __init__(self, topology: Topology, demoted: Callable[[Address], None]) -> None:
        self._topology = topology
        self._demoted = demoted
        self._look: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Ask, unless a request is already in progress."""
        if not self._topology.clustered and (self._look is None or self._look.done()):
            self._look = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        node = self._topology.seed
        try:
            reply = await node.send(_QUESTION)
        except (NotSentError, LostError):
            return  # commands notice that, too
        if isinstance(reply, bytes) and _REPLICA in reply:
            node.renew()
            self._topology.suspect()
            self._demoted(node.address)

    async def close(self) -> None:
        """Cancel a request in progress."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait([self._look])
