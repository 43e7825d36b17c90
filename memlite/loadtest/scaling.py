"""How the throughput of clusters depends on the number of nodes, and their bottlenecks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.loadtest import selection
from memlite.loadtest.defaults import PROXIED
from memlite.loadtest.results import (
    ClusterInfo,
    Placed,
    Point,
    Repetition,
    Results,
    ServerUse,
    TargetInfo,
)
from memlite.loadtest.units import duration, grouped, percent

__all__ = [
    "Row",
    "capacity",
    "findings",
    "is_proxy",
    "label_of",
    "machine_shares",
    "row_of",
    "rows",
    "shared_machine",
]

# A process that uses this share of a core, or a machine this share of its cores, is the limit.
_BUSY: Final = 0.85


@dataclass(frozen=True, slots=True)
class Row:
    """A cluster at its highest throughput for one value size.

    Processor times are means over the repetitions, and None if unknown.

    Attributes:
        target: its name.
        label: its path and, in a comparison of runs, the label of the run.
        cluster: the parts of the cluster.
        point: the measurement.
        proxy: CPU utilisation of the proxy, or of the busiest of several proxies; 1.0 is one core.
            None without a proxy.
        nodes: CPU utilisation of each node, in order.
        proxy_demand: processor time of the proxies per operation, in microseconds.
        node_demand: processor time of all nodes per operation, in microseconds.
        machine: utilisation of this machine's cores by all load; with several machines, utilisation
            of the busiest machine's cores by its nodes and proxies.
        limit: the bottleneck, in a few words; empty if unknown.
    """

    target: str
    label: str
    cluster: ClusterInfo
    point: Point
    proxy: float | None
    nodes: tuple[float, ...]
    proxy_demand: float | None
    node_demand: float | None
    machine: float | None
    limit: str


def is_proxy(name: str) -> bool:
    """Return whether a process name, as in `Repetition.processes`, denotes a proxy."""
    return name.partition("-")[0] == "proxy"


def rows(results: Results) -> list[Row]:
    """Return a row for each cluster and value size.

    Args:
        results: the results of one run, or of several combined; uses the closed-loop points or, if
            there are none, the open-loop points.
    """
    points = selection.closed_loop(results) or selection.open_loop(results)
    found = []
    for size in selection.value_sizes(points):
        chosen = [point for point in points if point.value_size == size]
        groups = selection.by_target(results, chosen)
        for target in results.targets:
            if target.cluster is not None and target.name in groups:
                point = selection.highest_throughput(groups[target.name])
                found.append(row_of(results, target, point))
    return found


def row_of(results: Results, info: TargetInfo, point: Point) -> Row:
    """Return the row of one measurement.

    Args:
        results: the results that contain the measurement.
        info: the measured target.
        point: the measurement.

    Raises:
        ValueError: the target is not a cluster.
    """
    if info.cluster is None:
        raise ValueError(f"{info.name} is not a cluster")
    target, cores = info.name, float(results.machine.get("cores", 0))
    known = [one for one in point.repetitions if one.processes and one.operations]
    shares = _means([_shares(one.processes) for one in known])
    demands = _means([_demands(one) for one in known])
    nodes = tuple(share for name, share in shares.items() if not is_proxy(name))
    proxies = [share for name, share in shares.items() if is_proxy(name)]
    machine = _busiest(known, info.placed) if info.placed else _machine(known, cores)
    return Row(
        target=target,
        label=label_of(info),
        cluster=info.cluster,
        point=point,
        proxy=max(proxies, default=None),
        nodes=nodes,
        proxy_demand=demands.get("proxies"),
        node_demand=demands.get("nodes"),
        machine=machine,
        limit=_limit(point, proxies, nodes, machine, several=bool(info.placed)),
    )


def label_of(info: TargetInfo) -> str:
    """Return the path of a cluster and, in a comparison of runs, the label of the run."""
    return info.name.partition(", ")[2] or info.name


def _shares(processes: Mapping[str, ServerUse]) -> dict[str, float]:
    return {name: use.cpu_share for name, use in processes.items()}


def _demands(one: Repetition) -> dict[str, float]:
    total: dict[str, float] = {}
    for name, use in one.processes.items():
        kind = "proxies" if is_proxy(name) else "nodes"
        total[kind] = total.get(kind, 0.0) + use.cpu_seconds
    return {name: seconds * 1e6 / one.operations for name, seconds in total.items()}


def _means(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    if not several:
        return {}
    return {name: sum(one[name] for one in several) / len(several) for name in several[0]}


def _machine(known: Sequence[Repetition], cores: float) -> float | None:
    if not known or not cores:
        return None
    used = [
        sum(use.cpu_share for use in one.processes.values()) / cores
        + one.generator_cpu / 1e6 * one.throughput / cores
        + (one.machine.other + one.machine.steal if one.machine else 0.0)
        for one in known
    ]
    return min(1.0, sum(used) / len(used))


def _busiest(known: Sequence[Repetition], placed: Mapping[str, Placed]) -> float | None:
    """Return the utilisation of the busiest machine's cores by nodes and proxies."""
    shares = _means([machine_shares(one.processes, placed) for one in known])
    return max(shares.values(), default=None)


def machine_shares(
    processes: Mapping[str, ServerUse], placed: Mapping[str, Placed]
) -> dict[str, float]:
    """Return the utilisation of each machine's cores by nodes and proxies; 1.0 is all cores.

    Args:
        processes: resources used by each process.
        placed: the machine of each process.
    """
    shares: dict[str, float] = {}
    for name, use in processes.items():
        where = placed[name]
        share = use.cpu_share / max(1, where.cores)
        shares[where.machine] = shares.get(where.machine, 0.0) + share
    return shares


def _limit(
    point: Point,
    proxies: Sequence[float],
    nodes: Sequence[float],
    machine: float | None,
    *,
    several: bool,
) -> str:
    if max(proxies, default=0.0) >= _BUSY:
        return "a proxy" if len(proxies) > 1 else "the proxy"
    if max(nodes, default=0.0) >= _BUSY:
        return "a node"
    if point.generator_limited:
        return "the load generator"
    if machine is not None and machine >= _BUSY:
        return "a machine" if several else "the machine"
    return ""


def findings(results: Results) -> list[str]:
    """Return the findings about clusters as sentences.

    Args:
        results: see `rows`.
    """
    main = {id(point) for point in selection.with_main_value_size(results.points)}
    found = [row for row in rows(results) if id(row.point) in main]
    by_label: dict[str, list[Row]] = {}
    for row in sorted(found, key=lambda row: row.cluster.nodes):
        by_label.setdefault(row.label, []).append(row)
    sentences = [_growth(label, of_label) for label, of_label in by_label.items()]
    return [*sentences, *capacity(found), *shared_machine(results, found)]


def _growth(label: str, found: Sequence[Row]) -> str:
    parts = [
        f"{grouped(row.point.throughput.mean)} with {_nodes(row.cluster.nodes)}"
        + (f" (limited by {row.limit})" if row.limit else "")
        for row in found
    ]
    return f"Operations per second, {label}: {'; '.join(parts)}."


def capacity(found: Sequence[Row]) -> Iterator[str]:
    """State the capacity of a proxy with a core of its own, which a crowded machine hides."""
    proxied = [row for row in found if row.cluster.path == PROXIED and row.proxy_demand]
    if not proxied:
        return
    demand = sum(row.proxy_demand or 0.0 for row in proxied) / len(proxied)
    node = sum(row.node_demand or 0.0 for row in proxied) / len(proxied)
    yield (
        f"Behind the proxy, an operation takes {duration(demand)} of the proxy's processor time "
        f"and {duration(node)} of a node's: a proxy with a core of its own serves at most about "
        f"{grouped(1e6 / demand)} operations per second, whatever the number of nodes."
    )


def shared_machine(results: Results, found: Sequence[Row]) -> Iterator[str]:
    """State whether clusters kept this machine so busy that more nodes cannot be faster."""
    several = {info.name for info in results.targets if info.placed}
    busiest = max((row.machine or 0.0 for row in found if row.target not in several), default=0.0)
    if busiest >= _BUSY:
        yield (
            "All nodes, proxies and the load generator shared this machine, whose processors "
            f"were up to {percent(busiest)} busy: more nodes cannot be faster here. Measure on "
            "several machines to see how a cluster scales."
        )


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"
