"""Partial replies: what the parameter ``fields`` leaves of a resource.

Source of the rules: https://cloud.google.com/storage/docs/json_api#partial-response.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from memlite.testing.gcs_emulator.errors import GcsError

__all__ = ["keep", "parse_fields"]

_TOKEN = re.compile(r"\w+|.", re.ASCII | re.DOTALL)
_NAME = re.compile(r"\w+|\*", re.ASCII)


@lru_cache(maxsize=64)
def parse_fields(text: str) -> Mapping[str, Any]:
    """Return what ``items(name,size),nextPageToken`` or ``items/name`` asks to keep.

    Returns:
        The fields, and for each of them in turn those to keep in it. An empty mapping stands for
        all of them, the name ``*`` for any.

    Raises:
        GcsError: 400 when it is not understood.
    """
    # Taken from the end, where an empty token stands for the end of the text.
    tokens = ["", *reversed(_TOKEN.findall(text))]
    try:
        fields = _parse_list(tokens)
    except ValueError:
        tokens.append(text)
    if tokens != [""]:
        raise GcsError.invalid(f"Invalid field selection {text}", "fields")
    return fields


def _parse_list(tokens: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    while True:
        fields |= _parse_field(tokens)
        if tokens[-1] != ",":
            return fields
        tokens.pop()


def _parse_field(tokens: list[str]) -> dict[str, Any]:
    name = tokens.pop()
    if not _NAME.fullmatch(name):
        raise ValueError
    inner: dict[str, Any] = {}
    if tokens[-1] == "/":
        tokens.pop()
        inner = _parse_field(tokens)
    elif tokens[-1] == "(":
        tokens.pop()
        inner = _parse_list(tokens)
        if tokens.pop() != ")":
            raise ValueError
    return {name: inner}


def keep(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return what is left of a JSON value; of a list, of each of its elements."""
    if not fields:
        return value
    if isinstance(value, list):
        return [keep(element, fields) for element in value if isinstance(element, dict)]
    anything = fields.get("*")
    kept = {}
    for name, inside in value.items():
        some = fields.get(name, anything)
        # What is asked for inside a plain value is not there.
        if some == {} or (some and isinstance(inside, dict | list)):
            kept[name] = keep(inside, some)
    return kept
