"""Items in memory: each is its own reply to a get, in a table bounded in bytes."""

__all__ = ["FullItem", "Item", "ItemTable", "Part", "nameable"]

from memlite.memory.item import FullItem, Item, Part, nameable
from memlite.memory.table import ItemTable
