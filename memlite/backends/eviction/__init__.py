"""Which items make room for new ones."""

__all__ = ["POLICIES", "Lru", "Policy", "S3Fifo", "cost", "weigh"]

from memlite.backends.eviction.lru import Lru
from memlite.backends.eviction.policy import Policy, cost, weigh
from memlite.backends.eviction.s3fifo import S3Fifo

POLICIES: dict[str, type[Policy]] = {"s3fifo": S3Fifo, "lru": Lru}
"""By the names ``--eviction`` takes."""
