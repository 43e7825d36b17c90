"""Tables for tests, and the invariants of a table."""

from memlite.memory import Item, ItemTable
from memlite.memory.eviction import Lru, S3Fifo, cost
from memlite.memory.item import FRESH_BITS, MAIN, FullItem, allocated, key_of, wire_form
from memlite.memory.usage import MASK, Usage

USAGE = Usage()


def place_bytes(keys, items):
    return sum(cost(key, items[key]) for key in keys if key in items)


class Store(ItemTable):
    """A table that records its evictions and is used as the engine uses it."""

    def __init__(self, limit=1_000_000, *, evict=True, policy=S3Fifo):
        self.evicted = []
        super().__init__(
            limit,
            evict=evict,
            on_evict=lambda gone: self.evicted.extend(
                (key_of(line), item) for line, item, _ in gone
            ),
            policy=policy,
        )

    def store(self, key, value=b"", expires=0.0, meta_flags=None):
        wire = wire_form(key, 0, value)
        old = self.find(key)
        if old is None:
            item = Item(wire, USAGE.fresh)
            if expires or meta_flags:
                item = FullItem(wire, USAGE.fresh, expires)
                item.meta_flags = meta_flags
            self.put(key, item)
            return item
        state = USAGE.used[old.state & FRESH_BITS]
        return self.overwrite(key, old, wire, expires, state, meta_flags)

    def use(self, *keys, times=1):
        for key in keys:
            for _ in range(times):
                item = self.find(key)
                item.state = USAGE.read[item.state & MASK]

    @property
    def gone(self):
        return [key for key, _ in self.evicted]

    @property
    def keys(self):
        return [key for key, _ in self.scan()]

    @property
    def queues(self):
        """The keys in the small queue and in the main queue, including those without an item."""
        small, main = self._policy._small.list(), self._policy._main.list()
        return list(map(key_of, small)), list(map(key_of, main))

    def check(self):
        """Check that all counts agree with each other."""
        items, policy = dict(self.scan()), self._policy
        assert self.used == sum(cost(key, item) for key, item in items.items())
        assert len(self) == len(items)
        if isinstance(policy, Lru):
            assert set(map(key_of, policy._order)) == set(items)
            assert len(policy) == len(items)
            return
        small, main = self.queues
        left = {key_of(line): queue for line, queue in policy._left.items()}
        assert len(policy) == len(small) + len(main) == len(items) + policy.places_left
        assert sorted([*small, *main]) == sorted([*items, *left])
        for queue, which in ((small, 0), (main, MAIN)):
            for key in queue:
                assert (left[key] if key in left else items[key].state & MAIN) == which
        assert policy._left_bytes == sum(2 * allocated(len(line)) + 8 for line in policy._left)
        assert policy._small_bytes == place_bytes(small, items)
        assert policy._main_bytes == place_bytes(main, items)


def full_of(*keys, spare=0, policy=S3Fifo, evict=True):
    """Return a store with room for exactly these keys plus `spare` bytes."""
    store = Store(policy=policy, evict=evict)
    for key in keys:
        store.store(key)
    store.shrink(store.limit)  # which also measures the overhead
    store.shrink(store.used + store.overhead + spare)
    assert not store.evicted
    assert store.keys == list(keys)
    return store
