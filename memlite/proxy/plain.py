"""Requests as they are forwarded, so that each has exactly one reply."""

from typing import Final

__all__ = ["WORDS", "delete_of", "plain", "without_quiet"]


WORDS: Final = {b"cas": 6, b"delete": 2, b"incr": 3, b"decr": 3, b"touch": 3}
"""The number of words of a command without surplus ones; other storage commands have 5."""


def plain(data: bytes) -> bytes:
    """Return a change without ``noreply`` and other surplus words, so that it has one reply."""
    line, _, rest = data.partition(b"\n")
    words = [word for word in line.rstrip(b"\r").split(b" ") if word]
    if words[0] == b"delete":
        # The 0, which old clients send, keeps the key "noreply" from being read as the option.
        return b"delete %b 0\r\n" % words[1]
    return b" ".join(words[: WORDS.get(words[0], 5)]) + b"\r\n" + rest


def without_quiet(data: bytes, first: int) -> bytes:
    """Return a meta request without the flag q; `first` is the index of its first flag."""
    line, _, rest = data.partition(b"\n")
    words = line.rstrip(b"\r").split(b" ")
    words = [word for word in words if word]
    flags = [word for word in words[first:] if word[:1] != b"q"]
    return b" ".join([*words[:first], *flags]) + b"\r\n" + rest


def delete_of(key: bytes) -> bytes:
    """Return the request that deletes an item."""
    from memlite.protocol.meta import encode_key  # rarely needed

    return b"md %b b\r\n" % encode_key(key)
