"""Ketama, as in libmemcached's ``ketama_weighted`` and twemproxy: a ring of points."""

import functools
import math
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from memlite.routing.hash_tag import HashTag
from memlite.routing.hashes import md5_words
from memlite.routing.router import Member, Placement

__all__ = ["Ketama", "Ring"]

_Node = TypeVar("_Node")
_POINTS: Final = 160  # of a node of average weight
_POINTS_PER_DIGEST: Final = 4
_CIRCLE: Final = 2**32
_single = struct.Struct("<f")


def _as_single(number: float) -> float:
    """Round to single precision, in which libmemcached and twemproxy compute."""
    rounded: float = _single.unpack(_single.pack(number))[0]
    return rounded


def _digests(weight: int, total: int, nodes: int) -> int:
    """Return the number of digests that give a node its points on the ring."""
    share = _as_single(_as_single(weight) / _as_single(total))
    points = _as_single(_as_single(share * _POINTS) / _POINTS_PER_DIGEST)
    return math.floor(_as_single(_as_single(points * nodes) + 1e-10))


class Ring:
    """The points of all nodes, in order.

    Args:
        members: the nodes.

    Attributes:
        points: the points.
        owners: the index of each point's node.
        owners_in_turn: the same, followed by the first again.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        total = sum(member.weight for member in members)
        pairs = [
            (point, index)
            for index, member in enumerate(members)
            for number in range(_digests(member.weight, total, len(members)))
            for point in md5_words(f"{member.name}-{number}".encode())
        ]
        pairs.sort()
        self.points = [point for point, _ in pairs]
        self.owners = [index for _, index in pairs]

        # Ends with the owner of the range after the last point.
        self.owners_in_turn = [*self.owners, *self.owners[:1]]

    def at(self, value: int) -> int:
        """Return the index of the first point at or after `value`; 0 if it is after the last."""
        index = bisect_left(self.points, value)
        return index if index < len(self.points) else 0

    def shares(self, nodes: int) -> list[float]:
        """Return each node's share of the ring, given the number of nodes.

        A point owns the range from the previous point to itself; the first point also owns the
        range after the last.
        """
        shares = [0.0] * nodes
        before = self.points[-1] - _CIRCLE
        for point, owner in zip(self.points, self.owners, strict=True):
            shares[owner] += (point - before) / _CIRCLE
            before = point
        return shares


# A move needs the rings before and after it, and all objects in a process that know of it need the
# same rings. Computing a ring of ten nodes takes a few milliseconds.
@functools.lru_cache(maxsize=8)
def _ring(members: tuple[Member, ...]) -> Ring:
    return Ring(members)


class Ketama:
    """Assigns a key to the node of the first point at or after the key's hash.

    Args:
        members: the nodes. A node with a very small weight compared to the others gets no points,
            as in libmemcached.
        tag: finds the part of a key that is hashed.
        hash_key: hashes it, to 32 bits.
    """

    def __init__(
        self, members: Sequence[Member], tag: HashTag, hash_key: Callable[[bytes], int]
    ) -> None:
        self._tag = tag
        self._tagged = bool(tag)
        self._hash = hash_key
        self._nodes = len(members)
        self.ring = _ring(tuple(members))

    def index(self, key: bytes) -> int:
        """Return the index of the node that has `key`."""
        ring = self.ring
        if self._tagged:
            key = self._tag.part(key)
        return ring.owners_in_turn[bisect_left(ring.points, self._hash(key))]

    def finder(self, nodes: Sequence[_Node]) -> Callable[[bytes], _Node]:
        """Return a function that returns the node that has a key; see `Router`."""
        points, hash_key, part = self.ring.points, self._hash, self._tag.part
        in_turn = [nodes[owner] for owner in self.ring.owners_in_turn]
        if self._tagged:
            return lambda key: in_turn[bisect_left(points, hash_key(part(key)))]
        return lambda key: in_turn[bisect_left(points, hash_key(key))]

    def place(self, key: bytes) -> Placement:
        """Return the placement of `key`, with the reasons."""
        hashed = self._tag.part(key)
        value = self._hash(hashed)
        at = self.ring.at(value)
        return Placement(self.ring.owners[at], hashed, value, "point", self.ring.points[at])

    def shares(self) -> list[float]:
        """Return the share of the ring that each node has."""
        return self.ring.shares(self._nodes)

    def replicas(self, key: bytes, count: int) -> list[int]:
        """Return the key's node and the nodes of the next points.

        Nodes without points come last, in order.
        """
        owners, nodes = self.ring.owners, self._nodes
        at = self.ring.at(self._hash(self._tag.part(key)))
        found: dict[int, None] = {}
        for position in range(at, at + len(owners)):
            found[owners[position % len(owners)]] = None
            if len(found) == count:
                return list(found)
        return [*found, *(node for node in range(nodes) if node not in found)][:count]
