"""Notes about nodes that miss changes, as items on other nodes."""

import hashlib
from collections.abc import Iterator
from typing import Final

__all__ = ["Note", "adding", "notes_of", "removing", "setting", "word_of"]

_MAX_NAME: Final = 200


class Note:
    """A note that was seen on a node.

    Attributes:
        token: its value: the writer, and a number that rises with each of the writer's notes.
        writer: the writer.
        number: the number.
        unique: its cas unique.
    """

    __slots__ = ("number", "token", "unique", "writer")

    def __init__(self, token: bytes, unique: int) -> None:
        writer, _, number = token.rpartition(b"-")
        known = number.isdigit()
        self.token, self.unique = token, unique
        self.writer = writer if known else token
        self.number = int(number) if known else 0


def word_of(name: str) -> bytes:
    """Return the word that stands for a node's name in a key."""
    word = name.encode("utf-8", "backslashreplace")
    plain = len(word) <= _MAX_NAME and all(32 < byte < 127 for byte in word)
    return word if plain else hashlib.sha256(word).hexdigest().encode()


def setting(key: bytes, token: bytes) -> bytes:
    """Return the request that writes a note."""
    return b"set %b 0 0 %d\r\n%b\r\n" % (key, len(token), token)


def adding(key: bytes, token: bytes) -> bytes:
    """Return the request, with ``noreply``, that writes a note where there is none."""
    return b"add %b 0 0 %d noreply\r\n%b\r\n" % (key, len(token), token)


def removing(key: bytes, note: Note) -> bytes:
    """Return the request that removes a note if it is unchanged.

    It replaces the note with an expired item, which works without meta commands as well.
    """
    return b"cas %b 0 -1 0 %d\r\n\r\n" % (key, note.unique)


def notes_of(reply: bytes) -> Iterator[tuple[bytes, Note]]:
    """Return the keys and notes of a reply to ``gets``."""
    position = 0
    while reply.startswith(b"VALUE ", position):
        line_end = reply.index(b"\r\n", position)
        words = reply[position:line_end].split(b" ")
        start, size = line_end + 2, int(words[3])
        unique = int(words[4]) if len(words) > 4 else 0
        yield words[1], Note(reply[start : start + size], unique)
        position = start + size + 2
