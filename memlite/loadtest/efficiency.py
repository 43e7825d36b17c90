"""Throughput per watt and per unit of currency, on the machines used in a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memlite.loadtest import selection
from memlite.loadtest.machines import MachineTable
from memlite.loadtest.results import Results, TargetInfo

__all__ = ["Efficiency", "efficiencies"]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The throughput of a target relative to its power and price, at its highest throughput.

    Attributes:
        target: its name.
        machines: number of machines of each type that it ran on.
        throughput: operations per second.
        watts: power of all machines; None if unknown.
        hour: price of all machines per hour, in the table's currency; None if unknown.
    """

    target: str
    machines: Mapping[str, int]
    throughput: float
    watts: float | None
    hour: float | None

    @property
    def per_joule(self) -> float | None:
        """Operations per joule, which equals operations per second per watt."""
        return self.throughput / self.watts if self.watts else None

    @property
    def per_money(self) -> float | None:
        """Operations per unit of the currency."""
        return self.throughput * 3600 / self.hour if self.hour else None


def efficiencies(results: Results, table: MachineTable) -> list[Efficiency]:
    """Return the efficiency of each target whose machines are known.

    Args:
        results: the measurements.
        table: the machines.

    Raises:
        ConfigError: a machine is not in the table.
    """
    points = selection.closed_loop(results) or selection.open_loop(results)
    groups = selection.by_target(results, selection.with_main_value_size(points))
    return [
        _efficiency(
            target, selection.highest_throughput(groups[target.name]).throughput.mean, table
        )
        for target in results.targets
        if target.machines and target.name in groups
    ]


def _efficiency(target: TargetInfo, throughput: float, table: MachineTable) -> Efficiency:
    machines = [(table.find(name), count) for name, count in target.machines.items()]
    return Efficiency(
        target=target.name,
        machines=target.machines,
        throughput=throughput,
        watts=_total((one.watts, count) for one, count in machines),
        hour=_total((one.hour, count) for one, count in machines),
    )


def _total(parts: Iterable[tuple[float | None, int]]) -> float | None:
    total = 0.0
    for amount, count in parts:
        if amount is None:
            return None
        total += amount * count
    return total
