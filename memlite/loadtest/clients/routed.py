"""Clients that know the nodes of a cluster: each request goes where its key lives."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from memlite.loadtest.clients.measured import MeasuredClient
from memlite.loadtest.clients.nodes import Nodes, ask
from memlite.loadtest.clients.plain_nodes_client import PlainNodesClient
from memlite.loadtest.clients.settings import Settings
from memlite.loadtest.clients.text import TextClients
from memlite.loadtest.clients.text_nodes_client import TextNodesClient
from memlite.loadtest.plain import PlainOperations
from memlite.loadtest.recorder import Recorder

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["RoutedClients"]


class RoutedClients(TextClients):
    """A worker's clients of a cluster, each with a connection to every node.

    Args:
        settings: the number of clients, and how they behave; for the address, see
            `discovers_nodes`.
        take: returns the given number of operations, fewer when they run out.
        recorder: takes the measurements.
        nodes: where keys live.
        plain: the source of operations in place of `take`, in closed loop only.
        discovers_nodes: whether each client asks the server at the address for the nodes when it
            connects.
    """

    def __init__(
        self,
        settings: Settings,
        take: "Callable[[int], list[Operation]]",
        recorder: Recorder,
        nodes: Nodes,
        plain: PlainOperations | None = None,
        *,
        discovers_nodes: bool = False,
    ) -> None:
        super().__init__(settings, take, recorder, plain)
        self._nodes = nodes
        self._discovers_nodes = discovers_nodes

    async def _connect(self) -> MeasuredClient:
        if self._discovers_nodes:
            self._nodes = await ask(self.settings, self._address(), self._nodes)
        client = self._new_client()
        try:
            async with asyncio.timeout(self.settings.timeout):
                await client.open(self._admission)
        except BaseException:
            client.close()
            raise
        self.gained(client)
        return client

    def _new_client(self) -> PlainNodesClient | TextNodesClient:
        if self._plain is None:
            return TextNodesClient(self, self._nodes)
        return PlainNodesClient(self, self._nodes, self._plain)
