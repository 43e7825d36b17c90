"""Follows a cluster by asking for its nodes periodically."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Final

from memlite.client.address import Address
from memlite.client.discovery import ClusterMap, discover
from memlite.client.errors import DiscoveryError
from memlite.client.node import Opener, reason_of
from memlite.core.errors import MemliteError

__all__ = ["Follower"]

# The shortest time between two queries of the seeds, in seconds, however many requests fail.
_LEAST_PAUSE: Final = 1.0


class Follower:
    """Keeps up with the nodes of a cluster.

    Args:
        seeds: servers that list the nodes. The last one that answered is asked first.
        connect: opens connections.
        hash_name: how keys are distributed, if the seeds do not say.
        hash_tag: likewise.
        changed: called with each new version.
        interval: seconds between two queries; at least 1.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        connect: Opener,
        hash_name: str,
        hash_tag: str,
        changed: Callable[[ClusterMap], None],
        interval: float,
    ) -> None:
        self._seeds = list(seeds)
        self._connect = connect
        self._hash = hash_name, hash_tag
        self._changed = changed
        self._interval = interval
        self._version: int | None = None
        self._asking = asyncio.Lock()
        self._asked = -math.inf  # time of the last query, by the loop's clock
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask for the first time, and continue in the background.

        Raises:
            DiscoveryError: no seed lists nodes.
        """
        await self._ask()
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def stop(self) -> None:
        """Stop asking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def hurry(self) -> None:
        """Ask soon: something indicates that the nodes have changed."""
        self._wanted.set()

    async def refresh(self) -> None:
        """Ask now, unless already done within the last second or stopped.

        If no seed answers, the nodes stay as they are.
        """
        loop = asyncio.get_running_loop()
        async with self._asking:
            if self._task is None or loop.time() < self._asked + _LEAST_PAUSE:
                return
            with contextlib.suppress(DiscoveryError):
                await self._ask()
            self._asked = loop.time()

    async def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wanted.wait()
            await asyncio.sleep(max(0.0, self._asked + _LEAST_PAUSE - loop.time()))
            self._wanted.clear()
            await self.refresh()

    async def _ask(self) -> None:
        failures = []
        for seed in list(self._seeds):
            try:
                async with await self._connect(seed) as connection:
                    found = await discover(connection, *self._hash)
            except (OSError, MemliteError) as error:
                failures.append(f"{seed}: {reason_of(error)}")
                continue
            self._seeds.remove(seed)
            self._seeds.insert(0, seed)
            # A lower version comes from a proxy that does not know of the last change.
            if self._version is None or found.version > self._version:
                self._version = found.version
                self._changed(found)
            return
        raise DiscoveryError(f"no seed could list the nodes: {'; '.join(failures)}")
