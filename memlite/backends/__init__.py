"""Where items are kept."""

__all__ = ["Item", "MemoryBackend"]

from memlite.backends.base import Item
from memlite.backends.memory import MemoryBackend
