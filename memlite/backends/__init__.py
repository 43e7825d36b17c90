"""Where items are kept."""

__all__ = [
    "ANY",
    "RENEWED",
    "UNKNOWN",
    "USED",
    "Anything",
    "Backend",
    "Item",
    "ItemTable",
    "Marks",
    "Unknown",
    "nameable",
    "wire_form",
]

from memlite.backends.base import (
    ANY,
    RENEWED,
    UNKNOWN,
    USED,
    Anything,
    Backend,
    Item,
    Marks,
    Unknown,
    nameable,
    wire_form,
)
from memlite.backends.table import ItemTable
