"""The plots of the report, one function each; `plots` lists them in page order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from memlite.loadtest import selection
from memlite.loadtest.prices import Cost, Prices
from memlite.loadtest.report.plotting import (
    client_counts,
    draw_line,
    first_reaching,
    generator_limited_legend,
    interval_caption,
    load_text,
    over_repetitions,
    percentile_axis,
    ring_marker,
    share_text,
)
from memlite.loadtest.report.style import (
    TargetStyle,
    Theme,
    add_legend,
    add_tooltips,
    label,
    load_axis,
    new_figure,
    target_styles,
    value_axis,
)
from memlite.loadtest.results import Interval, Point, Results
from memlite.loadtest.statistics import curve, positive_interval
from memlite.loadtest.units import duration, grouped, money, short, size

__all__ = ["Plot", "PlotData", "plots"]

_CLIENTS = "Concurrent clients"
_THROUGHPUT = "Operations per second"
_SERVICE_TIME = "service time (from when a request was sent)"


@dataclass(frozen=True, slots=True)
class PlotData:
    """The data that plots are drawn from.

    Attributes:
        results: the results of one run, or of several combined.
        costs: the costs of its targets.
        prices: the price table the costs are based on.
    """

    results: Results
    costs: Sequence[Cost]
    prices: Prices

    def groups(self, points: Sequence[Point]) -> dict[str, list[Point]]:
        """Group points by target."""
        return selection.by_target(self.results, points)

    def target_styles(self, theme: Theme) -> dict[str, TargetStyle]:
        """Return the style of each target."""
        return target_styles(self.groups([*self.results.points, *self.results.bursts]), theme)


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot that can be drawn in any theme.

    Attributes:
        name: the name of its files.
        title: its title.
        caption: how to read it, in a sentence or two.
        draw: draws it in a theme.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Theme], Figure]


def plots(data: PlotData) -> list[Plot]:
    """Return the plots for which there is data, the most asked-for first."""
    factories = (
        throughput,
        response_time,
        execution_time,
        single_set,
        percentiles,
        value_size,
        open_loop,
        cost,
    )
    candidates = (factory(data) for factory in factories)
    return [plot for plot in candidates if plot is not None]


def execution_time(data: PlotData) -> Plot | None:
    """Total execution time of a burst of new clients against the number of clients."""
    groups = data.groups(selection.with_main_value_size(selection.bursts(data.results)))
    if not groups:
        return None
    title = "Total execution time of clients arriving at once"

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = data.target_styles(theme)
        drawn: list[float] = []
        for name, points in groups.items():
            values = [
                positive_interval([one.seconds * 1e6 for one in point.repetitions])
                for point in points
            ]
            drawn += draw_line(
                axes, styles[name], [p.clients for p in points], values, points, duration
            )
        load_axis(axes, client_counts(groups), _CLIENTS)
        value_axis(axes, drawn, "Total execution time", duration)
        return add_legend(
            figure,
            theme,
            [styles[name] for name in groups],
            generator_limited_legend(groups, theme),
        )

    return Plot(
        "execution-time",
        title,
        "Lower is better. Each client connects, sets its own key, gets it and disconnects; the "
        "time is measured from the first client's start to the last client's end. "
        + interval_caption(groups),
        draw,
    )


def single_set(data: PlotData) -> Plot | None:
    """Response time of a set within such a burst against the number of clients."""
    points = selection.with_main_value_size(selection.bursts(data.results))
    groups = data.groups([point for point in points if "set" in point.response])
    if not groups:
        return None
    return _two_percentiles(
        data,
        groups,
        "single-set",
        "Response time of a single set",
        "Lower is better. Left: the median; right: the 99th percentile. ",
        "set",
    )


def throughput(data: PlotData) -> Plot | None:
    """Throughput against the number of clients."""
    groups = _closed_groups(data)
    if not groups:
        return None
    title = "Throughput against clients" + _value_size_text(data)

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = data.target_styles(theme)
        drawn: list[float] = []
        for name, points in groups.items():
            values = [_throughput(point) for point in points]
            drawn += draw_line(axes, styles[name], [p.clients for p in points], values, points)
        extra = generator_limited_legend(groups, theme)
        knees = [knee for knee in data.results.knees if knee.target in groups and not knee.rate]
        for knee in knees:
            axes.plot([knee.clients], [knee.throughput], **ring_marker(styles[knee.target].colour))
            drawn.append(knee.throughput)
        if knees:
            extra.append((Line2D([], [], **ring_marker(theme.text)), "knee"))
        load_axis(axes, client_counts(groups), _CLIENTS)
        value_axis(axes, drawn, _THROUGHPUT, short)
        return add_legend(figure, theme, [styles[name] for name in groups], extra)

    return Plot(
        "throughput",
        title,
        "Higher is better. Where a line stops rising, the target is saturated: additional clients "
        "only wait longer. " + interval_caption(groups),
        draw,
    )


def response_time(data: PlotData) -> Plot | None:
    """Median and 99th percentile of response times against the number of clients."""
    groups = _closed_groups(data)
    if not groups:
        return None
    return _two_percentiles(
        data,
        groups,
        "response-time",
        "Response time against clients" + _value_size_text(data),
        "Lower is better. Left: the median; right: the 99th percentile. ",
        "all",
    )


def percentiles(data: PlotData) -> Plot | None:
    """Response times by percentile, at the highest load common to all targets."""
    results = data.results
    points = selection.closed_loop(results) or selection.open_loop(results)
    chosen = selection.at_common_load(data.groups(selection.with_main_value_size(points)))
    curves = {
        point.target: curve(point.response["all"])
        for point in chosen
        if "all" in point.response and point.response["all"].count
    }
    if not curves:
        return None
    title = f"Response time by percentile, {load_text(chosen)}"

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = data.target_styles(theme)
        rarest = 100.0
        for name, pairs in curves.items():
            count = next(point for point in chosen if point.target == name).response["all"].count
            # The longest of n is drawn at one in n: 100% would be at infinity.
            one_in = [1 / max(1 - share, 1 / count) for share, _ in pairs]
            rarest = max(rarest, one_in[-1])
            times = [time for _, time in pairs]
            style = styles[name]
            (line,) = axes.plot(
                one_in, times, color=style.colour, linestyle=style.dash, linewidth=2
            )
            label(line, style.name)
            marked = [first_reaching(one_in, 10.0**nines) for nines in range(1, 8)]
            marked = [index for index in marked if index < len(one_in)]
            (markers,) = axes.plot(
                [one_in[index] for index in marked],
                [times[index] for index in marked],
                color=style.colour,
                marker=style.marker,
                linestyle="",
            )
            label(markers, style.name)
            add_tooltips(
                axes,
                style.name,
                [one_in[index] for index in marked],
                [times[index] for index in marked],
                [
                    f"{style.name}: {share_text(one_in[index])} within {duration(times[index])}"
                    for index in marked
                ],
            )
        value_axis(
            axes,
            [time for pairs in curves.values() for _, time in pairs],
            "Response time",
            duration,
        )
        percentile_axis(axes, rarest)
        return add_legend(figure, theme, [styles[name] for name in curves])

    return Plot(
        "percentiles",
        title,
        "Lower is better. At 99% the curve shows the time that 99 of 100 responses did not exceed; "
        "each step to the right is ten times rarer. A curve that bends upwards reveals rare, long "
        "waits.",
        draw,
    )


def value_size(data: PlotData) -> Plot | None:
    """Throughput against value size, at the highest number of clients common to all sizes."""
    points = selection.closed_loop(data.results)
    sizes = selection.value_sizes(points)
    if len(sizes) < 2 or selection.is_concurrent(data.results):
        return None
    loads = [{point.clients for point in points if point.value_size == size} for size in sizes]
    common = set(loads[0]).intersection(*loads[1:])
    if not common:
        return None
    clients = max(common)
    groups = data.groups([point for point in points if point.clients == clients])
    title = f"Throughput against value size, {grouped(clients)} clients"

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = data.target_styles(theme)
        drawn: list[float] = []
        for name, points in groups.items():
            points = sorted(points, key=lambda point: point.value_size)
            values = [_throughput(point) for point in points]
            drawn += draw_line(axes, styles[name], [p.value_size for p in points], values, points)
        load_axis(axes, sizes, "Value size")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        value_axis(axes, drawn, _THROUGHPUT, short)
        return add_legend(
            figure,
            theme,
            [styles[name] for name in groups],
            generator_limited_legend(groups, theme),
        )

    return Plot(
        "value-size",
        title,
        "Higher is better. A falling line shows the cost of larger values. "
        + interval_caption(groups),
        draw,
    )


def open_loop(data: PlotData) -> Plot | None:
    """Response times against the offered load of an open loop."""
    points = selection.with_main_value_size(selection.open_loop(data.results))
    groups = data.groups([point for point in points if "all" in point.response])
    if not groups:
        return None
    title = "Response time against offered load"

    def draw(theme: Theme) -> Figure:
        figure, panels = new_figure(theme, title, columns=2, sharey=True)
        styles = data.target_styles(theme)
        drawn: list[float] = []
        for name, points in groups.items():
            style = styles[name]
            rates = [point.rate for point in points]
            for axes, at in zip(panels, ("p50", "p99"), strict=True):
                values = [over_repetitions(point, "all", at) for point in points]
                drawn += draw_line(axes, style, rates, values, points, duration)
                served = [p for p in points if "all" in p.service and p.service["all"].count]
                times = [float(getattr(p.service["all"], at)) for p in served]
                axes.plot(
                    [p.rate for p in served], times, color=style.colour, linewidth=1, linestyle=":"
                )
                drawn += times
        for axes, text in zip(panels, ("Median", "99th percentile"), strict=True):
            axes.set_title(text)
            load_axis(
                axes,
                [p.rate for points in groups.values() for p in points],
                "Offered operations per second",
            )
        for axes in panels:
            value_axis(axes, drawn, "Response time", duration)
        panels[1].set_ylabel("")
        extra = generator_limited_legend(groups, theme)
        extra.append((Line2D([], [], color=theme.text, linewidth=1, linestyle=":"), _SERVICE_TIME))
        return add_legend(figure, theme, [styles[name] for name in groups], extra)

    return Plot(
        "open-loop",
        title,
        "Lower is better. Requests are due at a fixed rate whether or not the server keeps up, and "
        "a response time is measured from when its request was due. Where it departs from the "
        "dotted line, requests are queueing. " + interval_caption(groups),
        draw,
    )


def cost(data: PlotData) -> Plot | None:
    """The cost of a million operations for each target."""
    if not data.costs:
        return None
    currency = data.prices.currency
    title = "Cost of a million operations"
    totals = [one.total for one in data.costs]
    positive = [total for total in totals if total > 0]
    logarithmic = bool(positive) and max(positive) > 20 * min(positive)

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title, height=1.5 + 0.5 * len(totals))
        styles = data.target_styles(theme)
        rows = range(len(totals))
        axes.grid(visible=False, axis="y")
        for row, one in zip(rows, data.costs, strict=True):
            style = styles[one.target]
            if logarithmic:
                # A log scale has no zero, so the length of a bar would mean nothing: draw a point.
                if one.total > 0:
                    axes.plot(
                        [one.total], [row], color=style.colour, marker=style.marker, markersize=11
                    )
            else:
                axes.barh(row, one.total, height=0.6, color=style.colour)
            axes.annotate(
                money(one.total, currency),
                (one.total or min(positive, default=1), row),
                xytext=(11 if logarithmic else 6, 0),
                textcoords="offset points",
                va="center",
                color=theme.text,
                fontsize=10,
            )
        if logarithmic:
            axes.set_xscale("log")
            axes.set_xlim(min(positive) / 2, max(positive) * 8)
            axes.xaxis.set_major_locator(LogLocator(10))
            axes.xaxis.set_minor_locator(NullLocator())
        else:
            axes.set_xlim(0, max(positive, default=1) * 1.25)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        names = [styles[one.target].name for one in data.costs]
        axes.set_yticks(list(rows), names, parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=theme.text, labelsize=10.5)
        axes.set_ylim(len(totals) - 0.4, -0.6)
        scale = ", log scale" if logarithmic else ""
        axes.set_xlabel(f"{currency} per 1,000,000 operations{scale}")
        return add_legend(figure, theme, [])

    return Plot(
        "cost",
        title,
        "Lower is better. Each target runs at its highest measured throughput; the table below "
        "breaks the cost down and lists the assumptions.",
        draw,
    )


def _throughput(point: Point) -> Interval:
    return positive_interval([one.throughput for one in point.repetitions])


def _closed_groups(data: PlotData) -> dict[str, list[Point]]:
    if selection.is_concurrent(data.results):
        return {}
    return data.groups(selection.with_main_value_size(selection.closed_loop(data.results)))


def _two_percentiles(
    data: PlotData,
    groups: Mapping[str, list[Point]],
    name: str,
    title: str,
    caption: str,
    operation: str,
) -> Plot:
    def draw(theme: Theme) -> Figure:
        figure, panels = new_figure(theme, title, columns=2, sharey=True)
        styles = data.target_styles(theme)
        drawn: list[float] = []
        for target, points in groups.items():
            for axes, at in zip(panels, ("p50", "p99"), strict=True):
                values = [over_repetitions(point, operation, at) for point in points]
                drawn += draw_line(
                    axes, styles[target], [p.clients for p in points], values, points, duration
                )
        for axes, text in zip(panels, ("Median", "99th percentile"), strict=True):
            axes.set_title(text)
            load_axis(axes, client_counts(groups), _CLIENTS)
        for axes in panels:
            value_axis(axes, drawn, "Response time", duration)
        panels[1].set_ylabel("")
        return add_legend(
            figure, theme, [styles[one] for one in groups], generator_limited_legend(groups, theme)
        )

    return Plot(name, title, caption + interval_caption(groups), draw)


def _value_size_text(data: PlotData) -> str:
    points = selection.closed_loop(data.results)
    if len(selection.value_sizes(points)) < 2:
        return ""
    return f", values of {size(selection.with_main_value_size(points)[0].value_size)}"
