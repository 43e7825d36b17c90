"""memcached's semantics, once for every protocol."""

__all__ = ["Engine", "Outcome"]

from memlite.engine.engine import Engine
from memlite.engine.semantics import Outcome
