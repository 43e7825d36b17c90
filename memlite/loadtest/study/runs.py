"""The sweeps of a study: those that are there, and those that are still to be measured."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.experiment import Plan, run
from memlite.loadtest.files import JSON_NAME, load, save
from memlite.loadtest.options import parse
from memlite.loadtest.planning import plan_of
from memlite.loadtest.results import Results
from memlite.loadtest.study.design import Study, Sweep
from memlite.loadtest.study.progress import StudyProgress
from memlite.loadtest.workload_files import as_dict

__all__ = ["Sweeps"]


@dataclass(frozen=True, slots=True)
class Sweeps:
    """The sweeps of a study, and where they are kept.

    Attributes:
        study: what is measured.
        folder: each sweep has a folder in it.
    """

    study: Study
    folder: Path

    def plans(self) -> dict[Sweep, Plan]:
        """Return the plan of each sweep.

        Raises:
            ConfigError: an option is invalid.
        """
        return {sweep: self._plan(sweep) for sweep in self.study.sweeps}

    def there(self) -> dict[Sweep, Results]:
        """Return what has been measured already.

        Raises:
            ConfigError: it cannot be read, or is something else.
        """
        found = {sweep: self._loaded(sweep) for sweep in self.study.sweeps}
        return {sweep: results for sweep, results in found.items() if results is not None}

    def measure(
        self, there: Mapping[Sweep, Results], progress: StudyProgress
    ) -> dict[Sweep, Results]:
        """Measure what is not there yet; return everything, in the order of the study.

        Raises:
            StartError: a sweep cannot begin, or has failed.
            KeyboardInterrupt: the user has interrupted it.
        """
        found = {}
        for sweep in self.study.sweeps:
            found[sweep] = there[sweep] if sweep in there else self._measured(sweep, progress)
        return found

    def _measured(self, sweep: Sweep, progress: StudyProgress) -> Results:
        progress.run = sweep.name
        results = run(self._plan(sweep), progress)
        if results.partial and not results.failure:
            raise KeyboardInterrupt
        problem = results.failure or _problem(results)
        if problem:
            raise StartError(f"bench: {sweep.name}: {problem}")
        save(results, self.folder / sweep.name)
        return results

    def _plan(self, sweep: Sweep) -> Plan:
        """Return the plan of a sweep; a new one each time, as targets keep what they started."""
        arguments = self.study.arguments(sweep)
        parsed = parse(arguments)
        if parsed is None:
            raise ConfigError("bench: --help belongs before other options")
        return replace(plan_of(parsed, arguments, self.folder), bursts=False)

    def _loaded(self, sweep: Sweep) -> Results | None:
        path = self.folder / sweep.name
        if not (path / JSON_NAME).exists():
            return None
        results, plan = load(path), self._plan(sweep)
        if results.partial or _problem(results):
            return None
        workload = json.loads(json.dumps(as_dict(plan.workload)))  # as it is read back
        measured = {(point.clients, point.rate) for point in results.points}
        if (results.workload, results.workers) != (workload, plan.workers) or measured != {
            (level.clients, level.rate) for level in plan.levels
        }:
            raise ConfigError(f"bench: {path} was measured in another way; choose another folder")
        return results


def _problem(results: Results) -> str:
    """Return why results have nothing to analyse; empty if they have."""
    for point in results.points:
        if "all" not in point.response or not point.response["all"].count:
            errors = ", ".join(point.errors)
            return f"no operation has succeeded at {point.clients} clients ({errors})"
    return ""
