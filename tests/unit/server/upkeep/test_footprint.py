"""The memory of the process against its limit (``-m``), with simulated memory use."""

import mmap
from pathlib import Path

import pytest

from memlite.config import Config
from memlite.server.server import Server
from memlite.server.upkeep import footprint as module
from memlite.server.upkeep.footprint import Footprint, resident

MEGABYTE = 1024 * 1024
LIMIT = 64 * MEGABYTE
SPARE = LIMIT // 12


class Process:
    """A server of 64 MB, with a simulated clock, memory use and loop."""

    def __init__(self, monkeypatch, megabytes=64):
        self.server = Server(Config(memory_limit=megabytes), [])
        self.server.scheduler.loop = self
        self.soon = []
        self.woken = 0
        self.server.upkeep.sweeper.wake = self.wake
        self.memory = 20 * MEGABYTE
        self.free = 0  # bytes that could be returned to the system
        self.time = 100.0
        self.trims = 0
        monkeypatch.setattr(module, "give_back", self.give_back)
        self.footprint = Footprint(
            self.server.table,
            self.server.engine,
            resident=lambda: self.memory,
            elsewhere=self.server._memory_elsewhere,
            before_pass=self.server.hotkeys.compact,
            sweep_soon=self.server.upkeep.sweep_soon,
            now=lambda: self.time,
        )

    def call_soon(self, function):
        self.soon.append(function)

    def wake(self):
        self.woken += 1

    def give_back(self):
        self.trims += 1
        self.time += 0.01
        self.memory -= self.free
        self.free = 0

    def measure(self, times=1):
        for _ in range(times):
            withheld = self.footprint.excess()
        return withheld


@pytest.fixture
def process(monkeypatch):
    return Process(monkeypatch)


def test_a_process_within_its_limit_is_left_alone(process):
    process.memory += LIMIT
    assert process.measure() == 0
    assert (process.trims, process.soon) == (0, [])


def test_free_memory_is_returned_before_items_are_evicted(process):
    process.memory += LIMIT + 20 * MEGABYTE
    process.free = 20 * MEGABYTE
    assert process.measure() == 0
    assert process.trims == 1


def test_memory_is_not_trimmed_repeatedly(process):
    process.memory += LIMIT + 20 * MEGABYTE
    for _ in range(100):
        process.measure()
        process.time += 0.001
    assert process.trims == 1
    process.time += 2  # 200 times as long as trimming took
    process.measure()
    assert process.trims == 2


def test_items_make_room_for_memory_that_cannot_be_returned(process):
    process.memory += LIMIT + SPARE + MEGABYTE
    for times in range(8):
        assert process.footprint.excess() == (times + 1) * MEGABYTE  # in steps
    assert process.measure(100) == 8 * MEGABYTE
    process.memory -= MEGABYTE
    assert process.measure() == 0


def test_at_most_half_of_the_limit_is_withheld(process):
    process.memory += 10 * LIMIT
    assert process.measure(100) == LIMIT // 2


def test_the_table_has_less_room_while_memory_is_withheld(process):
    table = process.server.table
    table.excess = process.footprint.excess
    process.memory += 2 * LIMIT
    for _ in range(100):
        table.measure()
    for number in range(3000):
        process.server.engine.set(b"%d" % number, 0, 0, b"v" * 20_000)
    assert LIMIT // 2 - MEGABYTE < table.used + table.overhead <= LIMIT // 2


def test_items_are_compacted_if_much_memory_is_unused(process):
    process.memory += LIMIT + SPARE
    process.measure()
    assert process.server.engine.compacting
    assert not process.woken  # the caller may hold an item now
    process.soon.pop()()
    assert process.woken == 1


def test_items_are_not_compacted_if_they_use_the_memory(process):
    table = process.server.table
    process.memory += LIMIT + SPARE
    table.used = LIMIT - table.overhead
    process.measure()
    assert not process.server.engine.compacting


def passes(process, seconds, helped=0):
    """Measure ten times a second; end each pass at once; return how many passes began."""
    begun = 0
    for _ in range(seconds * 10):
        process.measure()
        if process.soon:
            process.soon.clear()
            begun += 1
            while process.server.engine.sweep(100):
                pass
            process.memory -= helped
        process.time += 0.1
    return begun


def test_passes_continue_while_they_help(process):
    process.memory += 3 * LIMIT
    assert 20 <= passes(process, 10, helped=2 * MEGABYTE) <= 34


def test_passes_that_do_not_help_become_rare(process):
    process.memory += 3 * LIMIT
    assert 3 <= passes(process, 10) <= 6
    assert 15 <= passes(process, 100) <= 25


def test_passes_are_rarer_with_more_items(process):
    for number in range(20_000):
        process.server.engine.set(b"%d" % number, 0, 0, b"")
    process.memory += 3 * LIMIT
    passes(process, 100)
    assert 2 <= passes(process, 100) <= 4


def test_other_small_objects_are_compacted_too(process):
    hotkeys = process.server.hotkeys
    hotkeys.record([b"a key"])
    before = hotkeys._sketch.top()[0][0]
    process.memory += LIMIT + SPARE
    process.measure()
    after = hotkeys._sketch.top()[0][0]
    assert (after, after is before) == (before, False)


def test_passes_resume_when_there_is_more_to_free(process):
    process.memory += 2 * LIMIT
    passes(process, 200)
    assert passes(process, 10) <= 3
    process.memory += 10 * MEGABYTE
    assert passes(process, 10) >= 4


def test_memory_of_connections_is_not_counted(process):
    process.memory += LIMIT + SPARE + 40 * MEGABYTE
    process.server.register.connections = set(range(10 * 1024))
    assert process.measure() == 0
    process.server.register.connections = set()
    process.server._large_values.promised = 40 * MEGABYTE
    assert process.measure() == 0


def test_a_small_cache_has_room_for_modules_loaded_later(monkeypatch):
    process = Process(monkeypatch, megabytes=1)
    process.memory += 4 * MEGABYTE
    assert process.measure() == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc")
def test_memory_is_read_from_the_system():
    tell = resident()
    before = tell()
    assert before > MEGABYTE
    # This memory does not come from the heap, which may have as much free memory.
    with mmap.mmap(-1, 20 * MEGABYTE) as more:
        for _ in range(20):  # bytes of that size may come from the heap, and stay there
            more.write(b"x" * MEGABYTE)
        assert tell() - before > 15 * MEGABYTE
    assert tell() - before < 10 * MEGABYTE


def test_without_a_measurement_nothing_is_monitored(monkeypatch):
    monkeypatch.setattr(module, "_STATM", "/proc/no/such/file")
    assert resident() is None
