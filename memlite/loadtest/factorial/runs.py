"""The runs of an experiment: those already measured, and those still to be measured."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.checking import with_checks
from memlite.loadtest.experiment import Plan, run
from memlite.loadtest.factorial.design import Design, Run
from memlite.loadtest.factorial.progress import RunProgress
from memlite.loadtest.files import JSON_NAME, load, save
from memlite.loadtest.limits import raise_file_limit
from memlite.loadtest.options import parse
from memlite.loadtest.planning import plan_of
from memlite.loadtest.pool import Pool
from memlite.loadtest.remote.machine import RemoteMachine
from memlite.loadtest.results import Point, Results
from memlite.loadtest.resuming import goes_on
from memlite.loadtest.workload_files import as_dict

__all__ = ["Measured", "check", "measure", "missing_of", "problem_of"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A run that has been measured.

    Attributes:
        run: the run.
        results: its results.
    """

    run: Run
    results: Results

    @property
    def point(self) -> Point:
        """Its only measurement."""
        (found,) = self.results.points
        return found


def check(design: Design, folder: Path) -> None:
    """Check the options of all combinations, before anything is measured.

    Raises:
        ConfigError: a combination has an invalid option, or measures more than one server at one
            load.
    """
    for levels in design.combinations:
        plan = _plan(design, Run(levels, 1), folder)
        if len(plan.targets) != 1 or len(plan.levels) != 1 or plan.knee is not None:
            raise ConfigError(
                "bench: a run of an experiment measures one server at one load, but "
                f"{' '.join(plan.command)} measures more"
            )


def measure(
    design: Design,
    folder: Path,
    progress: RunProgress,
    pool: Pool | None = None,
    machines: Sequence[RemoteMachine] = (),
) -> list[Measured]:
    """Measure the missing runs; return all runs in order.

    Args:
        design: the experiment.
        folder: the experiment's folder.
        progress: shows the progress.
        pool: load generators for all runs, as many as the runs use; None to start them here.
        machines: where servers and proxies run, if they are connected already.

    Raises:
        ConfigError: the folder holds other measurements.
        StartError: a run cannot begin, or has failed.
        KeyboardInterrupt: the user has interrupted it.
    """
    found = {one: _loaded(design, one, folder) for one in design.runs}
    missing = [one for one, results in found.items() if results is None]
    with progress, _Generators(design, folder, missing, pool) as generators:
        progress.begin(len(found), len(missing))
        for one in missing:
            described = ", ".join(
                f"{name} {level}"
                for name, level in zip(design.names, design.chosen(one.levels), strict=True)
            )
            progress.start_run(described)
            found[one] = _measured(design, one, folder, progress, generators, machines)
            progress.finish_run()
    return [Measured(one, results) for one, results in found.items() if results is not None]


class _Generators:
    """The load generator processes, which keep running until a run needs a different number.

    Args:
        design: the experiment.
        folder: where it is kept.
        missing: the runs to measure.
        pool: the caller's processes, for all runs; None to start them.
    """

    def __init__(
        self, design: Design, folder: Path, missing: Sequence[Run], pool: Pool | None
    ) -> None:
        self._plans = [_plan(design, one, folder) for one in missing] if pool is None else []
        self._pool = pool
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for plan in self._plans:  # they inherit it
            raise_file_limit(plan.most_connections, plan.workers)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def pool_of(self, plan: Plan) -> Pool:
        """Return the processes for a run."""
        if self._pool is None or self._pool.count != plan.workers:
            self._stack.close()
            self._pool = self._stack.enter_context(Pool(plan.workers))
        return self._pool


def missing_of(design: Design, folder: Path) -> list[Run]:
    """Return the runs not measured yet.

    Raises:
        ConfigError: the folder has other measurements.
    """
    return [one for one in design.runs if _loaded(design, one, folder) is None]


def _measured(
    design: Design,
    one: Run,
    folder: Path,
    progress: RunProgress,
    generators: "_Generators",
    machines: Sequence[RemoteMachine],
) -> Results:
    plan = _plan(design, one, folder, machines)
    results = with_checks(run(plan, progress.display, pool=generators.pool_of(plan)))
    if results.partial and not results.failure:
        raise KeyboardInterrupt
    problem = results.failure or problem_of(results)
    if problem:
        raise StartError(f"bench: {problem}; {goes_on(folder)}")
    save(results, _path(one, folder))
    return results


def _plan(design: Design, one: Run, folder: Path, machines: Sequence[RemoteMachine] = ()) -> Plan:
    """Return a new plan of a run for each call, as targets keep the processes they start."""
    arguments = design.arguments(one)
    parsed = parse(arguments)
    if parsed is None:
        raise ConfigError("bench: --help must come before --factor")
    return replace(plan_of(parsed, arguments, folder, machines), bursts=False)


def _path(one: Run, folder: Path) -> Path:
    return folder / "runs" / one.name


def _loaded(design: Design, one: Run, folder: Path) -> Results | None:
    """Return the results of a run; None if there are none.

    Raises:
        ConfigError: the results cannot be read, or belong to another run.
    """
    path = _path(one, folder)
    if not (path / JSON_NAME).exists():
        return None
    results, plan = with_checks(load(path)), _plan(design, one, folder)
    if results.partial or len(results.points) != 1 or problem_of(results):
        return None
    (level,), (point,) = plan.levels, results.points
    workload = json.loads(json.dumps(as_dict(plan.workload)))  # as it is read back
    loaded = results.workload, results.workers, results.client, point.clients, point.rate
    if loaded != (workload, plan.workers, plan.client, level.clients, level.rate):
        raise ConfigError(f"bench: {path} was measured with other options; choose another folder")
    return results


def problem_of(results: Results) -> str:
    """Return why results have nothing to analyse; empty if they do."""
    if not results.points:
        return "no operation succeeded"
    for point in results.points:
        if "all" not in point.response or not point.response["all"].count:
            load = f" at {point.clients} clients" if len(results.points) > 1 else ""
            errors = f" ({', '.join(point.errors)})" if point.errors else ""
            return f"no operation succeeded{load}{errors}"
    return ""
