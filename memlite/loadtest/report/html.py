"""The HTML page: one self-contained file that needs no network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from memlite.loadtest import files, overview, scaling, selection, units
from memlite.loadtest.cells import (
    PER_SECOND,
    UNKNOWN,
    count,
    microseconds,
    plain,
    share,
    with_interval,
)
from memlite.loadtest.checking import with_checks
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.efficiency import Efficiency, efficiencies
from memlite.loadtest.machines import MachineTable
from memlite.loadtest.machines import load as load_machines
from memlite.loadtest.prices import Cost, Prices, assumptions, costs
from memlite.loadtest.prices import load as load_prices
from memlite.loadtest.recommendation import Choice, choices, recommendation
from memlite.loadtest.report.all_plots import all_plots
from memlite.loadtest.report.check_tables import check_rows, sweep_rows
from memlite.loadtest.report.compare import combine, comparison_warnings, names
from memlite.loadtest.report.page import PAGE_NAME, date, draw, render, run_facts
from memlite.loadtest.report.plots import Plot, PlotData
from memlite.loadtest.results import Interval, Latency, Point, Results, TargetInfo
from memlite.loadtest.scaling import Row
from memlite.loadtest.statistics import interval
from memlite.loadtest.verdict import findings, generator_warnings, warnings

__all__ = ["PAGE_NAME", "write"]


def write(
    runs: Sequence[Results],
    folder: Path,
    prices: Prices | None = None,
    machines: MachineTable | None = None,
) -> list[Path]:
    """Write the page and the images; see `memlite.loadtest.report.write_report`."""
    prices = load_prices() if prices is None else prices
    machines = load_machines() if machines is None else machines
    runs = [with_checks(run) for run in runs]
    results = combine(runs)
    efficient = efficiencies(results, machines)  # before anything is written
    data = PlotData(results, costs(results, prices), prices)
    available = all_plots(data)
    drawings, written = draw(available, folder)
    path = folder / PAGE_NAME
    files.write(
        path,
        _page(
            runs, data, available, drawings, [_efficiency(one, machines) for one in efficient]
        ).encode(),
    )
    return [path, *written]


def _page(
    runs: Sequence[Results],
    data: PlotData,
    drawn: Sequence[Plot],
    drawings: Mapping[str, Markup],
    efficient: Sequence[Mapping[str, str]],
) -> str:
    results = data.results
    available = choices(results, data.costs)
    answer = recommendation(available, data.prices.currency)
    return render(
        "template.html.j2",
        title=results.title or "Load test",
        subtitle=_subtitle(results),
        answer=answer,
        choices=[_choice(one, data.prices) for one in available] if answer else [],
        sentences=findings(results),
        grids=overview.grids(results),
        warnings=[
            *generator_warnings(results),
            *warnings(results),
            *comparison_warnings(runs),
        ],
        checks=check_rows(results),
        sweeps=sweep_rows(results),
        clusters=[_cluster(row) for row in scaling.rows(results)],
        efficiencies=efficient,
        targets=[_target(target) for target in results.targets],
        concurrent=selection.is_concurrent(results),
        with_rates=bool(selection.open_loop(results)),
        with_sizes=len(selection.value_sizes(results.points)) > 1,
        with_misses=any(one.misses for point in results.points for one in point.repetitions),
        points=[_Row.of(point) for point in results.points],
        plots=drawn,
        drawings=drawings,
        costs=[_cost(cost, data.prices) for cost in data.costs],
        currency=data.prices.currency,
        assumptions=assumptions(data.prices, data.costs, results),
        runs=[run_facts(name, run) for name, run in zip(names(runs), runs, strict=True)],
        emulated=any(target.kind == "gcs" for target in results.targets),
    )


def _subtitle(results: Results) -> str:
    return (
        f"{date(results.started)}, duration {units.duration(results.seconds * 1e6)}, "
        f"workload “{results.workload.get('name', 'custom')}”"
    )


# The table of points


@dataclass(frozen=True, slots=True)
class _Row:
    target: str
    clients: str
    rate: str
    value_size: str
    throughput: str
    seconds: str
    mean: str
    times: tuple[str, ...]
    hits: str
    errors: str
    kinds: str
    cpu: str
    demand: str
    memory: str
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, point: Point) -> "_Row":
        repetitions = point.repetitions
        used = [one.server for one in repetitions if one.server is not None]
        errors = point.errors
        failed = sum(errors.values())
        warnings = []
        if point.generator_limited:
            warnings.append("generator")
        if machine_doubt([point]):
            warnings.append("machine")
        return cls(
            target=point.target,
            clients=count(point.clients),
            rate=plain(point.rate or None, unit=PER_SECOND),
            value_size=plain(point.value_size, units.size, "B"),
            throughput=_rate(point.throughput),
            seconds=_with_interval(point.seconds, 1e6, units.duration, "µs"),
            mean=_mean_time(point),
            times=_times(point.response.get("all")),
            hits=_hit_rate(point),
            errors=count(failed),
            kinds=", ".join(f"{kind}: {count:,}" for kind, count in errors.items()),
            cpu=share(sum(use.cpu_share for use in used) / len(used) if used else None),
            demand=_demand(point),
            memory=plain(max((use.memory_bytes for use in used), default=None), units.size, "B"),
            warnings=tuple(warnings),
        )


def _times(latency: Latency | None) -> tuple[str, ...]:
    if latency is None or not latency.count:
        return (UNKNOWN,) * 3
    return tuple(microseconds(value) for value in (latency.p50, latency.p99, latency.p999))


def _mean_time(point: Point) -> str:
    means = [one.response["all"].mean for one in point.repetitions if "all" in one.response]
    return _with_interval(interval(means), 1, units.duration, "µs") if means else UNKNOWN


def _hit_rate(point: Point) -> str:
    hits, misses = (
        sum(getattr(one, name) for one in point.repetitions) for name in ("hits", "misses")
    )
    return share(hits / (hits + misses) if hits + misses else None)


def _demand(point: Point) -> str:
    """Return the server's processor time per operation."""
    known = [one for one in point.repetitions if one.server is not None and one.operations]
    if not known:
        return UNKNOWN
    seconds = sum(one.server.cpu_seconds for one in known if one.server is not None)
    return microseconds(seconds * 1e6 / sum(one.operations for one in known))


def _rate(value: Interval) -> str:
    return _with_interval(value, 1, units.grouped, "")


def _with_interval(value: Interval, factor: float, write: Callable[[float], str], unit: str) -> str:
    text = write(value.mean * factor)
    if value.high is not None and value.mean:
        text += f" ± {(value.high - value.mean) / value.mean:.0%}"
    return with_interval(text, value, unit, factor)


# The other tables


def _choice(choice: Choice, prices: Prices) -> dict[str, str]:
    promise = choice.promise
    return {
        "target": choice.target,
        "throughput": _rate(choice.point.throughput),
        "p99": microseconds(choice.p99 or None),
        "crash": "yes" if promise.survives_crash else "no",
        "machine": "yes" if promise.survives_machine else "no",
        "shared": "yes" if promise.shared else "no",
        "cost": _money(choice.cost, prices.currency),
    }


def _cost(cost: Cost, prices: Prices) -> dict[str, str]:
    amounts = {
        name: plain(
            amount or None,
            lambda value: units.money(value, prices.currency).removesuffix(f" {prices.currency}"),
            prices.currency,
        )
        for name, amount in (
            ("machine", cost.machine),
            ("disk", cost.disk),
            ("store", cost.store),
            ("reads", cost.reads),
            ("writes", cost.writes),
            ("total", cost.total),
        )
    }
    load = f"{cost.clients:,} clients"
    if cost.rate:
        load = f"{units.grouped(cost.rate)} per second offered"
    return amounts | {
        "target": cost.target,
        "load": load,
        "throughput": plain(cost.throughput),
    }


def _money(amount: float | None, currency: str) -> str:
    return plain(amount, lambda value: units.money(value, currency), currency)


def _cluster(row: Row) -> dict[str, str]:
    return {
        "target": row.target,
        "size": plain(row.point.value_size, units.size, "B"),
        "clients": count(row.point.clients),
        "throughput": _rate(row.point.throughput),
        "proxy": share(row.proxy),
        "busiest": share(max(row.nodes, default=None)),
        "mean": share(sum(row.nodes) / len(row.nodes) if row.nodes else None),
        "proxy_demand": microseconds(row.proxy_demand),
        "node_demand": microseconds(row.node_demand),
        "machine": share(row.machine),
        "limit": row.limit or UNKNOWN,
    }


def _efficiency(one: Efficiency, table: MachineTable) -> dict[str, str]:
    names = (f"{count} × {name}" if count > 1 else name for name, count in one.machines.items())
    return {
        "target": one.target,
        "machines": ", ".join(names),
        "throughput": plain(one.throughput),
        "watts": plain(one.watts, lambda watts: f"{units.grouped(watts)} W", "W"),
        "per_joule": plain(one.per_joule),
        "hour": _money(one.hour, table.currency),
        "per_money": plain(one.per_money, units.short),
        "currency": table.currency,
    }


def _target(target: TargetInfo) -> dict[str, str]:
    details = "; ".join(f"{name}: {text}" for name, text in target.details.items())
    return {
        "name": target.name,
        "kind": target.kind,
        "address": target.address,
        "server": target.server or UNKNOWN,
        "details": details or UNKNOWN,
    }
