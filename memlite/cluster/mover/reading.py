"""Reads a cluster once, with the state of the move in progress."""

import asyncio

from memlite.cluster.membership.document import Document
from memlite.cluster.membership.reading import opened_to_read, read_document
from memlite.cluster.mover.permit import MOVER, MoverNote

__all__ = ["read_with_mover"]


def read_with_mover(url: str, flag: str) -> tuple[Document, MoverNote | None]:
    """Return the cluster in a store, and the note of the process that moves keys.

    Args:
        url: the URL of the store; see `store_of`.
        flag: the option or argument with the URL, for messages.

    Raises:
        ConfigError: the URL is wrong.
        StartError: the store cannot be read, or its content is invalid.
    """
    return asyncio.run(_read(url, flag))


async def _read(url: str, flag: str) -> tuple[Document, MoverNote | None]:
    async with opened_to_read(url, flag) as store:
        document = await read_document(store)
        if document.move is None:
            return document, None
        mover = await store.read(MOVER)
        return document, None if mover is None else MoverNote.decode(mover.data)
