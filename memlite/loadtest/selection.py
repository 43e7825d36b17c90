"""Select the points that a sentence, a plot or a cost estimate is based on."""

from collections.abc import Mapping, Sequence

from memlite.loadtest.results import Point, Results

__all__ = [
    "PLATEAU",
    "at_common_load",
    "bursts",
    "by_target",
    "closed_loop",
    "highest_throughput",
    "is_concurrent",
    "open_loop",
    "saturation",
    "value_sizes",
    "with_main_value_size",
]

PLATEAU = 0.95
"""A throughput of at least this share of the highest counts as saturated."""


def is_concurrent(results: Results) -> bool:
    """Return whether the workload was ``concurrent``: each client connected, ran once and left."""
    return results.workload.get("kind") == "concurrent"


def bursts(results: Results) -> list[Point]:
    """Return the points measured with new clients that all arrived at once."""
    return list(results.points if is_concurrent(results) else results.bursts)


def closed_loop(results: Results) -> list[Point]:
    """Return the closed-loop points: clients waited for each reply before the next request."""
    return [point for point in results.points if not point.rate]


def open_loop(results: Results) -> list[Point]:
    """Return the open-loop points: requests were sent at a given rate."""
    return [point for point in results.points if point.rate]


def value_sizes(points: Sequence[Point]) -> list[float]:
    """Return the distinct value sizes in bytes, in ascending order."""
    return sorted({point.value_size for point in points})


def with_main_value_size(points: Sequence[Point]) -> list[Point]:
    """Return the points with the most common value size; on a tie, the smallest such size."""
    sizes = value_sizes(points)
    if len(sizes) < 2:
        return list(points)
    main = max(sizes, key=lambda size: (sum(point.value_size == size for point in points), -size))
    return [point for point in points if point.value_size == main]


def by_target(results: Results, points: Sequence[Point]) -> dict[str, list[Point]]:
    """Group points by target, each group in order of load.

    Targets keep the order of the results; targets without points are left out.
    """
    names = dict.fromkeys([target.name for target in results.targets])
    names.update(dict.fromkeys(point.target for point in points))
    found = {
        name: sorted(
            (point for point in points if point.target == name),
            key=lambda point: (point.rate, point.clients),
        )
        for name in names
    }
    return {name: points for name, points in found.items() if points}


def at_common_load(groups: Mapping[str, Sequence[Point]]) -> list[Point]:
    """Return one point for each target, at the highest load measured for all of them.

    Args:
        groups: the points of each target, as returned by `by_target`.

    Returns:
        The points; if the targets have no load in common, each target's own highest load.
    """
    loads = [{(point.rate, point.clients): point for point in points} for points in groups.values()]
    if not loads:
        return []
    common = set(loads[0]).intersection(*loads[1:])
    return [by_load[max(common or by_load)] for by_load in loads]


def highest_throughput(points: Sequence[Point]) -> Point:
    """Return the point with the highest throughput."""
    return max(points, key=lambda point: point.throughput.mean)


def saturation(points: Sequence[Point]) -> Point:
    """Return the point at which throughput stops growing.

    Args:
        points: one or more points of one target.

    Returns:
        The point with the fewest clients whose mean throughput is within 5% of the highest.
    """
    highest = highest_throughput(points).throughput.mean
    return min(
        (point for point in points if point.throughput.mean >= PLATEAU * highest),
        key=lambda point: point.clients,
    )
