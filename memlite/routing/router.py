"""The interface that all routers share."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

__all__ = ["Member", "Placement", "Router"]


_Node = TypeVar("_Node")


class Member(NamedTuple):
    """A node, as far as routing knows it.

    Attributes:
        name: the name that is hashed, so that a node may change its address. For ``jump``, the
            order of the nodes matters instead.
        weight: the node's share of the keys, relative to the others'; at least 1.
    """

    name: str
    weight: int = 1


class Placement(NamedTuple):
    """Where a key lives, and why.

    Attributes:
        node: the index of the node.
        hashed: the part of the key that was hashed.
        hash: the hash of that part; None if it is hashed separately with each node's name.
        reason: the deciding criterion: ``point``, ``score`` or ``bucket``.
        value: the node's point on the ring, the node's score, or the number of the bucket.
    """

    node: int
    hashed: bytes
    hash: int | None
    reason: str
    value: int | float


class Router(Protocol):
    """Decides which node has a key."""

    def index(self, key: bytes) -> int:
        """Return the index of the node that has `key`."""

    def finder(self, nodes: Sequence[_Node]) -> Callable[[bytes], _Node]:
        """Return a function that does the same as ``nodes[index(key)]``, in less time.

        Args:
            nodes: an object for each node; later changes of this sequence have no effect.
        """

    def place(self, key: bytes) -> Placement:
        """Return the placement of `key`, with the reasons."""

    def shares(self) -> list[float]:
        """Return each node's share of all hashes; the shares add up to 1."""

    def replicas(self, key: bytes, count: int) -> list[int]:
        """Return the indexes of the first `count` nodes for `key`, beginning with `index`.

        Args:
            key: the key.
            count: at most the number of nodes.
        """
