"""A summary of a comparison of many clusters: the main findings, and a table."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from memlite.loadtest import scaling, selection
from memlite.loadtest.defaults import DIRECT, PROXIED
from memlite.loadtest.doubt import NO_DIFFERENCE, compare
from memlite.loadtest.results import Latency, Point, Repetition, Results
from memlite.loadtest.scaling import Row
from memlite.loadtest.units import duration, grouped, short, size

__all__ = ["Cell", "Grid", "findings", "grids", "named", "summarises"]

_MANY: Final = 3
"""Summarise more clusters than this; with fewer, each gets a sentence of its own."""
_LETTERS: Final = {"proxy": "P", "node": "N", "load generator": "G", "machine": "M"}
_MEANINGS: Final = {
    "P": "limited by a proxy",
    "N": "limited by a node",
    "G": "limited by the load generator",
    "M": "limited by a machine's processors",
}


class Cell(NamedTuple):
    """A cluster in a table.

    Attributes:
        throughput: operations per second.
        letter: letter for the bottleneck, see the legend; empty if unknown.
    """

    throughput: str
    letter: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """The highest throughput of each cluster for one value size.

    Attributes:
        title: title of the table.
        labels: column headings: how requests reach the nodes.
        rows: the number of nodes, and a cell for each column.
        legend: meaning of the letters in the cells; empty if there are none.
    """

    title: str
    labels: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    legend: str


def summarises(results: Results) -> bool:
    """Return whether to summarise: there are only clusters, in a closed loop, and many of them."""
    points = selection.closed_loop(results)
    measured = {point.target for point in points}
    clusters = {target.name for target in results.targets if target.cluster is not None}
    return len(points) == len(results.points) and len(measured) > _MANY and measured <= clusters


def grids(results: Results) -> list[Grid]:
    """Return a table for each value size; none if clusters are not summarised."""
    if not summarises(results):
        return []
    sizes = _by_size(results)
    return [_grid(found, several=len(sizes) > 1) for found in sizes.values()]


def _by_size(results: Results) -> dict[float, list[Row]]:
    found: dict[float, list[Row]] = {}
    for row in scaling.rows(results):
        found.setdefault(row.point.value_size, []).append(row)
    return found


def _grid(found: Sequence[Row], *, several: bool) -> Grid:
    labels = tuple(dict.fromkeys(row.label for row in found))
    cells = {(row.cluster.nodes, row.label): _cell(row) for row in found}
    counts = sorted({row.cluster.nodes for row in found})
    letters = {cell.letter for cell in cells.values()}
    of = f", values of {size(found[0].point.value_size)}" if several else ""
    return Grid(
        f"Operations per second{of}",
        labels,
        tuple(
            (_nodes(nodes), tuple(cells.get((nodes, label), Cell("–")) for label in labels))
            for nodes in counts
        ),
        "; ".join(f"{letter}: {its}" for letter, its in _MEANINGS.items() if letter in letters),
    )


def _cell(row: Row) -> Cell:
    letter = next((its for what, its in _LETTERS.items() if row.limit.endswith(what)), "")
    return Cell(short(row.point.throughput.mean), letter)


def findings(results: Results) -> list[str]:
    """Return the main findings as sentences.

    Args:
        results: results for which `summarises` is true.
    """
    sizes = _by_size(results)
    main = selection.with_main_value_size(results.points)[0].value_size
    found = sizes[main]
    return [
        *_fastest(results, found, f" with values of {size(main)}" if len(sizes) > 1 else ""),
        *_growth(found),
        *_detour(found),
        *scaling.shared_machine(results, found),
        *scaling.capacity(found),
        *_other_sizes([rows for its, rows in sizes.items() if its != main]),
        *_loads(results, found),
    ]


def _fastest(results: Results, found: Sequence[Row], load: str) -> Iterator[str]:
    first, *others = sorted(found, key=lambda row: -row.point.throughput.mean)
    doubts = {
        row.target: doubt
        for row in others
        if (doubt := compare(row.point, first.point, _throughput).doubt)
    }
    highest = grouped(first.point.throughput.mean)
    if len(doubts) == len(others):
        lowest = grouped(others[-1].point.throughput.mean)
        yield (
            f"The fastest cluster{load} cannot be determined: all {len(found)} serve between "
            f"{lowest} and {highest} operations per second, and {_reason(doubts)}."
        )
        return
    text = (
        f"The fastest{load}: {first.label} with {_nodes(first.cluster.nodes)}, "
        f"{highest} operations per second at {_clients(first.point.clients)}. "
    )
    if doubts:
        as_fast = named(results, doubts)
        text += f"Others may be as fast: {as_fast} ({_reason(doubts)}). "
    last = others[-1]
    compared = compare(last.point, first.point, _throughput)
    yield (
        f"{text}The slowest: {last.label} with {_nodes(last.cluster.nodes)}, "
        f"{grouped(last.point.throughput.mean)}"
        + ("." if compared.doubt else f", {compared.times('at most')} that.")
    )


def _reason(doubts: Mapping[str, str]) -> str:
    """Return the most common doubt, in words."""
    reasons = list(doubts.values())
    most = max(dict.fromkeys(reasons), key=reasons.count)
    return "the load generator is the bottleneck" if most.startswith("the load generator") else most


def _other_sizes(others: Sequence[Sequence[Row]]) -> Iterator[str]:
    parts = []
    for found in others:
        first = max(found, key=lambda row: row.point.throughput.mean)
        parts.append(
            f"of {size(first.point.value_size)}, {first.label} with "
            f"{_nodes(first.cluster.nodes)}, {grouped(first.point.throughput.mean)}"
        )
    if parts:
        yield f"The highest throughput with values of other sizes: {'; '.join(parts)}."


def _growth(found: Sequence[Row]) -> Iterator[str]:
    """State the gain from more nodes, and the limits to further gains."""
    least, most = (few(row.cluster.nodes for row in found) for few in (min, max))
    if least == most:
        return
    changes: dict[str, list[str]] = {}
    limits: dict[str, list[str]] = {}
    for label in dict.fromkeys(row.label for row in found):
        ends = {row.cluster.nodes: row for row in found if row.label == label}
        if least not in ends or most not in ends:
            continue
        changes.setdefault(_change(ends[least].point, ends[most].point), []).append(label)
        if ends[most].limit:
            limits.setdefault(ends[most].limit, []).append(label)
    if not changes:
        return
    changed, limited = (
        "; ".join(f"{its} ({_listed(labels)})" for its, labels in several.items())
        for several in (changes, limits)
    )
    yield f"{_nodes(most)} compared with {least}: {changed}." + (
        f" The bottleneck with {_nodes(most)}: {limited}." if limited else ""
    )


def _change(before: Point, after: Point) -> str:
    slower, faster = sorted((before, after), key=lambda point: point.throughput.mean)
    doubt = compare(slower, faster, _throughput).doubt
    if doubt == NO_DIFFERENCE:
        return "no significant difference"
    if doubt:
        return f"unknown, because {doubt}"
    grown = compare(after, before, _throughput)
    return f"{replace(grown, bound=after.generator_limited).times('at least')} the throughput"


def _throughput(one: Repetition) -> float:
    return one.throughput


def _detour(found: Sequence[Row]) -> Iterator[str]:
    """State the cost of the path through a proxy."""
    pairs = [
        (proxied, direct)
        for proxied in found
        for direct in found
        if proxied.cluster.path == PROXIED
        and direct.cluster.path == DIRECT
        and proxied.cluster.nodes == direct.cluster.nodes
        and proxied.label.replace(PROXIED, DIRECT) == direct.label  # of the same run
    ]
    if not pairs:
        return
    proxied, direct = max(pairs, key=lambda pair: pair[0].cluster.nodes)
    slower, faster = sorted((proxied.point, direct.point), key=lambda one: one.throughput.mean)
    compared = compare(slower, faster, _throughput)
    if compared.doubt == NO_DIFFERENCE:
        text = "throughput does not differ significantly between the proxy and the direct path"
    elif compared.doubt:
        text = (
            f"{grouped(proxied.point.throughput.mean)} operations per second through the proxy, "
            f"{grouped(direct.point.throughput.mean)} directly ({compared.doubt})"
        )
    elif slower is proxied.point:
        text = f"throughput through the proxy is {compared.times('at most')} the direct throughput"
    else:
        text = f"direct throughput is {compared.times('at most')} the throughput through the proxy"
    ways = (proxied.point, direct.point)
    through, directly = (duration(one.response.get("all", Latency()).p99) for one in ways)
    loads = _listed(list(dict.fromkeys(f"{one.clients:,}" for one in ways)))
    yield (
        f"With {_nodes(proxied.cluster.nodes)}, {text}. The 99th percentile of response times is "
        f"{through} through the proxy and {directly} directly, at {loads} "
        f"client{'' if loads == '1' else 's'}."
    )


def _loads(results: Results, found: Sequence[Row]) -> Iterator[str]:
    """State whether more clients might have shown a higher throughput."""
    loads = sorted({point.clients for point in results.points})
    highest = [row for row in found if row.point.clients == loads[-1]]
    if len(loads) == 1:
        yield f"Only one load was tested, {_clients(loads[0])}: more may reach a higher throughput."
    elif highest:
        all_of = "All" if len(highest) == len(found) else f"{len(highest)} of"
        yield (
            f"{all_of} {len(found)} clusters were fastest at the highest load, "
            f"{_clients(loads[-1])}: more may reach a higher throughput."
        )


def named(results: Results, targets: Collection[str]) -> str:
    """Return clusters in words: "direct with 3 and 4 nodes, asked with 4 nodes"."""
    measured = {point.target for point in results.points}
    if measured <= set(targets):
        return f"all {len(measured)} clusters"
    by_label: dict[str, list[int]] = {}
    for target in results.targets:
        if target.cluster is not None and target.name in targets:
            by_label.setdefault(scaling.label_of(target), []).append(target.cluster.nodes)
    return ", ".join(
        f"{label} with {_listed([str(count) for count in sorted(counts)])} "
        f"node{'s' if counts != [1] else ''}"
        for label, counts in by_label.items()
    )


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"
