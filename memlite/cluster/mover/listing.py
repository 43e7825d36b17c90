"""Lists keys that a node holds, but that move to or belong to other nodes."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import IO, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from memlite.client import Connection, ConnectionLostError, Item, Shape
from memlite.cluster.mover.nodes import NodeTroubleError, reason_of
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.topology import Node

__all__ = ["Listed", "Listing", "listing"]

# "hash" does not miss items that change their list meanwhile, as "all" does.
_REQUEST: Final = b"lru_crawler metadump hash\r\n"
_row: Final = re.compile(rb"key=(\S+) (?:\S+ )*?size=(\d+)").match
_ROWS_PER_TURN: Final = 500
# Bytes of a listing that are kept in memory.
_SPOOLED: Final = 8 * 1024 * 1024


class Listed(NamedTuple):
    """An item that a node holds.

    Attributes:
        key: its key.
        size: the memory it takes, as counted by its node.
    """

    key: bytes
    size: int


class Listing:
    """Some of a node's items, stored in a file because there may be millions.

    Attributes:
        items: number of items.
        bytes: the memory they take.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file: Final = file
        self.items = self.bytes = 0

    def add(self, quoted: bytes, size: int) -> None:
        """Add an item, with its key as quoted in the dump."""
        self.items += 1
        self.bytes += size
        self._file.write(b"%b %d\n" % (quoted, size))

    def __iter__(self) -> Iterator[Listed]:
        self._file.seek(0)
        for line in self._file:
            quoted, size = line.split()
            yield Listed(unquote_to_bytes(quoted), int(size))

    def batches(self, most: int, size: int) -> Iterator[list[Listed]]:
        """Yield lists of at most `most` items and `size` bytes, but at least one item."""
        batch: list[Listed] = []
        held = 0
        for found in self:
            if batch and (len(batch) >= most or held + found.size > size):
                yield batch
                batch, held = [], 0
            batch.append(found)
            held += found.size
        if batch:
            yield batch


@asynccontextmanager
async def listing(
    node: Node, wanted: Callable[[bytes], bool], access: NodeAccess
) -> AsyncIterator[Listing]:
    """List items of a node.

    Args:
        node: the node.
        wanted: returns whether to list a key.
        access: how to connect to the node.

    Raises:
        NodeTroubleError: the node does not list all of its items.
    """
    with tempfile.SpooledTemporaryFile(max_size=_SPOOLED) as file:
        found = Listing(file)
        try:
            async with await access.connect(node.address) as connection:
                await _read(node, connection, wanted, found)
        except (OSError, ConnectionLostError) as error:
            raise NodeTroubleError(node, reason_of(error)) from None
        yield found


async def _read(
    node: Node, connection: Connection, wanted: Callable[[bytes], bool], found: Listing
) -> None:
    ended = False
    async for parts in connection.stream(_REQUEST, Shape.DUMP):
        for number, part in enumerate(parts):
            if not number % _ROWS_PER_TURN:
                await asyncio.sleep(0)  # lets other tasks run, such as the renewal of the lease
            text = b"" if isinstance(part, Item) else part.text
            row = _row(text)
            if row is not None:
                if wanted(unquote_to_bytes(row[1])):
                    found.add(row[1], int(row[2]))
            elif text == b"END":
                ended = True
            elif text.startswith(b"BUSY"):
                raise NodeTroubleError(node, "is busy with another dump")
            elif text != b"OK":
                refusal = text.decode("utf-8", "backslashreplace")
                raise NodeTroubleError(node, f"refuses to list its items: {refusal}")
    if not ended:
        raise NodeTroubleError(node, "did not list all of its items")
