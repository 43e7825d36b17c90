"""The tables an engine can work on."""

from typing import TypeAlias

from memlite.engine.transaction import Transaction
from memlite.memory import ItemTable

__all__ = ["Table"]

# A union, not a Protocol, so that compiled code calls the methods of the two directly.
Table: TypeAlias = ItemTable | Transaction
"""Items by key, available without waiting.

In memory, a table has all items; on a backend, the items of one command. The engine checks whether
an item that `get` or `find` returns has expired.
"""
