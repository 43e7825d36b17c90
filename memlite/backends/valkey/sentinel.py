"""A master and its replicas, monitored by Sentinels, which know the current master.

See https://valkey.io/topics/sentinel-clients.
"""

import asyncio
from collections.abc import Callable, Sequence

from redis.exceptions import ResponseError

from memlite.backends.valkey.node import Address, LostError, Node, NotSentError
from memlite.backends.valkey.topology import Topology

__all__ = ["SentinelTopology"]


class SentinelTopology(Topology):
    """The master, as reported by the Sentinels.

    Args:
        sentinels: the Sentinels; the first one that answers is asked first next time.
        service: their name for the master.
        make: creates a node for a master.
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

        A Sentinel that has been down may name a failed master. If the present master fails,
        Sentinels that name another one take precedence over those that still name it.

        Raises:
            ResponseError: all Sentinels that reply refuse to answer, or do not know the master.
            NotSentError: none can be reached.
            LostError: none replies.
        """
        problem: Exception | None = None
        failed = self.seed.address if self.seed.breaker.recent_failures else None
        behind: list[Node] = []
        for sentinel in list(self._sentinels):
            try:
                address = await self._master_of(sentinel)
            except (NotSentError, LostError, ResponseError) as error:
                # A Sentinel's reply is more informative than the failure of another one.
                if not isinstance(problem, ResponseError):
                    problem = error
                continue
            if address == failed:
                behind.append(sentinel)
                continue
            others = [one for one in self._sentinels if one is not sentinel and one not in behind]
            self._sentinels = [sentinel, *others, *behind]
            self._use(address)
            return
        if not behind:
            assert problem is not None  # noqa: S101 - there is a Sentinel
            raise problem

    async def _master_of(self, sentinel: Node) -> Address:
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        reply = await sentinel.send(question)
        if isinstance(reply, ResponseError):
            raise reply
        if not isinstance(reply, list) or len(reply) != 2:
            raise ResponseError(f"the Sentinel monitors no master named {self._service!r}")
        host, port = reply
        try:
            return host.decode(), int(port)
        except ValueError:
            raise ResponseError("the Sentinel returned an invalid address") from None

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
