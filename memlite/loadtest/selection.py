"""Which of the points a sentence, a picture or a price is about."""

from collections.abc import Sequence

from memlite.loadtest.results import Point, Results

__all__ = [
    "PLATEAU",
    "at_common_load",
    "best",
    "bursts",
    "by_target",
    "closed_loop",
    "is_concurrent",
    "of_main_size",
    "open_loop",
    "saturation",
    "value_sizes",
]

PLATEAU = 0.95
"""A throughput of at least this share of the highest counts as the highest."""


def is_concurrent(results: Results) -> bool:
    """Return whether clients came, did their work once and left; else they stayed."""
    return results.workload.get("kind") == "concurrent"


def bursts(results: Results) -> list[Point]:
    """Return the points at which clients came, did their work once and left."""
    return list(results.points if is_concurrent(results) else results.bursts)


def closed_loop(results: Results) -> list[Point]:
    """Return the points at which clients waited for replies before they went on."""
    return [point for point in results.points if not point.rate]


def open_loop(results: Results) -> list[Point]:
    """Return the points at which requests were sent at a given rate."""
    return [point for point in results.points if point.rate]


def value_sizes(points: Sequence[Point]) -> list[float]:
    """Return the sizes of values that occur, in bytes, from the smallest on."""
    return sorted({point.value_size for point in points})


def of_main_size(points: Sequence[Point]) -> list[Point]:
    """Return the points with the size of values that most of them have, else the smallest."""
    sizes = value_sizes(points)
    if len(sizes) < 2:
        return list(points)
    main = max(sizes, key=lambda size: (sum(point.value_size == size for point in points), -size))
    return [point for point in points if point.value_size == main]


def by_target(results: Results, points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of each target, in the order of load.

    Targets are in the order in which results name them; those without points are left out.
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


def at_common_load(groups: dict[str, list[Point]]) -> list[Point]:
    """Return one point of each target, at the highest load that all of them had.

    Args:
        groups: as `by_target` returns them.

    Returns:
        The points; with no load in common, those at each target's own highest.
    """
    loads = [{(point.rate, point.clients): point for point in points} for points in groups.values()]
    if not loads:
        return []
    common = set(loads[0]).intersection(*loads[1:])
    return [of_one[max(common or of_one)] for of_one in loads]


def best(points: Sequence[Point]) -> Point:
    """Return the point with the highest throughput."""
    return max(points, key=lambda point: point.throughput.mean)


def saturation(points: Sequence[Point]) -> Point:
    """Return where throughput stops growing.

    Args:
        points: of one target, one or more.

    Returns:
        The one with the fewest clients whose mean throughput is within 5% of the highest.
    """
    highest = best(points).throughput.mean
    return min(
        (point for point in points if point.throughput.mean >= PLATEAU * highest),
        key=lambda point: point.clients,
    )
