"""Recognition of usual requests without the parser, keeping their bytes as they arrived."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from memlite.protocol import Limits
from memlite.protocol.limits import MAX_GET_LENGTH, item_total
from memlite.protocol.numbers import length_of, small_number
from memlite.proxy.cluster import Cluster, Target
from memlite.proxy.known_nodes import SPECIAL
from memlite.proxy.node import Node
from memlite.proxy.parts import SPLIT

__all__ = ["Recognizer"]

_CR: Final = 13
_LF: Final = 10
# The first letters of the commands remembered by line: get and mg.
_OF_LINES: Final = frozenset(b"gm")


class Recognizer:
    """Finds complete requests with one key, one reply and no extra words.

    Most requests are of this kind. All other input, errors included, is left to the parser.

    Args:
        cluster: the nodes.
        limits: the limits on what clients may send.

    Attributes:
        longest_key: maximum length of a key, in bytes.
    """

    def __init__(self, cluster: Cluster, limits: Limits) -> None:
        self._cluster = cluster
        self.longest_key = limits.key_length
        # A value of up to this many bytes fits regardless of its key and flags.
        self._safe_size = limits.item_size - item_total(limits.key_length, 1, 0)

    def lone_set(self, data: bytes) -> Target | None:
        """Return the node for a lone set of a small value; None for anything else.

        Args:
            data: the input of a client, which begins with ``set``.
        """
        line = data.find(b"\n") - 1  # a known key may have a line feed, which ends a line for nodes
        if line < 0 or data[line] != _CR:
            return None
        words = data[4:line].split(b" ")
        if len(words) != 4:
            return None
        key, flags, exptime, number = words
        length = small_number(number)
        if (
            length is None
            or line + 4 + length != len(data)
            or data[-2:] != b"\r\n"
            or length > self._safe_size
            or small_number(exptime) is None
            or small_number(flags) is None
        ):
            return None
        return self._cluster.known_nodes.get(key)  # known keys are valid

    def take_set(self, lone: Any, data: bytes) -> bool:
        """Forward a lone set of a small value, if `lone` can; its node must be known."""
        return bool(lone.take_set(self._cluster.known_nodes, data, self._safe_size, Node))

    def know(self, lone: Any) -> None:
        """Give `lone` the nodes of lone requests."""
        lone.by_line, lone.nodes = self._cluster.by_line, self._cluster.known_nodes
        lone.most = self._safe_size

    def split(self, data: bytes, most: int) -> Any:
        """Return the result of `SPLIT` for input of a client."""
        cluster = self._cluster
        return SPLIT(data, cluster.by_line, cluster.known_nodes, most, self._safe_size, Node)

    def scan(
        self, data: bytes, most: int, requests: list[bytes], targets: list[Target]
    ) -> tuple[int, bool]:
        """Find the requests at the beginning of a client's input.

        Args:
            data: the input.
            most: the maximum number to find.
            requests: receives the requests.
            targets: receives the target of each.

        Returns:
            Where the first other request begins, and whether the requests found change nothing.
        """
        position, size, reads = 0, len(data), True
        find, by_line, kinds = data.find, self._cluster.by_line.get, _KINDS.get
        known_nodes = self._cluster.known_nodes.get  # never has a key with a NUL
        while position < size and len(requests) < most:
            end = find(b"\n", position) + 1
            if end < 2 or data[end - 2] != _CR:
                break
            line = data[position:end]
            target: Target | None = None
            if data[position] in _OF_LINES and end - position <= MAX_GET_LENGTH:
                target = by_line(line)
            if target is None:
                words = line[:-2].split(b" ")
                kind = kinds(words[0])
                if kind is None or len(words) != kind[0]:
                    break
                key = words[1]
                if not 0 < len(key) <= self.longest_key:
                    break
                length = kind[1](words)
                if length is None or key in SPECIAL:
                    break
                if length >= 0:
                    end += length + 2
                    if end > size or length > self._safe_size:
                        break
                    if data[end - 2] != _CR or data[end - 1] != _LF:
                        break
                    line = data[position:end]
                if words[0] == _GET:  # when compiled, a tuple has no identity
                    target = self._cluster.node_of_line(line, key)
                else:
                    target = known_nodes(key) or self._cluster.node_of_word(key)
                    reads = False
            requests.append(line)
            targets.append(target)
            position = end
        return position, reads


_Check: TypeAlias = Callable[[list[bytes]], int | None]
"""Returns the length of the value that follows, -1 for none, None if a word is unusual."""


def _nothing(_words: list[bytes]) -> int:
    return -1


def _number(words: list[bytes]) -> int | None:
    return None if small_number(words[2]) is None else -1


def _value(words: list[bytes]) -> int | None:
    if small_number(words[2]) is None or small_number(words[3]) is None:
        return None
    length = small_number(words[4])
    return length_of(words[4]) if length is None else length


_KINDS: Final[dict[bytes, tuple[int, _Check]]] = {
    b"get": (2, _nothing),
    b"delete": (2, _nothing),
    b"incr": (3, _number),
    b"decr": (3, _number),
    b"touch": (3, _number),
    b"set": (5, _value),
    b"add": (5, _value),
    b"replace": (5, _value),
    b"append": (5, _value),
    b"prepend": (5, _value),
}
"""For each command, the number of its words and the function that checks them."""
_GET: Final = b"get"
