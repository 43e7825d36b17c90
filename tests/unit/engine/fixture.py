"""An engine over the memory backend, with a clock that the tests advance."""

from memlite.core.clock import Clock
from memlite.engine import MemoryEngine
from memlite.memory import FullItem, Item
from memlite.memory.eviction import Lru, cost
from memlite.memory.item import wire_form
from memlite.memory.table import ItemTable
from memlite.telemetry.counters import Counters

START = 1_800_000_000.0
DAY = 86400


class Fixture:
    """An engine and its clock, started at `START`."""

    def __init__(self, limit=2**20, *, evict=True, policy=Lru, **options):
        self.monotonic = 0.0
        self.clock = Clock(lambda: self.monotonic, lambda: START)
        self.counters = Counters()
        # The limit applies to the items, without the overhead of an empty table.
        empty = ItemTable(0, policy=policy).overhead
        table = ItemTable(limit + empty, evict=evict, policy=policy)
        self.engine = MemoryEngine(table, self.clock, self.counters, **options)

    def wait(self, seconds):
        """Advance the clock, and tick as the server does."""
        self.monotonic += seconds
        self.clock.tick()
        self.engine.tick()

    def set(self, key, value=b"value", flags=0, exptime=0):
        self.engine.set(key, flags, exptime, value)

    def value(self, key):
        """Return a key's value without counting anything, None when it is absent."""
        item = self.engine.peek(key)
        return None if item is None else item.value

    def counted(self, *names):
        return tuple(getattr(self.counters, name) for name in names)


def size_of(key, value, flags=0, expires=0.0):
    """Return the bytes the backend accounts for an item."""
    wire = wire_form(key, flags, value)
    return cost(key, FullItem(wire, 0, expires) if expires else Item(wire, 0))
