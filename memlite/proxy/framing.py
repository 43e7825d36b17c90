"""Splitting and joining of requests and replies, in C if that was compiled.

The C and Python versions differ only in speed.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from memlite.client import split_gets as split_gets_in_python
from memlite.core.build import extension

__all__ = [
    "NATIVE",
    "gather",
    "gather_in_python",
    "interleave",
    "interleave_in_python",
    "split_gets",
    "split_gets_in_python",
]

_VERSION: Final = 9
"""`_native.c` has the same version."""

NATIVE: Final[Any] = extension("memlite.proxy._native", _VERSION)
"""The C module; None if it is not used."""


def gather_in_python(owners: list[Any], values: list[bytes]) -> dict[Any, list[bytes]]:
    """Return the values of each owner, in order; there are as many owners as values."""
    found: dict[Any, list[bytes]] = {}
    for owner, value in zip(owners, values, strict=True):
        if owner in found:
            found[owner].append(value)
        else:
            found[owner] = [value]
    return found


def interleave_in_python(
    owners: list[Any], parts: dict[Any, list[bytes]], each: bytes, last: bytes
) -> bytes:
    """Return pieces in the order of their owners; this undoes `gather`.

    Args:
        owners: the owner of each piece; owners are told apart by identity.
        parts: the pieces of each owner, at least as many as it has entries in `owners`.
        each: the bytes after each piece.
        last: the bytes after all pieces.
    """
    iterators = dict(zip(parts, map(iter, parts.values()), strict=True))
    pieces = [next(iterators[owner]) for owner in owners]
    if not each:
        return b"".join([*pieces, last])
    return each.join([*pieces, last])


_Split: TypeAlias = Callable[[bytes], tuple[list[bytes], int]]
_Gather: TypeAlias = Callable[[list[Any], list[bytes]], dict[Any, list[bytes]]]
_Interleave: TypeAlias = Callable[[list[Any], dict[Any, list[bytes]], bytes, bytes], bytes]

split_gets: Final[_Split] = split_gets_in_python if NATIVE is None else NATIVE.split_gets
gather: Final[_Gather] = gather_in_python if NATIVE is None else NATIVE.gather
interleave: Final[_Interleave] = interleave_in_python if NATIVE is None else NATIVE.interleave
