"""A run: measures every target at every load level, with the targets' repetitions interleaved."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from memlite.core.errors import StartError
from memlite.loadtest.knee import KneeSearch, find_knee
from memlite.loadtest.levels import Level
from memlite.loadtest.limits import ClientRefusedError, raise_file_limit
from memlite.loadtest.machine import machine, versions
from memlite.loadtest.measure import measure
from memlite.loadtest.messages import Task
from memlite.loadtest.pool import Interrupted, Pool
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.results import Knee, Point, Repetition, Results, TargetInfo
from memlite.loadtest.spreading import spread
from memlite.loadtest.statistics import point
from memlite.loadtest.targets import Target
from memlite.loadtest.units import short
from memlite.loadtest.values import mean_size
from memlite.loadtest.workload import Workload
from memlite.loadtest.workload_files import as_dict, load_workload

__all__ = ["Plan", "run"]

# The most connections of a worker while keys are preloaded.
_PRELOAD_CONNECTIONS = 64
# The repetitions of a target at a level.
_Measured: TypeAlias = dict[tuple[str, Level], list[Repetition]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run.

    Attributes:
        title: the report's title.
        workload: what clients do.
        targets: the servers to measure; `run` starts and stops them.
        levels: the load levels; a search for the knee starts at the first.
        workers: number of worker processes.
        seed: the seed of all randomness.
        command: the command line, for the report.
        client: ``text`` or ``pymemcache``.
        verify: whether to check values.
        timeout: the longest wait for a reply, in seconds.
        machines: what all servers run on: how many machines of each type. Empty if not known.
        bursts: whether to measure bursts of new clients as well.
        knee: the bounds of the search for the knee; None for no search.
    """

    title: str
    workload: Workload
    targets: Sequence[Target]
    levels: Sequence[Level]
    workers: int
    seed: int
    command: Sequence[str]
    client: str = "text"
    verify: bool = False
    timeout: float = 5.0
    machines: Mapping[str, int] = field(default_factory=dict)
    bursts: bool = False
    knee: KneeSearch | None = None

    @property
    def most_clients(self) -> int:
        """The highest number of clients."""
        most = max(level.clients for level in self.levels)
        if self.knee is not None and not self.levels[0].rate:
            most = max(most, round(self.knee.max_load))
        return most

    @property
    def most_connections(self) -> int:
        """The highest number of connections: clients that know the nodes have one to each."""
        return self.most_clients * max(target.connections_per_client for target in self.targets)


def run(
    plan: Plan,
    display: ProgressDisplay,
    pool: Pool | None = None,
    on_level: Callable[[Results], None] | None = None,
) -> Results:
    """Run a plan.

    If it ends early, because the user interrupts it or a target fails, the results so far are
    returned, marked as partial.

    Args:
        plan: the plan.
        display: shows the progress.
        pool: workers that run already, and go on running; None to start some for this run.
        on_level: called when a load level has been measured, with the results of that level alone;
            not with a search for the knee. None to call nothing.

    Raises:
        TooManyClientsError: a target does not serve that many clients; nothing was measured.
        StartError: a target cannot be started or reached, or this machine lacks open files;
            nothing was measured.
        ConfigError: the workload is invalid.
        KeyboardInterrupt: the user interrupted the run before anything was measured.
    """
    return _Run(plan, display, on_level).run(pool)


class _Clock:
    """When something began, as unix time, and how many seconds ago."""

    def __init__(self) -> None:
        self.started = time.time()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)


def _of_level(found: _Measured, level: Level) -> _Measured:
    return {key: repetitions for key, repetitions in found.items() if key[1] == level}


class _Run:
    def __init__(
        self, plan: Plan, display: ProgressDisplay, on_level: Callable[[Results], None] | None
    ) -> None:
        self._plan = plan
        self._display = display
        self._on_level = on_level
        self._infos: list[TargetInfo] = []
        self._steady: _Measured = {}
        self._bursts: _Measured = {}
        self._knees: list[Knee] = []
        self._task_seed = plan.seed
        self._next_client = 0

    _pool: Pool

    def run(self, pool: Pool | None) -> Results:
        plan, clock = self._plan, _Clock()
        partial, failure = False, ""
        with contextlib.ExitStack() as stack:
            self._display.start_step("starting")
            raise_file_limit(plan.most_connections, plan.workers)
            self._pool = pool or stack.enter_context(Pool(plan.workers))
            for target in plan.targets:
                stack.enter_context(target)
                self._infos.append(replace(target.info(), machines=plan.machines))
                if plan.knee is None:
                    target.check_clients(plan.most_clients)
            try:
                self._measure_all()
            except (Interrupted, KeyboardInterrupt):
                partial = True
                if not self._measured:
                    raise KeyboardInterrupt from None
            except StartError as error:
                partial, failure = True, str(error).removeprefix("bench: ")
                if not self._measured:
                    raise
        found = self._results(clock, self._steady, self._bursts)
        return replace(found, partial=partial, failure=failure, knees=self._knees)

    def _results(self, clock: "_Clock", steady: _Measured, bursts: _Measured) -> Results:
        plan = self._plan
        return Results(
            title=plan.title,
            started=round(clock.started, 3),
            seconds=clock.seconds,
            partial=False,
            command=plan.command,
            seed=plan.seed,
            client=plan.client,
            workers=plan.workers,
            machine=machine(),
            versions=versions(),
            workload=as_dict(plan.workload),
            targets=self._infos,
            points=self._points(steady, plan.workload),
            bursts=self._points(bursts, load_workload("concurrent")),
        )

    @property
    def _measured(self) -> bool:
        return any((*self._steady.values(), *self._bursts.values()))

    def _measure_all(self) -> None:
        plan = self._plan
        repetitions = plan.workload.load.repetitions
        if plan.knee is not None:
            self._preload(plan.levels[0].value_size)
            for target in plan.targets:
                measure_point = partial(self._measure_point, target)
                self._knees.append(find_knee(plan.levels[0], plan.knee, measure_point))
            return
        rounds = len(plan.levels) * len(plan.targets) * repetitions
        self._display.expect_measurements(rounds * (2 if plan.bursts else 1))
        preloaded_size = None
        for level in plan.levels:
            clock = _Clock()
            if level.value_size != preloaded_size:
                preloaded_size = level.value_size
                self._preload(preloaded_size)
            for number in range(1, repetitions + 1):
                for target in plan.targets:
                    if plan.bursts:
                        self._measure_burst(target, level, number)
                    self._measure_steady(target, level, number)
            if self._on_level is not None:
                alone = (_of_level(found, level) for found in (self._steady, self._bursts))
                self._on_level(self._results(clock, *alone))

    # One measurement

    def _preload(self, value_size: int) -> None:
        """Store all keys with values of that size; 0 for the workload's sizes."""
        plan = self._plan
        if not plan.workload.preload or plan.workload.kind != "steady" or plan.workload.trace:
            return
        for target in plan.targets:
            self._display.start_step(
                f"{target.name}: storing {short(plan.workload.keys.count)} keys"
            )
            level = Level(self._preload_connections(target), 0.0, value_size)
            tasks = [replace(task, preload=True) for task in self._tasks(target, level)]
            try:
                recording = self._pool.run(tasks, self._display.update)
            except ClientRefusedError as error:
                raise target.refusal(error, plan.most_clients) from None
            errors = recording.counts.errors
            if errors:
                kind = max(errors, key=lambda kind: errors[kind])
                self._display.message(
                    f"{target.name}: {sum(errors.values())} keys were not stored: {kind}"
                )

    def _preload_connections(self, target: Target) -> int:
        """Return how many there are: many, because a bucket is slow, but not all it accepts."""
        plan, limit = self._plan, target.connection_limit
        if limit is None:
            return min(_PRELOAD_CONNECTIONS, plan.most_clients)
        return min(_PRELOAD_CONNECTIONS * plan.workers, max(1, limit // 2))

    def _measure_steady(self, target: Target, level: Level, number: int) -> Repetition:
        target.check_clients(level.clients)
        self._display.start_step(f"{target.name}, {level}")
        found = self._steady.setdefault((target.name, level), [])
        return self._record(target, self._tasks(target, level), number, found)

    def _measure_burst(self, target: Target, level: Level, number: int) -> None:
        self._display.start_step(f"{target.name}, {level} at once")
        workload = load_workload("concurrent")
        tasks = self._tasks(target, level, workload)
        found = self._bursts.setdefault((target.name, level), [])
        self._record(target, tasks, number, found)

    def _record(
        self, target: Target, tasks: Sequence[Task], number: int, found: list[Repetition]
    ) -> Repetition:
        try:
            repetition = measure(self._pool, target, tasks, number, self._display)
        except Interrupted as interrupted:
            # Keep a partial repetition only if there is no complete one.
            fragment = interrupted.repetition
            if fragment is not None and fragment.operations and not found:
                found.append(fragment)
            raise
        found.append(repetition)
        self._display.finish_measurement()
        return repetition

    def _tasks(self, target: Target, level: Level, workload: Workload | None = None) -> list[Task]:
        plan = self._plan
        workload = workload or plan.workload
        workload = replace(workload, load=replace(workload.load, rate=level.rate))
        if level.value_size:
            values = replace(workload.values, distribution="fixed", size=level.value_size)
            workload = replace(workload, values=values)
        # Each measurement has its own seed; the sequence of seeds is the same in every run.
        self._task_seed += 1
        workers = min(plan.workers, level.clients)
        tasks = []
        shares = spread(level.clients, workers, (target.address, *target.others))
        for worker, (connections, (address, *others)) in enumerate(shares):
            tasks.append(
                Task(
                    address=address,
                    workload=workload,
                    connections=connections,
                    worker=worker,
                    workers=workers,
                    first_client=self._next_client,
                    seed=self._task_seed,
                    client=plan.client,
                    verify=plan.verify,
                    timeout=plan.timeout,
                    login=target.login,
                    tls=target.tls,
                    lite=target.lite,
                    topology=target.topology,
                    asks=target.asks,
                    others=tuple(others),
                )
            )
            self._next_client += connections
        return tasks

    def _points(self, measured: _Measured, workload: Workload) -> list[Point]:
        order = {target.name: number for number, target in enumerate(self._plan.targets)}
        return [
            point(
                name,
                level.clients,
                level.rate,
                level.value_size or mean_size(workload.values),
                repetitions,
            )
            for (name, level), repetitions in sorted(
                measured.items(),
                key=lambda item: (
                    order[item[0][0]], item[0][1].value_size, item[0][1].clients, item[0][1].rate
                ),
            )
            if repetitions
        ]  # fmt: skip

    def _measure_point(self, target: Target, level: Level) -> Point:
        repetitions = [
            self._measure_steady(target, level, number)
            for number in range(1, self._plan.workload.load.repetitions + 1)
        ]
        size = level.value_size or mean_size(self._plan.workload.values)
        return point(target.name, level.clients, level.rate, size, repetitions)
