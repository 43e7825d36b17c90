"""Where items are kept."""

__all__ = ["USED", "Item", "MemoryBackend"]

from memlite.backends.base import USED, Item
from memlite.backends.memory import MemoryBackend
