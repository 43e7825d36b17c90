"""Rendezvous hashing, as in pymemcache's ``HashClient``, with the addition of weights."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from memlite.routing.hash_tag import HashTag
from memlite.routing.hashes import murmur3_32
from memlite.routing.router import Member, Placement

__all__ = ["Rendezvous"]

_Node = TypeVar("_Node")


class Rendezvous:
    """Assigns a key to the node with the highest score for it.

    The score is MurmurHash3 of ``<name>-<key>``; among equal scores, the greater name wins. If
    weights differ, scores are weighted logarithmically, which pymemcache cannot do.

    Args:
        members: the nodes.
        tag: finds the part of a key that is hashed.
    """

    def __init__(self, members: Sequence[Member], tag: HashTag) -> None:
        self._tag = tag
        # By descending name: among equal scores, the first wins.
        self._nodes = sorted(
            (
                (member.name, index, _low_bytes(f"{member.name}-"), member.weight)
                for index, member in enumerate(members)
            ),
            reverse=True,
        )
        self._weighted = len({member.weight for member in members}) > 1

    def index(self, key: bytes) -> int:
        """Return the index of the node that has `key`."""
        return self.place(key).node

    def finder(self, nodes: Sequence[_Node]) -> Callable[[bytes], _Node]:
        """Return a function that returns the node that has a key; see `Router`."""
        nodes = tuple(nodes)
        return lambda key: nodes[self.index(key)]

    def place(self, key: bytes) -> Placement:
        """Return the placement of `key`, with the reasons."""
        hashed = self._tag.part(key)
        data = _data(hashed)
        best: float = -1
        winner = 0
        for _, index, prefix, weight in self._nodes:
            score: float = murmur3_32(prefix + data)
            if self._weighted:
                score = _by_weight(score, weight)
            if score > best:
                best, winner = score, index
        return Placement(winner, hashed, None, "score", best)

    def shares(self) -> list[float]:
        """Return each node's average share of the hashes, which is proportional to its weight."""
        weights = {index: weight for _, index, _, weight in self._nodes}
        total = sum(weights.values())
        return [weights[index] / total for index in range(len(weights))]

    def replicas(self, key: bytes, count: int) -> list[int]:
        """Return the nodes with the highest scores."""
        data = _data(self._tag.part(key))
        scores = []
        for _, index, prefix, weight in self._nodes:
            score: float = murmur3_32(prefix + data)
            scores.append((_by_weight(score, weight) if self._weighted else score, index))
        scores.sort(key=lambda scored: -scored[0])  # stable: keeps the order of equal scores
        return [index for _, index in scores[:count]]


def _by_weight(score: float, weight: int) -> float:
    return weight / -math.log((score + 0.5) / 2**32)


def _data(hashed: bytes) -> bytes:
    return hashed if hashed.isascii() else _low_bytes(_text(hashed))


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.decode("latin-1")


def _low_bytes(text: str) -> bytes:
    """Return the bytes of a text that pymemcache hashes: the low byte of each character."""
    return bytes(ord(character) & 0xFF for character in text)
