"""Where items are kept."""

__all__ = ["RENEWED", "USED", "Item", "MemoryBackend"]

from memlite.backends.base import RENEWED, USED, Item
from memlite.backends.memory import MemoryBackend
