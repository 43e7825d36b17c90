"""The plots of residuals, which show whether a model of a factorial experiment fits."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from memlite.lab import FactorialResult
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.output import in_order
from memlite.loadtest.factorial.runs import Measured
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.style import Theme, add_legend, new_figure
from memlite.loadtest.units import short

__all__ = ["residuals"]


@dataclass(frozen=True, slots=True)
class _Residuals:
    """Residuals of a model in the order of the runs, and the model's predictions."""

    values: tuple[float, ...]
    predicted: tuple[float, ...]

    @classmethod
    def of(cls, result: FactorialResult, measured: Sequence[Measured]) -> "_Residuals":
        runs = [one.run for one in in_order(measured)]
        return cls(
            tuple(result.residuals[one.levels][one.number - 1] for one in runs),
            tuple(result.predicted[one.levels] for one in runs),
        )


def residuals(analysis: Analysis, measured: Sequence[Measured]) -> Plot | None:
    """Return the plot of the residuals of both models; None without repetitions.

    R. Jain, *The Art of Computer Systems Performance Analysis* (1991), section 18.4.
    """
    models, response = analysis.models, analysis.response
    if not models.additive.error_freedom:
        return None
    results = [models.additive]
    if models.multiplicative is not None:
        results.append(models.multiplicative)
    title = f"Which model fits: residuals of {response.words}"

    def draw(theme: Theme) -> Figure:
        figure, axes = new_figure(
            theme, title, height=0.7 + 2.7 * len(results), rows=len(results), columns=3
        )
        for row, result in enumerate(results):
            found = _Residuals.of(result, measured)
            colour = theme.colours[row]
            of_row = axes[3 * row : 3 * row + 3]
            _against_prediction(of_row[0], result, found, colour, theme)
            _quantiles(of_row[1], found, colour, theme)
            _over_time(of_row[2], found, colour, theme)
            for one in of_row:
                _residual_axis(one, result)
                one.set_ylabel("")
            verb = "multiply" if result.multiplicative else "add"
            chosen = " (fits better)" if result is analysis.result else ""
            unit = "natural log" if result.multiplicative else _brief(response.unit)
            of_row[0].set_ylabel(f"Residual, {unit}")
            of_row[0].set_xlabel(f"Predicted, {_brief(response.unit)}")
            of_row[0].set_title(
                f"If factors {verb}{chosen}", loc="left", color=theme.text, fontsize=10.5
            )
        return add_legend(figure, theme, [])

    return Plot(
        f"residuals-{response.name.replace('_', '-')}",
        title,
        "A model fits if its residuals are spread as widely at low predictions as at high ones "
        "(left), lie on the line, as normally distributed errors do (middle), and show no trend "
        "from the first run to the last (right).",
        draw,
    )


def _against_prediction(
    axes: Axes, result: FactorialResult, found: _Residuals, colour: str, theme: Theme
) -> None:
    _points(axes, found.predicted, found.values, colour)
    axes.axhline(0, color=theme.muted, linewidth=1)
    if result.multiplicative and max(found.predicted) > 5 * min(found.predicted):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda _value, _position: ""))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def _quantiles(axes: Axes, found: _Residuals, colour: str, theme: Theme) -> None:
    # Imported here, as it takes a second.
    from scipy.stats import probplot

    (quantiles, values), (slope, intercept, _) = probplot(found.values)
    ends = [float(quantiles[0]), float(quantiles[-1])]
    axes.plot(ends, [intercept + slope * one for one in ends], color=theme.muted, linewidth=1.2)
    _points(axes, [float(one) for one in quantiles], [float(one) for one in values], colour)
    axes.set_xlabel("Normal quantile")


def _over_time(axes: Axes, found: _Residuals, colour: str, theme: Theme) -> None:
    _points(axes, range(1, len(found.values) + 1), found.values, colour)
    axes.axhline(0, color=theme.muted, linewidth=1)
    axes.set_xlabel("Run, in order")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _points(axes: Axes, xs: Sequence[float], ys: Sequence[float], colour: str) -> None:
    axes.plot(xs, ys, color=colour, marker="o", linestyle="", markersize=4.5, alpha=0.85)


def _residual_axis(axes: Axes, result: FactorialResult) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if not result.multiplicative:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(value)))


def _signed(value: float) -> str:
    return f"\N{MINUS SIGN}{short(-value)}" if value < 0 else short(value)


def _brief(unit: str) -> str:
    return unit.removeprefix("operations ")
