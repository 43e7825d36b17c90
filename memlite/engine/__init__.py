"""memcached's semantics, once for every protocol and every backend."""

__all__ = [
    "Engine",
    "MemoryEngine",
    "MetaEngine",
    "Mode",
    "Observer",
    "Outcome",
]

from memlite.engine.engine import Engine
from memlite.engine.memory import MemoryEngine
from memlite.engine.meta import MetaEngine
from memlite.engine.observer import Observer
from memlite.engine.semantics import Mode, Outcome
