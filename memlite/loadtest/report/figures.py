"""The figures, a function each; all are listed in `figures`, in the order of the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from memlite.loadtest import selection
from memlite.loadtest.prices import Cost, Prices
from memlite.loadtest.report.look import (
    Look,
    Series,
    finish,
    load_axis,
    series,
    sheet,
    value_axis,
)
from memlite.loadtest.results import Interval, Latency, Point, Repetition, Results, Slice
from memlite.loadtest.statistics import curve, interval
from memlite.loadtest.units import duration, grouped, money, short, size

__all__ = ["Drawing", "Picture", "figures"]

_CLIENTS = "Clients at once"
_BAND = 0.18
_SERVICE = "from when it was sent (service time)"


@dataclass(frozen=True, slots=True)
class Drawing:
    """What figures are drawn from.

    Attributes:
        results: of a run, or of several put together.
        costs: of its targets.
        prices: from which they come.
    """

    results: Results
    costs: Sequence[Cost]
    prices: Prices

    def groups(self, points: Sequence[Point]) -> dict[str, list[Point]]:
        """Return the points of each target."""
        return selection.by_target(self.results, points)

    def series(self, look: Look) -> dict[str, Series]:
        """Return how each target is drawn."""
        return series(self.groups([*self.results.points, *self.results.bursts]), look)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure and what is said of it.

    Attributes:
        name: of its files.
        title: what it shows.
        reading: how to read it, in a sentence or two.
        draw: makes it, in given colours.
    """

    name: str
    title: str
    reading: str
    draw: Callable[[Look], Figure]


def figures(drawing: Drawing) -> list[Picture]:
    """Return the figures there are data for."""
    makers = (
        execution_time,
        single_set,
        throughput,
        response_time,
        percentiles,
        value_size,
        timeline,
        open_loop,
        cost,
    )
    found = (maker(drawing) for maker in makers)
    return [picture for picture in found if picture is not None]


def execution_time(drawing: Drawing) -> Picture | None:
    """Total execution time against clients, of clients that come, work and leave."""
    groups = drawing.groups(selection.of_main_size(selection.bursts(drawing.results)))
    if not groups:
        return None
    title = "Total execution time of clients that come at once"

    def draw(look: Look) -> Figure:
        figure, (axes,) = sheet(look, title)
        styles = drawing.series(look)
        ends: list[float] = []
        for name, points in groups.items():
            values = [_scaled(point.seconds, 1e6) for point in points]
            ends += _line(axes, styles[name], [p.clients for p in points], values, points)
        load_axis(axes, _clients(groups), _CLIENTS)
        value_axis(axes, ends, "Total execution time", duration)
        return finish(figure, look, [styles[name] for name in groups], _hollow(groups, look))

    return Picture(
        "execution-time",
        title,
        "Lower is better. Each client connects, sets a value of its own, gets it and leaves; the "
        "time is from the first one's start to the last one's end. " + _band_text(groups),
        draw,
    )


def single_set(drawing: Drawing) -> Picture | None:
    """Response time of a set against clients, for the same clients."""
    points = selection.of_main_size(selection.bursts(drawing.results))
    groups = drawing.groups([point for point in points if "set" in point.response])
    if not groups:
        return None
    return _two_percentiles(
        drawing,
        groups,
        "single-set",
        "Response time of a single set",
        "Lower is better. Left the median, right what 99 of 100 sets took at most, while so many "
        "clients were at work. ",
        "set",
    )


def throughput(drawing: Drawing) -> Picture | None:
    """Operations a second against clients."""
    groups = _closed_groups(drawing)
    if not groups:
        return None
    title = "Throughput against clients" + _size_text(drawing)

    def draw(look: Look) -> Figure:
        figure, (axes,) = sheet(look, title)
        styles = drawing.series(look)
        ends: list[float] = []
        for name, points in groups.items():
            values = [point.throughput for point in points]
            ends += _line(axes, styles[name], [p.clients for p in points], values, points)
        extra = _hollow(groups, look)
        knees = [knee for knee in drawing.results.knees if knee.target in groups and not knee.rate]
        for knee in knees:
            axes.plot([knee.clients], [knee.throughput], **_ring(styles[knee.target].colour))
            ends.append(knee.throughput)
        if knees:
            extra.append((Line2D([], [], **_ring(look.text)), "limit found"))
        load_axis(axes, _clients(groups), _CLIENTS)
        value_axis(axes, ends, "Operations a second", short)
        return finish(figure, look, [styles[name] for name in groups], extra)

    return Picture(
        "throughput",
        title,
        "Higher is better. Where a line stops rising the target is saturated: more clients only "
        "wait longer. " + _band_text(groups),
        draw,
    )


def response_time(drawing: Drawing) -> Picture | None:
    """The median and the 99th percentile of response times against clients."""
    groups = _closed_groups(drawing)
    if not groups:
        return None
    return _two_percentiles(
        drawing,
        groups,
        "response-time",
        "Response time against clients" + _size_text(drawing),
        "Lower is better. Left the median, right what 99 of 100 responses took at most. ",
        "all",
    )


def percentiles(drawing: Drawing) -> Picture | None:
    """Response times by percentile, at the highest load all targets had."""
    results = drawing.results
    points = selection.closed_loop(results) or selection.open_loop(results)
    chosen = selection.at_common_load(drawing.groups(selection.of_main_size(points)))
    curves = {
        point.target: curve(point.response["all"])
        for point in chosen
        if "all" in point.response and point.response["all"].count
    }
    if not curves:
        return None
    title = f"Response time by percentile, {_load_text(chosen)}"

    def draw(look: Look) -> Figure:
        figure, (axes,) = sheet(look, title)
        styles = drawing.series(look)
        rarest = 100.0
        for name, pairs in curves.items():
            count = next(point for point in chosen if point.target == name).response["all"].count
            # The longest of n is drawn as one in n: 100% would be at infinity.
            across = [1 / max(1 - share, 1 / count) for share, _ in pairs]
            rarest = max(rarest, across[-1])
            times = [time for _, time in pairs]
            style = styles[name]
            axes.plot(across, times, color=style.colour, linestyle=style.dash, linewidth=2)
            marked = [_reached(across, 10.0**nines) for nines in range(1, 8)]
            marked = [index for index in marked if index < len(across)]
            axes.plot(
                [across[index] for index in marked],
                [times[index] for index in marked],
                color=style.colour,
                marker=style.marker,
                linestyle="",
            )
        value_axis(
            axes,
            [time for pairs in curves.values() for _, time in pairs],
            "Response time",
            duration,
        )
        _nines_axis(axes, rarest)
        return finish(figure, look, [styles[name] for name in curves])

    return Picture(
        "percentiles",
        title,
        "Lower is better. At 99% stands the time that 99 of 100 responses took at most; each step "
        "to the right is ten times rarer. A curve that turns up shows rare, long waits.",
        draw,
    )


def value_size(drawing: Drawing) -> Picture | None:
    """Throughput against the size of values, at the most clients all targets had."""
    points = selection.closed_loop(drawing.results)
    sizes = selection.value_sizes(points)
    if len(sizes) < 2 or selection.is_concurrent(drawing.results):
        return None
    loads = [{point.clients for point in points if point.value_size == size} for size in sizes]
    common = set(loads[0]).intersection(*loads[1:])
    if not common:
        return None
    clients = max(common)
    groups = drawing.groups([point for point in points if point.clients == clients])
    title = f"Throughput against value size, {grouped(clients)} clients"

    def draw(look: Look) -> Figure:
        figure, (axes,) = sheet(look, title)
        styles = drawing.series(look)
        ends: list[float] = []
        for name, of_one in groups.items():
            of_one = sorted(of_one, key=lambda point: point.value_size)
            values = [point.throughput for point in of_one]
            ends += _line(axes, styles[name], [p.value_size for p in of_one], values, of_one)
        load_axis(axes, sizes, "Size of a value")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        value_axis(axes, ends, "Operations a second", short)
        return finish(figure, look, [styles[name] for name in groups], _hollow(groups, look))

    return Picture(
        "value-size",
        title,
        "Higher is better. A line that falls says what larger values cost. " + _band_text(groups),
        draw,
    )


def timeline(drawing: Drawing) -> Picture | None:
    """Throughput and the 99th percentile second by second."""
    results = drawing.results
    points = selection.closed_loop(results) or selection.open_loop(results)
    chosen = [
        point
        for point in selection.at_common_load(drawing.groups(selection.of_main_size(points)))
        if any(len(_whole_seconds(one)) > 1 for one in point.repetitions)
    ]
    if not chosen or selection.is_concurrent(results):
        return None
    title = f"Second by second, {_load_text(chosen)}"

    def draw(look: Look) -> Figure:
        figure, (above, below) = sheet(look, title, height=6.6, rows=2, sharex=True)
        styles = drawing.series(look)
        operations: list[float] = []
        slowest: list[float] = []
        seconds: list[float] = []
        for point in chosen:
            style = styles[point.target]
            for one in point.repetitions:
                whole = _whole_seconds(one)
                across = [float(each.second) for each in whole]
                counts = [float(each.operations) for each in whole]
                known = [(each.second, each.p99) for each in whole if each.p99 is not None]
                for axes, x, y in (
                    (above, across, counts),
                    (below, [float(second) for second, _ in known], [p99 for _, p99 in known]),
                ):
                    axes.plot(
                        x,
                        y,
                        color=style.colour,
                        linestyle=style.dash,
                        marker=style.marker,
                        markersize=4,
                        linewidth=1.2,
                        alpha=0.85,
                    )
                operations += counts
                slowest += [p99 for _, p99 in known]
                seconds += across
        above.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        below.set_xlabel("Second of the measurement")
        value_axis(above, operations, "Operations a second", short)
        value_axis(below, slowest, "99th percentile", duration)
        # Room for the markers of the first and the last second.
        below.set_xlim(-0.02 * max(seconds), 1.02 * max(seconds))
        return finish(figure, look, [styles[point.target] for point in chosen])

    return Picture(
        "timeline",
        title,
        "A line is a repetition. Level lines speak for steady measurements; dips above with peaks "
        "below are pauses of the server or of the machine.",
        draw,
    )


def open_loop(drawing: Drawing) -> Picture | None:
    """Response times against the rate at which requests are sent."""
    points = selection.of_main_size(selection.open_loop(drawing.results))
    groups = drawing.groups([point for point in points if "all" in point.response])
    if not groups:
        return None
    title = "Response time at a given rate"

    def draw(look: Look) -> Figure:
        figure, panels = sheet(look, title, columns=2, sharey=True)
        styles = drawing.series(look)
        ends: list[float] = []
        for name, of_one in groups.items():
            style = styles[name]
            rates = [point.rate for point in of_one]
            for axes, at in zip(panels, ("p50", "p99"), strict=True):
                ends += _line(axes, style, rates, [getattr(p, at) for p in of_one], of_one)
                served = [p for p in of_one if "all" in p.service and p.service["all"].count]
                times = [float(getattr(p.service["all"], at)) for p in served]
                axes.plot(
                    [p.rate for p in served], times, color=style.colour, linewidth=1, linestyle=":"
                )
                ends += times
        for axes, text in zip(panels, ("Median", "99th percentile"), strict=True):
            axes.set_title(text)
            load_axis(
                axes,
                [p.rate for of_one in groups.values() for p in of_one],
                "Operations a second sent",
            )
        for axes in panels:
            value_axis(axes, ends, "Response time", duration)
        panels[1].set_ylabel("")
        extra = _hollow(groups, look)
        extra.append((Line2D([], [], color=look.text, linewidth=1, linestyle=":"), _SERVICE))
        return finish(figure, look, [styles[name] for name in groups], extra)

    return Picture(
        "open-loop",
        title,
        "Lower is better. Requests are due at a fixed rate whether the server keeps up or not, and "
        "a response time counts from when its request was due. Where it leaves the dotted line, "
        "requests wait in a queue. " + _band_text(groups),
        draw,
    )


def cost(drawing: Drawing) -> Picture | None:
    """What a million operations cost on each target."""
    if not drawing.costs:
        return None
    currency = drawing.prices.currency
    title = "Cost of a million operations"
    totals = [one.total for one in drawing.costs]
    positive = [total for total in totals if total > 0]
    logarithmic = bool(positive) and max(positive) > 20 * min(positive)

    def draw(look: Look) -> Figure:
        figure, (axes,) = sheet(look, title, height=1.5 + 0.5 * len(totals))
        styles = drawing.series(look)
        rows = range(len(totals))
        axes.grid(visible=False, axis="y")
        for row, one in zip(rows, drawing.costs, strict=True):
            style = styles[one.target]
            if logarithmic:
                # A bar's length means nothing where there is no zero: a point says where it is.
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
                color=look.text,
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
        names = [styles[one.target].name for one in drawing.costs]
        axes.set_yticks(list(rows), names, parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=look.text, labelsize=10.5)
        axes.set_ylim(len(totals) - 0.4, -0.6)
        scale = ", log scale" if logarithmic else ""
        axes.set_xlabel(f"{currency} for 1,000,000 operations{scale}")
        return finish(figure, look, [])

    return Picture(
        "cost",
        title,
        "Lower is better. Each target at its highest measured throughput; the table below says "
        "what the cost is made of, and what it takes for granted.",
        draw,
    )


# What figures have in common


def _closed_groups(drawing: Drawing) -> dict[str, list[Point]]:
    if selection.is_concurrent(drawing.results):
        return {}
    return drawing.groups(selection.of_main_size(selection.closed_loop(drawing.results)))


def _two_percentiles(
    drawing: Drawing,
    groups: Mapping[str, list[Point]],
    name: str,
    title: str,
    reading: str,
    operation: str,
) -> Picture:
    def draw(look: Look) -> Figure:
        figure, panels = sheet(look, title, columns=2, sharey=True)
        styles = drawing.series(look)
        ends: list[float] = []
        for target, points in groups.items():
            for axes, at in zip(panels, ("p50", "p99"), strict=True):
                values = [_over_repetitions(point, operation, at) for point in points]
                ends += _line(axes, styles[target], [p.clients for p in points], values, points)
        for axes, text in zip(panels, ("Median", "99th percentile"), strict=True):
            axes.set_title(text)
            load_axis(axes, _clients(groups), _CLIENTS)
        for axes in panels:
            value_axis(axes, ends, "Response time", duration)
        panels[1].set_ylabel("")
        return finish(figure, look, [styles[one] for one in groups], _hollow(groups, look))

    return Picture(name, title, reading + _band_text(groups), draw)


def _over_repetitions(point: Point, operation: str, at: str) -> Interval:
    found = [
        float(getattr(one.response[operation], at))
        for one in point.repetitions
        if operation in one.response
    ]
    whole = point.response.get(operation, Latency())
    return interval(found or [float(getattr(whole, at))])


def _line(
    axes: Axes,
    style: Series,
    across: Sequence[float],
    values: Sequence[Interval],
    points: Sequence[Point],
) -> list[float]:
    """Draw means, joined, and their confidence intervals as a band.

    Returns:
        The values drawn, from which the axis is set up.
    """
    means = [value.mean for value in values]
    axes.plot(across, means, color=style.colour, linestyle=style.dash, linewidth=2)
    for x, mean, point in zip(across, means, points, strict=True):
        inside = axes.get_facecolor() if point.generator_limited else style.colour
        axes.plot(
            [x],
            [mean],
            color=style.colour,
            marker=style.marker,
            markersize=6,
            markerfacecolor=inside,
            markeredgewidth=1.4,
        )
    known = [
        (x, value.low, value.high)
        for x, value in zip(across, values, strict=True)
        if value.low is not None and value.high is not None
    ]
    if len(known) == 1:
        ((x, low, high),) = known
        axes.vlines([x], [low], [high], color=style.colour, linewidth=1.5)
    elif known:
        axes.fill_between(
            [x for x, _, _ in known],
            [max(0.0, low) for _, low, _ in known],
            [high for _, _, high in known],
            color=style.colour,
            alpha=_BAND,
            linewidth=0,
        )
    return means


def _ring(colour: str) -> dict[str, Any]:
    return {
        "color": colour,
        "linestyle": "",
        "marker": "o",
        "markersize": 15,
        "markerfacecolor": "none",
        "markeredgecolor": colour,
        "markeredgewidth": 1.6,
    }


def _hollow(groups: Mapping[str, Sequence[Point]], look: Look) -> list[tuple[Line2D, str]]:
    """Return the legend's entry for points where the generator was the limit, if there are any."""
    if not any(point.generator_limited for points in groups.values() for point in points):
        return []
    line = Line2D([], [], color=look.text, marker="o", linestyle="", markerfacecolor="none")
    return [(line, "hollow: the generator was the limit")]


def _band_text(groups: Mapping[str, Sequence[Point]]) -> str:
    if any(point.throughput.low is not None for points in groups.values() for point in points):
        return "Bands are 95% confidence intervals of the mean over repetitions."
    return "There was one repetition, so there are no confidence intervals."


def _size_text(drawing: Drawing) -> str:
    points = selection.closed_loop(drawing.results)
    if len(selection.value_sizes(points)) < 2:
        return ""
    return f", values of {size(selection.of_main_size(points)[0].value_size)}"


def _load_text(points: Sequence[Point]) -> str:
    loads = {
        f"{grouped(point.rate)} operations a second sent"
        if point.rate
        else f"{grouped(point.clients)} clients"
        for point in points
    }
    return loads.pop() if len(loads) == 1 else "each target at its highest load"


def _clients(groups: Mapping[str, Sequence[Point]]) -> list[float]:
    return [float(point.clients) for points in groups.values() for point in points]


def _scaled(value: Interval, factor: float) -> Interval:
    return Interval(
        value.mean * factor,
        None if value.low is None else value.low * factor,
        None if value.high is None else value.high * factor,
    )


def _whole_seconds(repetition: Repetition) -> list[Slice]:
    """Return its seconds without the last one where that is shorter."""
    return [one for one in repetition.series if one.second + 1 <= repetition.seconds + 0.01]


def _reached(across: Sequence[float], wanted: float) -> int:
    """Return the index of the first that is as far right as wanted; their number if none is."""
    return next((index for index, one in enumerate(across) if one >= wanted), len(across))


def _nines_axis(axes: Axes, rarest: float) -> None:
    """Set the horizontal axis up for percentiles: 0%, 90%, 99%, 99.9%, …."""
    axes.set_xscale("log")
    axes.set_xlim(1, rarest * 1.15)
    ticks = [1.0, 2.0]
    while ticks[-1] * 5 <= rarest or ticks[-1] == 2.0:
        ticks.append(ticks[-1] * (5 if ticks[-1] == 2.0 else 10))
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick <= rarest * 1.15]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _share_text(value)))
    axes.set_xlabel("Percentile of responses")


def _share_text(across: float) -> str:
    # Not rounded to three digits: 99.99% is not 100%.
    return f"{round(100 * (1 - 1 / across), 6):.10g}%"
