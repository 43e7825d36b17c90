"""A backend whose calls a test can delay, fail, lose and count."""

import asyncio
from collections import Counter

from memlite.backends import ANY, Backend, Record
from memlite.backends.memory import MemoryBackend
from memlite.backends.registry import Context
from memlite.core.clock import Clock
from memlite.core.errors import StorageError

START = 1_800_000_000.0


class SlowBackend(Backend):
    """Memory that is as slow as the test wants.

    Attributes:
        gate: set while calls may proceed; when cleared, they wait before anything is done.
        after: likewise, but calls wait once they are carried out, before they return.
        failing: whether calls raise before anything is done.
        losing: whether calls are carried out and then raise, as if the answer had been lost.
        calls: the number of calls of each kind.
        under_way: the calls in progress; `most` is the highest number so far.
    """

    def __init__(self, context: Context | None = None) -> None:
        self.seconds = 0.0
        self.context = context or Context(clock=Clock(lambda: self.seconds, lambda: START))
        self.inner = MemoryBackend(self.context)
        self.gate = asyncio.Event()
        self.after = asyncio.Event()
        self.gate.set()
        self.after.set()
        self.failing = self.losing = False
        self.calls: Counter[str] = Counter()
        self.under_way = self.most = 0
        self.closed = False

    @property
    def clock(self) -> Clock:
        return self.context.clock

    async def _do(self, name, work):
        self.calls[name] += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            if self.failing:
                raise StorageError("down")
            try:
                result = await work()
            finally:
                await self.after.wait()
            if self.losing:
                raise StorageError("no answer")
            return result
        finally:
            self.under_way -= 1

    async def get(self, key):
        return await self._do("get", lambda: self.inner.get(key))

    async def put(self, record, replacing=ANY):
        return await self._do("put", lambda: self.inner.put(record, replacing))

    async def delete(self, key, replacing=ANY):
        await self._do("delete", lambda: self.inner.delete(key, replacing))

    async def flush(self, at=0.0):
        await self._do("flush", lambda: self.inner.flush(at))

    def scan(self):
        return self.inner.scan()

    async def close(self):
        self.closed = True

    async def store(self, key: bytes, value: bytes) -> None:
        """Store a record as another server would."""
        await self.inner.put(Record(key, value))

    async def value(self, key: bytes) -> bytes | None:
        """Return the stored record, as another server would see it."""
        item = await self.inner.get(key)
        return item and item.value


async def settle() -> None:
    """Let all tasks run as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)
