"""Where items are stored."""

__all__ = ["ANY", "UNKNOWN", "Anything", "Backend", "MetaFlags", "Record", "Unknown", "Versioned"]

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.record import Record, Versioned
from memlite.core.meta_flags import MetaFlags
