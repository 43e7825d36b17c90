"""Whether the server is still the master: only whoever changes something is told that it is not."""

import asyncio
from collections.abc import Callable

from memlite.backends.valkey.node import Address, LostError, NotSentError
from memlite.backends.valkey.topology import Topology

__all__ = ["RoleWatch"]

# INFO and not ROLE: users may call it anyway. One without that permission gets an error, which
# tells nothing.
_QUESTION = ("INFO", "replication")
_REPLICA = b"\r\nrole:slave\r\n"


class RoleWatch:
    """Asks a server for its role, and has connections made again once it is a replica.

    The name of the server may stand for another one by then, or a Sentinel know it. A server of a
    cluster is not asked: as a replica, it redirects reads, too.

    Args:
        topology: the servers of the store.
        demoted: called with the address of a server that is a replica now.
    """

    def __init__(self, topology: Topology, demoted: Callable[[Address], None]) -> None:
        self._topology = topology
        self._demoted = demoted
        self._look: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Ask, unless that is in progress."""
        if not self._topology.clustered and (self._look is None or self._look.done()):
            self._look = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        node = self._topology.seed
        try:
            reply = await node.send(_QUESTION)
        except (NotSentError, LostError):
            return  # others notice that, too
        if isinstance(reply, bytes) and _REPLICA in reply:
            node.renew()
            self._topology.suspect()
            self._demoted(node.address)

    async def close(self) -> None:
        """End a question that is in progress."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait([self._look])
