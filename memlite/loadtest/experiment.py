"""A run: every target under every load, in rounds that are interleaved."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memlite.loadtest.machine import machine, versions
from memlite.loadtest.measure import measure
from memlite.loadtest.pool import Interrupted, Pool
from memlite.loadtest.progress import Watcher
from memlite.loadtest.results import Knee, Point, Repetition, Results, TargetInfo
from memlite.loadtest.statistics import point
from memlite.loadtest.targets import Target
from memlite.loadtest.units import short
from memlite.loadtest.values import mean_size
from memlite.loadtest.worker import Task
from memlite.loadtest.workload import Workload
from memlite.loadtest.workload_files import as_dict, load_workload

__all__ = ["KneeSearch", "Level", "Plan", "run"]

# Throughput that grows by less with twice the load has stopped growing.
_GROWTH = 1.05


@dataclass(frozen=True, slots=True)
class Level:
    """How much load.

    Attributes:
        clients: connections at once.
        rate: operations a second in open loop, 0 in closed loop.
        value_size: bytes of each value, 0 for the workload's own.
    """

    clients: int
    rate: float = 0.0
    value_size: int = 0

    def __str__(self) -> str:
        text = f"{self.clients} clients" if self.clients != 1 else "1 client"
        if self.rate:
            text += f", {short(self.rate)}/s"
        return text + (f", {self.value_size} bytes" if self.value_size else "")


@dataclass(frozen=True, slots=True)
class KneeSearch:
    """How far to look for where a target is saturated.

    Attributes:
        most: of clients, or in open loop of operations a second.
        slo: the 99th percentile of the response time that must not be passed, in µs; 0 for any.
    """

    most: float
    slo: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        title: for the report's head.
        workload: what clients do.
        targets: what is measured; they are started here.
        levels: under how much load; of a search for the knee the first.
        workers: processes that run clients.
        seed: of all that is random.
        command: the command line, to be shown.
        client: ``text`` or ``pymemcache``.
        verify: whether to check values.
        timeout: seconds for a request.
        bursts: whether to measure new clients that all come at once, too.
        knee: how far to look for it; None not to.
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
    bursts: bool = False
    knee: KneeSearch | None = None


def run(plan: Plan, watcher: Watcher) -> Results:
    """Measure; when the user interrupts it, return what there is, marked as partial.

    Raises:
        StartError: a target cannot be started or reached.
        ConfigError: the workload makes no sense.
        KeyboardInterrupt: the user interrupted it before anything was measured.
    """
    return _Run(plan, watcher).run()


class _Run:
    def __init__(self, plan: Plan, watcher: Watcher) -> None:
        self._plan = plan
        self._watcher = watcher
        self._steady: dict[tuple[str, Level], list[Repetition]] = {}
        self._bursts: dict[tuple[str, Level], list[Repetition]] = {}
        self._knees: list[Knee] = []
        self._task_seed = plan.seed
        self._next_client = 0

    _pool: Pool

    def run(self) -> Results:
        plan, started, clock = self._plan, time.time(), time.monotonic()
        infos: list[TargetInfo] = []
        partial = False
        with contextlib.ExitStack() as stack:
            self._watcher.begin("starting")
            self._pool = stack.enter_context(Pool(plan.workers))
            for target in plan.targets:
                stack.enter_context(target)
                infos.append(target.info())
            try:
                self._measure()
            except (Interrupted, KeyboardInterrupt):
                partial = True
                if not any((*self._steady.values(), *self._bursts.values())):
                    raise KeyboardInterrupt from None
        return Results(
            title=plan.title,
            started=round(started, 3),
            seconds=round(time.monotonic() - clock, 3),
            partial=partial,
            command=plan.command,
            seed=plan.seed,
            client=plan.client,
            workers=plan.workers,
            machine=machine(),
            versions=versions(),
            workload=as_dict(plan.workload),
            targets=infos,
            points=self._points(self._steady, plan.workload),
            bursts=self._points(self._bursts, load_workload("concurrent")),
            knees=self._knees,
        )

    def _measure(self) -> None:
        plan = self._plan
        repetitions = plan.workload.load.repetitions
        if plan.knee is not None:
            self._preload(plan.levels[0].value_size)
            for target in plan.targets:
                self._find_knee(target, plan.knee)
            return
        rounds = len(plan.levels) * len(plan.targets) * repetitions
        self._watcher.expect(rounds * (2 if plan.bursts else 1))
        stored = None
        for level in plan.levels:
            if level.value_size != stored:
                stored = level.value_size
                self._preload(stored)
            for number in range(1, repetitions + 1):
                for target in plan.targets:
                    if plan.bursts:
                        self._burst(target, level, number)
                    self._repeat(target, level, number)

    # One measurement

    def _preload(self, value_size: int) -> None:
        """Store all keys with values of that size, 0 for the workload's own."""
        plan = self._plan
        if not plan.workload.preload or plan.workload.kind != "steady" or plan.workload.trace:
            return
        for target in plan.targets:
            self._watcher.begin(f"{target.name}: storing {short(plan.workload.keys.count)} keys")
            level = Level(plan.workers, 0.0, value_size)
            tasks = [replace(task, preload=True) for task in self._tasks(target, level)]
            recording = self._pool.run(tasks, self._watcher.glance)
            errors = recording.counts.errors
            if errors:
                kind = max(errors, key=lambda kind: errors[kind])
                self._watcher.say(
                    f"{target.name}: {sum(errors.values())} keys were not stored: {kind}"
                )

    def _repeat(self, target: Target, level: Level, number: int) -> Repetition:
        self._watcher.begin(f"{target.name}, {level}")
        found = self._steady.setdefault((target.name, level), [])
        return self._take(target, self._tasks(target, level), number, found)

    def _burst(self, target: Target, level: Level, number: int) -> None:
        self._watcher.begin(f"{target.name}, {level} at once")
        workload = load_workload("concurrent")
        tasks = self._tasks(target, level, workload)
        found = self._bursts.setdefault((target.name, level), [])
        self._take(target, tasks, number, found)

    def _take(
        self, target: Target, tasks: Sequence[Task], number: int, found: list[Repetition]
    ) -> Repetition:
        try:
            repetition = measure(self._pool, target, tasks, number, self._watcher)
        except Interrupted as interrupted:
            # A fragment says something only where there is nothing else.
            one = interrupted.repetition
            if one is not None and one.operations and not found:
                found.append(one)
            raise
        found.append(repetition)
        self._watcher.done()
        return repetition

    def _tasks(self, target: Target, level: Level, workload: Workload | None = None) -> list[Task]:
        plan = self._plan
        workload = workload or plan.workload
        workload = replace(workload, load=replace(workload.load, rate=level.rate))
        if level.value_size:
            values = replace(workload.values, distribution="fixed", size=level.value_size)
            workload = replace(workload, values=values)
        # Other numbers in each measurement, the same ones in each run.
        self._task_seed += 1
        workers = min(plan.workers, level.clients)
        tasks = []
        for worker in range(workers):
            connections = level.clients // workers + (worker < level.clients % workers)
            tasks.append(
                Task(
                    address=target.address,
                    workload=workload,
                    connections=connections,
                    worker=worker,
                    workers=workers,
                    first=self._next_client,
                    seed=self._task_seed,
                    client=plan.client,
                    verify=plan.verify,
                    timeout=plan.timeout,
                    login=target.login,
                    tls=target.tls,
                    lite=target.lite,
                )
            )
            self._next_client += connections
        return tasks

    def _points(
        self, measured: dict[tuple[str, Level], list[Repetition]], workload: Workload
    ) -> list[Point]:
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

    # The knee

    def _find_knee(self, target: Target, search: KneeSearch) -> None:
        """Double the load until that brings no more, then look in between."""
        level = self._plan.levels[0]
        best = self._look(target, level)
        too_slow = search.slo and best.response["all"].p99 > search.slo
        reason = "start" if too_slow else "limit"
        low = high = _load(level)
        while reason == "limit" and high < search.most:
            high = min(2 * high, search.most)
            found = self._look(target, _with_load(level, high))
            reason = _why_no_more(best, found, search) or "limit"
            if reason == "limit":
                best, low = found, high
        if reason in ("throughput", "slo"):
            for _ in range(2):
                middle = _middle(level, low, high)
                if middle in (low, high):
                    break
                found = self._look(target, _with_load(level, middle))
                if _why_no_more(best, found, search, (middle / low) ** 0.07):
                    high = middle
                else:
                    best, low = found, middle
        self._knees.append(
            Knee(
                target.name, best.clients, best.rate, best.throughput.mean,
                best.response["all"].p99, reason,
            )
        )  # fmt: skip

    def _look(self, target: Target, level: Level) -> Point:
        repetitions = [
            self._repeat(target, level, number)
            for number in range(1, self._plan.workload.load.repetitions + 1)
        ]
        size = level.value_size or mean_size(self._plan.workload.values)
        return point(target.name, level.clients, level.rate, size, repetitions)


def _load(level: Level) -> float:
    return level.rate or level.clients


def _with_load(level: Level, load: float) -> Level:
    return replace(level, rate=load) if level.rate else replace(level, clients=round(load))


def _middle(level: Level, low: float, high: float) -> float:
    middle = (low * high) ** 0.5
    return float(middle if level.rate else round(middle))


def _why_no_more(before: Point, after: Point, search: KneeSearch, growth: float = _GROWTH) -> str:
    if search.slo and after.response["all"].p99 > search.slo:
        return "slo"
    return "" if after.throughput.mean >= before.throughput.mean * growth else "throughput"
