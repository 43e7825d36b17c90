"""The plot of saturation: the Universal Scalability Law over the points, and the knee."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from memlite.loadtest import selection
from memlite.loadtest.report.plots import Plot, PlotData
from memlite.loadtest.report.plotting import point_load, ring_marker
from memlite.loadtest.report.style import (
    TargetStyle,
    Theme,
    add_legend,
    add_tooltips,
    label,
    load_axis,
    new_figure,
    value_axis,
)
from memlite.loadtest.sweep import Sweep, sweeps
from memlite.loadtest.units import grouped, short, size

__all__ = ["saturation"]

_CURVE_POINTS = 200
_BAND_OPACITY = 0.18


def saturation(data: PlotData) -> list[Plot]:
    """Return the plot of saturation, if there are enough loads for the law."""
    points = selection.with_main_value_size(selection.closed_loop(data.results))
    main = {point.value_size for point in points}
    found = [one for one in sweeps(data.results) if one.law is not None and one.value_size in main]
    if not found:
        return []
    several = len(selection.value_sizes(selection.closed_loop(data.results))) > 1
    title = "Saturation: the Universal Scalability Law"
    title += f", values of {size(found[0].value_size)}" if several else ""

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = data.target_styles(theme)
        drawn: list[float] = []
        loads: list[float] = []
        for sweep in found:
            drawn += _draw_sweep(axes, sweep, styles[sweep.target])
            loads += [float(point.clients) for point in sweep.points]
        load_axis(axes, loads, "Concurrent clients")
        value_axis(axes, drawn, "Operations per second", short)
        return add_legend(
            figure, theme, [styles[one.target] for one in found], _extra(found, theme)
        )

    return [
        Plot(
            "saturation",
            title,
            "Markers are repetitions, lines the fitted law with its 95% confidence band. A ring "
            "marks the knee: the smallest number of clients that saturates the target: its "
            "throughput is within 5% of the highest. "
            "Where a line leaves the markers, the law does not describe the target.",
            draw,
        )
    ]


def _extra(found: Sequence[Sweep], theme: Theme) -> list[tuple[Line2D, str]]:
    band = Patch(facecolor=theme.muted, alpha=2 * _BAND_OPACITY)
    extra: list[tuple[Line2D, str]] = [(band, "95% confidence band")]  # type: ignore[list-item]
    if any(_knee_is_known(one) for one in found):
        extra.append((Line2D([], [], **ring_marker(theme.text)), "knee"))
    if any(_peak(one) is not None for one in found):
        extra.append((_peak_line(theme.text), "predicted peak"))
    return extra


def _draw_sweep(axes: Axes, sweep: Sweep, style: TargetStyle) -> list[float]:
    """Draw a target; return the values drawn."""
    drawn: list[float] = []
    for point in sweep.points:
        values = [one.throughput for one in point.repetitions]
        (markers,) = axes.plot(
            [point.clients] * len(values),
            values,
            color=style.colour,
            marker=style.marker,
            markersize=5,
            linestyle="",
            markerfacecolor=axes.get_facecolor() if point.generator_limited else style.colour,
        )
        label(markers, style.name)
        told = [f"{style.name}, {point_load(point)}: {grouped(value)}" for value in values]
        add_tooltips(axes, style.name, [point.clients] * len(values), values, told)
        drawn += values
    law = sweep.law
    if law is not None:
        first, last = sweep.points[0].clients, sweep.points[-1].clients
        clients = np.geomspace(first, last, _CURVE_POINTS)
        middle = [law.throughput(one) for one in clients]
        (line,) = axes.plot(clients, middle, color=style.colour, linestyle=style.dash, linewidth=2)
        label(line, style.name)
        bands = [law.band(one) for one in clients]
        highest = 2 * max(drawn)
        band = axes.fill_between(
            clients,
            [low for low, _ in bands],
            [min(high, highest) for _, high in bands],
            color=style.colour,
            alpha=_BAND_OPACITY,
            linewidth=0,
        )
        label(band, style.name)
        drawn += middle
    for load in sweep.saturation.loads:
        if _knee_is_known(sweep) and load.clients == sweep.saturation.knee:
            axes.plot([load.clients], [load.throughput], **ring_marker(style.colour))
    peak = _peak(sweep)
    if peak is not None:
        axes.axvline(peak, color=style.colour, linewidth=1.2, linestyle=(0, (2, 3)))
    return drawn


def _knee_is_known(sweep: Sweep) -> bool:
    return sweep.saturation.knee is not None and math.isfinite(sweep.saturation.knee_interval[1])


def _peak(sweep: Sweep) -> float | None:
    """Return the predicted peak if the data supports it and it is within the range of loads."""
    law = sweep.law
    if law is None or not sweep.law_is_plausible or law.peak_clients > sweep.points[-1].clients:
        return None
    return law.peak_clients


def _peak_line(colour: str) -> Line2D:
    return Line2D([], [], color=colour, linewidth=1.2, linestyle=(0, (2, 3)))
