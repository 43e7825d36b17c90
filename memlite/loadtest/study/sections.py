"""The results of a study's sweeps: a table and figures for each section of the report."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memlite.loadtest import scaling, selection
from memlite.loadtest.cells import PER_SECOND, count, microseconds, plain, share, with_interval
from memlite.loadtest.report.tables import Column, Table
from memlite.loadtest.results import Interval, Point, ProxyTimes, Results
from memlite.loadtest.statistics import interval
from memlite.loadtest.study.design import Sweep
from memlite.loadtest.units import duration, grouped

__all__ = ["Line", "lines", "plus_minus", "table_of_direct", "table_of_proxied", "table_of_writes"]

_CLOCK: Final = 0.1  # microseconds
_NO_LIMIT: Final = "none was busy"
_BATCHES: Final = (
    "The time at a node is a mean over batches of requests, but the service time is a mean over "
    "requests, so the time at a node can be longer."
)


@dataclass(frozen=True, slots=True)
class Line:
    """A target of a sweep: a line in a figure, a row in a table.

    Attributes:
        name: the name that distinguishes it from the other lines of its section.
        sweep: the sweep.
        target: the target's name there.
        results: the results of this target only.
    """

    name: str
    sweep: Sweep
    target: str
    results: Results

    @property
    def saturated(self) -> Point:
        """The measurement with the fewest clients at which throughput no longer grows."""
        return selection.saturation(selection.closed_loop(self.results))


def lines(measured: Mapping[Sweep, Results], section: str, workload: str = "") -> list[Line]:
    """Return the lines of a section, in the order of measurement.

    Args:
        measured: the results of each sweep.
        section: the section.
        workload: the workload whose lines are returned; empty for all.
    """
    found = []
    for sweep, results in measured.items():
        if sweep.section != section or workload not in ("", sweep.workload):
            continue
        for target in results.targets:
            points = [point for point in results.points if point.target == target.name]
            name = target.name if not sweep.in_flight else _limited(target.name, sweep.in_flight)
            renamed = [replace(point, target=name) for point in points]
            alone = replace(results, targets=[replace(target, name=name)], points=renamed)
            found.append(Line(name, sweep, target.name, alone))
    return found


def _limited(target: str, in_flight: int) -> str:
    """Return a target's name with the limit of its proxies."""
    proxies = target.partition(", ")[2].replace("proxied", "1 proxy")
    return f"{proxies}, {in_flight} in flight"


def table_of_direct(found: Sequence[Line]) -> Table:
    """Return the table of servers without a proxy."""
    return Table(
        "direct",
        "Highest throughput without a proxy",
        [
            Column("Workload and servers", text=True),
            *map(Column, ("Clients", "Operations per second", "Mean response time", "p99")),
            *map(Column, ("Busiest server", "Time per operation")),
            Column("Limited by", text=True),
        ],
        [
            [f"{one.sweep.workload}, {one.name.partition(',')[0]}", *_usual(one), *_nodes(one)]
            for one in found
        ],
        "At the smallest number of clients whose throughput is within 5% of the highest. Intervals "
        "are 95% confidence intervals over repetitions. Time per operation: processor time of all "
        "servers.",
    )


def table_of_proxied(found: Sequence[Line]) -> Table:
    """Return the table of one node with one or more proxies."""
    return Table(
        "proxied",
        "Highest throughput of one node with proxies",
        [
            Column("Workload, proxies and limit", text=True),
            *map(Column, ("Clients", "Operations per second", "Mean response time", "p99")),
            *map(
                Column, ("In the queue", "Service", "At the node", "Queue length", "Busiest proxy")
            ),
            Column("Limited by", text=True),
        ],
        [
            [f"{one.sweep.workload}, {one.name}", *_usual(one), *_times(one), *_proxies(one)]
            for one in found
        ],
        "The proxies measured the times in the queue (until a worker takes the request), in "
        "service (from then until the node's reply) and at the node (from the write to the node "
        f"until its reply). {_BATCHES} Queue length: the mean number of requests that an arriving "
        "request finds in the queue.",
    )


def table_of_writes(found: Sequence[Line]) -> Table:
    """Return the table of the full system, with a column for each limit."""
    titles = (
        "Clients",
        "Operations per second, by the clients",
        "Mean response time, by the clients",
        "p99, by the clients",
        "Operations per second, by the law N / (R + Z)",
        "Time in the queue",
        "Service time",
        "Time at a node",
        "Length of the queue",
        "Busiest proxy",
        "Limited by",
    )
    columns = [[*_usual(one), _by_law(one), *_times(one), *_proxies(one)] for one in found]
    return Table(
        "writes",
        "Highest throughput of writes to the whole system",
        [Column("", text=True), *(Column(f"{one.sweep.in_flight} in flight") for one in found)],
        [list(row) for row in zip(titles, *columns, strict=True)],
        "Each write goes to all nodes. By the law: the number of clients, divided by the time that "
        "the proxies measured in the queue, in service and between a reply and the next request. "
        f"{_BATCHES}",
    )


def _usual(one: Line) -> Iterator[str]:
    point = one.saturated
    yield count(point.clients)
    yield with_interval(plus_minus(point.throughput), point.throughput, PER_SECOND)
    yield microseconds(_mean_time(point))
    yield microseconds(point.response["all"].p99)


def plus_minus(one: Interval) -> str:
    """Return a number with the half-width of its interval, if it has one: ``41,200 ± 310``."""
    if one.high is None:
        return grouped(one.mean)
    return f"{grouped(one.mean)} ± {grouped(one.high - one.mean)}"


def _mean_time(point: Point) -> float:
    return interval([one.response["all"].mean for one in point.repetitions]).mean


def _row(one: Line) -> scaling.Row:
    (target,) = one.results.targets
    return scaling.row_of(one.results, target, one.saturated)


def _nodes(one: Line) -> Iterator[str]:
    row = _row(one)
    yield share(max(row.nodes, default=None))
    yield microseconds(row.node_demand)
    yield row.limit or _NO_LIMIT


def _proxies(one: Line) -> tuple[str, str]:
    row = _row(one)
    return share(row.proxy), row.limit or _NO_LIMIT


def _proxy_times(one: Line) -> list[ProxyTimes]:
    return [found.proxies for found in one.saturated.repetitions if found.proxies is not None]


def _times(one: Line) -> Iterator[str]:
    found = _proxy_times(one)
    yield plain(_mean(each.queue for each in found), _short_time, "µs")
    yield microseconds(_mean(each.service for each in found))
    yield microseconds(_mean(sum(each.nodes.values()) / len(each.nodes) for each in found))
    yield plain(_mean(each.queue_length for each in found), lambda mean: f"{mean:.1f}")


def _short_time(microseconds: float) -> str:
    """Return a time as text; times below the resolution of clocks are shown as a bound."""
    return duration(microseconds) if not 0 < microseconds < _CLOCK else f"<{_CLOCK:g} µs"


def _by_law(one: Line) -> str:
    cycle = _mean(
        each.queue + each.service + each.think
        for each in _proxy_times(one)
        if each.queue is not None and each.service is not None and each.think is not None
    )
    return plain(None if cycle is None else one.saturated.clients / cycle * 1e6, unit=PER_SECOND)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
