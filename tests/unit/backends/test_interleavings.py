"""Near cache and write-back, for every order in which a backend may execute and respond."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memlite.backends import ANY, Backend, Record
from memlite.backends.agreement import Agreement
from memlite.backends.coherent import CoherentNearCache
from memlite.backends.memory import MemoryBackend
from memlite.backends.nearcache import NearCache
from memlite.backends.registry import Context
from memlite.backends.writeback import WriteBack
from memlite.core.clock import Clock
from memlite.core.errors import StorageError, VersionConflict

START = 1_800_000_000.0
KEY = b"key"


class SteppedBackend(Backend):
    """Memory whose calls are executed and answered when the test decides.

    Attributes:
        waiting: the calls yet to be executed, and those yet to be answered.
        free: whether calls go through without waiting.
    """

    def __init__(self, context: Context) -> None:
        self.inner = MemoryBackend(context)
        self.waiting: list[asyncio.Future[str]] = []
        self.free = False

    async def _do(self, work: Callable[[], Awaitable[object]]) -> object:
        if await self._step() == "fail":
            raise StorageError("down")
        error: VersionConflict | None = None
        result: object = None
        try:
            result = await work()
        except VersionConflict as conflict:
            error = conflict
        if await self._step() == "fail":
            raise StorageError("no answer")
        if error is not None:
            raise error
        return result

    async def _step(self) -> str:
        if self.free:
            return "go"
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return await future

    async def step(self, which: int, how: str) -> None:
        """Resume a waiting call or make it fail."""
        if self.waiting:
            future = self.waiting.pop(which % len(self.waiting))
            if not future.done():
                future.set_result(how)
            await idle()

    async def release(self) -> None:
        """Resume all calls, now and in future."""
        self.free = True
        while self.waiting:
            await self.step(0, "go")

    async def get(self, key):
        return await self._do(lambda: self.inner.get(key))

    async def put(self, record, replacing=ANY):
        return await self._do(lambda: self.inner.put(record, replacing))

    async def delete(self, key, replacing=ANY):
        await self._do(lambda: self.inner.delete(key, replacing))

    async def flush(self, at=0.0):
        await self._do(lambda: self.inner.flush(at))

    def scan(self):
        return self.inner.scan()


async def idle():
    for _ in range(12):
        await asyncio.sleep(0)


def near(inner, clock):
    return NearCache(inner, 100_000, ttl=10, clock=clock)


def write_back(inner, clock):
    return WriteBack(inner, limit=100_000, clock=clock, delay=0.004)


LAYERS = {
    "near cache": near,
    "write-back": write_back,
    "both": lambda inner, clock: write_back(near(inner, clock), clock),
}


class Play:
    """One writer that makes changes one by one, and readers at any time.

    The nth change sets the value to n, or removes it. A read must show the result of the last
    change that was acknowledged, or shown by another read, before the read began, or of a later
    change.
    """

    def __init__(self, make):
        self.seconds = 0.0
        clock = Clock(lambda: self.seconds, lambda: START)
        self.inner = SteppedBackend(Context(clock=clock))
        self.backend = make(self.inner, clock)
        self.count = 0
        self.floor = 0
        self.absent = [0]
        self.change = None
        self.reads = []

    def begin_change(self, kind):
        if self.change is None or self.change.done():
            self.count += 1
            if kind in ("delete", "flush"):
                self.absent.append(self.count)
            self.change = asyncio.ensure_future(self.carry_out(kind, self.count))

    async def carry_out(self, kind, number):
        record = Record(KEY, b"%d" % number)
        try:
            if kind == "set":
                await self.backend.put(record)
            elif kind == "delete":
                await self.backend.delete(KEY)
            elif kind == "flush":
                await self.backend.flush()
            else:  # as the engine makes a conditional change
                while True:
                    read = await self.backend.get(KEY)
                    self.check(read, self.floor)
                    try:
                        await self.backend.put(record, read)
                    except VersionConflict:
                        continue
                    break
        except StorageError:
            return  # it may have been carried out, and may be overtaken
        self.floor = number

    def check(self, item, floor):
        if item is None or 0 < item.expires <= START + self.seconds:
            assert max(self.absent) >= floor, f"nothing, but {floor} was acknowledged"
        else:
            assert int(item.value) >= floor, f"{item.value!r}, but {floor} was acknowledged"

    def begin_read(self, current):
        self.reads.append(asyncio.ensure_future(self.read(self.floor, current)))

    async def read(self, floor, current):
        try:
            ask = self.backend.get if current else self.backend.get_cached
            item = await ask(KEY)
            self.check(item, floor)
            if item is not None and not 0 < item.expires <= START + self.seconds:
                self.floor = max(self.floor, int(item.value))
        except StorageError:
            pass

    async def pass_time(self):
        self.seconds += 1
        await asyncio.sleep(0.001)
        await idle()

    async def run(self, actions):
        await self.backend.open()
        for kind, which in actions:
            if kind in ("set", "delete", "flush", "change"):
                self.begin_change(kind)
            elif kind in ("get", "gets"):
                self.begin_read(kind == "gets")
            elif kind == "time":
                await self.pass_time()
            else:
                await self.inner.step(which, kind)
            await idle()
        async with asyncio.timeout(60):
            await self.inner.release()
            if self.change is not None:
                await self.change
            await asyncio.gather(*self.reads)
            await self.read(self.floor, False)
            await self.read(self.floor, True)
            await self.backend.close()
        self.check(await self.inner.inner.get(KEY), self.floor)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["set", "set", "change", "delete", "flush", "get", "get", "gets", "time"]
            + ["go"] * 6
            + ["fail"]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


@pytest.mark.slow
@pytest.mark.parametrize("layers", LAYERS)
def test_acknowledged_changes_are_seen_from_then_on(layers):
    @settings(max_examples=250, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(actions=ACTIONS)
    def check(actions):
        async def play():
            await Play(LAYERS[layers]).run(actions)

        asyncio.run(play())

    check()


class TimedBackend(SteppedBackend):
    """A stepped backend that remembers every state of the key.

    Attributes:
        states: the value in each state, or None, in order.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.states: list[bytes | None] = [None]

    async def _note(self, work, value):
        result = await work
        self.states.append(value)
        return result

    async def put(self, record, replacing=ANY):
        return await self._do(lambda: self._note(self.inner.put(record, replacing), record.value))

    async def delete(self, key, replacing=ANY):
        await self._do(lambda: self._note(self.inner.delete(key, replacing), None))

    async def flush(self, at=0.0):
        await self._do(lambda: self._note(self.inner.flush(at), None))

    async def foreign(self, value):
        """Change the item as another server would."""
        change = self.inner.delete(KEY) if value is None else self.inner.put(Record(KEY, value))
        await self._note(change, value)


def coherent(inner, clock, agreement):
    return CoherentNearCache(inner, 100_000, ttl=10, clock=clock, agreement=agreement)


def one_near_cache(inner, clock):
    return [near(inner, clock)]


def near_caches_of_three_processes(inner, clock):
    agreement = Agreement(1000)
    return [coherent(inner, clock, agreement) for _ in range(3)]


class SharedPlay:
    """Any number of writers and readers of near caches, and another server that writes.

    A read must show the state shown by an earlier read, or a later state, whichever near caches
    the two reads use.
    """

    def __init__(self, make=one_near_cache):
        self.seconds = 0.0
        clock = Clock(lambda: self.seconds, lambda: START)
        self.inner = TimedBackend(Context(clock=clock))
        self.caches = make(self.inner, clock)
        self.count = 0
        self.floor = 0  # the number of the oldest state that a later read may show
        self.tasks = []

    async def change(self, kind, near):
        self.count += 1
        record = Record(KEY, b"%d" % self.count)
        states, begun = self.inner.states, len(self.inner.states)
        try:
            if kind in ("delete", "flush"):
                await (near.delete(KEY) if kind == "delete" else near.flush())
                self.floor = max(self.floor, states.index(None, begun))
            else:
                replacing = ANY if kind == "set" else await self.read(near, current=True)
                await near.put(record, replacing)
                self.floor = max(self.floor, states.index(record.value))
        except (StorageError, VersionConflict):
            return

    async def read(self, near, *, current):
        floor = self.floor
        item = await (near.get if current else near.get_cached)(KEY)
        alive = item is not None and not 0 < item.expires <= START + self.seconds
        value = item.value if alive else None
        assert value in self.inner.states[floor:], f"{value!r} after {self.inner.states[floor]!r}"
        self.floor = max(self.floor, self.inner.states.index(value, floor))
        return item

    async def try_to_read(self, near, *, current):
        with contextlib.suppress(StorageError):
            await self.read(near, current=current)

    async def run(self, actions):
        for kind, which in actions:
            near = self.caches[which % len(self.caches)]
            if kind in ("set", "change", "delete", "flush"):
                self.tasks.append(asyncio.ensure_future(self.change(kind, near)))
            elif kind in ("get", "gets"):
                read = self.try_to_read(near, current=kind == "gets")
                self.tasks.append(asyncio.ensure_future(read))
            elif kind == "foreign":
                self.count += 1
                await self.inner.foreign(b"%d" % self.count if which else None)
            elif kind == "time":
                self.seconds += 3
            else:
                await self.inner.step(which, kind)
            await idle()
        async with asyncio.timeout(60):
            await self.inner.release()
            await asyncio.gather(*self.tasks)
            for near in self.caches:
                await self.read(near, current=False)
                await self.read(near, current=True)


SHARED_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["set", "change", "delete", "flush", "foreign", "get", "get", "gets", "gets", "time"]
            + ["go"] * 8
            + ["fail"]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


@pytest.mark.slow
@pytest.mark.parametrize("make", [one_near_cache, near_caches_of_three_processes])
def test_reads_through_near_caches_of_a_server_never_go_back_in_time(make):
    @settings(max_examples=400, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(actions=SHARED_ACTIONS)
    def check(actions):
        async def play():
            await SharedPlay(make).run(actions)

        asyncio.run(play())

    check()
