"""Plots of models: their predictions over the measured values."""

import re
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator, PercentFormatter

from memlite.loadtest.models.build import Model
from memlite.loadtest.models.study import TargetModels
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.plotting import interval_text
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
from memlite.loadtest.results import Interval
from memlite.loadtest.units import duration, short

__all__ = ["plots_of"]

_CLIENTS = "Concurrent clients"
_HIGHEST = 2.5
"""How far beyond the measured values the axes go, for models that are far off."""


def plots_of(found: Sequence[TargetModels]) -> list[Plot]:
    """Return the plots of all targets."""
    plots = []
    for number, target in enumerate(found, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", target.sweep.target.lower()).strip("-") or "target"
        name = f"models-{number}-{slug[:30]}"
        plots.append(_throughput(target, name))
        plots.append(_response(target, name))
        plots.append(_utilisation(target, name))
    return plots


def _throughput(target: TargetModels, name: str) -> Plot:
    title = f"Throughput of {target.sweep.target}: measured and predicted"
    names = [one.model.name for one in target.assessments]
    models = [one.model for one in target.assessments if one.model.clients]

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        clients = [load.clients for load in target.sweep.loads]
        values = [load.throughput for load in target.sweep.loads]
        low = [one.throughput[0] for one in target.inputs.bounds]
        high = [one.throughput[1] for one in target.inputs.bounds]
        axes.fill_between(clients, low, high, color=theme.muted, alpha=0.15, linewidth=0)
        styles = _lines(
            axes,
            theme,
            names,
            models,
            {model.name: [one.throughput for one in model.predictions] for model in models},
            short,
        )
        _measured(axes, theme, clients, values, short)
        load_axis(axes, clients, _CLIENTS)
        _value_axis(axes, values, "Requests per second", short)
        return _with_legend(figure, theme, styles, "balanced job bounds of the network")

    return Plot(
        f"{name}-throughput",
        title,
        "Higher is better. Points are measured, with 95% confidence intervals over repetitions; "
        "lines are models.",
        draw,
    )


def _response(target: TargetModels, name: str) -> Plot:
    title = f"Response time of {target.sweep.target}: measured and predicted"
    names = [one.model.name for one in target.assessments]
    models = [
        one.model
        for one in target.assessments
        if all(each.measured is None for each in one.model.predictions)
    ]

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        clients = [load.clients for load in target.sweep.loads]
        values = [_microseconds(load.response_time) for load in target.sweep.loads]
        low = [one.response_time[0] * 1e6 for one in target.inputs.bounds]
        high = [one.response_time[1] * 1e6 for one in target.inputs.bounds]
        axes.fill_between(clients, low, high, color=theme.muted, alpha=0.15, linewidth=0)
        predicted = {
            model.name: [
                None if one.response_time is None else one.response_time * 1e6
                for one in model.predictions
            ]
            for model in models
        }
        styles = _lines(axes, theme, names, models, predicted, duration)
        _measured(axes, theme, clients, values, duration)
        load_axis(axes, clients, _CLIENTS)
        _value_axis(axes, values, "Mean response time", duration)
        return _with_legend(figure, theme, styles, "balanced job bounds of the network")

    return Plot(
        f"{name}-response-time",
        title,
        "Lower is better. Where a line ends, its model has no steady state: the queue would grow "
        "without bound.",
        draw,
    )


def _utilisation(target: TargetModels, name: str) -> Plot:
    title = f"Utilisation with {target.sweep.target}: measured and predicted"
    models = {one.model.name: one.model for one in target.assessments}
    network = models.get("network") or target.assessments[0].model
    names = [
        one.name
        for one in target.inputs.stations
        if one.servers and any(one.name in load.utilisations for load in target.sweep.loads)
    ]

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = target_styles(names, theme)
        drawn: list[float] = []
        for station, style in styles.items():
            known = [load for load in target.sweep.loads if station in load.utilisations]
            measured = [load.utilisations[station] for load in known]
            axes.plot(
                [load.clients for load in known],
                measured,
                color=style.colour,
                marker=style.marker,
                linestyle="",
                markersize=7,
            )
            predicted = [
                (one.clients, one.uses[station].utilisation)
                for one in network.predictions
                if station in one.uses
            ]
            if predicted:
                axes.plot(*zip(*predicted, strict=True), color=style.colour, linewidth=1.8)
            drawn += [*measured, *(value for _, value in predicted)]
        load_axis(axes, [load.clients for load in target.sweep.loads], _CLIENTS)
        axes.set_ylim(0, max(1.08, *drawn))
        axes.yaxis.set_major_locator(MultipleLocator(0.2))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("Utilisation")
        legend = [(Line2D([], [], color=theme.text, linewidth=1.8), f"line: {network.name}")]
        points = [TargetStyle(one.name, one.colour, one.marker, "") for one in styles.values()]
        return add_legend(figure, theme, points, legend)

    return Plot(
        f"{name}-utilisation",
        title,
        "Points are measured processor utilisation or, for a proxy's workers, the share of them "
        f"that were busy. The lines are those of the model “{network.name}”.",
        draw,
    )


# Shared by all plots


def _microseconds(value: Interval) -> Interval:
    return Interval(
        value.mean * 1e6,
        None if value.low is None else value.low * 1e6,
        None if value.high is None else value.high * 1e6,
    )


def _styles(names: Sequence[str], theme: Theme) -> dict[str, TargetStyle]:
    # The fifth style has the colour of text, as do the measured values.
    return target_styles([*names[:4], "", *names[4:]], theme)


def _lines(
    axes: Axes,
    theme: Theme,
    names: Sequence[str],
    models: Sequence[Model],
    values: Mapping[str, Sequence[float | None]],
    unit: Callable[[float], str],
) -> list[TargetStyle]:
    styles = _styles(names, theme)
    for model in models:
        style = styles[model.name]
        known = [
            (one.clients, value)
            for one, value in zip(model.predictions, values[model.name], strict=True)
            if value is not None
        ]
        if known:
            (line,) = axes.plot(
                *zip(*known, strict=True),
                color=style.colour,
                linestyle=style.dash,
                linewidth=1.8,
                marker=style.marker,
                markersize=4,
            )
            label(line, style.name)
            told = [f"{style.name}, {clients} clients: {unit(value)}" for clients, value in known]
            numbers, heights = zip(*known, strict=True)
            add_tooltips(axes, style.name, numbers, heights, told)
    return [styles[model.name] for model in models]


def _measured(
    axes: Axes,
    theme: Theme,
    clients: Sequence[int],
    values: Sequence[Interval],
    unit: Callable[[float], str],
) -> None:
    told = [
        f"measured, {number} clients: {interval_text(value, unit)}"
        for number, value in zip(clients, values, strict=True)
    ]
    axes.errorbar(
        clients,
        [one.mean for one in values],
        yerr=[
            [one.mean - max(one.low, 0.0) if one.low is not None else 0.0 for one in values],
            [one.high - one.mean if one.high is not None else 0.0 for one in values],
        ],
        color=theme.text,
        marker="o",
        markersize=7,
        linestyle="",
        capsize=3,
        linewidth=1.4,
        zorder=5,
    )
    add_tooltips(axes, "measured", clients, [one.mean for one in values], told)


def _value_axis(
    axes: Axes, values: Sequence[Interval], label: str, unit: Callable[[float], str]
) -> None:
    """Scale by the measured values: the line of a model that is far off runs off the figure."""
    means = [one.mean for one in values]
    highest = max(max(one.high or one.mean for one in values), max(means) * 1.3)
    value_axis(axes, [*means, min(highest, max(means) * _HIGHEST)], label, unit)


def _with_legend(
    figure: Figure, theme: Theme, styles: Sequence[TargetStyle], bounds: str
) -> Figure:
    measured = Line2D([], [], color=theme.text, marker="o", linestyle="", markersize=7)
    band = Line2D([], [], color=theme.muted, alpha=0.3, linewidth=9)
    return add_legend(figure, theme, styles, [(measured, "measured"), (band, bounds)])
