"""The plots of a factorial experiment: which factors matter, and the effect of each."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator

from memlite.lab import Effect, Estimate
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.design import Design
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.style import (
    TargetStyle,
    Theme,
    add_legend,
    new_figure,
    target_styles,
    value_axis,
)
from memlite.loadtest.units import duration, short

__all__ = ["interactions", "main_effects", "variation"]

_MAX_PAIRS = 4
_LABELLED = 0.07  # parts of a bar at least this long are labelled with their share


def variation(design: Design, analyses: Sequence[Analysis]) -> Plot:
    """Return the plot that divides each response's variation among its causes."""
    title = "What explains the variation between runs"

    def draw(theme: Theme) -> Figure:
        figure, (axes,) = new_figure(theme, title, height=3.3)
        axes.grid(visible=False)
        styles = [
            TargetStyle(style.name, style.colour, "s", "")
            for style in target_styles([*design.names, "together", "errors"], theme).values()
        ]
        styles[-1] = TargetStyle("repetitions (errors)", theme.grid, "s", "")
        styles[-2] = TargetStyle("interactions", theme.muted, "s", "")
        for row, analysis in enumerate(analyses):
            left = 0.0
            for share, style in zip(_shares(design, analysis), styles, strict=True):
                axes.barh(row, share, left=left, height=0.5, color=style.colour)
                if share >= _LABELLED:
                    middle = (left + share / 2, row - 0.27)
                    text = f"{share:.0%}"
                    axes.text(
                        *middle, text, ha="center", va="bottom", fontsize=9.5, color=theme.text
                    )
                left += share
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        axes.set_ylim(len(analyses) - 0.6, -0.65)
        names = [one.response.words.replace(" of response times", "") for one in analyses]
        axes.set_yticks(range(len(analyses)), names)
        axes.tick_params(axis="y", length=0, labelcolor=theme.text)
        axes.set_xlabel("Share of the variation")
        return add_legend(figure, theme, styles)

    return Plot(
        "variation",
        title,
        "How much of the variation between all runs is due to each factor, to interactions between "
        "factors, and to differences between repetitions of the same run.",
        draw,
    )


def _shares(design: Design, analysis: Analysis) -> list[float]:
    """Return the share of each factor, of all interactions, and of errors."""
    effects = analysis.result.effects
    alone = {one.factors[0]: one.variation for one in effects if len(one.factors) == 1}
    together = sum(one.variation for one in effects if len(one.factors) > 1)
    errors = analysis.result.error_variation
    return [*(alone[name] for name in design.names), together, errors]


def main_effects(design: Design, analysis: Analysis) -> Plot:
    """Return the plot of a response against the levels of each factor."""
    response, result = analysis.response, analysis.result
    title = f"{_capital(response.words)} with each level of a factor"
    columns = min(4, len(design.factors))
    rows = -(-len(design.factors) // columns)

    def draw(theme: Theme) -> Figure:
        figure, all_axes = new_figure(
            theme, title, height=0.9 + 2.5 * rows, rows=rows, columns=columns, sharey=True
        )
        drawn: list[float] = []
        for axes, factor in zip(all_axes, design.factors, strict=False):
            found = [result.estimate({factor.name: one}) for one in range(len(factor.levels))]
            drawn += _line(axes, found, theme.colours[0], "o", "-")
            _level_axis(axes, factor.name, factor.levels)
        for axes in all_axes[len(design.factors) :]:
            axes.set_visible(False)
        _value_axes(all_axes, columns, drawn, analysis)
        return add_legend(figure, theme, [])

    mean = "geometric means" if result.multiplicative else "means"
    return Plot(
        f"effects-{response.name.replace('_', '-')}",
        title,
        f"The {mean} over all levels of the other factors"
        + (", with 95% confidence intervals." if result.error_freedom else "."),
        draw,
    )


def interactions(design: Design, analysis: Analysis) -> Plot | None:
    """Return the plot of how factors change each other's effects; None for a single factor."""
    response, result = analysis.response, analysis.result
    pairs = sorted(
        (one for one in result.effects if len(one.factors) == 2), key=lambda one: -one.variation
    )
    chosen = pairs[:_MAX_PAIRS]
    if not chosen:
        return None
    title = f"{_capital(response.words)} with two factors together"
    columns = min(2, len(chosen))
    rows = -(-len(chosen) // columns)

    def draw(theme: Theme) -> Figure:
        figure, all_axes = new_figure(
            theme, title, height=0.9 + 2.9 * rows, rows=rows, columns=columns, sharey=True
        )
        drawn: list[float] = []
        for axes, pair in zip(all_axes, chosen, strict=False):
            drawn += _pair(axes, pair, design, analysis, theme)
        for axes in all_axes[len(chosen) :]:
            axes.set_visible(False)
        _value_axes(all_axes, columns, drawn, analysis)
        return add_legend(figure, theme, [])

    few = f" Of {len(pairs)} pairs, these explain the most." if len(pairs) > len(chosen) else ""
    scale = ", on a log scale" if result.multiplicative else ""
    return Plot(
        f"interactions-{response.name.replace('_', '-')}",
        title,
        f"Lines that are parallel{scale} belong to factors that do not interact.{few}",
        draw,
    )


def _pair(
    axes: Axes, pair: Effect, design: Design, analysis: Analysis, theme: Theme
) -> list[float]:
    first, second = pair.factors
    levels = {one.name: one.levels for one in design.factors}
    styles = target_styles(levels[second], theme)
    drawn: list[float] = []
    for number, style in enumerate(styles.values()):
        found = [
            analysis.result.estimate({first: level, second: number})
            for level in range(len(levels[first]))
        ]
        shift = 0.03 * (number - (len(styles) - 1) / 2)  # so that intervals do not hide each other
        drawn += _line(axes, found, style.colour, style.marker, style.dash, shift)
    _level_axis(axes, first, levels[first])
    handles = [
        Line2D([], [], color=one.colour, marker=one.marker, linestyle=one.dash, markersize=5)
        for one in styles.values()
    ]
    axes.legend(
        handles,
        [_short(one.name) for one in styles.values()],
        title=_short(second, 26),
        title_fontsize=9,
        alignment="left",
        frameon=False,
        fontsize=9,
        labelcolor=theme.text,
        handlelength=2.6,
        loc="lower left",
        bbox_to_anchor=(0, 0.98),
        ncols=3,
        columnspacing=1.2,
    ).get_title().set_color(theme.text)
    return drawn


def _line(
    axes: Axes,
    found: Sequence[Estimate],
    colour: str,
    marker: str,
    dash: Any,
    shift: float = 0.0,
) -> list[float]:
    """Draw estimates at the levels of a factor; return the values drawn, for the axis."""
    places = [number + shift for number in range(len(found))]
    axes.plot(
        places, [one.value for one in found], color=colour, marker=marker, linestyle=dash, lw=1.8
    )
    known = [one for one in found if one.high != float("inf")]
    if len(known) == len(found):
        lows, highs = [one.low for one in found], [one.high for one in found]
        axes.vlines(places, lows, highs, color=colour, linewidth=1.4)
        for bounds in (lows, highs):
            axes.plot(places, bounds, color=colour, marker="_", linestyle="", markersize=7)
        return [*lows, *highs]
    return [one.value for one in found]


def _level_axis(axes: Axes, name: str, levels: Sequence[str]) -> None:
    axes.set_xlim(-0.5, len(levels) - 0.5)
    axes.set_xticks(range(len(levels)), [_short(level) for level in levels], parse_math=False)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(_short(name, 26), parse_math=False)


def _value_axes(
    all_axes: Sequence[Axes], columns: int, drawn: Sequence[float], analysis: Analysis
) -> None:
    unit = short if analysis.response.name == "throughput" else duration
    label = _capital(analysis.response.words.replace(" of response times", ""))
    label += "\n(per second)" if analysis.response.name == "throughput" else ""
    # All axes share the scale of the first. A bound below 0 is not shown.
    first, *_ = all_axes
    positive = [one for one in drawn if one > 0]
    value_axis(first, positive, label, unit)
    if analysis.result.multiplicative and first.get_yscale() == "linear":
        _narrow_log_axis(first, positive)
    for axes in all_axes[::columns]:
        axes.set_ylabel(first.get_ylabel())


def _narrow_log_axis(axes: Axes, positive: Sequence[float]) -> None:
    """Use a log scale although values are close to each other: factors multiply."""
    wide = max(positive) > 3 * min(positive)
    formatter = axes.yaxis.get_major_formatter()
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(
        LogLocator(10, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)) if wide else MaxNLocator(6)
    )
    axes.yaxis.set_major_formatter(formatter)
    axes.yaxis.set_minor_formatter(lambda _value, _position: "")
    axes.set_ylim(min(positive) / 1.15, max(positive) * 1.15)


def _short(text: str, most: int = 14) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
