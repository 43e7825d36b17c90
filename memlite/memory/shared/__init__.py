"""Items shared by several processes: a table in one mapping, in Python and, if compiled, in C."""

__all__ = ["Mapping", "MemoryFile", "SharedTable", "native"]

from memlite.memory.shared.mapping import Mapping, SharedTable, native
from memlite.memory.shared.restart_file import MemoryFile
