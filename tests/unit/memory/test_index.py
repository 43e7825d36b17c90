"""The index behaves like a dict, however many items it has and however many come and go."""

import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memlite.memory import Item
from memlite.memory.index import FEW, Index

LINES = st.integers(0, 60).map(lambda number: b"get %d\r\n" % number)


class AnIndex(RuleBasedStateMachine):
    @initialize(few=st.sampled_from([0, 3, FEW]))
    def start(self, few):
        self.index, self.model = Index(few), {}
        self.few = few

    @rule(line=LINES)
    def put(self, line):
        self.model[line] = item = Item(b"", 0)
        self.index.put(line, item)

    @rule(line=LINES)
    def pop(self, line):
        assert self.index.pop(line) is self.model.pop(line, None)

    @rule(wanted=st.sets(LINES))
    def remove(self, wanted):
        lines = [line for line in self.model if line in wanted]
        self.index.remove([(line, self.model.pop(line), 0) for line in lines])

    def teardown(self):
        """Empty the index, as a flush does."""
        if not hasattr(self, "index"):
            return
        while (gone := self.index.popitem()) is not None:
            line, item = gone
            assert self.model.pop(line) is item
        assert not self.model
        assert len(self.index) == 0

    @rule(all_of_it=st.booleans())
    def tidy(self, all_of_it):
        get = self.index.get
        assert self.index.tidy(all_of_it=all_of_it) == (self.index.get is not get)
        assert not self.index.single or len(self.index) <= self.few

    @invariant()
    def it_has_what_the_model_has(self):
        if not hasattr(self, "index"):
            return
        assert len(self.index) == len(self.model)
        lines = [b"get %d\r\n" % number for number in range(62)]
        assert list(self.index.get_all(lines)) == list(map(self.model.get, lines))
        assert list(map(self.index.get, lines)) == list(map(self.model.get, lines))
        if self.index.single:
            assert self.index.lines() == list(self.model)


TestAnIndex = AnIndex.TestCase
TestAnIndex.settings = settings(max_examples=50, stateful_step_count=50)


@pytest.mark.parametrize("items", [10, FEW, FEW + 1, 300_000])
def test_the_memory_of_the_index_is_that_of_its_dicts(items):
    index = Index()
    for number in range(items):
        index.put(b"get %d\r\n" % number, Item(b"", 0))
    index.tidy()
    assert index.single == (items <= FEW)
    dicts = sum(sys.getsizeof(one) for one in index._dicts)
    assert dicts <= index.memory <= dicts + 251 * 110
    # A dict of this size takes between 27 and 54 bytes per item.
    assert items < 100 or 27 <= dicts / items < 56


@pytest.mark.slow
def test_no_dict_becomes_large():
    index = Index()
    for number in range(1_000_000):
        index.put(b"get key:%016d\r\n" % number, Item(b"", 0))
        if number % 1000 == 0:
            index.tidy()
    counts = sorted(map(len, index._dicts))
    assert len(counts) == 251
    # The standard deviation is 63.
    assert 3984 - 6 * 63 < counts[0] <= counts[-1] < 3984 + 6 * 63
