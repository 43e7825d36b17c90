"""A cache with a fixed number of equal-sized items, for comparing eviction policies."""

from memlite.memory.eviction import Lru, S3Fifo, weigh
from memlite.memory.eviction.ghost import Ghost
from memlite.memory.index import Index
from memlite.memory.item import MAIN, Item, wire_form
from memlite.memory.usage import MASK, Usage

USAGE = Usage()
WIRE = wire_form(b"", 0, b"v")
NEW = Item(WIRE, 0)


class ExactGhost(Ghost):
    """A ghost queue that remembers exactly the last keys, as in the paper."""

    def __init__(self, capacity):
        self._keys = {}
        self.exact = capacity
        super().__init__()

    def resize(self, capacity):
        """Leave the capacity as it is."""
        self.capacity = capacity

    def add(self, key):
        self._keys[key] = None
        while len(self._keys) > self.exact:
            del self._keys[next(iter(self._keys))]

    def take(self, key):
        return self._keys.pop(key, self) is None


class Cache:
    """Looks keys up and stores the misses, as an application would."""

    def __init__(self, places, policy="s3fifo", *, exact=False):
        self.places = places
        self.items = Index()
        self.evicted = []
        self._unit = weigh(self.key(0), NEW)
        if policy == "lru":
            self.policy = Lru(self.items)
        else:
            self.policy = S3Fifo(self.items, ExactGhost(places * 9 // 10) if exact else None)
        self.adapt()
        self._stored = 0

    def adapt(self):
        self.policy.adapt(self.places * self._unit)

    @staticmethod
    def key(number):
        return b"%015d" % number

    def access(self, number, times=1):
        """Return whether it was a hit; a miss stores the item."""
        hit = False
        for _ in range(times):
            hit = self._access(self.key(number))
        return hit

    def _access(self, key):
        item = self.policy.find(key)
        if item is not None:
            item.state = USAGE.read[item.state & MASK]
            return True
        item = Item(WIRE, 0)
        self.policy.recall(key, item)
        if len(self.items) >= self.places:
            self.evicted.append(self.evict())
        self.policy.admit(key, item, self._unit)
        self.items.put(key, item)
        self._stored += 1
        if not self._stored % 1000:
            self.adapt()
        return False

    def force(self, number):
        """Store an item in S3-FIFO's main queue."""
        item = Item(WIRE, 0)
        item.state |= MAIN
        self.policy.admit(self.key(number), item, self._unit)
        self.items.put(self.key(number), item)

    def evict(self):
        """Evict an item and return its number."""
        ((key, item, _),) = self.policy.evict(1, 1)
        assert self.items.pop(key) is item
        return int(key)

    def remove(self, number):
        key = self.key(number)
        item = self.items.pop(key)
        if item is not None:
            self.policy.remove(key, item, self._unit)

    def __contains__(self, number):
        return self.items.get(self.key(number)) is not None

    @property
    def queues(self):
        """The contents of the small queue and of the main queue."""
        small, main = self.policy._small.list(), self.policy._main.list()
        return [int(key) for key in small], [int(key) for key in main]
