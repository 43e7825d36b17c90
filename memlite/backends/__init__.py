"""Where items are kept."""

__all__ = [
    "ANY",
    "UNKNOWN",
    "Anything",
    "Backend",
    "Item",
    "ItemTable",
    "Marks",
    "Unknown",
    "nameable",
]

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.item import Item, Marks, nameable
from memlite.backends.table import ItemTable
