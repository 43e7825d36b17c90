"""The plots of a study's sections: against the number of clients, and where time goes."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from memlite.loadtest import selection
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.plotting import draw_line, generator_limited_legend
from memlite.loadtest.report.style import (
    TargetStyle,
    Theme,
    add_legend,
    label,
    load_axis,
    new_figure,
    target_styles,
    value_axis,
)
from memlite.loadtest.results import Interval, Point
from memlite.loadtest.statistics import positive_interval
from memlite.loadtest.study.sections import Line
from memlite.loadtest.units import duration, short

__all__ = ["sweep_plot", "times_plot"]


def sweep_plot(name: str, title: str, found: Sequence[Line]) -> Plot:
    """Return a plot of throughput and of response time against the number of clients.

    Args:
        name: the plot's name.
        title: the plot's title.
        found: the lines to draw.
    """
    groups = {one.name: selection.closed_loop(one.results) for one in found}

    def draw(theme: Theme) -> Figure:
        figure, (left, right) = new_figure(theme, title, columns=2, height=4.2)
        styles = target_styles(groups, theme)
        rates: list[float] = []
        times: list[float] = []
        for key, points in groups.items():
            clients = [point.clients for point in points]
            throughputs = [_throughput(point) for point in points]
            rates += draw_line(left, styles[key], clients, throughputs, points)
            times += draw_line(right, styles[key], clients, [*map(_mean, points)], points, duration)
        all_clients = [point.clients for points in groups.values() for point in points]
        for axes in (left, right):
            load_axis(axes, all_clients, "Concurrent clients")
        value_axis(left, rates, "Operations per second", short)
        value_axis(right, times, "Mean response time", duration)
        extra = generator_limited_legend(groups, theme)
        return add_legend(figure, theme, [styles[key] for key in groups], extra)

    return Plot(
        name,
        title,
        "Left: throughput; where a line stops rising, the system is saturated. Right: the mean "
        "response time, which from there on grows with the number of clients. Bands are 95% "
        "confidence intervals over repetitions.",
        draw,
    )


_PARTS = (
    ("queue of the proxy", "queue"),
    ("proxy to node and back", "service"),
    ("rest: network, client, proxy", ""),
)


def times_plot(name: str, title: str, found: Sequence[Line]) -> Plot | None:
    """Return a plot of where the time of a response goes; None if proxies have not measured it."""
    known = [(one.name, times) for one in found if (times := _times(one.saturated)) is not None]
    if not known:
        return None

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title, height=1.6 + 0.32 * len(known))
        places = list(range(len(known)))
        left = [0.0] * len(known)
        drawn = []
        for number, (text, _) in enumerate(_PARTS):
            widths = [times[number] / 1000 for _, times in known]
            colour = theme.colours[number]
            bars = axes.barh(places, widths, left=left, color=colour, height=0.6)
            for bar, (name, times) in zip(bars, known, strict=True):
                label(bar, text, f"{name}, {text}: {duration(times[number])}")
            left = [one + width for one, width in zip(left, widths, strict=True)]
            drawn.append(TargetStyle(text, colour, "s", "none"))
        axes.set_yticks(places, [one for one, _ in known])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("Mean response time, ms")
        return add_legend(figure, theme, drawn)

    return Plot(
        name,
        title,
        "At the smallest number of clients whose throughput is within 5% of the highest. The "
        "proxies measured the first two parts; the rest is the additional time that the clients "
        "measured.",
        draw,
    )


def _throughput(point: Point) -> Interval:
    return positive_interval([one.throughput for one in point.repetitions])


def _mean(point: Point) -> Interval:
    return positive_interval([one.response["all"].mean for one in point.repetitions])


def _times(point: Point) -> tuple[float, float, float] | None:
    """Return the mean time of each of `_PARTS`, in microseconds."""
    known = [
        (one.proxies.queue, one.proxies.service, one.response["all"].mean)
        for one in point.repetitions
        if one.proxies is not None
        and one.proxies.queue is not None
        and one.proxies.service is not None
    ]
    if not known:
        return None
    queue, service, response = (sum(column) / len(known) for column in zip(*known, strict=True))
    return queue, service, max(0.0, response - queue - service)
