"""Several requests of a client, or one for several keys, in parts that are handled in C.

These classes do the same as `Batch` and `MultiGet`, which serve where the C module was not built,
and which explain their handling of requests in more detail.
"""

from collections.abc import Sequence
from typing import Any, Final

from memlite.proxy.framing import NATIVE
from memlite.proxy.requests import MultiGet, Origin

__all__ = ["SPLIT", "SPLIT_KEYS", "JoinedBatch", "JoinedMultiGet", "Part", "merged"]

Part: Final[Any] = None if NATIVE is None else NATIVE.Part
"""Receives the replies of a node; None without the C module."""
SPLIT: Final[Any] = None if NATIVE is None else NATIVE.split
"""Returns gets and small sets by their nodes.

Its arguments are the input, the nodes by line, the nodes by key, the maximum number of requests to
find, the maximum length of a value, and the type of nodes. It returns None unless it finds two or
more requests, else the bytes and the number of requests for each node, the index of the node of
each request, where the requests found end, and whether they change nothing.
"""
SPLIT_KEYS: Final[Any] = None if NATIVE is None else NATIVE.split_keys
"""Does the same with the keys of a multi-get, if all are ordinary; it omits the last two values."""
JoinedBatch: Final[Any] = None if NATIVE is None else NATIVE.Batch
"""Requests whose replies are sent together; see `Batch`. None without the C module.

Its arguments are the client's executor and the index of the node of each request. The method
`part`, given how many of them the next node has, returns the receiver of that node's replies.
"""
JoinedMultiGet: Final[Any] = None if NATIVE is None else NATIVE.MultiGet
"""A get of keys that several nodes have; see `MultiGet`. None without the C module.

Its arguments are the client's executor, and the two values that `SPLIT_KEYS` returns. Its attribute
`answered_by_all` is called once all nodes have answered, with the reply, and with whether one of
them failed; None for nothing.
"""


def merged(
    executor: Origin,
    order: bytes,
    parts: Sequence[Any],
    unusual: Sequence[bytes | None],
    *,
    strict: bool,
) -> bytes:
    """Return the reply to a `JoinedMultiGet` if some of the nodes' replies are unusual.

    Args:
        executor: the client's.
        order: the index of the node of each key.
        parts: the receivers of the nodes' replies.
        unusual: the replies that are not of the usual form; None for those that are.
        strict: whether it fails if a node fails.
    """
    keys = {index: part.request[4:-2].split(b" ") for index, part in enumerate(parts)}
    whole = MultiGet(executor, keys, list(order), strict=strict)
    of_nodes = zip(parts, unusual, strict=True)
    whole.take_all([part.pieces() if reply is None else reply for part, reply in of_nodes])
    return whole.combined()
