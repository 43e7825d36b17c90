"""Reading a cluster once, for commands."""

import asyncio

from memlite.cluster.membership.document import TOPOLOGY, Document, DocumentError
from memlite.cluster.membership.store import StoreUnavailableError
from memlite.cluster.membership.url import store_of
from memlite.core.errors import StartError

__all__ = ["read_cluster"]


def read_cluster(url: str, flag: str) -> Document:
    """Return what a store says of its cluster; no members if it says nothing.

    Args:
        url: the store's; see `store_of`.
        flag: the option or argument it was given to, for messages.

    Raises:
        ConfigError: the URL is wrong.
        StartError: the store cannot be read, or holds something else.
    """
    return asyncio.run(_read(url, flag))


async def _read(url: str, flag: str) -> Document:
    store = store_of(url, flag)
    try:
        await store.open()
        stored = await store.read(TOPOLOGY)
        return Document.decode(None if stored is None else stored.data)
    except (StartError, StoreUnavailableError, DocumentError) as error:
        raise StartError(f"{flag}: {error}") from None
    finally:
        await store.close()
