"""Where items are kept."""

__all__ = [
    "ANY",
    "UNKNOWN",
    "Anything",
    "Backend",
    "FullItem",
    "Item",
    "ItemTable",
    "Marks",
    "Part",
    "Unknown",
    "nameable",
]

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.item import FullItem, Item, Marks, Part, nameable
from memlite.backends.table import ItemTable
