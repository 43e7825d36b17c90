"""The nodes of keys, as far as they can be found without regard to a client's request."""

from collections.abc import Callable
from typing import Final

from memlite.protocol.limits import CLUSTER_KEY, MAX_KEY_LENGTH
from memlite.proxy.node import Node
from memlite.proxy.replicas import ReplicaSet

__all__ = ["MAX_REMEMBERED", "SPECIAL", "KnownNodes"]

MAX_REMEMBERED: Final = 32_768
"""The most keys whose nodes are remembered: a lookup takes a tenth of the time of finding one. The
C code limits lines to the same number."""

SPECIAL: Final = frozenset((CLUSTER_KEY, b"noreply"))
"""Words that are not ordinary keys: the key of the list of nodes, and an option."""


class KnownNodes(dict[bytes, Node | ReplicaSet]):
    """The nodes of keys that were requested; other nodes are found when they are asked for.

    ``known[key]`` is None if the key is not an ordinary one, or cannot be forwarded as usual at
    present. ``known.get(key)`` only looks for keys that were requested.

    Args:
        find: returns the node of a key; None if keys cannot be forwarded as usual.

    Attributes:
        find: as above; it may be replaced. The C code does what `__missing__` does.
    """

    def __init__(self, find: Callable[[bytes], Node | ReplicaSet | None]) -> None:
        super().__init__()
        self.find = find

    def __missing__(self, key: bytes) -> Node | ReplicaSet | None:
        """Find the node of a key, and remember it."""
        # A line feed ends a line for nodes.
        ordinary = b"\n" not in key and b"\0" not in key and 0 < len(key) <= MAX_KEY_LENGTH
        if not ordinary or key in SPECIAL:
            return None
        node = self.find(key)
        if node is not None:
            self.remember(key, node)
        return node

    def remember(self, key: bytes, node: Node | ReplicaSet) -> None:
        """Remember the node of a key."""
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        self[key] = node
