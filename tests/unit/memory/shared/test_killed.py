"""A worker is killed before each of its writes to the shared table; the others continue.

The tests run in a separate process. Workers are forked a thousand times, and forking a process
that has collected all tests takes several times as long as forking one that has imported only
this module.
"""

import ctypes
import functools
import importlib.machinery
import importlib.util
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import pytest

from memlite.memory.item import wire_form
from memlite.memory.shared import Mapping, SharedTable, python_table
from memlite.memory.shared.layout import (
    EVICTING,
    FREE,
    KEEP,
    OPEN,
    PARKED,
    PARKED_AT,
    SEALED,
    SEGMENT_HEADER,
    STEPS_AT,
)
from tests.support.paths import ROOT

SIZE = 1 << 18
ITEM = 4000
LENGTH = 900
MOST = 60
"""If there are more points, only every second or third is tried."""
COMPILER = shutil.which("gcc")
SOURCE = ROOT / "memlite" / "memory" / "shared" / "_native.c"
Act = Callable[[SharedTable], object]
Items = dict[bytes, bytes]


class Kind(Protocol):
    """One of the two tables, and the means to kill a process in it."""

    def attach(self, mapping: Mapping) -> SharedTable:
        """Return a table on a mapping."""

    def points(self, mapping: Mapping, act: Callable[[], object]) -> list[int]:
        """Return the points at which the process can be killed while it runs `act`."""

    def arm(self, mapping: Mapping, point: int) -> None:
        """Make this process be killed at a point."""


class InPython:
    """The table in Python: the process is killed before a line that follows a change."""

    def attach(self, mapping: Mapping) -> SharedTable:
        return mapping.attach()

    def points(self, mapping: Mapping, act: Callable[[], object]) -> list[int]:
        sums = [zlib.crc32(mapping._memory)]
        _trace(lambda: sums.append(zlib.crc32(mapping._memory)))
        try:
            act()
        finally:
            sys.settrace(None)
        return [at for at in range(1, len(sums)) if sums[at] != sums[at - 1]]

    def arm(self, mapping: Mapping, point: int) -> None:
        passed = 0

        def step() -> None:
            nonlocal passed
            passed += 1
            if passed == point:
                os.kill(os.getpid(), signal.SIGKILL)

        _trace(step)


def _trace(step: Callable[[], object]) -> None:
    """Call `step` before each line of python_table.py."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != python_table.__file__:
            return None
        if event == "line":
            step()
        return trace

    sys.settrace(trace)


class InC:
    """The table in C: the process is killed before a write to the memory."""

    def __init__(self, module: Path) -> None:
        loader = importlib.machinery.ExtensionFileLoader("killed._native", str(module))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        self._module = importlib.util.module_from_spec(spec)
        loader.exec_module(self._module)
        self._killing = ctypes.CDLL(str(module))
        self._killing.kill_in.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
        self._killing.stores_so_far.restype = ctypes.c_long

    def attach(self, mapping: Mapping) -> SharedTable:
        table: SharedTable = self._module.Table(mapping._memory)
        return table

    def points(self, mapping: Mapping, act: Callable[[], object]) -> list[int]:
        self.arm(mapping, -1)
        act()
        return list(range(self._killing.stores_so_far()))

    def arm(self, mapping: Mapping, point: int) -> None:
        memory = (ctypes.c_char * SIZE).from_buffer(mapping._memory)
        self._killing.kill_in(ctypes.addressof(memory), SIZE, point)


@functools.cache
def in_c(folder: Path) -> InC:
    """Compile the table with instrumented writes."""
    module = folder / "_native.so"
    command = [str(COMPILER), "-std=c11", "-O1", "-fPIC", "-pthread", "-c"]
    include = f"-I{sysconfig.get_path('include')}"
    table, killing = folder / "table.o", folder / "killing.o"
    subprocess.run([*command, "-fsanitize=thread", include, SOURCE, "-o", table], check=True)
    subprocess.run([*command, ROOT / "tests/support/killing.c", "-o", killing], check=True)
    subprocess.run([str(COMPILER), "-shared", table, killing, "-o", module], check=True)
    return InC(module)


def line(key: bytes) -> bytes:
    return b"get %b\r\n" % key


def reply(key: bytes, number: int, length: int = LENGTH) -> bytes:
    return wire_form(key, 0, b"%08d" % number * (length // 8))


def put(table: SharedTable, key: bytes, new: bytes) -> int:
    return table.store(line(key), new, 0.0, None, 0, b"")


def segments(mapping: Mapping) -> Iterator[tuple[int, int, int]]:
    """Yield state, owner and bytes used of each segment."""
    layout = mapping.layout
    headers = mapping._view[layout.headers_at : layout.segments_at].cast("I")
    for at in range(layout.segments):
        state, owner, used = headers[SEGMENT_HEADER // 4 * at + 6 :][:3]
        yield state, owner, used


def states(mapping: Mapping) -> list[int]:
    return [state for state, _, _ in segments(mapping)]


@dataclass
class Scene:
    """A table of two workers, one of which is killed during an action."""

    kind: Kind
    evicts: int = 1
    loses: int = 0  # items that may be evicted

    def __post_init__(self) -> None:
        self.mapping = Mapping(SIZE, ITEM, 2, compiled=False)
        self.kind.attach(self.mapping).init_locks()
        self.tables = self.both()
        self.items: Items = {}
        self.new: Items = {}

    def both(self) -> list[SharedTable]:
        return [self.join(0), self.join(1)]

    def join(self, worker: int) -> SharedTable:
        table = self.kind.attach(self.mapping)
        table.evicts = self.evicts
        table.attach(worker)
        return table

    def put(self, key: bytes, new: bytes, worker: int = 0) -> None:
        assert put(self.tables[worker], key, new) > 0
        self.items[key] = new

    def fill(self, times: int) -> None:
        """Store each key `times` times, until the first worker's next store must free a segment."""
        number = 0
        while not self.is_full():
            key = b"key-%d" % (number // times)
            self.put(key, reply(key, number), number < 20)
            number += 1

    def fill_until_step(self, times: int) -> None:
        """Store each key `times` times, until the first worker's next store evicts in a step."""
        number = 0
        while not self.mapping._view[STEPS_AT] or self.must_open():
            key = b"key-%d" % (number // times)
            self.put(key, reply(key, number))
            number += 1

    def is_full(self) -> bool:
        ready = [state for state, _, used in segments(self.mapping) if state == OPEN and not used]
        return self.must_open() and states(self.mapping).count(FREE) + len(ready) < 2

    def must_open(self) -> bool:
        """Return whether the first worker's next store has to open a segment."""
        own = [used for state, owner, used in segments(self.mapping) if (state, owner) == (OPEN, 0)]
        return self.mapping.layout.segment_size - sum(own) < LENGTH + 100

    def kill_everywhere(self, act: Act) -> int:
        """Kill the first worker at each possible point; return the number of points."""
        self.tables = self.both()
        self.before = self.mapping._memory[:]
        points = self.kind.points(self.mapping, lambda: act(self.tables[0]))
        for count, point in enumerate(points[:: len(points) // MOST + 1]):
            self.mapping._memory[:] = self.before
            one, other = self.both()
            self.kill(act, one, point)
            if PARKED in states(self.mapping) and count % 3:
                other.unpark(states(self.mapping).index(PARKED))  # before anything else
            self.check(first=count % 2)
        return len(points)

    def kill(self, act: Act, table: SharedTable, point: int) -> None:
        child = os.fork()
        if not child:
            try:
                self.kind.arm(self.mapping, point)
                act(table)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    def check(self, first: int) -> None:
        """Check that nothing is lost, whether the other worker or the replacement comes first."""
        mapping, left = self.mapping, dict(self.items)
        tables: list[SharedTable] = []
        if first:
            tables.append(self.join(1))
            for key in list(left)[:12]:
                if key not in self.new:
                    left[key] = reply(key, 99)
                    assert put(tables[0], key, left[key]) > 0
        tables += [self.join(number) for number in range(2 - first)]
        found = states(mapping)
        assert EVICTING not in found
        assert found.count(FREE) >= 1
        assert found.count(PARKED) == mapping._words[PARKED_AT // 8]
        self.look(tables[0], left)
        mapping.verify()
        keys = [key for key in left if tables[0].find(line(key))]
        for number in range(120):
            key = keys[number * 5 % len(keys)]
            left[key] = reply(key, number + 100, len(left[key]) - 40)
            assert put(tables[number % 2], key, left[key]) > 0, number
        self.look(tables[1], left, later=True)
        mapping.verify()
        if not self.loses:
            assert sum(table.evictions for table in tables) == 0

    def look(self, table: SharedTable, items: Items, *, later: bool = False) -> None:
        lost = 0
        for key in self.new.keys() - items.keys():
            if stored := table.get(line(key)):
                assert stored[0] == self.new[key]
        for key, expected in items.items():
            stored = table.get(line(key))
            if not later and key in self.new and stored is not None:
                assert stored[0] in (expected, self.new[key])
                items[key] = stored[0]
            elif stored is None:
                lost += key not in self.new or bool(self.new[key] and expected)
            else:
                assert stored[0] == expected
        assert lost <= self.loses, f"{lost} of {len(items)} items are lost"


def over(scene: Scene, key: bytes) -> Act:
    """Return an action that stores another value under a key."""
    new = scene.new[key] = reply(key, 77)
    return lambda table: put(table, key, new)


def cleaning(kind: Kind) -> tuple[Scene, Act]:
    scene = Scene(kind)
    scene.fill(2)
    return scene, over(scene, b"key-3")


def compaction(kind: Kind) -> tuple[Scene, Act]:
    scene = Scene(kind, evicts=0)
    scene.fill(2)
    return scene, over(scene, b"key-3")


def steps(kind: Kind) -> tuple[Scene, Act]:
    """A segment is evicted step by step, and the next store does a step."""
    scene = Scene(kind)
    scene.fill_until_step(2)
    return scene, over(scene, b"key-3")


def reuse(kind: Kind) -> tuple[Scene, Act]:
    """A segment with few live items is reused, though others are free."""
    scene = Scene(kind)
    for key in (b"small-1", b"small-2"):
        scene.put(key, reply(key, 1, 80))
    number = 0
    while SEALED not in states(scene.mapping) or not scene.must_open():
        key = b"key-%d" % (number % 3)
        scene.put(key, reply(key, number))
        number += 1
    assert states(scene.mapping).count(FREE) > 3
    return scene, over(scene, b"key-1")


def eviction(kind: Kind) -> tuple[Scene, Act]:
    scene = Scene(kind, loses=1000)
    scene.fill_until_step(1)
    for key in list(scene.items)[::3] * 2:
        assert scene.tables[0].find(line(key))
    return scene, over(scene, b"key-new")


def few_slots(kind: Kind) -> tuple[Scene, Act]:
    """All but one of the usable slots of a region are in use."""
    scene = Scene(kind, loses=1000)
    names = (b"key-%d" % number for number in range(1 << 20))
    for _ in range(30):
        scene.put(key := next(names), reply(key, 1))
    in_region = [key for key in names if hash(line(key)) >> 24 & 0xFF == 5][:20]
    while put(scene.tables[0], key := in_region.pop(), reply(key, 2, 40)) > 0:
        scene.items[key] = reply(key, 2, 40)
        if len([one for one in scene.items if hash(line(one)) >> 24 & 0xFF == 5]) == 14:
            break
    assert SEALED in states(scene.mapping)
    return scene, over(scene, in_region.pop())


def small(kind: Kind) -> Scene:
    scene = Scene(kind)
    for number in range(20):
        key = b"key-%d" % number
        scene.put(key, reply(key, number), number % 2)
    return scene


def storing(kind: Kind) -> tuple[Scene, Act]:
    scene = small(kind)
    return scene, over(scene, b"key-new")


def overwriting(kind: Kind) -> tuple[Scene, Act]:
    scene = small(kind)
    return scene, over(scene, b"key-3")


def deletion(kind: Kind) -> tuple[Scene, Act]:
    scene = small(kind)
    scene.new[b"key-3"] = b""
    return scene, lambda table: table.delete(line(b"key-3"), None)


def touching(kind: Kind) -> tuple[Scene, Act]:
    scene = small(kind)
    return scene, lambda table: table.touch(line(b"key-3"), 2.0**40)


def appending(kind: Kind) -> tuple[Scene, Act]:
    scene = small(kind)
    key = b"key-4"
    new = scene.new[key] = reply(key, 4, LENGTH + 80)

    def act(table: SharedTable) -> None:
        table.hold(line(key), 200)
        found = table.get(line(key))
        assert found is not None
        table.store(line(key), new, found[1], found[2], KEEP, b"")
        table.release()

    return scene, act


def parking(kind: Kind) -> tuple[Scene, Act]:
    scene = Scene(kind)
    scene.fill(2)
    assert scene.mapping.resize(SIZE - 4 * scene.mapping.layout.segment_size)
    return scene, lambda table: table.park()


def parking_another(kind: Kind) -> tuple[Scene, Act]:
    scene, park = parking(kind)
    park(scene.tables[0])
    return scene, park


def unparking(kind: Kind) -> tuple[Scene, Act]:
    scene, park = parking(kind)
    park(scene.tables[0])
    parked = states(scene.mapping).index(PARKED)
    return scene, lambda table: table.unpark(parked)


SCENES = [
    cleaning, steps, compaction, reuse, storing, overwriting, deletion, touching, appending,
    parking, parking_another, unparking,
    *(pytest.param(scene, marks=pytest.mark.slow) for scene in (eviction, few_slots)),
]  # fmt: skip


KINDS = [
    "pure",
    pytest.param(
        "native",
        marks=pytest.mark.skipif(
            sys.platform != "linux" or COMPILER is None or not SOURCE.exists(),
            reason="needs gcc on Linux, and a checkout",
        ),
    ),
]


@pytest.fixture(scope="module")
def small_process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        yield process


def points(scene: str, kind: str, folder: Path) -> int:
    """Kill a worker at each point in a scene; return the number of points."""
    made, act = globals()[scene](InPython() if kind == "pure" else in_c(folder))
    return made.kill_everywhere(act)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_may_be_killed_at_any_point(
    scene: Callable[[Kind], tuple[Scene, Act]],
    kind: str,
    small_process: ProcessPoolExecutor,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    assert small_process.submit(points, scene.__name__, kind, folder).result() > 0
