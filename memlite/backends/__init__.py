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
    "Unknown",
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
    Unknown,
    wire_form,
)
from memlite.backends.table import ItemTable
