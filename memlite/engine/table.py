"""What the engine works on."""

from typing import TypeAlias

from memlite.backends import ItemTable
from memlite.engine.transaction import Transaction

__all__ = ["Table"]

# A union and no protocol: what is compiled calls the methods of these two directly.
Table: TypeAlias = ItemTable | Transaction
"""Items by key, at hand without waiting.

Served from memory it is all of them; before a backend that must be asked, those of one command.
Whether an item that `get` or `find` returns has expired is the engine's to judge.
"""
