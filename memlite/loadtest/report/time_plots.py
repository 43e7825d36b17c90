"""The plot over time: throughput and response times within each repetition."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from memlite.loadtest import selection
from memlite.loadtest.report.plots import Plot, PlotData
from memlite.loadtest.report.plotting import load_text
from memlite.loadtest.report.style import TargetStyle, Theme, add_legend, new_figure, value_axis
from memlite.loadtest.results import Point, Repetition, SeriesCheck
from memlite.loadtest.units import duration, short

__all__ = ["timeline"]

_MAX_TARGETS = 8
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class _Series:
    """A repetition over time; each list has a value for each interval.

    Attributes:
        times: the middle of each interval, in seconds.
        throughput: operations per second.
        p50: median response times, in microseconds; NaN where no request was completed.
        p99: 99th percentiles, likewise.
    """

    times: Sequence[float]
    throughput: Sequence[float]
    p50: Sequence[float]
    p99: Sequence[float]


def timeline(data: PlotData) -> list[Plot]:
    """Return the plot over time, if there is data: a row for each target."""
    results = data.results
    points = selection.closed_loop(results) or selection.open_loop(results)
    chosen = [
        point
        for point in selection.at_common_load(data.groups(selection.with_main_value_size(points)))
        if any(len(_series(one).times) >= _FEWEST for one in point.repetitions)
    ][:_MAX_TARGETS]
    if not chosen or selection.is_concurrent(results):
        return []
    title = f"Throughput and response time over time, {load_text(chosen)}"

    def draw(theme: Theme) -> Figure:
        styles = data.target_styles(theme)
        figure, panels = new_figure(
            theme, title, height=1.4 + 2.3 * len(chosen), rows=len(chosen), columns=2, sharex=True
        )
        rows = zip(panels[::2], panels[1::2], strict=True)
        for point, (left, right) in zip(chosen, rows, strict=True):
            _draw_point(point, styles[point.target], theme, left, right)
        for axes in panels[-2:]:
            axes.xaxis.set_major_locator(MaxNLocator(7))
            axes.set_xlabel("Time in seconds")
        extra = [
            (Line2D([], [], color=theme.text, linewidth=1.4), "99th percentile"),
            (Line2D([], [], color=theme.text, linewidth=1.4, linestyle=":"), "median"),
        ]
        if any(_transients(point) for point in chosen):
            patch = Patch(facecolor=theme.muted, alpha=0.3)
            extra.append((patch, "warm-up or cool-down"))  # type: ignore[arg-type]
        return add_legend(figure, theme, [], extra)

    return [
        Plot(
            "timeline",
            title,
            "Each line is one repetition, and each row a target. Level lines indicate a steady "
            "state; dips in throughput that coincide with latency peaks are pauses of the server "
            "or the machine. Shaded areas are warm-up or cool-down according to MSER-5.",
            draw,
        )
    ]


def _draw_point(point: Point, style: TargetStyle, theme: Theme, left: Axes, right: Axes) -> None:
    rates: list[float] = []
    times: list[float] = []
    for one in point.repetitions:
        series = _series(one)
        left.plot(series.times, series.throughput, color=style.colour, linewidth=1, alpha=0.8)
        right.plot(series.times, series.p99, color=style.colour, linewidth=1, alpha=0.8)
        right.plot(
            series.times, series.p50, color=style.colour, linewidth=1.2, linestyle=":", alpha=0.9
        )
        rates += series.throughput
        times += [value for value in (*series.p50, *series.p99) if not math.isnan(value)]
    for begin, end in _transients(point):
        for axes in (left, right):
            axes.axvspan(begin, end, color=theme.muted, alpha=0.15, linewidth=0)
    # The axis starts at 0 even if some intervals have hardly any throughput.
    value_axis(left, [max(rates)], "Operations per second", short)
    value_axis(right, times, "Response time", duration)
    left.set_title(style.name, parse_math=False)


def _transients(point: Point) -> list[tuple[float, float]]:
    """Return the beginning and end of each warm-up and cool-down, in seconds."""
    if point.checks is None:
        return []
    lengths = {one.number: one.seconds for one in point.repetitions}
    found: list[tuple[float, float]] = []
    for check in point.checks.repetitions:
        if check.series is not None:
            found += _spans(check.series, lengths[check.number])
    return found


def _spans(series: SeriesCheck, length: float) -> list[tuple[float, float]]:
    spans = [(0.0, series.warm_up), (length - series.cool_down, length)]
    return [(begin, end) for begin, end in spans if end > begin]


def _series(one: Repetition) -> _Series:
    if one.intervals is None:
        return _by_second(one)
    length = one.intervals.seconds
    return _Series(
        [(number + 0.5) * length for number in range(len(one.intervals.operations))],
        [count / length for count in one.intervals.operations],
        _numbers(one.intervals.p50),
        _numbers(one.intervals.p99),
    )


def _by_second(one: Repetition) -> _Series:
    """Return the series from a file of an earlier version, without an incomplete last second."""
    complete = [each for each in one.series if each.second + 1 <= one.seconds + 0.01]
    return _Series(
        [each.second + 0.5 for each in complete],
        [float(each.operations) for each in complete],
        _numbers([each.p50 for each in complete]),
        _numbers([each.p99 for each in complete]),
    )


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
