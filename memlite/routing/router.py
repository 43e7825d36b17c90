"""What all routers have in common."""

from typing import NamedTuple, Protocol

__all__ = ["Member", "Placement", "Router"]


class Member(NamedTuple):
    """A node, as far as routing knows it.

    Attributes:
        name: what is hashed, so that a node may change its address. For ``jump`` the order of the
            nodes counts instead.
        weight: the node's share of the keys, relative to the others'; at least 1.
    """

    name: str
    weight: int = 1


class Placement(NamedTuple):
    """Where a key lives, and why.

    Attributes:
        node: the index of the node.
        hashed: the part of the key that was hashed.
        hash: the hash of that part; None if each node has a hash of its own with it.
        reason: what decided: ``point``, ``score`` or ``bucket``.
        value: the node's point on the ring, the node's score, or the number of the bucket.
    """

    node: int
    hashed: bytes
    hash: int | None
    reason: str
    value: int | float


class Router(Protocol):
    """Says which node has a key."""

    def index(self, key: bytes) -> int:
        """Return the index of the node that has `key`."""

    def place(self, key: bytes) -> Placement:
        """Return the same, with the reasons."""

    def shares(self) -> list[float]:
        """Return the share of all hashes that each node has; they add up to 1."""

    def replicas(self, key: bytes, count: int) -> list[int]:
        """Return the indexes of the first `count` nodes for `key`, that of `index` first.

        Args:
            key: the key.
            count: at most the number of nodes.
        """
