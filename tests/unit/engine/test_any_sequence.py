"""Random sequences of commands on the engine, compared with a dict."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memlite.engine import Outcome
from tests.unit.engine.fixture import DAY, START, Fixture

keys = st.sampled_from([b"a", b"b", b"c"])
values = st.sampled_from([b"", b"1", b"10", b"18446744073709551615", b" 7", b"text"])
exptimes = st.sampled_from([0, 0, 0, 1, 3, 10, -1, 30 * DAY, int(START) + 5, 30 * DAY + 1])
flag_words = st.integers(0, 2**32 - 1)


class Entry:
    def __init__(self, value, flags, expires):
        self.value, self.flags, self.expires = value, flags, expires
        self.unique = None


class EngineMachine(RuleBasedStateMachine):
    """Any sequence of commands and waits, compared with a dict that forgets nothing by itself."""

    @initialize(cas=st.booleans())
    def start(self, cas):
        self.one = Fixture(cas=cas)
        self.engine = self.one.engine
        self.cas_enabled = cas
        self.now = START
        self.flush_at = None
        self.model = {}
        self.uniques = {}  # every item's unique seen so far, with its entry
        self.gets = self.sets = 0

    def expires(self, exptime):
        if exptime == 0:
            return float("inf")
        if exptime < 0:
            return 0
        return exptime if exptime > 30 * DAY else self.now + exptime

    def entry(self, key):
        entry = self.model.get(key)
        return entry if entry is not None and entry.expires > self.now else None

    def store(self, key, value, flags, expires):
        self.model[key] = Entry(value, flags, expires)

    @rule(key=keys)
    def fetch(self, key):
        self.gets += 1
        self.compare(self.engine.fetch(key), self.entry(key))

    @rule(key=keys, exptime=exptimes)
    def fetch_and_touch(self, key, exptime):
        entry = self.entry(key)
        self.compare(self.engine.fetch_and_touch(key, exptime), entry)
        if entry is not None:
            entry.expires = self.expires(exptime)

    def compare(self, item, entry):
        assert (item is None) == (entry is None)
        if entry is None:
            return
        assert (item.value, item.flags) == (entry.value, entry.flags)
        unique = self.engine.unique(item)
        if not self.cas_enabled:
            assert unique == 0
            return
        assert entry.unique in (None, unique)
        entry.unique = unique
        assert self.uniques.setdefault(unique, entry) is entry

    @rule(key=keys, value=values, flags=flag_words, exptime=exptimes)
    def set(self, key, value, flags, exptime):
        self.sets += 1
        self.engine.set(key, flags, exptime, value)
        self.store(key, value, flags, self.expires(exptime))

    @rule(
        name=st.sampled_from(["add", "replace", "append", "prepend"]),
        key=keys, value=values, flags=flag_words, exptime=exptimes,
    )  # fmt: skip
    def store_if(self, name, key, value, flags, exptime):
        self.sets += 1
        outcome = getattr(self.engine, name)(key, flags, exptime, value)
        entry = self.entry(key)
        if (entry is None) != (name == "add"):
            assert outcome is Outcome.NOT_STORED
            return
        assert outcome is Outcome.STORED
        if name == "append":
            self.store(key, entry.value + value, entry.flags, entry.expires)
        elif name == "prepend":
            self.store(key, value + entry.value, entry.flags, entry.expires)
        else:
            self.store(key, value, flags, self.expires(exptime))

    @rule(key=keys, value=values, exptime=exptimes, data=st.data())
    def cas(self, key, value, exptime, data):
        self.sets += 1
        unique = data.draw(st.sampled_from([0, 2**64 - 1, *self.uniques]))
        entry = self.entry(key)
        # The model learns an entry's unique only by reading it, which changes nothing here.
        if entry is not None:
            self.compare(self.engine.peek(key), entry)
        outcome = self.engine.cas(key, 0, exptime, value, unique)
        if entry is None:
            assert outcome is Outcome.NOT_FOUND
        elif not self.cas_enabled or entry.unique != unique:
            assert outcome is Outcome.EXISTS
        else:
            assert outcome is Outcome.STORED
            self.store(key, value, 0, self.expires(exptime))

    @rule(key=keys)
    def delete(self, key):
        entry = self.entry(key)
        assert self.engine.delete(key) is (entry is not None)
        self.model.pop(key, None)

    @rule(key=keys, delta=st.sampled_from([0, 1, 9, 2**63, 2**64 - 1]), up=st.booleans())
    def count(self, key, delta, up):
        result = (self.engine.incr if up else self.engine.decr)(key, delta)
        entry = self.entry(key)
        if entry is None:
            assert result is Outcome.NOT_FOUND
            return
        digits = entry.value.split()[:1]
        if not digits or not digits[0].isdigit() or int(digits[0]) >= 2**64:
            assert result is Outcome.NON_NUMERIC
            return
        old = int(digits[0])
        number = (old + delta) % 2**64 if up else max(0, old - delta)
        assert result == number
        stored = str(number).encode()
        stored += b" " * (len(entry.value) - len(stored))
        self.store(key, stored, entry.flags, entry.expires)

    @rule(key=keys, exptime=exptimes)
    def touch(self, key, exptime):
        entry = self.entry(key)
        assert self.engine.touch(key, exptime) is (entry is not None)
        if entry is not None:
            entry.expires = self.expires(exptime)

    @rule(seconds=st.sampled_from([0.5, 1, 2, 10, 31 * DAY]))
    def wait(self, seconds):
        self.now += seconds
        if self.flush_at is not None and self.flush_at <= self.now:
            self.model.clear()
            self.flush_at = None
        self.one.wait(seconds)

    @rule(exptime=st.sampled_from([0, -1, 1, 5]))
    def flush_all(self, exptime):
        self.engine.flush_all(exptime)
        if exptime <= 0:
            self.model.clear()
            self.flush_at = None
        else:
            self.flush_at = self.now + exptime

    @rule()
    def crawl(self):
        self.engine.crawl()
        while self.engine.sweep(2):
            pass
        self.model = {key: entry for key, entry in self.model.items() if self.entry(key)}
        assert {key for key, _ in self.engine.table.scan()} == set(self.model)

    @invariant()
    def every_key_is_what_the_model_says(self):
        for key in (b"a", b"b", b"c"):
            self.compare(self.engine.peek(key), self.entry(key))

    @invariant()
    def counters_add_up(self):
        counters = self.one.counters
        assert counters.cmd_get == self.gets
        assert counters.cmd_set == self.sets
        misses = counters.get_misses + counters.delete_misses + counters.touch_misses
        misses += counters.incr_misses + counters.decr_misses
        # As in memcached, a set that finds an expired or flushed item counts it too.
        assert counters.get_expired + counters.get_flushed <= misses + counters.cmd_set
        assert counters.evictions == 0


TestAnySequence = EngineMachine.TestCase
TestAnySequence.settings = settings(max_examples=80, stateful_step_count=40)
