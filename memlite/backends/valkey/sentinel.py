"""A master and its replicas, watched by Sentinels, which tell which server is the master now.

See https://valkey.io/topics/sentinel-clients.
"""

import asyncio
from collections.abc import Callable, Sequence

from redis.exceptions import ResponseError

from memlite.backends.valkey.node import Address, LostError, Node, NotSentError
from memlite.backends.valkey.topology import Topology

__all__ = ["SentinelTopology"]


class SentinelTopology(Topology):
    """The master, as the Sentinels know it.

    Args:
        sentinels: the Sentinels; the first one that answers is asked first next time.
        service: what they call the master.
        make: makes a node for a master.
    """

    def __init__(
        self, sentinels: Sequence[Node], service: str, make: Callable[[Address], Node]
    ) -> None:
        super().__init__(sentinels[0].address, make)
        self.changes = True
        self._sentinels = list(sentinels)
        self._service = service

    async def discover(self) -> None:
        """Ask the Sentinels for the master.

        Raises:
            ResponseError: all that reply refuse to tell, or do not know it.
            NotSentError: none can be reached.
            LostError: none replies.
        """
        problem: Exception | None = None
        for sentinel in list(self._sentinels):
            try:
                address = await self._master_of(sentinel)
            except (NotSentError, LostError, ResponseError) as error:
                # What a Sentinel has replied says more than that another one is down.
                if not isinstance(problem, ResponseError):
                    problem = error
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            self._use(address)
            return
        assert problem is not None  # noqa: S101 - there is a Sentinel
        raise problem

    async def _master_of(self, sentinel: Node) -> Address:
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        reply = await sentinel.send(question)
        if isinstance(reply, ResponseError):
            raise reply
        if not isinstance(reply, list) or len(reply) != 2:
            raise ResponseError(f"it does not know a master named {self._service!r}")
        host, port = reply
        return host.decode(), int(port)

    async def look(self) -> bool:
        """Find the current master."""
        try:
            await self.discover()
        except (NotSentError, LostError, ResponseError):
            return False
        return True

    async def close(self) -> None:
        """Close all connections."""
        await super().close()
        await asyncio.gather(*(sentinel.close() for sentinel in self._sentinels))
