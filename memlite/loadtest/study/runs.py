"""The sweeps of a study: those that are there, and those that are still to be measured."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.checking import with_checks
from memlite.loadtest.experiment import Plan, run
from memlite.loadtest.files import JSON_NAME, load, save
from memlite.loadtest.kept import Kept
from memlite.loadtest.options import parse
from memlite.loadtest.planning import plan_of
from memlite.loadtest.results import Results
from memlite.loadtest.resuming import differences
from memlite.loadtest.study.design import Study, Sweep
from memlite.loadtest.study.progress import StudyProgress
from memlite.loadtest.sweep import with_saturation
from memlite.loadtest.workload_files import as_dict

__all__ = ["Load", "Sweeps", "combined"]

Load = tuple[Sweep, int]
"""A sweep, and one of its numbers of clients."""


@dataclass(frozen=True, slots=True)
class Sweeps:
    """The sweeps of a study, and where they are kept.

    Attributes:
        study: what is measured.
        folder: each sweep has a folder in it, and in that one for each number of clients.
        mixed: whether repetitions of another system are completed.
    """

    study: Study
    folder: Path
    mixed: bool = False

    def plans(self) -> dict[Sweep, Plan]:
        """Return the plan of each sweep.

        Raises:
            ConfigError: an option is invalid.
        """
        return {sweep: self._plan(sweep) for sweep in self.study.sweeps}

    def there(self) -> dict[Load, Results]:
        """Return the loads that have been measured already.

        Raises:
            ConfigError: one cannot be read, or is something else.
        """
        loads = [(sweep, one) for sweep in self.study.sweeps for one in self.study.scale.clients]
        found = {load: self._loaded(*load) for load in loads}
        return {load: results for load, results in found.items() if results is not None}

    def missing(self, there: Mapping[Load, Results]) -> int:
        """Return how many measurements have not been made yet.

        Args:
            there: the loads that have been measured.
        """
        return sum(
            len(plan.targets) * plan.workload.load.repetitions
            - self._kept(sweep, level.clients).count()
            for sweep, plan in self.plans().items()
            for level in plan.levels
            if (sweep, level.clients) not in there
        )

    def begun(self, there: Mapping[Load, Results]) -> bool:
        """Return whether anything has been measured, if only a part of a load.

        Args:
            there: the loads that have been measured.
        """
        loads = ((sweep, one) for sweep in self.study.sweeps for one in self.study.scale.clients)
        return bool(there) or any(self._kept(*load).count() for load in loads)

    def measure(
        self, there: Mapping[Load, Results], progress: StudyProgress
    ) -> dict[Sweep, Results]:
        """Measure what is not there yet; return everything, in the order of the study.

        Args:
            there: the loads that have been measured.
            progress: shows how far it is.

        Raises:
            StartError: a sweep cannot begin, or has failed.
            KeyboardInterrupt: the user has interrupted it.
        """
        return {sweep: self._complete(sweep, there, progress) for sweep in self.study.sweeps}

    def _complete(
        self, sweep: Sweep, there: Mapping[Load, Results], progress: StudyProgress
    ) -> Results:
        loads = [(sweep, clients) for clients in self.study.scale.clients]
        path = self.folder / sweep.name
        if all(one in there for one in loads) and (path / JSON_NAME).exists():
            return load(path)
        parts = [there.get(one) or self._measured(*one, progress) for one in loads]
        results = with_saturation(with_checks(combined(parts, self.study.arguments(sweep))))
        save(results, path)
        return results

    def _measured(self, sweep: Sweep, clients: int, progress: StudyProgress) -> Results:
        progress.run = sweep.name
        kept = self._kept(sweep, clients)
        with kept.locked():
            results = run(self._plan(sweep, [clients]), progress, kept)
        if results.partial and not results.failure:
            raise KeyboardInterrupt
        problem = results.failure or _problem(results)
        if problem:
            raise StartError(f"bench: {sweep.name}: {problem}")
        save(results, self._path(sweep, clients))
        kept.remove()
        return results

    def _kept(self, sweep: Sweep, clients: int) -> Kept:
        settings = {"command": self.study.arguments(sweep, [clients])}
        return Kept(self._path(sweep, clients), settings, mixed=self.mixed)

    def _path(self, sweep: Sweep, clients: int) -> Path:
        return self.folder / sweep.name / str(clients)

    def _plan(self, sweep: Sweep, clients: Sequence[int] = ()) -> Plan:
        """Return the plan of a sweep; a new one each time, as targets keep what they started."""
        arguments = self.study.arguments(sweep, clients)
        parsed = parse(arguments)
        if parsed is None:
            raise ConfigError("bench: --help belongs before other options")
        return replace(plan_of(parsed, arguments, self.folder), bursts=False)

    def _loaded(self, sweep: Sweep, clients: int) -> Results | None:
        path = self._path(sweep, clients)
        if not (path / JSON_NAME).exists():
            return None
        results, plan = load(path), self._plan(sweep, [clients])
        if results.partial or _problem(results):
            return None
        workload = json.loads(json.dumps(as_dict(plan.workload)))  # as it is read back
        measured = {(point.clients, point.rate) for point in results.points}
        if (results.workload, results.workers) != (workload, plan.workers) or measured != {
            (level.clients, level.rate) for level in plan.levels
        }:
            raise ConfigError(f"bench: {path} was measured in another way; choose another folder")
        return results


def combined(parts: Sequence[Results], arguments: Sequence[str]) -> Results:
    """Return the loads of a sweep as one run.

    Args:
        parts: the results of each load, in order of clients.
        arguments: the command line that measures all of them.
    """
    first = parts[0]
    return replace(
        first,
        started=min(one.started for one in parts),
        seconds=round(sum(one.seconds for one in parts), 3),
        command=("memlite", "bench", *arguments),
        mixed=differences([(one.machine, one.versions) for one in parts])
        or next((one.mixed for one in parts if one.mixed), ""),
        points=[
            point
            for target in first.targets
            for one in parts
            for point in one.points
            if point.target == target.name
        ],
    )


def _problem(results: Results) -> str:
    """Return why results have nothing to analyse; empty if they have."""
    for point in results.points:
        if "all" not in point.response or not point.response["all"].count:
            errors = ", ".join(point.errors)
            return f"no operation has succeeded at {point.clients} clients ({errors})"
    return ""
