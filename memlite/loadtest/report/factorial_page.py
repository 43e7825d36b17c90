"""The page of a factorial experiment: one self-contained file that needs no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memlite.loadtest import files, units
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.design import Design
from memlite.loadtest.factorial.output import in_order
from memlite.loadtest.factorial.runs import Measured
from memlite.loadtest.factorial.sentences import answer, doubts, why_this_model
from memlite.loadtest.report.factorial_plots import interactions, main_effects, variation
from memlite.loadtest.report.factorial_residuals import residuals
from memlite.loadtest.report.factorial_tables import changes, combinations, sign_table, variance
from memlite.loadtest.report.page import PAGE_NAME, date, draw, render, run_facts
from memlite.loadtest.report.plots import Plot

__all__ = ["write"]


def write(
    design: Design, measured: Sequence[Measured], analyses: Sequence[Analysis], folder: Path
) -> list[Path]:
    """Write ``report.html``, and each of its figures as ``NAME.png`` and ``NAME-dark.png``.

    Args:
        design: the experiment.
        measured: all its runs.
        analyses: the analyses of the responses, the most important first.
        folder: the destination directory.

    Returns:
        The paths of the files, the page first.

    Raises:
        ConfigError: a file cannot be written.
    """
    overview = variation(design, analyses)
    plots = {one.response.name: _plots(design, one, measured) for one in analyses}
    drawings, written = draw([overview, *(p for some in plots.values() for p in some)], folder)
    text = render(
        "factorial.html.j2",
        title=f"What matters: {', '.join(design.names)}",
        subtitle=_subtitle(design, measured),
        warnings=[f"{doubt[:1].upper()}{doubt[1:]}." for doubt in doubts(design, measured)],
        overview=overview,
        responses=[_response(design, one, plots[one.response.name]) for one in analyses],
        factors=[{"name": one.name, "levels": ", ".join(one.levels)} for one in design.factors],
        combinations=combinations(design, measured, analyses),
        heads=[f"{one.response.words}, {one.response.unit}" for one in analyses],
        experiment=_facts(design),
        run=run_facts("", measured[0].results),
        repeated=design.repetitions > 1,
        drawings=drawings,
    )
    path = folder / PAGE_NAME
    files.write(path, text.encode())
    return [path, *written]


def _plots(design: Design, analysis: Analysis, measured: Sequence[Measured]) -> list[Plot]:
    found = (
        main_effects(design, analysis),
        interactions(design, analysis),
        residuals(analysis, measured),
    )
    return [plot for plot in found if plot is not None]


def _response(design: Design, analysis: Analysis, plots: Sequence[Plot]) -> dict[str, Any]:
    response, result = analysis.response, analysis.result
    return {
        "name": response.name.replace("_", "-"),
        "words": f"{response.words[:1].upper()}{response.words[1:]}",
        "unit": response.unit,
        "answer": list(answer(design, analysis)),
        "why": why_this_model(analysis),
        "multiplicative": result.multiplicative,
        "changes": changes(design, analysis),
        "variance": variance(result),
        "signs": sign_table(design, result),
        "plots": plots,
    }


def _subtitle(design: Design, measured: Sequence[Measured]) -> str:
    ordered = in_order(measured)
    seconds = sum(one.results.seconds for one in ordered)
    count = len(design.combinations)
    return (
        f"{date(ordered[0].results.started)}, {count} combinations × {design.repetitions} "
        f"repetitions in random order, {units.duration(seconds * 1e6)} of measurements"
    )


def _facts(design: Design) -> list[tuple[str, Any]]:
    return [
        ("Options common to all runs", " ".join(design.common)),
        ("Repetitions", design.repetitions),
        ("Seed", design.seed),
    ]
