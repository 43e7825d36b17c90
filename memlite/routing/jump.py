"""Jump hash (Lamping and Veach, 2014): as even as possible, without a ring."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from memlite.routing.hash_tag import HashTag
from memlite.routing.hashes import md5_long
from memlite.routing.router import Member, Placement

__all__ = ["Jump", "jump"]

_Node = TypeVar("_Node")
_LONG: Final = 2**64 - 1


def jump(value: int, buckets: int) -> int:
    """Return the bucket of a 64-bit hash, counting from 0."""
    bucket = candidate = 0
    while candidate < buckets:
        bucket = candidate
        value = (value * 2862933555777941757 + 1) & _LONG
        candidate = int((bucket + 1) * ((1 << 31) / ((value >> 33) + 1)))
    return bucket


class Jump:
    """Assigns a key to the node with the key's bucket; a node has as many buckets as its weight.

    The order of the nodes matters: add and remove nodes at the end, or more keys move than needed.
    The hash of a key is the first eight bytes of its MD5 digest.

    Args:
        members: the nodes.
        tag: finds the part of a key that is hashed.
    """

    def __init__(self, members: Sequence[Member], tag: HashTag) -> None:
        self._tag = tag
        self._owners = [index for index, member in enumerate(members) for _ in range(member.weight)]

    def index(self, key: bytes) -> int:
        """Return the index of the node that has `key`."""
        return self._owners[jump(md5_long(self._tag.part(key)), len(self._owners))]

    def finder(self, nodes: Sequence[_Node]) -> Callable[[bytes], _Node]:
        """Return a function that returns the node that has a key; see `Router`."""
        nodes = tuple(nodes)
        return lambda key: nodes[self.index(key)]

    def place(self, key: bytes) -> Placement:
        """Return the placement of `key`, with the reasons."""
        hashed = self._tag.part(key)
        value = md5_long(hashed)
        bucket = jump(value, len(self._owners))
        return Placement(self._owners[bucket], hashed, value, "bucket", bucket)

    def shares(self) -> list[float]:
        """Return the share of the buckets that each node has."""
        buckets = Counter(self._owners)
        return [buckets[node] / buckets.total() for node in range(len(buckets))]

    def replicas(self, key: bytes, count: int) -> list[int]:
        """Return the key's node and the nodes after it, in order; the first follows the last."""
        first, nodes = self.index(key), self._owners[-1] + 1
        return [(first + number) % nodes for number in range(count)]
