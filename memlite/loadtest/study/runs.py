"""The sweeps of a study: those already measured, and those still to be measured."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.checking import with_checks
from memlite.loadtest.experiment import Plan, run
from memlite.loadtest.factorial.runs import problem_of
from memlite.loadtest.files import JSON_NAME, load, save
from memlite.loadtest.kept import Kept
from memlite.loadtest.options import parse
from memlite.loadtest.options.hosts import without_access
from memlite.loadtest.planning import plan_of
from memlite.loadtest.pool import Pool
from memlite.loadtest.remote.machine import RemoteMachine
from memlite.loadtest.results import Results
from memlite.loadtest.study.design import Study, Sweep
from memlite.loadtest.study.progress import StudyProgress
from memlite.loadtest.sweep import with_saturation
from memlite.loadtest.workload_files import as_dict

__all__ = ["Sweeps"]


@dataclass(frozen=True, slots=True)
class Sweeps:
    """The sweeps of a study, and where they are kept.

    Attributes:
        study: the study.
        folder: the directory with a folder for each sweep.
        machines: where servers and proxies run; empty for this machine.
        mixed: whether to accept repetitions measured on another system.
    """

    study: Study
    folder: Path
    machines: Sequence[RemoteMachine] = ()
    mixed: bool = False

    def plans(self) -> dict[Sweep, Plan]:
        """Return the plan of each sweep.

        Raises:
            ConfigError: an option is invalid.
        """
        return {sweep: self._plan(sweep) for sweep in self.study.sweeps}

    def missing(self) -> dict[Sweep, int]:
        """Return the number of missing measurements of each sweep.

        Raises:
            ConfigError: a sweep cannot be read, or was measured in another way.
        """
        return {
            sweep: 0 if self._loaded(sweep) else _measurements(plan) - self._kept(sweep).count()
            for sweep, plan in self.plans().items()
        }

    def begun(self, missing: Mapping[Sweep, int]) -> bool:
        """Return whether anything has been measured, even if only a part of a sweep.

        Args:
            missing: the number of missing measurements of each sweep.
        """
        return any(missing[sweep] < _measurements(plan) for sweep, plan in self.plans().items())

    def measure(self, progress: StudyProgress, pool: Pool | None) -> dict[Sweep, Results]:
        """Make the missing measurements; return everything, in the order of the study.

        Args:
            progress: shows the progress.
            pool: the load generators; None to start new ones for each sweep.

        Raises:
            StartError: a sweep cannot begin, or has failed.
            KeyboardInterrupt: the user has interrupted it.
        """
        return {
            sweep: self._loaded(sweep) or self._measured(sweep, progress, pool)
            for sweep in self.study.sweeps
        }

    def _measured(self, sweep: Sweep, progress: StudyProgress, pool: Pool | None) -> Results:
        progress.run = sweep.name
        kept = self._kept(sweep)
        with kept.locked():
            results = run(self._plan(sweep), progress, kept, pool)
            if results.partial and not results.failure:
                raise KeyboardInterrupt
            if problem := results.failure or problem_of(results):
                raise StartError(f"bench: {sweep.name}: {problem}")
            results = with_saturation(with_checks(results))
            save(results, self.folder / sweep.name)
            kept.remove()
        return results

    def _kept(self, sweep: Sweep) -> Kept:
        settings = {"command": without_access(self.study.arguments(sweep))}
        return Kept(self.folder / sweep.name, settings, mixed=self.mixed)

    def _plan(self, sweep: Sweep) -> Plan:
        """Return a new plan of a sweep for each call, as targets keep the processes they start."""
        arguments = self.study.arguments(sweep)
        parsed = parse(arguments)
        if parsed is None:
            raise ConfigError("bench: --help must come before other options")
        return replace(plan_of(parsed, arguments, self.folder, self.machines), bursts=False)

    def _loaded(self, sweep: Sweep) -> Results | None:
        """Return a sweep that has been measured; None if it has not."""
        path = self.folder / sweep.name
        if not (path / JSON_NAME).exists():
            return None
        results, plan = load(path), self._plan(sweep)
        workload = json.loads(json.dumps(as_dict(plan.workload)))  # as it is read back
        measured = {(point.clients, point.rate) for point in results.points}
        if (results.workload, results.workers) != (workload, plan.workers) or measured != {
            (level.clients, level.rate) for level in plan.levels
        }:
            raise ConfigError(
                f"bench: {path} was measured with other options; choose another folder"
            )
        # Repetitions are left over if the study was killed after saving the results.
        self._kept(sweep).remove()
        return results


def _measurements(plan: Plan) -> int:
    return len(plan.levels) * len(plan.targets) * plan.workload.load.repetitions
