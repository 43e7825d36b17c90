"""Replies of nodes to the requests that move keys."""

from collections.abc import Generator
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias, TypeVar

from memlite.core.errors import MemliteError

__all__ = ["Answer", "Ask", "NodeRefusedError", "Place", "Steps", "answer_of"]

_T = TypeVar("_T")

_STATUSES: Final = frozenset((b"HD", b"VA", b"EN", b"NS", b"EX", b"NF"))


class NodeRefusedError(MemliteError):
    """A node answered with an error; the text is its reply."""


class Place(Enum):
    """One of the two nodes of a moving key."""

    SOURCE = auto()
    """The node of the key before the move."""
    DESTINATION = auto()
    """The node of the key after the move."""


class Ask(NamedTuple):
    """A request, and its destination node."""

    place: Place
    request: bytes


class Answer(NamedTuple):
    """A reply to a meta command.

    Attributes:
        status: the first word: ``HD``, ``VA``, ``EN``, ``NS``, ``EX`` or ``NF``.
        words: the flags.
        value: the value, if there is one.
        error: the whole reply, if it is an error; else empty.
    """

    status: bytes
    words: tuple[bytes, ...] = ()
    value: bytes = b""
    error: str = ""

    @property
    def done(self) -> bool:
        """Whether the request was carried out."""
        return self.status == b"HD"

    @property
    def unique(self) -> int:
        """The cas unique of the stored item; 0 if it was not stored because the condition failed.

        Raises:
            NodeRefusedError: the node answered with an error.
        """
        if self.error:
            raise NodeRefusedError(self.error)
        return (self.number(b"c") or 0) if self.done else 0

    def number(self, flag: bytes) -> int | None:
        """Return the number of a flag; None if the flag is absent."""
        for word in self.words:
            if word[:1] == flag:
                return int(word[1:])
        return None


Steps: TypeAlias = Generator[tuple[Ask, ...], tuple[Answer, ...], _T]
"""A generator of requests: yields those that may be sent at once (keeping the order of requests to
the same node), and is sent their answers in the same order. Returns the result."""


def answer_of(reply: bytes) -> Answer:
    """Parse a node's reply to a meta command; `reply` is the whole reply."""
    end = reply.find(b"\r\n")
    status, *words = reply[:end].split() or [b""]
    if status not in _STATUSES:
        return Answer(status, error=reply[:end].decode("ascii", "backslashreplace") or "no reply")
    if status == b"VA":
        return Answer(status, tuple(words[1:]), reply[end + 2 : -2])
    return Answer(status, tuple(words))
