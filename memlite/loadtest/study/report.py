"""The report of a study: ``report.html``, with each figure as PNG and each table as CSV."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from memlite.loadtest import files
from memlite.loadtest.factorial.sentences import answer as of_experiment
from memlite.loadtest.factorial.tables import change_rows
from memlite.loadtest.models.assess import BOUND
from memlite.loadtest.models.page import as_values
from memlite.loadtest.models.plots import plots_of
from memlite.loadtest.multigets.analysis import sentence
from memlite.loadtest.multigets.page import tables_of
from memlite.loadtest.multigets.plots import plots_of as multiget_plots
from memlite.loadtest.report.factorial_plots import main_effects, variation
from memlite.loadtest.report.factorial_residuals import residuals
from memlite.loadtest.report.page import PAGE_NAME, date, draw, render, run_facts
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.tables import Column, Table
from memlite.loadtest.study.machines import names_of, placements, table_of_machines
from memlite.loadtest.study.measured import Measured, answer, doubts
from memlite.loadtest.study.plots import sweep_plot, times_plot
from memlite.loadtest.study.sections import (
    lines,
    table_of_direct,
    table_of_proxied,
    table_of_writes,
)
from memlite.loadtest.units import percent

__all__ = ["Section", "sections", "write"]

_OF_MULTIGETS: Final = "3 nodes, proxied"
_WORDS: Final = {"read-only": "reads", "write-only": "writes", "mixed": "reads and writes"}


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report.

    Attributes:
        name: its name on the page.
        title: its title.
        text: its introduction, in sentences.
        tables: its tables.
        plots: its figures.
    """

    name: str
    title: str
    text: Sequence[str]
    tables: Sequence[Table]
    plots: Sequence[Plot] = field(default_factory=list)


def write(measured: Measured, folder: Path) -> Path:
    """Write the report.

    Args:
        measured: the study.
        folder: the destination directory.

    Returns:
        The path of the page.

    Raises:
        ConfigError: a file cannot be written.
    """
    found = list(sections(measured))
    of_models = {title: plots_of([one]) for title, one in measured.models.items()}
    for number, (title, plots) in enumerate(of_models.items(), 1):
        of_models[title] = [replace(plot, name=f"{plot.name}-{number}") for plot in plots]
    every = [plot for one in found for plot in one.plots]
    every += [plot for plots in of_models.values() for plot in plots]
    drawings, _ = draw(every, folder / "figures")
    values = {
        title: as_values(one, of_models[title], number)
        for number, (title, one) in enumerate(measured.models.items(), 1)
    }
    for one in found:
        for table in one.tables:
            files.write(folder / "tables" / f"{table.name}.csv", table.csv.encode())
    page = render(
        "study.html.j2",
        title="A study of servers, proxies and nodes",
        subtitle=_subtitle(measured),
        doubts=list(doubts(measured)),
        answer=list(answer(measured)),
        sections=found,
        models=values,
        drawings=drawings,
        bound=percent(BOUND),
        several=bool(placements(measured.sweeps)),
        run=run_facts("", measured.first),
        commands=[shlex.join(["memlite", "bench", *one]) for one in measured.study.commands],
    )
    path = folder / PAGE_NAME
    files.write(path, page.encode())
    return path


def _subtitle(measured: Measured) -> str:
    first, scale = measured.first, measured.study.scale
    machines = len(names_of(placements(measured.sweeps)))
    where = "" if not machines else f"; servers and proxies on {machines} other machine"
    where += "s" if machines > 1 else ""
    return (
        f"{date(first.started)}, {first.machine.get('cpu', 'unknown processor')}, "
        f"{first.machine.get('cores', '?')} cores; {first.workers} load generators, "
        f"{scale.repetitions} repetitions of {scale.duration:g} s{where}"
    )


def sections(measured: Measured) -> Iterator[Section]:
    """Yield the sections about sweeps, and the section about the experiment."""
    sweeps = measured.sweeps
    yield Section(
        "direct",
        "Without a proxy",
        ["Clients know the servers, and distribute keys among them by hashing."],
        [table_of_direct(lines(sweeps, "direct"))],
        [
            sweep_plot(
                f"direct-{workload}", f"Without a proxy: {words}", lines(sweeps, "direct", workload)
            )
            for workload, words in _WORDS.items()
        ],
    )
    proxied = lines(sweeps, "proxied")
    yield Section(
        "proxied",
        "One node behind proxies",
        ["A proxy limits the number of requests in flight; further requests wait in its queue."],
        [table_of_proxied(proxied)],
        [
            *(
                sweep_plot(
                    f"proxied-{workload}",
                    f"One node behind proxies: {_WORDS[workload]}",
                    lines(sweeps, "proxied", workload),
                )
                for workload in ("read-only", "write-only")
            ),
            *_present(
                times_plot(
                    "proxied-times",
                    "One node behind proxies, reads: where the time goes",
                    lines(sweeps, "proxied", "read-only"),
                )
            ),
        ],
    )
    writes = lines(sweeps, "writes")
    yield Section(
        "writes",
        "Writes to the whole system",
        ["Each write goes through one of two proxies to all nodes, each of which must store it."],
        [table_of_writes(writes)],
        [
            sweep_plot("writes", "Writes to three nodes through two proxies", writes),
            *_present(times_plot("writes-times", "Writes: where the time goes", writes)),
        ],
    )
    whole = lines(sweeps, "whole")
    yield Section(
        "whole",
        "Reads and writes through one proxy to three nodes",
        ["Each item is on one node, and the proxy has no limit: the most common configuration."],
        [replace(table_of_direct(whole), name="whole", title="Highest throughput")],
        [sweep_plot("whole", "Reads and writes through one proxy to three nodes", whole)],
    )
    yield _multigets(measured)
    yield _experiment(measured)
    placed = placements(sweeps)
    if placed:
        yield Section(
            "machines",
            "Machines",
            [
                (
                    "Clients ran on another machine. For gets of several keys, processes were "
                    f"placed as for {_OF_MULTIGETS}."
                )
            ],
            [table_of_machines(placed)],
        )


def _present(plot: Plot | None) -> Iterator[Plot]:
    if plot is not None:
        yield plot


def _experiment(measured: Measured) -> Section:
    tables = []
    for analysis in measured.analyses:
        result = analysis.result
        how = "factors multiply" if result.multiplicative else "factors add"
        tables.append(
            Table(
                f"experiment-{analysis.response.name}",
                f"{analysis.response.words.capitalize()} ({how})",
                [
                    Column("Factors", text=True),
                    *map(Column, ("Change", "95% interval", "Share of the variation", "p")),
                ],
                list(change_rows(measured.design, analysis)),
                " ".join(of_experiment(measured.design, analysis)),
            )
        )
    levels = ", ".join(f"{one.name} {' or '.join(one.levels)}" for one in measured.design.factors)
    repetitions = measured.design.repetitions
    return Section(
        "experiment",
        "What matters: an experiment with factors",
        [f"All combinations of {levels}, {repetitions} times each, in random order."],
        tables,
        [variation(measured.design, measured.analyses), *_of_throughput(measured)],
    )


def _of_throughput(measured: Measured) -> Iterator[Plot]:
    throughput = measured.analyses[0]
    yield from _present(main_effects(measured.design, throughput))
    yield from _present(residuals(throughput, measured.runs))


def _multigets(measured: Measured) -> Section:
    found = measured.multigets
    return Section(
        "multigets",
        "Gets of several keys: sharded or from one node",
        [sentence(found)],
        tables_of(found),
        multiget_plots(found),
    )
