"""``memlite bench factorial``: measures all combinations of two levels of each factor.

The runs are in random order, so that what changes meanwhile on the machine is not taken for an
effect. Each is saved when it is over; the same command goes on where an earlier one has stopped.
"""

import argparse
import contextlib
import fcntl
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TextIO

from memlite.core.errors import ConfigError, StartError
from memlite.lab import Effect, FactorialResult, analyse_factorial
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.experiment import Plan, run
from memlite.loadtest.files import JSON_NAME, load, save, write
from memlite.loadtest.options import parse
from memlite.loadtest.planning import new_folder, plan_of, prepare
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.results import Point, Results
from memlite.loadtest.units import grouped
from memlite.loadtest.workload_files import as_dict

__all__ = ["measure_factorial"]

_DESIGN: Final = "factorial.json"
_RESPONSES: Final = {
    "throughput": "throughput, operations per second",
    "response_time": "mean response time, µs",
    "p99": "99th percentile of response times, µs",
}
_ERRORS: Final = 1
_INTERRUPTED: Final = 130

_Levels = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Factor:
    """An option with two values.

    Attributes:
        name: the option's, without dashes.
        levels: the values.
    """

    name: str
    levels: tuple[str, str]

    @property
    def label(self) -> str:
        """Both as text."""
        return f"{self.name} {self.levels[0]} → {self.levels[1]}"


def measure_factorial(options: argparse.Namespace, others: Sequence[str], out: TextIO) -> int:
    """Measure, or go on measuring, and print the analysis.

    Args:
        options: the factors and what is for all runs.
        others: options of ``compare`` that are the same in all runs.
        out: gets the tables.

    Returns:
        The exit code: 0, 1 if requests have failed, or 130 if the user has interrupted it.

    Raises:
        ConfigError: an option is invalid, or the folder has another experiment.
        StartError: a run cannot begin, or has failed.
    """
    factors = [_factor(text) for text in options.factor]
    names = [one.name for one in factors]
    if len(set(names)) < len(names):
        raise ConfigError("bench: --factor: two factors have the same name")
    common = _common(others, names)
    folder = options.out or new_folder()
    experiment = _Experiment(factors, common, options.seed, folder)
    experiment.check()
    design = {
        "factors": [asdict(one) for one in factors],
        "options": list(common),
        "repetitions": options.repetitions,
        "seed": options.seed,
    }
    prepare(folder)
    try:
        with _locked(folder):
            _keep(folder / _DESIGN, design)
            measured = experiment.measure(options.repetitions, quiet=options.quiet)
            found = _analyse(names, measured)
            analysis = {name: _plain(one) for name, one in found}
            _save(folder / _DESIGN, {**design, "analysis": analysis})
    except KeyboardInterrupt:
        sys.stderr.write(f"memlite: bench: interrupted; {_goes_on(folder)}\n")
        return _INTERRUPTED
    points = [point for results in measured.values() for one in results for point in one.points]
    out.writelines(f"{doubt}\n" for doubt in _doubts(points, options.repetitions))
    for name, result in found:
        _show(_RESPONSES[name], factors, result, out)
    out.write(f"\nresults: {folder / _DESIGN}\n")
    if any(point.errors for point in points):
        sys.stderr.write("memlite: bench: requests have failed; the results say how\n")
        return _ERRORS
    return 0


def _goes_on(folder: Path) -> str:
    return f"the same command with --out {folder} goes on"


def _doubts(points: Sequence[Point], repetitions: int) -> Iterator[str]:
    """Yield what speaks against the figures."""
    limited = sum(point.generator_limited for point in points)
    if limited:
        yield f"the load generator was the limit in {limited} of {len(points)} runs"
    doubt = machine_doubt(points)
    if doubt:
        yield doubt
    if repetitions == 1:
        yield "with one repetition, effects cannot be told from chance"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from measuring for the same folder.

    Raises:
        ConfigError: one does.
    """
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"bench: --out {folder}: another process measures there") from None
        yield


def _factor(text: str) -> _Factor:
    name, _, values = text.partition("=")
    name = name.removeprefix("--")
    levels = tuple(part.strip() for part in values.split(","))
    if not name or len(levels) != 2 or not all(levels) or levels[0] == levels[1]:
        raise ConfigError(
            f"bench: --factor {text}: must be an option and two values, such as clients=2,16"
        )
    return _Factor(name, (levels[0], levels[1]))


def _common(others: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    given = {text.partition("=")[0].removeprefix("--") for text in others if text[:2] == "--"}
    for name in names:
        if name in given:
            raise ConfigError(f"bench: --{name} is a factor, and cannot be given as well")
        if name in ("repetitions", "out", "seed", "title", "report", "quiet", "factor"):
            raise ConfigError(f"bench: --factor: {name} cannot be a factor")
    named = {*given, *names}
    # One server, unless something else is asked for.
    target = [] if named & {"backends", "cluster"} else ["--backends", "memory"]
    if "target" in named and not named & {"backends", "cluster"}:
        target = ["--backends", ""]
    if "cluster" in named and "paths" not in named:
        target = ["--paths", "proxied"]
    clients = [] if "clients" in named else ["--clients", "16"]
    return [*target, *clients, *others]


@dataclass(frozen=True, slots=True)
class _Experiment:
    """The runs of an experiment.

    Attributes:
        factors: what differs between them.
        common: the options that do not.
        seed: the first repetition's, and that of the order.
        folder: where results are.
    """

    factors: Sequence[_Factor]
    common: Sequence[str]
    seed: int
    folder: Path

    @property
    def combinations(self) -> list[_Levels]:
        """All combinations of levels."""
        return list(itertools.product((0, 1), repeat=len(self.factors)))

    def check(self) -> None:
        """Check the options of all combinations, before anything is measured.

        Raises:
            ConfigError: one has an invalid option, or measures more than one server at one load.
        """
        for levels in self.combinations:
            plan = self._plan(levels, 1)
            if len(plan.targets) != 1 or len(plan.levels) != 1 or plan.knee is not None:
                raise ConfigError(
                    "bench: a run of an experiment measures one server at one load, but "
                    f"{' '.join(plan.command)} measures more"
                )

    def _plan(self, levels: _Levels, number: int) -> Plan:
        """Return the plan of a run; a new one each time, as targets keep what they have started."""
        chosen = [
            f"--{one.name}={one.levels[level]}"
            for one, level in zip(self.factors, levels, strict=True)
        ]
        seed = str(self.seed + number - 1)
        arguments = ["compare", *self.common, *chosen, "--repetitions", "1", "--seed", seed]
        parsed = parse(arguments)
        if parsed is None:
            raise ConfigError("bench: --help belongs before --factor")
        return replace(plan_of(parsed, arguments, self.folder), bursts=False)

    def _path(self, levels: _Levels, number: int) -> Path:
        return self.folder / "runs" / f"{''.join(map(str, levels))}-{number}"

    def measure(self, repetitions: int, *, quiet: bool) -> dict[_Levels, list[Results]]:
        """Measure what has not been measured yet; return all results.

        Raises:
            ConfigError: what has been measured is something else.
            StartError: a run cannot begin, or has failed.
            KeyboardInterrupt: the user has interrupted it.
        """
        runs = list(itertools.product(self.combinations, range(1, repetitions + 1)))
        random.Random(self.seed).shuffle(runs)  # noqa: S311 - no secret
        measured: dict[_Levels, list[Results]] = {levels: [] for levels in self.combinations}
        missing = []
        for levels, number in runs:
            results = self._loaded(levels, number)
            if results is None:
                missing.append((levels, number))
            else:
                measured[levels].append(results)
        if len(missing) < len(runs) and not quiet:
            sys.stderr.write(f"{len(runs) - len(missing)} of {len(runs)} runs are there already\n")
        begun = time.monotonic()
        for done, (levels, number) in enumerate(missing):
            if not quiet:
                sys.stderr.write(_progress(self.factors, levels, done, len(missing), begun))
                sys.stderr.flush()
            results = run(self._plan(levels, number), ProgressDisplay())
            if results.partial and not results.failure:
                raise KeyboardInterrupt
            problem = results.failure or _problem(results)
            if problem:
                raise StartError(f"bench: {problem}; {_goes_on(self.folder)}")
            save(results, self._path(levels, number))
            measured[levels].append(results)
        return measured

    def _loaded(self, levels: _Levels, number: int) -> Results | None:
        """Return the results of a run; None if there are none.

        Raises:
            ConfigError: they cannot be read, or are of another run.
        """
        path = self._path(levels, number)
        if not (path / JSON_NAME).exists():
            return None
        results, plan = load(path), self._plan(levels, number)
        if results.partial or _problem(results):
            return None
        (level,), (point,) = plan.levels, results.points
        loaded = results.workload, results.workers, results.client, point.clients, point.rate
        planned = (_stored(as_dict(plan.workload)), plan.workers, plan.client, level.clients)
        if loaded != (*planned, level.rate):
            raise ConfigError(
                f"bench: {path} was measured with another workload, or by other workers; "
                "choose another folder"
            )
        return results


def _stored(content: Any) -> Any:
    """Return what is read back of content that is saved."""
    return json.loads(json.dumps(content))


def _problem(results: Results) -> str:
    """Return why results have nothing to analyse; empty if they have."""
    points = results.points
    if len(points) == 1 and "all" in points[0].response and points[0].response["all"].count:
        return ""
    errors = ", ".join(error for point in points for error in point.errors)
    return "no operation has succeeded" + (f" ({errors})" if errors else "")


def _keep(path: Path, design: Mapping[str, Any]) -> None:
    """Save the design, or check that what is there is the same.

    Raises:
        ConfigError: it is another one, or cannot be read.
    """
    try:
        before = json.loads(path.read_bytes())
    except FileNotFoundError:
        _save(path, design)
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"bench: {path}: {error}") from None
    if not isinstance(before, dict) or {**before, **_stored(design)} != before:
        raise ConfigError(
            f"bench: --out {path.parent} has the runs of another experiment; choose another folder"
        )


def _save(path: Path, content: Mapping[str, Any]) -> None:
    write(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def _progress(
    factors: Sequence[_Factor], levels: _Levels, done: int, total: int, begun: float
) -> str:
    chosen = ", ".join(
        f"{one.name} {one.levels[level]}" for one, level in zip(factors, levels, strict=True)
    )
    left = ""
    if done:
        seconds = (time.monotonic() - begun) / done * (total - done)
        left = f", about {seconds:.0f} s left"
    return f"run {done + 1} of {total}{left}: {chosen}\n"


def _analyse(
    names: Sequence[str], measured: Mapping[_Levels, Sequence[Results]]
) -> list[tuple[str, FactorialResult]]:
    found = []
    for name in _RESPONSES:
        responses = {
            levels: [_response(name, one) for one in results]
            for levels, results in measured.items()
        }
        result = analyse_factorial(names, responses)
        if all(value > 0 for values in responses.values() for value in values):
            other = analyse_factorial(names, responses, multiplicative=True)
            if _interactions(other) < _interactions(result):
                result = other
        found.append((name, result))
    return found


def _response(name: str, results: Results) -> float:
    (point,) = results.points
    if name == "throughput":
        return point.throughput.mean
    latency = point.response["all"]
    return latency.mean if name == "response_time" else latency.p99


def _interactions(result: FactorialResult) -> float:
    """Return the share of variation that is due to several factors together."""
    return sum(one.variation for one in result.effects if len(one.factors) > 1)


def _plain(result: FactorialResult) -> dict[str, Any]:
    """Return what JSON can hold: without infinite numbers, and with texts as keys."""

    def bounds(interval: tuple[float, float]) -> list[float | None]:
        return [None if abs(one) == float("inf") else one for one in interval]

    fields = asdict(result)
    fields["mean_interval"] = bounds(result.mean_interval)
    fields["quantile"] = None if math.isinf(result.quantile) else result.quantile
    for one, effect in zip(fields["effects"], result.effects, strict=True):
        for name in ("reach", "f_statistic"):
            one[name] = None if math.isinf(one[name] or 0) else one[name]
        one["values"] = {"".join(map(str, at)): value for at, value in effect.values.items()}
        one["value"], one["interval"] = effect.value, bounds(effect.interval)
    for name in ("predicted", "residuals"):
        fields[name] = {"".join(map(str, levels)): one for levels, one in fields[name].items()}
    return fields


def _show(title: str, factors: Sequence[_Factor], result: FactorialResult, out: TextIO) -> None:
    labels = {one.name: one.label for one in factors}
    kind = "factors multiply" if result.multiplicative else "factors add"
    out.write(f"\n{title} ({kind})\n")
    rows: list[tuple[str, ...]] = [("", "low to high", "95% interval", "variation")]
    for effect in result.effects:
        name = labels[effect.factors[0]] if len(effect.factors) == 1 else " × ".join(effect.factors)
        rows.append((name, *_cells(effect, result), f"{effect.variation:.1%}"))
    one_each = all(len(values) == 1 for values in result.residuals.values())
    errors = "unknown" if one_each else f"{result.error_variation:.1%}"
    rows.append(("errors", "", "", errors))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        out.write(("  " + "  ".join(cells)).rstrip() + "\n")


def _cells(effect: Effect, result: FactorialResult) -> Iterator[str]:
    """Yield the change from the low to the high level, and its interval."""
    unknown = effect.interval[0] == float("-inf")
    if result.multiplicative:
        yield f"× {effect.ratio:.3g}"
        bounds = [math.exp(2 * one) for one in effect.interval if not unknown]
        yield " to ".join(f"{one:.3g}" for one in bounds)
        return
    yield _signed(2 * effect.value)
    yield " to ".join(_signed(2 * one) for one in effect.interval if not unknown)


def _signed(value: float) -> str:
    text = grouped(abs(value)) if abs(value) >= 10 else f"{abs(value):.2g}"
    return f"{'-' if value < 0 else '+'}{text}"
