"""Building blocks of the plots: lines with confidence bands, markers, captions and axes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from memlite.loadtest.report.style import TargetStyle, Theme, label
from memlite.loadtest.results import Interval, Latency, Point
from memlite.loadtest.statistics import positive_interval
from memlite.loadtest.units import grouped

__all__ = [
    "client_counts",
    "draw_line",
    "first_reaching",
    "generator_limited_legend",
    "interval_caption",
    "interval_text",
    "load_text",
    "over_repetitions",
    "percentile_axis",
    "point_load",
    "ring_marker",
    "share_text",
]

_BAND_OPACITY = 0.18


def over_repetitions(point: Point, operation: str, percentile: str) -> Interval:
    """Return a percentile's mean over the repetitions and its confidence interval.

    Args:
        point: the point.
        operation: the operation's name, or ``all``.
        percentile: an attribute of `Latency`, such as ``p99``.
    """
    found = [
        float(getattr(one.response[operation], percentile))
        for one in point.repetitions
        if operation in one.response
    ]
    merged = point.response.get(operation, Latency())
    return positive_interval(found or [float(getattr(merged, percentile))])


def draw_line(
    axes: Axes,
    style: TargetStyle,
    x_values: Sequence[float],
    values: Sequence[Interval],
    points: Sequence[Point],
    unit: Callable[[float], str] = grouped,
) -> list[float]:
    """Draw a line through the means, with their confidence intervals as a band.

    Points at which the generator was the bottleneck have hollow markers.

    Args:
        axes: the axes to draw on.
        style: the line's style.
        x_values: the horizontal position of each value.
        values: the values to draw.
        points: the point that each value belongs to.
        unit: formats a value, for the tooltip of its marker.

    Returns:
        The values drawn, for scaling the axis.
    """
    means = [value.mean for value in values]
    (line,) = axes.plot(x_values, means, color=style.colour, linestyle=style.dash, linewidth=2)
    label(line, style.name)
    for x, value, point in zip(x_values, values, points, strict=True):
        fill = axes.get_facecolor() if point.generator_limited else style.colour
        (marker,) = axes.plot(
            [x],
            [value.mean],
            color=style.colour,
            marker=style.marker,
            markersize=6,
            markerfacecolor=fill,
            markeredgewidth=1.4,
        )
        told = f"{style.name}, {point_load(point)}: {interval_text(value, unit)}"
        label(marker, style.name, told)
    known = [
        (x, value.low, value.high)
        for x, value in zip(x_values, values, strict=True)
        if value.low is not None and value.high is not None
    ]
    if len(known) == 1:
        ((x, low, high),) = known
        label(axes.vlines([x], [low], [high], color=style.colour, linewidth=1.5), style.name)
    elif known:
        band = axes.fill_between(
            [x for x, _, _ in known],
            [low for _, low, _ in known],
            [high for _, _, high in known],
            color=style.colour,
            alpha=_BAND_OPACITY,
            linewidth=0,
        )
        label(band, style.name)
    return means


def point_load(point: Point) -> str:
    """Return the load of a point, for a label."""
    if point.rate:
        return f"{grouped(point.rate)}/s offered"
    return "1 client" if point.clients == 1 else f"{grouped(point.clients)} clients"


def interval_text(value: Interval, unit: Callable[[float], str]) -> str:
    """Return a mean with its confidence interval, if that is known."""
    if value.low is None or value.high is None:
        return unit(value.mean)
    return f"{unit(value.mean)} ({unit(value.low)} to {unit(value.high)})"


def ring_marker(colour: str) -> dict[str, Any]:
    """Return the line style of the ring that marks a knee."""
    return {
        "color": colour,
        "linestyle": "",
        "marker": "o",
        "markersize": 15,
        "markerfacecolor": "none",
        "markeredgecolor": colour,
        "markeredgewidth": 1.6,
    }


def generator_limited_legend(
    groups: Mapping[str, Sequence[Point]], theme: Theme
) -> list[tuple[Line2D, str]]:
    """Return the legend entry for generator-limited points, if there are any."""
    if not any(point.generator_limited for points in groups.values() for point in points):
        return []
    line = Line2D([], [], color=theme.text, marker="o", linestyle="", markerfacecolor="none")
    return [(line, "hollow: limited by the generator")]


def interval_caption(groups: Mapping[str, Sequence[Point]]) -> str:
    """Return the sentence that explains the bands of a plot."""
    if any(point.throughput.low is not None for points in groups.values() for point in points):
        return "Bands are 95% confidence intervals over repetitions, on a log scale."
    return "There was only one repetition, so there are no confidence intervals."


def load_text(points: Sequence[Point]) -> str:
    """Return the load of the points, for a title."""
    loads = {
        f"{grouped(point.rate)} operations per second offered"
        if point.rate
        else f"{grouped(point.clients)} clients"
        for point in points
    }
    return loads.pop() if len(loads) == 1 else "each target at its highest load"


def client_counts(groups: Mapping[str, Sequence[Point]]) -> list[float]:
    """Return the numbers of clients of all points."""
    return [float(point.clients) for points in groups.values() for point in points]


def first_reaching(values: Sequence[float], threshold: float) -> int:
    """Return the index of the first value of at least `threshold`; the length if there is none."""
    return next((index for index, value in enumerate(values) if value >= threshold), len(values))


def percentile_axis(axes: Axes, rarest: float) -> None:
    """Set up the horizontal axis for percentiles: 0%, 90%, 99%, 99.9%, ….

    Args:
        axes: the axes.
        rarest: the right end: one in this many responses.
    """
    axes.set_xscale("log")
    axes.set_xlim(1, rarest * 1.15)
    ticks = [1.0, 2.0]
    while ticks[-1] * 5 <= rarest or ticks[-1] == 2.0:
        ticks.append(ticks[-1] * (5 if ticks[-1] == 2.0 else 10))
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick <= rarest * 1.15]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: share_text(value)))
    axes.set_xlabel("Percentile of responses")


def share_text(one_in: float) -> str:
    """Return the share of responses no slower than the slowest one in `one_in`, as text."""
    # More than three significant digits: 99.99% must not become 100%.
    return f"{round(100 * (1 - 1 / one_in), 6):.10g}%"
