"""Where items are stored."""

__all__ = [
    "ANY",
    "UNKNOWN",
    "Anything",
    "Backend",
    "MetaFlags",
    "Reader",
    "Record",
    "Unknown",
    "Versioned",
]

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Reader, Unknown
from memlite.backends.record import Record, Versioned
from memlite.core.meta_flags import MetaFlags
