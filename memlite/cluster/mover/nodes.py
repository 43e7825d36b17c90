"""The mover's connections to the nodes, and the checks of the nodes before a move."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from memlite.client import Connection, ConnectionLostError, Item, Line, Reply, Shape
from memlite.cluster.moving.answers import Answer, answer_of
from memlite.cluster.moving.marks import PROBE, assigns
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.topology import Node
from memlite.core.errors import MemliteError, StartError

__all__ = ["NodeTroubleError", "Nodes", "check_nodes", "reason_of"]

_SIZE: Final = "item_size_max"


class NodeTroubleError(MemliteError):
    """A node does not carry out a request; the text says which node and why.

    Attributes:
        node: its name.
    """

    def __init__(self, node: Node, reason: str) -> None:
        where = "" if node.name == str(node.address) else f" at {node.address}"
        super().__init__(f"node {node.name}{where}: {reason}")
        self.node = node.name


def reason_of(error: Exception) -> str:
    """Return a short reason for a failed connection or request."""
    if isinstance(error, ConnectionLostError):
        if isinstance(error.cause, TimeoutError):
            return "does not answer"
        return str(error.cause or "connection closed")
    if isinstance(error, TimeoutError) and not error.args:
        return "does not answer"
    return (isinstance(error, OSError) and error.strerror) or str(error)


class Nodes:
    """One connection to each node, opened on demand and reopened when lost.

    Args:
        access: how to connect to them.
    """

    def __init__(self, access: NodeAccess) -> None:
        self._access: Final = access
        self._by_name: dict[str, Node] = {}
        self._connections: dict[Node, Connection] = {}
        self._assigns: dict[Node, bool] = {}

    def know(self, nodes: Sequence[Node]) -> None:
        """Replace the nodes."""
        self._by_name = {node.name: node for node in nodes}

    async def connect(self, names: Sequence[str]) -> None:
        """Make sure that there are connections to nodes.

        Raises:
            NodeTroubleError: one of them cannot be reached.
        """
        for name in names:
            node = self._by_name[name]
            connection = self._connections.get(node)
            if connection is not None and connection.lost is None:
                continue
            try:
                connection = await self._access.connect(node.address)
                reply = await connection.request(PROBE, Shape.META)
            except (OSError, ConnectionLostError) as error:
                raise NodeTroubleError(node, reason_of(error)) from None
            self._connections[node] = connection
            self._assigns[node] = assigns(reply.line)

    def assigns(self, name: str) -> bool:
        """Return whether a connected node lets clients assign cas uniques."""
        return self._assigns[self._by_name[name]]

    async def ask(self, asked: Sequence[tuple[str, bytes]]) -> list[Answer]:
        """Send meta commands to connected nodes, all at once; return their answers.

        Args:
            asked: the name of the node and the request, for each of them.

        Raises:
            NodeTroubleError: a node does not answer.
        """
        sent: list[asyncio.Future[Reply]] = []
        last: dict[str, asyncio.Future[Reply]] = {}
        try:
            for name, request in asked:
                future = self._connections[self._by_name[name]].send(request, Shape.META)
                sent.append(future)
                last[name] = future
        except ConnectionLostError as error:
            await _discard(sent)
            raise NodeTroubleError(self._by_name[name], reason_of(error)) from None
        # A node answers in order, so its last answer comes after all others. Awaiting each one
        # would take as long as all the rest.
        await asyncio.wait(last.values())
        for name, future in last.items():
            lost = future.exception()
            if isinstance(lost, Exception):
                await _discard(sent)
                raise NodeTroubleError(self._by_name[name], reason_of(lost)) from None
        return [_answer(future.result()) for future in sent]

    async def close(self) -> None:
        """Close all connections."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.close()


def _answer(reply: Reply) -> Answer:
    part = reply.parts[0]
    if isinstance(part, Item):
        return Answer(b"VA", part.tokens, bytes(part.value))
    return answer_of(part.text + b"\r\n")


async def _discard(sent: Sequence["asyncio.Future[Reply]"]) -> None:
    """Wait for answers, and discard them."""
    await asyncio.gather(*sent, return_exceptions=True)


async def check_nodes(
    nodes: Sequence[Node], receiving: Sequence[str], access: NodeAccess
) -> list[str]:
    """Check, before any change, that keys can be moved between nodes.

    Args:
        nodes: all nodes involved.
        receiving: the names of the nodes that receive items.
        access: how to connect to them.

    Returns:
        Warnings for the user.

    Raises:
        StartError: one of them lacks a required feature.
    """
    asked = await asyncio.gather(*(_ask(node, access) for node in nodes))
    settings = [its for its, _ in asked]
    largest = max((int(its.get(_SIZE, 0)) for its in settings), default=0)
    notes = []
    for node, (its, keeps_uniques) in zip(nodes, asked, strict=True):
        receives = node.name in receiving
        problem = _problem(its, largest if receives else 0)
        if problem:
            raise StartError(str(NodeTroubleError(node, problem)))
        if receives and not keeps_uniques:
            note = "assigns new cas uniques to items moved to it, as it does not support the E flag"
            notes.append(str(NodeTroubleError(node, note)))
    return notes


def _problem(settings: Mapping[str, str], largest: int) -> str | None:
    if settings.get("cas_enabled") == "no":
        return "runs with -C; moving keys requires cas uniques"
    if settings.get("dump_enabled") == "no":
        return "refuses to list its items (-X)"
    size = int(settings.get(_SIZE, largest))
    if size < largest:
        return f"accepts items of up to {size:,} bytes (-I); other nodes accept up to {largest:,}"
    return None


async def _ask(node: Node, access: NodeAccess) -> tuple[dict[str, str], bool]:
    """Return a node's settings, and whether it lets clients assign cas uniques."""
    try:
        async with await access.connect(node.address) as connection:
            rows = await connection.request(b"stats settings\r\n", Shape.ROWS)
            probed = await connection.request(PROBE, Shape.META)
    except (OSError, ConnectionLostError) as error:
        raise StartError(str(NodeTroubleError(node, reason_of(error)))) from None
    if rows.error is not None:
        refusal = rows.error.decode("utf-8", "backslashreplace")
        raise StartError(str(NodeTroubleError(node, refusal)))
    lines = [part.text.decode("utf-8", "replace") for part in rows.parts if isinstance(part, Line)]
    words = [line.split(" ", 2) for line in lines if line.startswith("STAT ")]
    return {one[1]: one[2] for one in words if len(one) == 3}, assigns(probed.line)
