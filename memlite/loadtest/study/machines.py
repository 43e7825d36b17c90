"""The machine on which each process of a study ran."""

from collections.abc import Iterator, Mapping

from memlite.loadtest.cells import UNKNOWN
from memlite.loadtest.report.tables import Column, Table
from memlite.loadtest.results import Placed, Results
from memlite.loadtest.study.design import Sweep

__all__ = ["names_of", "placements", "table_of_machines"]


def placements(measured: Mapping[Sweep, Results]) -> dict[str, Mapping[str, Placed]]:
    """Return the machine of each process of each target that was not on this machine.

    Args:
        measured: the results of each sweep. Targets of the same name are placed alike.
    """
    return {
        target.name: target.placed
        for results in measured.values()
        for target in results.targets
        if target.placed
    }


def names_of(placed: Mapping[str, Mapping[str, Placed]]) -> list[str]:
    """Return the names of the machines, in order."""
    return sorted({one.machine for of_target in placed.values() for one in of_target.values()})


def table_of_machines(placed: Mapping[str, Mapping[str, Placed]]) -> Table:
    """Return the table of the processes of each target on each machine."""
    known = {one.machine: one for of_target in placed.values() for one in of_target.values()}
    names = names_of(placed)
    return Table(
        "machines",
        "Which process ran on which machine",
        [
            Column("Servers and proxies", text=True),
            *(Column(f"{name} ({known[name].cores} cores)", text=True) for name in names),
        ],
        [[target, *_cells(names, of_target)] for target, of_target in placed.items()],
        f"Processors: {', '.join(sorted({one.cpu or 'unknown' for one in known.values()}))}.",
    )


def _cells(names: list[str], placed: Mapping[str, Placed]) -> Iterator[str]:
    for name in names:
        yield ", ".join(one for one, where in placed.items() if where.machine == name) or UNKNOWN
