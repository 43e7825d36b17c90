"""Carry out the commands of ``memlite bench``."""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memlite.core import signals
from memlite.core.errors import StartError
from memlite.loadtest import machines as machine_table
from memlite.loadtest import prices as price_table
from memlite.loadtest.checking import with_checks
from memlite.loadtest.experiment import run
from memlite.loadtest.files import JSON_NAME, load, save
from memlite.loadtest.kept import Kept
from memlite.loadtest.planning import new_folder, plan_of, prepare, settings_of
from memlite.loadtest.progress import progress_display
from memlite.loadtest.results import Results
from memlite.loadtest.resuming import goes_on, measured_all
from memlite.loadtest.summary import print_summary
from memlite.loadtest.sweep import with_saturation
from memlite.loadtest.workload_files import load_workload, preset_names, preset_text

__all__ = ["carry_out"]

_EXIT_ERRORS = 1
_EXIT_INTERRUPTED = 130
# Commands that save partial results if interrupted after the first measurement.
_AT_ONCE = ("compare", "run")


def carry_out(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Carry out a command of the load tester.

    Args:
        options: from `memlite.loadtest.options.parse`.
        arguments: the command-line arguments, for the report.

    Returns:
        The exit code.

    Raises:
        ConfigError: an argument, a workload or a file is invalid.
        StartError: a target cannot be started or reached, or results cannot be saved.
    """
    signals.unblock()
    # SIGTERM saves partial results, as Ctrl-C does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.command == "workload":
            return _show_workload(options.name)
        if options.command == "report":
            return _report(options)
        if options.command == "plan":
            return _plan(options)
        # Imported here: these commands need models or an analysis, which are slow to import.
        if options.command == "study":
            from memlite.loadtest.study.command import carry_out_study

            return carry_out_study(options, options.others, sys.stdout)
        if options.command == "factorial":
            from memlite.loadtest.factorial_command import measure_factorial

            return measure_factorial(options, options.others, sys.stdout)
        if options.command == "models":
            from memlite.loadtest.models.command import show_models

            return show_models(options, sys.stdout)
        if options.command == "multigets":
            from memlite.loadtest.multigets.command import measure_multigets

            return measure_multigets(options, sys.stdout)
        return _measure(options, arguments)
    except KeyboardInterrupt:
        before = " before anything was measured" if options.command in _AT_ONCE else ""
        sys.stderr.write(f"memlite: bench: interrupted{before}\n")
        return _EXIT_INTERRUPTED


def _show_workload(name: str | None) -> int:
    if name is not None:
        sys.stdout.write(preset_text(name))
        return 0
    for preset in preset_names():
        sys.stdout.write(f"{preset.ljust(12)} {load_workload(preset).description}\n")
    return 0


def _report(options: argparse.Namespace) -> int:
    results = [_analysed(load(path)) for path in options.results]
    prices = price_table.load(options.prices)
    machines = machine_table.load(options.machines)
    first, *others = options.results
    own_folder = first if first.is_dir() else first.parent
    # A comparison gets a new folder, so that it does not overwrite the first run's report.
    folder = options.out or (new_folder() if others else own_folder)
    prepare(folder)
    _write_report(results, folder, prices, machines)
    return 0


def _plan(options: argparse.Namespace) -> int:
    # Imported here: only this command needs them.
    from memlite.loadtest.capacity import Request, answer
    from memlite.loadtest.capacity.show import show
    from memlite.loadtest.study.output import runs_of

    table = machine_table.load(options.machines)
    # Purchased machines may be of an entirely different kind, so they are used only if named.
    rented = [machine.name for machine in table.machines.values() if machine.rented]
    chosen = {name: table.find(name) for name in options.machine or rented}
    table = replace(table, machines=chosen)
    request = Request(
        options.rate, options.p99 * 1e6, options.keys, options.value_size, options.hit_ratio
    )
    prices = price_table.load(options.prices)
    found = answer(runs_of(options.results, options.workload), request, table, prices)
    if options.json:
        sys.stdout.write(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) + "\n")
    else:
        show(found, sys.stdout)
    return 0 if any(one.estimate is not None for one in found.options) else _EXIT_ERRORS


def _measure(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    # Load the tables first: errors in them must not cost the results.
    prices = price_table.load(options.prices)
    machines = machine_table.load(options.machines)
    for name, _ in options.machine:
        machines.find(name)
    folder = options.out or new_folder()
    plan = plan_of(options, arguments, folder)
    kept = Kept(folder, settings_of(plan, options), mixed=options.mix_systems)
    kept.count()  # refuses repetitions of another run before anything starts
    prepare(folder)
    # Hold the lock while removing files: a process without it must not remove the holder's files.
    with kept.locked():
        try:
            with progress_display(quiet=options.quiet) as display:
                results = run(plan, display, kept)
            # Save before the analysis, so that a failure there does not lose the results.
            save(results, folder)
            if not results.partial:
                kept.remove()
        except BaseException as error:
            if kept.count():
                if isinstance(error, KeyboardInterrupt):
                    sys.stderr.write(f"memlite: bench: interrupted; {goes_on(folder)}\n")
                    return _EXIT_INTERRUPTED
                raise
            # Nothing was saved: remove the empty directory.
            kept.remove()
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise
    try:
        return _analyse(results, options, folder, prices, machines)
    except KeyboardInterrupt:
        report = f"'memlite bench report {folder}' writes the report"
        if results.partial:
            said = f"interrupted; partial results were saved; {report}; {goes_on(folder)}"
        else:
            said = f"{measured_all(folder / JSON_NAME)}; {report}"
        sys.stderr.write(f"memlite: bench: {said}\n")
        return _EXIT_INTERRUPTED


def _analyse(
    results: Results,
    options: argparse.Namespace,
    folder: Path,
    prices: price_table.Prices,
    machines: machine_table.MachineTable,
) -> int:
    """Save, print and plot the results; return the exit code."""
    results = _analysed(results)
    save(results, folder)
    print_summary(results, prices, sys.stdout)
    if options.no_report:
        sys.stdout.write(f"\nresults: {folder / JSON_NAME}\n")
    else:
        _write_report([results], folder, prices, machines)
    if results.failure:
        raise StartError(
            f"bench: {results.failure}; the results so far were saved; {goes_on(folder)}"
        )
    if results.partial:
        sys.stderr.write(
            f"memlite: bench: interrupted; partial results were saved; {goes_on(folder)}\n"
        )
        return _EXIT_INTERRUPTED
    failed = any(point.errors for point in (*results.points, *results.bursts))
    return _EXIT_ERRORS if failed else 0


def _analysed(results: Results) -> Results:
    return with_saturation(with_checks(results))


def _write_report(
    results: Sequence[Results],
    folder: Path,
    prices: price_table.Prices,
    machines: machine_table.MachineTable,
) -> None:
    # Imported here: the plotting libraries take a second to import.
    from memlite.loadtest.report import write_report

    page, *_ = write_report(results, folder, prices, machines)
    sys.stdout.write(f"\nreport: {page}\n")
