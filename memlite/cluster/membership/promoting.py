"""Changing the hot keys of a cluster, for commands."""

import asyncio
import time
from collections.abc import Sequence

from memlite.cluster.hot_keys import demote, parse_hot_keys, promote
from memlite.cluster.membership.document import Document
from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.membership.member import change_topology
from memlite.cluster.membership.store import Store, StoreUnavailableError
from memlite.cluster.membership.url import store_of
from memlite.core.errors import StartError

__all__ = ["demote_keys", "promote_keys"]


def promote_keys(url: str, flag: str, keys: Sequence[bytes]) -> Document:
    """Promote keys, and return the resulting document.

    Args:
        url: the URL of the store; see `store_of`.
        flag: the option with the URL, for messages.
        keys: the keys.

    Raises:
        ConfigError: the URL or a key is wrong, or there are too many.
        StartError: the store cannot be used, or its content is invalid.
    """
    parse_hot_keys(keys)
    return asyncio.run(_change(store_of(url, flag), flag, keys, promotes=True))


def demote_keys(url: str, flag: str, keys: Sequence[bytes]) -> Document:
    """Demote keys; see `promote_keys`."""
    return asyncio.run(_change(store_of(url, flag), flag, keys, promotes=False))


async def _change(store: Store, flag: str, keys: Sequence[bytes], *, promotes: bool) -> Document:
    apply = promote if promotes else demote

    def change(document: Document) -> Document:
        if promotes and document.move is not None:
            raise StartError("a move of keys is in progress; wait until it has finished")
        now = time.time()
        changed = apply(document.hot_keys, keys, document.next_epoch(now))
        return document.with_hot_keys(changed, now)

    try:
        await store.open()
        return await change_topology(store, change)
    except (StartError, StoreUnavailableError, DocumentError) as error:
        raise StartError(f"{flag}: {error}") from None
    finally:
        await store.close()
