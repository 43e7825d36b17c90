"""Plots of multi-gets: response times, how they compare, and where the time goes."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from memlite.loadtest.multigets.analysis import PERCENTILES, Comparison, Side, buckets
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
from memlite.loadtest.units import duration

__all__ = ["plots_of"]

_WAYS = ("sharded", "from one node")
_KEYS = "Keys per get"
_SHOWN = 3
"""The number of sizes whose histograms are drawn; ``histograms.csv`` has those of all."""
_MAX_RATIO = 20.0


def plots_of(found: Sequence[Comparison]) -> list[Plot]:
    """Return the plots."""
    return [_response(found), _ratio(found), _percentiles(found), _histograms(found)]


def _sides(one: Comparison) -> tuple[Side, Side]:
    return one.sharded, one.together


def _response(found: Sequence[Comparison]) -> Plot:
    title = "Response time of gets of several keys"

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = target_styles(_WAYS, theme)
        sizes = [one.size for one in found]
        drawn: list[float] = []
        for index, style in enumerate(styles.values()):
            values = [_sides(one)[index].mean for one in found]
            means = [value.mean for value in values]
            (line,) = axes.plot(
                sizes,
                means,
                color=style.colour,
                linestyle=style.dash,
                marker=style.marker,
                linewidth=2,
            )
            label(line, style.name)
            band = axes.fill_between(
                sizes,
                [value.mean if value.low is None else value.low for value in values],
                [value.mean if value.high is None else value.high for value in values],
                color=style.colour,
                alpha=0.18,
                linewidth=0,
            )
            label(band, style.name)
            told = [
                f"{style.name}, {size} keys: {interval_text(value, duration)}"
                for size, value in zip(sizes, values, strict=True)
            ]
            add_tooltips(axes, style.name, sizes, means, told)
            drawn += [*means, *(min(value.high or 0.0, 2 * value.mean) for value in values)]
        load_axis(axes, sizes, _KEYS)
        value_axis(axes, drawn, "Mean response time", duration)
        return add_legend(figure, theme, list(styles.values()))

    return Plot(
        "multigets-response-time",
        title,
        "Lower is better. Mean response times at the clients; bands are 95% confidence intervals "
        "over repetitions.",
        draw,
    )


def _ratio(found: Sequence[Comparison]) -> Plot:
    title = "Response time of sharded gets, compared with one node"
    several = [one for one in found if one.size > 1]

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title)
        styles = target_styles(("mean", "99th percentile"), theme)
        of: tuple[Callable[[Comparison], Interval], ...] = (
            lambda one: one.ratio,
            lambda one: one.tail,
        )
        axes.axhline(1.0, color=theme.text, linewidth=1.2)
        for shift, value, style in zip((-0.02, 0.02), of, styles.values(), strict=True):
            _intervals(
                axes, style, [one.size + shift for one in several], list(map(value, several))
            )
        load_axis(axes, [one.size for one in several], _KEYS)
        axes.set_ylabel("Sharded, divided by one node\n(log scale)")
        axes.set_yscale("log")
        least, most = axes.get_ylim()
        # With a few repetitions that differ widely, intervals span many orders of magnitude.
        axes.set_ylim(max(min(least, 0.8), 1 / _MAX_RATIO), min(max(most, 1.25), _MAX_RATIO))
        axes.yaxis.set_major_locator(LogLocator(10, (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 8.0, 9.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        points = [TargetStyle(one.name, one.colour, one.marker, "") for one in styles.values()]
        return add_legend(figure, theme, points)

    return Plot(
        "multigets-ratio",
        title,
        "Below 1, sharding is faster. Bars are 95% confidence intervals over repetitions, in each "
        "of which both ways were measured in turn; where a bar crosses 1, the difference "
        "is not statistically significant.",
        draw,
    )


def _intervals(
    axes: Axes, style: TargetStyle, at: Sequence[float], values: Sequence[Interval]
) -> None:
    axes.errorbar(
        at,
        [one.mean for one in values],
        yerr=[
            [one.mean - one.low if one.low is not None else 0.0 for one in values],
            [one.high - one.mean if one.high is not None else 0.0 for one in values],
        ],
        color=style.colour,
        marker=style.marker,
        linestyle="",
        capsize=3,
        linewidth=1.4,
    )


def _percentiles(found: Sequence[Comparison]) -> Plot:
    title = "Percentiles of response times at the clients"

    def draw(theme: Theme) -> Figure:
        figure, panels = new_figure(theme, title, columns=2, sharey=True)
        styles = target_styles([f"{one}th percentile" for one in PERCENTILES], theme)
        sizes = [one.size for one in found]
        drawn: list[float] = []
        for index, axes in enumerate(panels):
            for place, style in enumerate(styles.values()):
                values = [_sides(one)[index].client[place] for one in found]
                (line,) = axes.plot(
                    sizes,
                    values,
                    color=style.colour,
                    linestyle=style.dash,
                    marker=style.marker,
                    markersize=4,
                )
                label(line, style.name)
                told = [
                    f"{style.name}, {size} keys: {duration(value)}"
                    for size, value in zip(sizes, values, strict=True)
                ]
                add_tooltips(axes, style.name, sizes, values, told)
                drawn += values
            axes.set_title(_WAYS[index])
            load_axis(axes, sizes, _KEYS)
        value_axis(panels[0], drawn, "Response time", duration)
        return add_legend(figure, theme, list(styles.values()))

    return Plot(
        "multigets-percentiles",
        title,
        "Lower is better. All repetitions together.",
        draw,
    )


def _histograms(found: Sequence[Comparison]) -> Plot:
    title = "Where the time goes: at the clients, and at the proxy"
    chosen = [found[0], found[len(found) // 2], found[-1]] if len(found) > _SHOWN else list(found)

    def draw(theme: Theme) -> Figure:
        figure, panels = new_figure(
            theme,
            title,
            height=1.4 + 2.1 * len(chosen),
            rows=len(chosen),
            columns=2,
            sharex=True,
            sharey="row",
        )
        styles = target_styles(("at the clients", "at the proxy"), theme)
        sides = [side for one in chosen for side in _sides(one)]
        bounds, counts = buckets([t for side in sides for t in (side.at_client, side.at_proxy)])
        shares = [own / max(own.sum(), 1.0) for own in counts]
        for index, axes in enumerate(panels):
            for place, style in enumerate(styles.values()):
                bars = axes.stairs(
                    shares[2 * index + place], bounds, color=style.colour, linewidth=1.8
                )
                label(bars, style.name)
            row = shares[4 * (index // 2) : 4 * (index // 2 + 1)]
            axes.set_ylim(0, 1.08 * max(float(one.max()) for one in row))
            size = chosen[index // 2].size
            axes.set_title(f"{size} key{'s' if size > 1 else ''}, {_WAYS[index % 2]}")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            if index % 2 == 0:
                axes.set_ylabel("Requests")
        for axes in panels[-2:]:
            axes.set_xlabel("Time (log scale)")
        lines = [
            (Line2D([], [], color=style.colour, linewidth=1.8), name)
            for name, style in styles.items()
        ]
        return add_legend(figure, theme, [], lines)

    return Plot(
        "multigets-histograms",
        title,
        "The share of requests in each bucket, twelve for each power of ten, the same in all "
        "panels. At the proxy: from a request's arrival to its reply, of the requests that it "
        "traced.",
        draw,
    )
