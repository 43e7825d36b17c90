"""Reading a cluster once, for commands."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from memlite.cluster.membership.document import TOPOLOGY, Document
from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.membership.store import Store, StoreUnavailableError
from memlite.cluster.membership.url import store_of
from memlite.core.errors import StartError

__all__ = ["opened_to_read", "read_cluster", "read_document"]


def read_cluster(url: str, flag: str) -> Document:
    """Return the cluster in a store; without members if the store is empty.

    Args:
        url: the URL of the store; see `store_of`.
        flag: the option or argument with the URL, for messages.

    Raises:
        ConfigError: the URL is wrong.
        StartError: the store cannot be read, or its content is invalid.
    """
    return asyncio.run(_read(url, flag))


async def _read(url: str, flag: str) -> Document:
    async with opened_to_read(url, flag) as store:
        return await read_document(store)


@contextlib.asynccontextmanager
async def opened_to_read(url: str, flag: str) -> AsyncIterator[Store]:
    """Open a store while the context lasts; see `read_cluster` for arguments and errors."""
    store = store_of(url, flag)
    try:
        await store.open()
        yield store
    except (StartError, StoreUnavailableError, DocumentError) as error:
        raise StartError(f"{flag}: {error}") from None
    finally:
        await store.close()


async def read_document(store: Store) -> Document:
    """Return the cluster in an open store.

    Raises:
        StoreUnavailableError: it is unavailable.
        DocumentError: its content is invalid.
    """
    stored = await store.read(TOPOLOGY)
    return Document.decode(None if stored is None else stored.data)
