"""Measures gets of several keys through a proxy: sharded and not, in turn and in random order."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from memlite.core.errors import StartError
from memlite.loadtest.measure import measure
from memlite.loadtest.messages import Task
from memlite.loadtest.multigets.cluster import TracedCluster, prefixes
from memlite.loadtest.multigets.runs import (
    Run,
    Settings,
    load_runs,
    run_of,
    save_runs,
    with_proxy,
)
from memlite.loadtest.places import HERE, Place
from memlite.loadtest.pool import Interrupted, Pool
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.targets import LaunchSettings, largest_item
from memlite.loadtest.workload import Keys, Load, Values, Workload

__all__ = ["WARM_UP", "complete", "missing"]

WARM_UP: Final = 0.25
"""The warm-up before each measurement, in seconds."""
_TRACE = "trace.csv"


def complete(
    settings: Settings,
    folder: Path,
    display: ProgressDisplay,
    places: Sequence[Place] = (HERE,),
) -> list[Run]:
    """Make all missing measurements; return all measurements.

    Args:
        settings: what to measure.
        folder: where the measurements are kept; it exists.
        display: shows the progress.
        places: where nodes and the proxy are started, in turn.

    Raises:
        ConfigError: the folder has measurements with other settings, or no request has succeeded.
        StartError: a server cannot be started, or has died.
        KeyboardInterrupt: the user has interrupted the measurements.
    """
    runs = load_runs(settings, folder)

    def keep(run: Run) -> None:
        runs.append(run)
        save_runs(settings, runs, folder)

    trace = folder / _TRACE
    if not _measure_missing(settings, runs, folder, trace, display, keep, places):
        raise KeyboardInterrupt
    runs = with_proxy(runs, trace)
    save_runs(settings, runs, folder)
    return runs


def missing(settings: Settings, folder: Path) -> int:
    """Return how many measurements have not been made yet.

    Raises:
        ConfigError: the folder has measurements with other settings.
    """
    done = {run.key for run in load_runs(settings, folder)}
    return sum(one not in done for one in _order(settings))


def _measure_missing(
    settings: Settings,
    runs: Sequence[Run],
    folder: Path,
    trace: Path,
    display: ProgressDisplay,
    keep: Callable[[Run], None],
    places: Sequence[Place],
) -> bool:
    """Make the missing measurements.

    Args:
        settings: what to measure.
        runs: the finished measurements.
        folder: the folder for temporary files.
        trace: the file that the proxy adds to.
        display: shows the progress.
        keep: called with each measurement when it is over.
        places: where nodes and the proxy are started, in turn.

    Returns:
        Whether everything was measured; False if the user has interrupted the measurements.

    Raises:
        StartError: a server cannot be started, or has died.
        ConfigError: no request has succeeded.
    """
    done = {run.key for run in runs}
    wanted = [one for one in _order(settings) if one not in done]
    if not wanted:
        return True
    display.expect_measurements(len(wanted))
    launch = LaunchSettings(
        folder,
        connections=settings.clients + 64,
        item_size=largest_item(settings.value_size),
        options=settings.options,
    )
    try:
        with (
            Pool(settings.nodes) as pool,
            TracedCluster(settings.nodes, trace, launch, settings.backend, places) as target,
        ):
            measuring = _Measuring(settings, pool, target, display)
            measuring.store_keys()
            for size, sharded, number in wanted:
                keep(measuring.measure(size, number, sharded=sharded))
                display.finish_measurement()
    except (KeyboardInterrupt, Interrupted):
        return False
    return True


def _order(settings: Settings) -> Iterator[tuple[int, bool, int]]:
    """Yield all measurements: in each repetition all sizes at random, both ways of each in turn."""
    chance = random.Random(settings.seed)  # noqa: S311 - no secret
    for number in range(1, settings.repetitions + 1):
        for size in chance.sample(settings.sizes, len(settings.sizes)):
            first = chance.random() < 0.5
            yield size, first, number
            yield size, not first, number


class _Measuring:
    """Drives the load: each process has its own keys, under a sharded and an unsharded prefix."""

    def __init__(
        self, settings: Settings, pool: Pool, target: TracedCluster, display: ProgressDisplay
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._target = target
        self._display = display
        self._together = prefixes(settings.nodes)
        # Prefixes of the same length, but without a hash tag: each key is hashed as a whole.
        self._spread = [one.translate({0x7B: "[", 0x7D: "]"}) for one in self._together]
        self._seed = settings.seed

    def store_keys(self) -> None:
        """Store all keys.

        Raises:
            StartError: a key cannot be stored.
        """
        for prefix in (*self._together, *self._spread):
            self._display.start_step(f"storing keys {prefix}…")
            tasks = [
                replace(task, preload=True) for task in self._tasks([prefix] * self._pool.count, 1)
            ]
            errors = self._pool.run(tasks, self._display.update).counts.errors
            if errors:
                raise StartError(f"bench: multigets: storing keys failed: {', '.join(errors)}")

    def measure(self, size: int, number: int, *, sharded: bool) -> Run:
        """Measure one size, one way."""
        how = "sharded" if sharded else "from one node"
        self._display.start_step(f"{size} key{'s' if size > 1 else ''}, {how}")
        # Both ways get the same keys, except for the prefix.
        self._seed = self._settings.seed + 1000 * number + size
        tasks = self._tasks(self._spread if sharded else self._together, size)
        found = measure(self._pool, self._target, tasks, number, self._display)
        return run_of(size, found, sharded=sharded)

    def _tasks(self, of_process: Sequence[str], size: int) -> list[Task]:
        settings = self._settings
        workers = self._pool.count
        load = Load(multiget=size, duration=settings.duration, warm_up=WARM_UP, repetitions=1)
        tasks = []
        for worker, prefix in enumerate(of_process):
            workload = Workload(
                name="multigets",
                mix={"get": 1.0},
                keys=Keys(count=settings.keys, prefix=prefix),
                values=Values(size=settings.value_size),
                load=load,
            )
            connections = settings.clients // workers + (worker < settings.clients % workers)
            tasks.append(
                Task(self._target.address, workload, connections, worker, workers, 0, self._seed)
            )
        return tasks
