"""The encoding of objects in the store: JSON, so that people can read them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from memlite.core.errors import MemliteError

__all__ = ["DocumentError", "check", "decode", "encode"]

_FORMAT: Final = 1


class DocumentError(MemliteError):
    """An object in the store is invalid; the text says which and why."""


def encode(fields: Mapping[str, Any]) -> bytes:
    """Return the content of an object."""
    return json.dumps({"format": _FORMAT, **fields}, ensure_ascii=False).encode()


def decode(data: bytes) -> dict[str, Any]:
    """Return the fields of an object.

    Raises:
        ValueError: it is not an object of this version of memlite.
    """
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    if fields.pop("format", None) != _FORMAT:
        raise ValueError("written by another version of memlite")
    return fields


def check(right: bool, what: str) -> None:
    """Check a field.

    Raises:
        ValueError: it is wrong.
    """
    if not right:
        raise ValueError(f"{what} is wrong")
