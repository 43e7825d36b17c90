"""Carries out ``memlite bench study``."""

import argparse
import contextlib
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TextIO

from memlite.core import signals
from memlite.core.errors import StartError
from memlite.loadtest.factorial.analysis import analyse
from memlite.loadtest.factorial.design import DESIGN_NAME, Design, design_of
from memlite.loadtest.factorial.design import keep as keep_design
from memlite.loadtest.factorial.output import save_analysis
from memlite.loadtest.factorial.runs import check, missing_of
from memlite.loadtest.factorial.runs import measure as measure_experiment
from memlite.loadtest.limits import raise_file_limit
from memlite.loadtest.models.study import TargetModels, model_targets
from memlite.loadtest.multigets.analysis import compare_sizes
from memlite.loadtest.multigets.measuring import complete
from memlite.loadtest.multigets.measuring import missing as missing_multigets
from memlite.loadtest.places import HERE
from memlite.loadtest.planning import machines_of, new_folder, prepare
from memlite.loadtest.pool import Pool
from memlite.loadtest.progress import progress_display
from memlite.loadtest.remote.machine import reached
from memlite.loadtest.results import Results
from memlite.loadtest.resuming import differences, goes_on, interrupted, locked, systems
from memlite.loadtest.study.common import parse_common
from memlite.loadtest.study.design import FULL, QUICK, Study, Sweep, study
from memlite.loadtest.study.expected import expected_seconds, start_seconds
from memlite.loadtest.study.measured import Measured, answer, doubts
from memlite.loadtest.study.output import SWEEPS, keep, save
from memlite.loadtest.study.output import check as check_folder
from memlite.loadtest.study.progress import ExperimentProgress, StudyProgress
from memlite.loadtest.study.runs import Sweeps
from memlite.loadtest.study.sections import lines

__all__ = ["carry_out_study", "exit_code"]

_ERRORS: Final = 1
_INTERRUPTED: Final = 130
_WIDTH: Final = 79
_MULTIGETS: Final = "multigets"
_EXPERIMENT: Final = "experiment"


def carry_out_study(options: argparse.Namespace, others: Sequence[str], out: TextIO) -> int:
    """Measure, or resume measuring, and write the report.

    Args:
        options: how much to measure, and where to save it.
        others: options of ``compare`` for all runs.
        out: receives the answer.

    Returns:
        The exit code: 0, 1 if requests have failed, or 130 if the user has interrupted it.

    Raises:
        ConfigError: an option is invalid, or the folder has other contents.
        StartError: a run cannot begin, or has failed.
    """
    wanted = _study(options, others)
    design = _design(wanted)
    folder = options.out or new_folder()
    machines = machines_of(parse_common(options.backend, others))
    sweeps = Sweeps(wanted, folder / SWEEPS, machines, mixed=options.mix_systems)
    sweeps.plans()  # checks the options
    check(design, folder)
    check_folder(folder, wanted)
    prepare(folder)
    for name in (SWEEPS, _MULTIGETS, _EXPERIMENT):
        (folder / name).mkdir(exist_ok=True)
    began = time.monotonic()
    try:
        with locked(folder), reached(machines):
            keep(folder, wanted)
            measured = _measure(sweeps, design, folder, quiet=options.quiet)
            save(folder, measured)
            page = _write(measured, folder)
    except KeyboardInterrupt:
        signals.block()  # until the process ends; it only counts what is left to measure
        said = interrupted(folder, left=_left(sweeps, design, folder))
        sys.stderr.write(f"memlite: bench: {said}\n")
        return _INTERRUPTED
    except StartError as error:
        # The run's message says how to resume only the experiment.
        problem = str(error).removesuffix(f"; {goes_on(folder / _EXPERIMENT)}")
        raise StartError(f"{problem}; {goes_on(folder)}") from None
    sentences = [*doubts(measured), *answer(measured)]
    out.writelines(f"{textwrap.fill(one, _WIDTH, break_long_words=False)}\n" for one in sentences)
    out.write(f"\nreport: {page}\ntime: {_minutes(time.monotonic() - began)}\n")
    return exit_code(measured)


def exit_code(measured: Measured) -> int:
    """Return the exit code of a complete study: 0, or 1, with a message, if requests failed."""
    if measured.failed or any(run.errors for run in measured.gets):
        sys.stderr.write("memlite: bench: some requests failed; see the results for details\n")
        return _ERRORS
    return 0


def _study(options: argparse.Namespace, others: Sequence[str]) -> Study:
    given: dict[str, Any] = {
        "clients": options.clients and tuple(options.clients),
        "in_flight": options.in_flight and tuple(options.in_flight),
        "of_writes": options.in_flight and tuple(options.in_flight),
        "duration": options.duration,
        "warm_up": options.warm_up,
        "repetitions": options.repetitions,
        "of_experiment": options.repetitions,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    scale = replace(QUICK if options.quick else FULL, **changes)
    workers = f"--workers={options.workers}"
    return study(scale, options.backend, [workers, *others], options.seed)


def _design(wanted: Study) -> Design:
    return design_of(wanted.factors, wanted.of_experiment, wanted.scale.of_experiment, wanted.seed)


def _write(measured: Measured, folder: Path) -> Path:
    # Imported here: the plotting libraries take a second to import.
    from memlite.loadtest.study.report import write

    return write(measured, folder)


def _measure(sweeps: Sweeps, design: Design, folder: Path, *, quiet: bool) -> Measured:
    wanted = sweeps.study
    of_experiment, of_multigets = folder / _EXPERIMENT, folder / _MULTIGETS
    keep_design(of_experiment / DESIGN_NAME, design)
    missing = sweeps.missing()
    runs, gets = _other_measurements(wanted, design, folder)
    left = sum(missing.values()) + runs + gets
    begun = sweeps.begun(missing)
    measured_on = systems(folder, measuring=left > 0, fresh=not begun, mixed=sweeps.mixed)
    with progress_display(quiet=quiet) as bar:
        if left:
            expected = expected_seconds(sweeps, missing, runs, gets, start_seconds(folder))
            bar.message(f"{left} measurements and the report: about {_minutes(expected)}")
        bar.expect_measurements(left)
        progress = StudyProgress(bar)
        with _generators(sweeps) if left else contextlib.nullcontext() as pool:
            found = sweeps.measure(progress, pool)
            progress.run = "multi-gets"
            multigets = complete(
                wanted.multigets, of_multigets, progress, sweeps.machines or (HERE,)
            )
            measured = measure_experiment(
                design, of_experiment, ExperimentProgress(progress), pool, sweeps.machines
            )
        bar.start_step("models")
        models = _models(found)
    analyses = analyse(design, measured)
    save_analysis(of_experiment, design, measured, analyses)
    return Measured(
        wanted,
        found,
        design,
        measured,
        analyses,
        multigets,
        compare_sizes(multigets),
        models,
        differences(measured_on),
    )


def _left(sweeps: Sweeps, design: Design, folder: Path) -> int:
    """Return how many measurements have not been made yet."""
    others = _other_measurements(sweeps.study, design, folder)
    return sum(sweeps.missing().values()) + sum(others)


def _other_measurements(wanted: Study, design: Design, folder: Path) -> tuple[int, int]:
    """Return how many runs of the experiment, and measurements of multi-gets, are missing."""
    runs = len(missing_of(design, folder / _EXPERIMENT))
    return runs, missing_multigets(wanted.multigets, folder / _MULTIGETS)


def _generators(sweeps: Sweeps) -> Pool:
    """Return the processes that generate load, for all sweeps and the experiment."""
    plans = sweeps.plans().values()
    (workers,) = {plan.workers for plan in plans}
    raise_file_limit(max(plan.most_connections for plan in plans), workers)
    return Pool(workers)


def _models(found: Mapping[Sweep, Results]) -> dict[str, TargetModels]:
    """Return the models of one server, of a proxy before it, and of the whole system."""
    highest = max(sweep.in_flight for sweep in found)
    limited = {sweep: one for sweep, one in found.items() if sweep.in_flight == highest}
    chosen = {
        "reads from one server": lines(found, "direct", "read-only")[0],
        "reads through one proxy": lines(limited, "proxied", "read-only")[0],
        "writes to the whole system": lines(limited, "writes")[0],
    }
    return {title: model_targets(line.results)[0] for title, line in chosen.items()}


def _minutes(seconds: float) -> str:
    """Return a time of minutes or hours like ``4 min 51 s``."""
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
