"""Policies that choose which items to evict."""

__all__ = ["POLICIES", "Lru", "Policy", "S3Fifo", "cost", "weigh"]

from memlite.memory.eviction.lru import Lru
from memlite.memory.eviction.policy import Policy, cost, weigh
from memlite.memory.eviction.s3fifo import S3Fifo

POLICIES: dict[str, type[Policy]] = {"s3fifo": S3Fifo, "lru": Lru}
"""By their names in ``--eviction``."""
