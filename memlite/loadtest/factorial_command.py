"""Carry out ``memlite bench factorial``."""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from memlite.core import signals
from memlite.loadtest.factorial.analysis import Analysis, analyse
from memlite.loadtest.factorial.design import DESIGN_NAME, Design, design_of, keep
from memlite.loadtest.factorial.output import save_analysis
from memlite.loadtest.factorial.progress import RunProgress
from memlite.loadtest.factorial.runs import Measured, check, measure, missing_of
from memlite.loadtest.factorial.sentences import answer, doubts
from memlite.loadtest.factorial.tables import print_table
from memlite.loadtest.planning import new_folder, prepare
from memlite.loadtest.resuming import interrupted, locked, systems

__all__ = ["measure_factorial"]

_ERRORS: Final = 1
_INTERRUPTED: Final = 130
_WIDTH: Final = 79


def measure_factorial(options: argparse.Namespace, others: Sequence[str], out: TextIO) -> int:
    """Start or resume measuring, and print the analysis.

    Args:
        options: the factors, and the settings common to all runs.
        others: options of ``compare`` that are the same in all runs.
        out: receives the answer and the tables.

    Returns:
        The exit code: 0, 1 if requests failed, or 130 if the user interrupted the experiment.

    Raises:
        ConfigError: an option is invalid, or the folder contains another experiment.
        StartError: a run cannot start, or failed.
    """
    design = design_of(options.factor, others, options.repetitions, options.seed)
    folder = options.out or new_folder()
    check(design, folder)
    prepare(folder)
    try:
        with locked(folder):
            keep(folder / DESIGN_NAME, design)
            left = len(missing_of(design, folder))
            fresh = left == len(design.runs)
            systems(folder, measuring=left > 0, fresh=fresh, mixed=options.mix_systems)
            measured = measure(design, folder, RunProgress(quiet=options.quiet))
            analyses = analyse(design, measured)
            save_analysis(folder, design, measured, analyses)
        _show(design, measured, analyses, folder, out, report=not options.no_report)
    except KeyboardInterrupt:
        signals.block()  # until the process ends: it only counts the remaining runs
        said = interrupted(folder, left=len(missing_of(design, folder)))
        sys.stderr.write(f"memlite: bench: {said}\n")
        return _INTERRUPTED
    if any(one.point.errors for one in measured):
        sys.stderr.write("memlite: bench: some requests failed; see the results for details\n")
        return _ERRORS
    return 0


def _show(
    design: Design,
    measured: Sequence[Measured],
    analyses: Sequence[Analysis],
    folder: Path,
    out: TextIO,
    *,
    report: bool,
) -> None:
    """Print the answer and the tables, and write the report."""
    sentences = [*doubts(design, measured), *answer(design, analyses[0])]
    out.writelines(f"{textwrap.fill(one, _WIDTH, break_long_words=False)}\n" for one in sentences)
    for analysis in analyses:
        print_table(design, analysis, out)
    if not report:
        out.write(f"\nresults: {folder / DESIGN_NAME}\n")
    else:
        # Imported here: the plotting libraries take a second to import.
        from memlite.loadtest.report.factorial_page import write

        page, *_ = write(design, measured, analyses, folder)
        out.write(f"\nreport: {page}\n")
