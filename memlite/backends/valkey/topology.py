"""The server of each key: one server has all keys, or each master of a cluster some slots.

See https://valkey.io/topics/cluster-spec.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from redis.crc import key_slot
from redis.exceptions import ResponseError

from memlite.backends.valkey.node import Address, LostError, Node, NotSentError
from memlite.core.logs import failure

__all__ = ["SLOTS", "Topology", "slots_of"]

SLOTS: Final = 16_384
"""Number of slots of every cluster."""

# Seconds between requests for the cluster's slots.
_PAUSE = 0.5

_log = logging.getLogger("memlite")


class Topology:
    """The servers of the store.

    Args:
        seed: the server in the URL.
        make: creates a node.

    Attributes:
        clustered: whether it is a cluster; `discover` finds out.
        changes: whether other servers may take over.
        looks: how often the cluster was asked for its slots.
    """

    def __init__(self, seed: Address, make: Callable[[Address], Node]) -> None:
        self.clustered = False
        self.changes = False
        self.looks = 0
        self._seed = seed
        self._make = make
        self._nodes: dict[Address, Node] = {seed: make(seed)}
        self._slots: list[Node | None] = []
        self._look: asyncio.Task[None] | None = None
        self._looked = -_PAUSE
        self._retired: set[asyncio.Task[None]] = set()

    @property
    def seed(self) -> Node:
        """The server in the URL; with Sentinels, the master."""
        return self.node(self._seed)

    @property
    def masters(self) -> list[Node]:
        """The servers that have keys, each once."""
        if not self.clustered:
            return [self.seed]
        return list(dict.fromkeys(node for node in self._slots if node is not None))

    @property
    def covered(self) -> int:
        """Number of slots that a server has."""
        return sum(node is not None for node in self._slots)

    def node_of(self, name: bytes) -> Node | None:
        """Return the server of a key; None if no server has its slot."""
        if not self.clustered:
            return self._nodes[self._seed]
        return self._slots[key_slot(name)]

    def node(self, address: Address) -> Node:
        """Return the server with this address."""
        node = self._nodes.get(address)
        if node is None:
            self._nodes[address] = node = self._make(address)
        return node

    def moved(self, slot: int, address: Address) -> Node:
        """Record a slot's new server, as reported by another; return the new server."""
        node = self.node(address)
        if self.clustered:
            self._slots[slot] = node
        self.suspect()
        return node

    def suspect(self) -> None:
        """Query the cluster in the background, because a server misbehaved."""
        looking = self._look is not None and not self._look.done()
        if self.changes and not looking and monotonic() - self._looked >= _PAUSE:
            self._looked = monotonic()
            self._look = asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> None:
        self.looks += 1
        if not await self.look():
            _log.warning(
                "cannot find out which servers the store has now", extra=failure("topology_unknown")
            )

    async def discover(self) -> None:
        """Ask the server in the URL for the slots of the cluster.

        Raises:
            ResponseError: the server refuses the request.
            NotSentError: it cannot be reached.
            LostError: it does not reply.
        """
        self.clustered = self.changes = True
        self._slots = [None] * SLOTS
        reply = await self.seed.send(("CLUSTER", "SLOTS"))
        if isinstance(reply, ResponseError):
            raise reply
        self._adopt(slots_of(reply, self._seed[0]))

    async def look(self) -> bool:
        """Ask the servers in turn, healthy ones first; return whether one replied."""
        for node in sorted(self._nodes.values(), key=lambda node: node.breaker.recent_failures):
            with contextlib.suppress(NotSentError, LostError, ValueError):
                reply = await node.send(("CLUSTER", "SLOTS"))
                if not isinstance(reply, ResponseError):
                    self._adopt(slots_of(reply, node.address[0]))
                    return True
        return False

    def _adopt(self, ranges: Iterable[tuple[int, int, Address]]) -> None:
        slots: list[Node | None] = [None] * SLOTS
        for first, last, address in ranges:
            slots[first : last + 1] = [self.node(address)] * (last + 1 - first)
        self._slots = slots
        self._retire()

    def _use(self, address: Address) -> None:
        """Use a server as the only master."""
        self._seed = self.node(address).address
        self._retire()

    def _retire(self) -> None:
        """Close the connections to servers that no longer have keys."""
        for address in set(self._nodes) - {node.address for node in self.masters} - {self._seed}:
            task = asyncio.ensure_future(self._nodes.pop(address).close())
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        """Close all connections."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait([self._look])
        if self._retired:
            await asyncio.wait(list(self._retired))
        for node in self._nodes.values():
            await node.close()


def slots_of(reply: object, asked: str) -> list[tuple[int, int, Address]]:
    """Return the ranges of slots in a reply to CLUSTER SLOTS, and the address of each one's master.

    Args:
        reply: the reply.
        asked: the host that was asked, which may leave out its own name.

    Raises:
        ValueError: it is not such a reply.
    """
    if not isinstance(reply, list):
        raise ValueError(reply)
    ranges = []
    try:
        for first, last, (host, port, *_), *_ in reply:
            ranges.append((int(first), int(last), ((host or b"").decode() or asked, int(port))))
    except (TypeError, AttributeError) as error:
        raise ValueError(reply) from error
    return ranges
