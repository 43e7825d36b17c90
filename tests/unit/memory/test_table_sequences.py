"""Any sequence of operations on a table, compared with a dict that keeps everything."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memlite.backends.conversion import item_of
from memlite.backends.record import Record
from memlite.core.errors import OutOfMemoryError
from memlite.core.meta_flags import MetaFlags
from memlite.memory import FullItem, nameable
from memlite.memory.eviction import POLICIES, cost
from memlite.memory.index import FEW
from tests.unit.memory.tables import Store

keys = st.binary(min_size=1, max_size=2).filter(nameable) | st.sampled_from(
    [b"a", b"b", b"c", b"k" * 250]
)
values = st.binary(max_size=10) | st.integers(0, 3000).map(bytes)
expiries = st.sampled_from([0.0, 0.0, 1e9])
meta_flags = st.sampled_from([None, None, None, MetaFlags(won=True), MetaFlags(unique=5)])
limits = st.sampled_from([0, 5000, 6000, 9000, 20_000])
lengths = st.integers(0, 5)


class TableMachine(RuleBasedStateMachine):
    """The model holds the content of each key's item, and drops the keys reported as evicted."""

    @initialize(
        limit=limits,
        evict=st.booleans(),
        policy=st.sampled_from(sorted(POLICIES)),
        few=st.sampled_from([0, FEW]),
    )
    def start(self, limit, evict, policy, few):
        # The overhead of an index of many dicts that is almost empty.
        self.more = 60_000 if few == 0 else 0
        self.store = Store(limit + self.more, evict=evict, policy=POLICIES[policy])
        self.store._few = few
        self.store._begin()
        self.evict = evict
        self.model = {}
        self.may_be_over = True
        self.shown = None

    def content(self, item):
        return (item.value, item.expires, item.meta_flags)

    def take_out_evicted(self):
        for key, item in self.store.evicted:
            assert self.model.pop(key) == self.content(item)
            if self.shown is not None:
                self.shown.pop(key, None)
        self.store.evicted.clear()

    def forget(self, key):
        self.model.pop(key, None)
        # A removal may pass over places itself, which a walk then misses.
        self.shown = None

    @rule(key=keys, value=values, expires=expiries, more=meta_flags)
    def put(self, key, value, expires, more):
        before = dict(self.store.scan())
        used = self.store.used
        try:
            item = self.store.store(key, value, expires, more)
        except OutOfMemoryError:
            assert not self.store.evicted
            assert (dict(self.store.scan()), self.store.used) == (before, used)
            return
        freed = sum(cost(*one) for one in self.store.evicted)
        self.take_out_evicted()
        assert self.store.get(key) is item
        self.model[key] = (value, expires, more)
        if key in before:
            self.shown = None  # it may have been removed, too
        if self.evict and key not in before:
            # restore and update_metadata may add too many bytes to evict at once.
            excess = self.store.used + self.store.overhead - self.store.limit
            self.may_be_over = excess > 0
            assert excess <= 0 or freed > 16 * 1024

    @rule(key=keys, expires=expiries, more=meta_flags, drop_version=st.booleans())
    def update_metadata(self, key, expires, more, drop_version):
        item = self.store.get(key)
        if item is not None:
            altered = self.store.update_metadata(
                key, item, expires, more, drop_version=drop_version
            )
            assert self.store.get(key) is altered
            self.model[key] = (item.value, expires, more)
            self.may_be_over = True  # until something is stored

    @rule(key=keys, version=st.integers(1, 1 << 64))
    def number(self, key, version):
        item = self.store.get(key)
        if item is not None:
            item = self.store.set_version(item, version)
            assert self.store.get(key) is item
            assert item.version == version
            self.may_be_over = True

    @rule(key=keys)
    def delete(self, key):
        was_there = key in self.model
        item = self.store.delete(key)
        assert (item is not None) is was_there
        self.forget(key)

    @rule(key=keys, value=st.none() | values)
    def restore(self, key, value):
        self.store.restore(key, None if value is None else item_of(Record(key, value), FullItem))
        self.forget(key)
        if value is not None:
            self.model[key] = self.content(item_of(Record(key, value), FullItem))
        self.may_be_over = True

    @precondition(lambda self: self.model)
    @rule(data=st.data(), times=st.integers(1, 4))
    def use(self, data, times):
        self.store.use(data.draw(st.sampled_from(sorted(self.model))), times=times)

    @rule()
    def flush(self):
        self.store.flush()
        self.model.clear()
        self.shown = None

    @rule(at_most=lengths)
    def reclaim(self, at_most):
        overhead = self.store.overhead
        assert self.store.reclaim(at_most) <= at_most
        self.take_out_evicted()
        self.may_be_over |= self.store.overhead > overhead

    @rule(key=keys)
    def pop_flushed(self, key):
        self.store.pop_flushed(key)

    @rule(limit=limits)
    def shrink(self, limit):
        self.store.shrink(limit + self.more)
        self.take_out_evicted()
        self.may_be_over = not self.evict or len(self.store) > 0

    @rule(at_most=st.integers(1, 5), drop=st.booleans())
    def walk(self, at_most, drop):
        """Walk over some items and remove some; a full round shows every item that stayed."""
        seen = []
        passed = self.store.walk(at_most, lambda key, item: seen.append((key, item)))
        assert len(seen) <= passed or passed < at_most
        assert len(seen) <= at_most
        for key, item in seen:
            assert self.store.get(key) is item
            if self.shown is not None:
                self.shown.pop(key, None)
        if passed < at_most:
            assert not self.shown  # nothing was missed
            self.shown = dict.fromkeys(self.model)
        if drop and seen:
            self.delete(seen[0][0])

    @rule(at_most=st.integers(1, 5))
    def compact(self, at_most):
        overhead = self.store.overhead
        self.store.compact(at_most)
        self.take_out_evicted()
        self.may_be_over |= self.store.overhead > overhead
        self.shown = None  # it advances as a walk does

    @rule(excess=st.sampled_from([0, 0, 1000]))
    def measure(self, excess):
        self.store.excess = lambda: excess
        overhead = self.store.overhead
        self.store.measure()
        # The growth of the dict may only be measured now; the next store makes room for it.
        self.may_be_over |= self.store.overhead > overhead

    @invariant()
    def holds_what_the_model_holds(self):
        assert {key: self.content(item) for key, item in self.store.scan()} == self.model

    @invariant()
    def all_books_agree(self):
        self.store.check()
        assert self.store.used == sum(cost(key, item) for key, item in self.store.scan())

    @invariant()
    def the_limit_is_kept(self):
        assert (
            self.may_be_over
            or not self.model
            or self.store.used + self.store.overhead <= self.store.limit
        )

    def teardown(self):
        """Check that all remaining items can be freed."""
        if not hasattr(self, "store"):
            return
        for key in self.store.list_keys():
            self.store.delete(key)
        for _ in range(10_000):
            if self.store.walk(100, lambda key, item: pytest.fail("none is left")) < 100:
                break
        self.store.walk(10_000, lambda key, item: None)
        self.store.walk(10_000, lambda key, item: None)
        self.store.reclaim(1_000_000)
        assert (self.store.used, len(self.store), self.store._garbage) == (0, 0, [])
        self.store.check()
        assert len(self.store._policy) == 0


TestAnySequence = TableMachine.TestCase
TestAnySequence.settings = settings(max_examples=80, stateful_step_count=50)
