"""Partial responses: select parts of a resource with the parameter ``fields``.

Reference: https://cloud.google.com/storage/docs/json_api#partial-response.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from memlite.testing.gcs_emulator.errors import GcsError

__all__ = ["parse_fields", "select_fields"]

_TOKEN = re.compile(r"\w+|.", re.ASCII | re.DOTALL)
_NAME = re.compile(r"\w+|\*", re.ASCII)


@lru_cache(maxsize=64)
def parse_fields(text: str) -> Mapping[str, Any]:
    """Parse a selection such as ``items(name,size),nextPageToken`` or ``items/name``.

    Returns:
        The selected fields, each with the selection of its subfields. An empty mapping selects
        everything, and the name ``*`` matches any field.

    Raises:
        GcsError: 400 if the selection is malformed.
    """
    # A stack of tokens; the empty token at the bottom marks the end of the text.
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


def select_fields(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return the selected fields of a JSON value, or of every element of a list."""
    if not fields:
        return value
    if isinstance(value, list):
        return [select_fields(element, fields) for element in value if isinstance(element, dict)]
    wildcard = fields.get("*")
    selected = {}
    for name, member in value.items():
        subfields = fields.get(name, wildcard)
        # A scalar has no subfields, so selecting one of them selects nothing.
        if subfields == {} or (subfields and isinstance(member, dict | list)):
            selected[name] = select_fields(member, subfields)
    return selected
