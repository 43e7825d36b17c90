"""A simulated world: virtual time, a store with faults, and processes that stall and resume."""

import heapq
import random
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any

from memlite.cluster.membership.store import Conflict, Stored, StoreUnavailableError

__all__ = ["SimulatedStore", "World"]


@types.coroutine
def pause(seconds: float) -> Generator[float, None, None]:
    yield seconds


@dataclass
class World:
    """Runs coroutines that await nothing but `pause`, in virtual time."""

    random: random.Random
    now: float = 1_000_000.0
    stopped: dict[str, float] = field(default_factory=dict)  # paused processes, and until when
    killed: set[str] = field(default_factory=set)
    _due: list[tuple[float, int, str, Coroutine[Any, Any, None]]] = field(default_factory=list)
    _number: int = 0

    def clock(self) -> float:
        return self.now

    def start(self, process: str, work: Coroutine[Any, Any, None]) -> None:
        self._schedule(self.now, process, work)

    def _schedule(self, at: float, process: str, work: Coroutine[Any, Any, None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (at, self._number, process, work))

    def run(self, until: float, check: Callable[[], None]) -> None:
        """Run until a time; `check` is called after each step."""
        while self._due and self._due[0][0] <= until:
            at, _, process, work = heapq.heappop(self._due)
            self.now = max(self.now, at)
            if process in self.killed:
                work.close()
                continue
            again = self.stopped.get(process, 0)
            if again > self.now:
                self._schedule(again, process, work)
                continue
            try:
                seconds = work.send(None)
            except StopIteration:
                seconds = None
            if seconds is not None:
                self._schedule(self.now + seconds, process, work)
            check()
        self.now = max(self.now, until)

    def close(self) -> None:
        for _, _, _, work in self._due:
            work.close()


@dataclass
class SimulatedStore:
    """A store that loses requests and acknowledgements, is slow, and is away at times."""

    world: World
    faults: float = 0.0
    stalls: float = 0.02
    slowness: float = 0.05
    away_until: float = 0.0
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    _version: int = 0

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def read(self, name: str) -> Stored | None:
        await self._travel()
        found = self.objects.get(name)
        await self._travel()
        return None if found is None else Stored(*found)

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        await self._travel()
        found = self.objects.get(name)
        if (None if found is None else found[1]) != (replacing and replacing.version):
            await self._travel()
            raise Conflict(name)
        self._version += 1
        self.objects[name] = data, self._version
        await self._travel()

    async def _travel(self) -> None:
        draw = self.world.random
        await pause(draw.expovariate(1 / self.slowness))
        if draw.random() < self.stalls:
            await pause(draw.uniform(0, 10))
        if draw.random() < self.faults or self.world.now < self.away_until:
            await pause(2)
            raise StoreUnavailableError("lost")
