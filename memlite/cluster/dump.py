"""Asks nodes for the items that they hold."""

import asyncio
from collections.abc import Sequence

from memlite.client import ConnectionLostError, Item, ReplyStream, Shape
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.plan import Survey
from memlite.cluster.topology import Node
from memlite.core.errors import StartError

__all__ = ["survey_all"]

_REQUEST = b"lru_crawler metadump all\r\n"


async def survey_all(
    nodes: Sequence[Node], surveys: Sequence[Survey], access: NodeAccess, command: str = "plan"
) -> None:
    """Count the items of all nodes, asking them concurrently.

    Args:
        nodes: the nodes.
        surveys: one for each node.
        access: how to connect to them.
        command: the command that asks, for messages.

    Raises:
        StartError: a node does not list all of its items.
    """
    label = f"cluster {command}: node "
    tasks = [
        asyncio.ensure_future(_survey(label, access, *pair))
        for pair in zip(nodes, surveys, strict=True)
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _survey(label: str, access: NodeAccess, node: Node, survey: Survey) -> None:
    address = str(node.address)
    label += node.name + (f" at {address}" * (node.name != address))
    try:
        async with await access.connect(node.address) as connection:
            await _count(label, connection.stream(_REQUEST, Shape.DUMP), survey)
    except TimeoutError:
        raise StartError(f"{label}: does not answer") from None
    except ConnectionLostError as error:
        timed_out = isinstance(error.cause, TimeoutError)
        why = "no reply" if timed_out else error.cause or "connection closed"
        raise StartError(f"{label}: did not list all of its items: {why}") from None
    except OSError as error:
        raise StartError(f"{label}: {error.strerror or error}") from None


async def _count(label: str, stream: ReplyStream, survey: Survey) -> None:
    ended = False
    async for parts in stream:
        for part in parts:
            text = b"" if isinstance(part, Item) else part.text
            if text == b"END":
                ended = True
            elif text.startswith(b"BUSY"):
                raise StartError(f"{label}: is busy with another dump; try again")
            elif text != b"OK" and not survey.add(text):
                raise StartError(f"{label}: refuses to list its items: {_shown(text)}")
        await asyncio.sleep(0)  # lets other tasks run: a fast node would block them all
    if not ended:
        raise StartError(f"{label}: did not list all of its items")


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
