"""A worker process: receives tasks through a pipe, runs clients, and sends the recordings back."""

import asyncio
import gc
import itertools
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing.connection import Connection
from time import perf_counter_ns, process_time
from typing import TYPE_CHECKING, Any

from memlite.client.address import Address
from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.clients.admission import RefusedError
from memlite.loadtest.clients.burst import burst
from memlite.loadtest.clients.nodes import Nodes, ask
from memlite.loadtest.clients.routed import RoutedClients
from memlite.loadtest.clients.settings import Settings
from memlite.loadtest.clients.text import TextClients
from memlite.loadtest.limits import what_failed
from memlite.loadtest.messages import (
    Failed,
    MeasurementEnded,
    MeasurementStarted,
    ProgressUpdate,
    Ready,
    Task,
)
from memlite.loadtest.operations import Operation, Operations
from memlite.loadtest.plain import PlainOperations
from memlite.loadtest.recorder import Recorder, Recording, interval_for
from memlite.loadtest.supply import Supply
from memlite.loadtest.tls import tls_context

if TYPE_CHECKING:
    from memlite.loadtest.clients.pymemcache import PymemcacheClients

__all__ = ["main"]

_PROGRESS_SECONDS = 0.25
_IDLE_POLL_SECONDS = 0.01
# The pipeline depth of each connection while keys are preloaded.
_PRELOAD_PIPELINE = 4


def main(pipe: Connection) -> None:
    """Run tasks until the pipe is closed."""
    # Signals may reach the whole process group; only the parent acts on them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        import uvloop

        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_Worker(pipe).run())


class _Worker:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._messages: asyncio.Queue[object] = asyncio.Queue()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._receive)
        # uvloop makes the pipe non-blocking, but then a recording that fills it cannot be sent.
        os.set_blocking(self._pipe.fileno(), True)
        while True:
            task = await self._messages.get()
            if task is None:
                return
            if isinstance(task, Task):
                await self._run_task(task)

    def _receive(self) -> None:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            message = None
        self._messages.put_nowait(message)

    async def _run_task(self, task: Task) -> None:
        try:
            recording = await _Measurement(task, self._pipe, self._messages).run()
        except RefusedError as error:
            self._pipe.send(Failed(what_failed(error), full=True))
        except OSError as error:
            self._pipe.send(Failed(what_failed(error)))
        except (ConfigError, StartError) as error:
            self._pipe.send(Failed(str(error)))
        else:
            self._pipe.send(recording)


class _Measurement:
    def __init__(self, task: Task, pipe: Connection, messages: asyncio.Queue[object]) -> None:
        load = task.workload.load
        self._task = task
        self._pipe = pipe
        self._messages = messages
        self._interval = interval_for(0.0 if load.operations else load.duration)
        self._recorder = Recorder(self._interval)
        self._progress = self._recorder.glance
        self._tls = tls_context(task.tls) if task.tls else None
        self._nodes = Nodes(task.topology) if task.topology else None

    async def run(self) -> Recording:
        task = self._task
        if task.preload:
            return await self._preload()
        if task.workload.kind == "concurrent":
            return await self._burst()
        if task.client == "pymemcache":
            return await self._pymemcache()
        return await self._steady()

    async def _go(self) -> bool:
        """Report readiness and wait for a command; return whether it is ``go``."""
        # Otherwise a garbage collection over all imported objects would pause the clients, and the
        # server would appear slow.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._pipe.send(Ready())
        return await self._messages.get() == "go"

    def _operations(self, client: int, clients: int) -> Operations:
        task = self._task
        return Operations(
            task.workload,
            seed=task.seed,
            client=client,
            clients=clients,
            verify=task.verify,
            dialect=task.dialect,
        )

    async def _preload(self) -> Recording:
        task = self._task
        operations = self._operations(task.worker, task.workers).preload()

        def take(count: int) -> list[Operation]:
            return list(itertools.islice(operations, count))

        settings = Settings(
            task.address,
            task.connections,
            _PRELOAD_PIPELINE,
            timeout=task.timeout,
            login=task.login,
            tls=self._tls,
            dialect=task.dialect,
        )
        clients = self._clients(settings, take)
        await clients.connect()
        if await self._go():
            self._recorder.begin(perf_counter_ns())
            clients.start()
            await self._until(clients.drained())
            clients.stop()
        await clients.close()
        return self._recorder.end()

    async def _burst(self) -> Recording:
        task = self._task
        requests = []
        end = task.first_client + task.connections
        for client in range(task.first_client, end):
            store, read = self._operations(client, end).take(2)
            requests.append((store, read))
        if task.discovers_nodes:
            settings = Settings(
                task.address, 1, timeout=task.timeout, login=task.login, tls=self._tls
            )
            self._nodes = await ask(settings, Address.of(task.address))
        if not await self._go():
            return self._recorder.end()
        cpu = self._begin()
        everywhere = itertools.cycle(map(Address.of, (task.address, *task.extra_addresses)))
        await burst(
            self._nodes.address if self._nodes else lambda _: next(everywhere),
            requests,
            patience=task.timeout,
            recorder=self._recorder,
            login=task.login,
            tls=self._tls,
            dialect=task.dialect,
        )
        return self._end(cpu)

    def _begin(self) -> float:
        self._pipe.send(MeasurementStarted())
        self._recorder.begin(perf_counter_ns())
        return process_time()

    def _end(self, cpu: float) -> Recording:
        # Waiting for the next arrival does not count as work, although it occupies the processor.
        used = process_time() - cpu - self._recorder.spun / 1e9
        self._pipe.send(MeasurementEnded())
        recording = self._recorder.end()
        recording.cpu = recording.busiest = max(0.0, used)
        return recording

    async def _steady(self) -> Recording:
        task, load = self._task, self._task.workload.load
        supply = Supply(
            task.workload,
            worker=task.worker,
            workers=task.workers,
            seed=task.seed,
            verify=task.verify,
            dialect=task.dialect,
        )
        settings = Settings(
            task.address,
            task.connections,
            load.pipeline,
            load.think_time,
            task.timeout,
            supply.check,
            supply.keep_values,
            login=task.login,
            tls=self._tls,
            dialect=task.dialect,
            extra_addresses=task.extra_addresses,
        )
        clients = self._clients(settings, supply.take, supply.plain)
        try:
            await clients.connect()
            if not await self._go():
                return self._recorder.end()
            # A warm-up would consume a trace, or a finite stream with its own arrival times.
            consumable = supply.finite and supply.arrivals is not None
            if load.warm_up and not (consumable or task.workload.trace):
                self._start(clients, supply)
                await self._until(asyncio.sleep(load.warm_up))
                if supply.finite:
                    supply.pause()
                    await self._until(clients.drained())
                supply.begin()
                cpu = self._begin()
                if supply.finite:
                    clients.start()
            else:
                supply.begin()
                cpu = self._begin()
                self._start(clients, supply)
            if not supply.finite:
                await self._until(asyncio.sleep(load.duration))
                if supply.arrivals is None:
                    # In a closed loop, requests still in flight do not count.
                    self._recorder.last = perf_counter_ns()
                    return self._end(cpu)
                clients.stop()
            await self._until(clients.drained())
            if supply.error is not None:
                raise supply.error
            return self._end(cpu)
        finally:
            await clients.close()

    def _clients(
        self,
        settings: Settings,
        take: Callable[[int], list[Operation]],
        plain: PlainOperations | None = None,
    ) -> TextClients:
        if self._nodes is not None:
            return RoutedClients(
                settings,
                take,
                self._recorder,
                self._nodes,
                plain,
                discovers_nodes=self._task.discovers_nodes,
            )
        return TextClients(settings, take, self._recorder, plain)

    def _start(self, clients: TextClients, supply: Supply) -> None:
        if supply.arrivals is None:
            clients.start()
        else:
            clients.start_at(supply.arrivals, perf_counter_ns())

    async def _pymemcache(self) -> Recording:
        from memlite.loadtest.clients.pymemcache import PymemcacheClients

        task, load = self._task, self._task.workload.load
        end = task.first_client + task.connections
        streams = [self._operations(client, end) for client in range(task.first_client, end)]
        clients = PymemcacheClients(
            task.address,
            [_one_by_one(stream, self._share(number)) for number, stream in enumerate(streams)],
            timeout=task.timeout,
            interval=self._interval,
            think_time=load.think_time,
            check=streams[0].check if task.verify else None,
            login=task.login,
            tls=self._tls,
        )
        self._progress = clients.glance
        try:
            await asyncio.to_thread(clients.connect)
        except BaseException:
            clients.abandon()
            raise
        if await self._go():
            if load.warm_up and not load.operations:
                clients.start()
                await self._until(asyncio.sleep(load.warm_up))
            self._pipe.send(MeasurementStarted())
            cpu = process_time()
            clients.begin()
            clients.start()
            await self._until(
                _until_idle(clients) if load.operations else asyncio.sleep(load.duration)
            )
            cpu = process_time() - cpu
            self._pipe.send(MeasurementEnded())
            recording = await asyncio.to_thread(clients.end)
            recording.cpu = recording.busiest = cpu
            return recording
        return await asyncio.to_thread(clients.end)

    def _share(self, number: int) -> int | None:
        """Return the number of operations for this worker's client `number`; None for no limit."""
        task, total = self._task, self._task.workload.load.operations
        if not total:
            return None
        of_worker = total // task.workers + (task.worker < total % task.workers)
        return of_worker // task.connections + (number < of_worker % task.connections)

    async def _until(self, end: Coroutine[Any, Any, None]) -> None:
        """Wait for `end` while reporting progress; return early when told to stop."""
        ending = asyncio.ensure_future(end)
        command = asyncio.ensure_future(self._messages.get())
        while True:
            await asyncio.wait(
                (ending, command), timeout=_PROGRESS_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            self._pipe.send(ProgressUpdate(*self._progress()))
            if command.done():
                ending.cancel()
                self._messages.put_nowait(command.result())
                return
            if ending.done():
                command.cancel()
                ending.result()
                return


def _one_by_one(stream: Operations, count: int | None) -> Callable[[], Operation | None]:
    """Return a function that yields up to `count` operations one at a time, and then None."""
    operations: Iterator[Operation] = stream if count is None else itertools.islice(stream, count)
    return lambda: next(operations, None)


async def _until_idle(clients: "PymemcacheClients") -> None:
    while clients.busy:  # noqa: ASYNC110 - the clients are threads
        await asyncio.sleep(_IDLE_POLL_SECONDS)
