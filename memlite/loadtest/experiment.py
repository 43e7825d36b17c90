"""A run measures every target at every load level, interleaving the targets' repetitions."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from memlite.core.errors import StartError
from memlite.loadtest.kept import Kept, Slot
from memlite.loadtest.knee import KneeSearch, find_knee
from memlite.loadtest.levels import Level
from memlite.loadtest.limits import ClientRefusedError, raise_file_limit
from memlite.loadtest.machine import machine, versions
from memlite.loadtest.machines import ran_on
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

# Maximum number of connections per worker while keys are preloaded.
_PRELOAD_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run.

    Attributes:
        title: the report's title.
        workload: the workload of the clients.
        targets: the servers to measure; `run` starts and stops them.
        levels: the load levels; a search for the knee starts at the first.
        workers: number of worker processes.
        seed: the seed of all randomness.
        command: the command line, for the report.
        client: ``text`` or ``pymemcache``.
        verify: whether to check values.
        timeout: maximum time to wait for a reply, in seconds.
        machines: number of machines of each type on which the servers run; empty if unknown.
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
        """The highest number of connections; clients that know the nodes have one to each node."""
        return self.most_clients * max(target.connections_per_client for target in self.targets)


def run(
    plan: Plan, display: ProgressDisplay, kept: Kept | None = None, pool: Pool | None = None
) -> Results:
    """Run a plan, or resume it.

    If the run ends early, because the user interrupts it or a target fails, the results so far are
    returned, marked as partial.

    Args:
        plan: the plan to run.
        display: shows the progress.
        kept: store of this plan's finished repetitions, to which new ones are added; None to keep
            none.
        pool: workers that are already running, and stay running; None to start workers for this
            run.

    Raises:
        TooManyClientsError: a target does not accept that many clients; nothing was measured.
        StartError: a target cannot be started or reached, or the limit on open files is too low;
            nothing was measured.
        ConfigError: the workload is invalid, or the kept repetitions belong to another run.
        KeyboardInterrupt: the user interrupted the run before anything was measured.
    """
    return _Run(plan, display, kept).run(pool)


class _Run:
    def __init__(self, plan: Plan, display: ProgressDisplay, kept: Kept | None) -> None:
        self._plan = plan
        self._display = display
        self._kept = kept
        self._steady: dict[tuple[str, Level], list[Repetition]] = {}
        self._bursts: dict[tuple[str, Level], list[Repetition]] = {}
        self._knees: list[Knee] = []
        self._task_seed = plan.seed
        self._next_client = 0

    _pool: Pool

    def run(self, pool: Pool | None) -> Results:
        plan, started, clock = self._plan, time.time(), time.monotonic()
        infos: list[TargetInfo] = []
        ended_early, failure, mixed = False, "", ""
        with contextlib.ExitStack() as stack:
            self._display.start_step("starting")
            raise_file_limit(plan.most_connections, plan.workers)
            self._pool = pool or stack.enter_context(Pool(plan.workers))
            for target in plan.targets:
                stack.enter_context(target)
                info = target.info()
                hosts = [one.machine for one in info.placed.values()]
                infos.append(replace(info, machines=ran_on(plan.machines, hosts)))
                if plan.knee is None:
                    target.check_clients(plan.most_clients)
            if self._kept is not None:
                running = {one.name: one.server for one in infos if one.kind == "server"}
                mixed = self._kept.begin(running)
            try:
                self._measure_all()
            except (Interrupted, KeyboardInterrupt):
                ended_early = True
                if not self._measured:
                    raise KeyboardInterrupt from None
            except StartError as error:
                ended_early, failure = True, str(error).removeprefix("bench: ")
                if not self._measured:
                    raise
        return Results(
            title=plan.title,
            started=round(min([started, *self._starts()]), 3),
            seconds=round(time.monotonic() - clock, 3),
            partial=ended_early,
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
            failure=failure,
            mixed=mixed,
        )

    @property
    def _measured(self) -> bool:
        return any((*self._steady.values(), *self._bursts.values()))

    def _starts(self) -> Iterator[float]:
        """Yield the start times of repetitions; kept ones may precede this run."""
        for found in (*self._steady.values(), *self._bursts.values()):
            yield from (one.started for one in found)

    def _measure_all(self) -> None:
        plan = self._plan
        if plan.knee is not None:
            self._preload(plan.levels[0].value_size)
            for number, target in enumerate(plan.targets):
                measure_point = partial(self._measure_point, number, target)
                self._knees.append(find_knee(plan.levels[0], plan.knee, measure_point))
            return
        slots = list(self._slots())
        missing = [one for one in slots if self._find(one) is None]
        self._display.expect_measurements(len(missing))
        if len(missing) < len(slots):
            there = len(slots) - len(missing)
            self._display.message(f"{there} of {len(slots)} repetitions have already been measured")
        needed = {one.level.value_size for one in missing}
        preloaded_size = None
        for slot in slots:
            if slot.level.value_size != preloaded_size:
                preloaded_size = slot.level.value_size
                self._preload(preloaded_size, skip=preloaded_size not in needed)
            self._measure(plan.targets[slot.target], slot)

    def _slots(self) -> Iterator[Slot]:
        """Yield all repetitions, in the order in which they are measured."""
        plan = self._plan
        for level in plan.levels:
            for number in range(1, plan.workload.load.repetitions + 1):
                for target in range(len(plan.targets)):
                    if plan.bursts:
                        yield Slot(target, level, number, burst=True)
                    yield Slot(target, level, number)

    def _find(self, slot: Slot) -> Repetition | None:
        return None if self._kept is None else self._kept.find(slot)

    # One measurement

    def _preload(self, value_size: int, *, skip: bool = False) -> None:
        """Store all keys with values of `value_size` bytes; 0 for the workload's sizes.

        With `skip`, nothing is stored, but later measurements get the same seeds.
        """
        plan = self._plan
        if not plan.workload.preload or plan.workload.kind != "steady" or plan.workload.trace:
            return
        for target in plan.targets:
            level = Level(self._preload_connections(target), 0.0, value_size)
            tasks = [replace(task, preload=True) for task in self._tasks(target, level)]
            if skip:
                continue
            self._display.start_step(
                f"{target.name}: storing {short(plan.workload.keys.count)} keys"
            )
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
        """Return the number of connections: many, as buckets are slow, but fewer than the limit."""
        plan, limit = self._plan, target.connection_limit
        if limit is None:
            return min(_PRELOAD_CONNECTIONS, plan.most_clients)
        return min(_PRELOAD_CONNECTIONS * plan.workers, max(1, limit // 2))

    def _measure(self, target: Target, slot: Slot) -> Repetition:
        """Measure a repetition, or return the kept one."""
        target.check_clients(slot.level.clients)
        measured = self._bursts if slot.burst else self._steady
        found = measured.setdefault((target.name, slot.level), [])
        workload = load_workload("concurrent") if slot.burst else None
        # Create the tasks in any case, so that later measurements get the same seeds.
        tasks = self._tasks(target, slot.level, workload)
        kept = self._find(slot)
        if kept is not None:
            found.append(kept)
            return kept
        self._display.start_step(f"{target.name}, {slot.level}{' at once' * slot.burst}")
        return self._record(target, tasks, slot, found)

    def _record(
        self, target: Target, tasks: Sequence[Task], slot: Slot, found: list[Repetition]
    ) -> Repetition:
        try:
            repetition = measure(self._pool, target, tasks, slot.number, self._display)
        except Interrupted as interrupted:
            # Keep a partial repetition only if there is no complete one.
            fragment = interrupted.repetition
            if fragment is not None and fragment.operations and not found:
                found.append(fragment)
            raise
        found.append(repetition)
        # Do not keep a repetition in which nothing succeeded: a resumed run measures it again.
        if self._kept is not None and repetition.operations:
            self._kept.keep(slot, repetition)
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
        shares = spread(level.clients, workers, (target.address, *target.extra_addresses))
        for worker, (connections, (address, *extra)) in enumerate(shares):
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
                    dialect=target.dialect,
                    topology=target.topology,
                    discovers_nodes=target.discovers_nodes,
                    extra_addresses=tuple(extra),
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

    def _measure_point(self, index: int, target: Target, level: Level) -> Point:
        repetitions = [
            self._measure(target, Slot(index, level, number))
            for number in range(1, self._plan.workload.load.repetitions + 1)
        ]
        size = level.value_size or mean_size(self._plan.workload.values)
        return point(target.name, level.clients, level.rate, size, repetitions)
