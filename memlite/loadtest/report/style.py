"""The appearance of plots: light and dark themes, markers, axes, legends and names."""

import base64
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from memlite.loadtest.units import short

__all__ = [
    "DARK",
    "LIGHT",
    "TargetStyle",
    "Theme",
    "add_legend",
    "add_tooltips",
    "css_variables",
    "label",
    "load_axis",
    "new_figure",
    "place_as",
    "png",
    "settings",
    "svg",
    "target_styles",
    "value_axis",
]

_WIDTH = 8.0  # inches: 1,200 pixels at 150 per inch
_DPI = 150
_FONT = "DejaVu Sans"  # ships with matplotlib, so that plots look the same everywhere
_MAX_NAME_LENGTH = 40
_LOG_SCALE_RATIO = 20
"""If the largest value exceeds the smallest by more than this factor, use a log scale."""

# Seven colours, eight markers and five dashes: the first 280 targets all have distinct styles.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))


@dataclass(frozen=True, slots=True)
class Theme:
    """A colour theme.

    Attributes:
        background: background colour.
        text: colour of titles, labels and axes.
        muted: colour of tick labels and secondary text.
        grid: colour of grid lines.
        colours: colours of targets, from the colour-blind-safe palette of Okabe and Ito, in
            descending order of contrast with the background.
    """

    background: str
    text: str
    muted: str
    grid: str
    colours: tuple[str, ...]


LIGHT = Theme(
    background="#ffffff",
    text="#1b1f24",
    muted="#57606b",
    grid="#dde1e6",
    colours=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9"),
)
DARK = Theme(
    background="#15191e",
    text="#eceff3",
    muted="#a7b0ba",
    grid="#343b44",
    colours=("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#fefefe", "#d55e00", "#f0e442"),
)


@dataclass(frozen=True, slots=True)
class TargetStyle:
    """The style of a target, the same in all plots.

    Attributes:
        name: the target's name, limited to characters the font has.
        colour: colour of lines, markers and bands.
        marker: marker, in matplotlib's notation.
        dash: line style, in matplotlib's notation.
    """

    name: str
    colour: str
    marker: str
    dash: Any


def target_styles(names: Iterable[str], theme: Theme) -> dict[str, TargetStyle]:
    """Return the style of each target."""
    return {
        name: TargetStyle(
            _legend_name(name),
            theme.colours[index % len(theme.colours)],
            _MARKERS[index % len(_MARKERS)],
            _DASHES[index % len(_DASHES)],
        )
        for index, name in enumerate(names)
    }


def new_figure(
    theme: Theme, title: str, height: float = 4.4, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure and its axes, row by row.

    Args:
        theme: its colours.
        title: the title of the whole figure.
        height: in inches; figures are 8 inches wide.
        rows: number of rows of axes.
        columns: number of columns of axes.
        **options: further arguments of matplotlib's ``subplots``.
    """
    figure = Figure(
        figsize=(_WIDTH, height), dpi=_DPI, layout="constrained", facecolor=theme.background
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # type: ignore[union-attr,call-arg]
    figure.suptitle(
        title, x=0.015, ha="left", color=theme.text, fontsize=12.5, fontweight="bold", family=_FONT
    )
    found = figure.subplots(rows, columns, squeeze=False, **options)
    all_axes: list[Axes] = list(found.flat)
    for axes in all_axes:
        axes.set_facecolor(theme.background)
        axes.grid(visible=True, color=theme.grid, linewidth=0.8)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(theme.muted)
        axes.tick_params(which="both", color=theme.muted, labelcolor=theme.muted, labelsize=9.5)
        axes.tick_params(which="minor", length=0)
    return figure, all_axes


def add_legend(
    figure: Figure,
    theme: Theme,
    drawn: Sequence[TargetStyle],
    extra: Sequence[tuple[Line2D, str]] = (),
) -> Figure:
    """Style all labels, and add a legend below the axes.

    Args:
        figure: the completed figure.
        theme: its colours.
        drawn: the styles of the targets in the figure.
        extra: additional entries: a sample line and its meaning.
    """
    for axes in figure.axes:
        for text in (axes.xaxis.label, axes.yaxis.label):
            text.set(color=theme.text, fontsize=10.5, family=_FONT)
        axes.title.set(color=theme.text, fontsize=10.5, family=_FONT)
    handles = [
        Line2D([], [], color=one.colour, marker=one.marker, linestyle=one.dash, markersize=6)
        for one in drawn
    ]
    names = [one.name for one in drawn] + [text for _, text in extra]
    handles += [line for line, _ in extra]
    if not handles:
        return figure
    longest = max(len(name) for name in names)
    legend = figure.legend(
        handles,
        [f"{index}" for index in range(len(names))],
        loc="outside lower left",
        ncols=max(1, min(len(names), int(92 / (longest + 9)))),
        frameon=False,
        labelcolor=theme.text,
        prop={"family": _FONT, "size": 10},
        handlelength=3.4,
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        # Set here because a legend drops labels that begin with "_" and parses "$" as math.
        text.set_parse_math(False)
        text.set_text(name)
    return figure


def load_axis(axes: Axes, values: Iterable[float], label: str) -> None:
    """Set up the horizontal axis with a tick for each measured load, as far as space permits.

    Args:
        axes: the axes.
        values: the measured loads.
        label: the axis label, including the unit.
    """
    loads = sorted(set(values))
    axes.set_xlabel(label)
    positive = [value for value in loads if value > 0]
    logarithmic = bool(positive) and positive[-1] > _LOG_SCALE_RATIO * positive[0]
    if logarithmic:
        axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    max_ticks = 12 / axes.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    if logarithmic:
        factor = (positive[-1] / positive[0]) ** (1 / max_ticks)
        ticks = list(_thinned(positive, lambda last, value: value >= last * factor))
    else:
        gap = (loads[-1] - loads[0]) / max_ticks if loads else 0
        ticks = list(_thinned(loads, lambda last, value: value >= last + gap))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    if not logarithmic and loads:
        axes.set_xlim(left=0 if loads[0] < loads[-1] else None)


def value_axis(
    axes: Axes, values: Iterable[float], label: str, unit: Callable[[float], str]
) -> None:
    """Set up the vertical axis: linear from 0, or logarithmic if the values span a wide range.

    Args:
        axes: the axes.
        values: the values drawn.
        label: the axis label, without the unit, which is part of each tick label.
        unit: formats a tick label.
    """
    positive = sorted(value for value in values if value > 0)
    logarithmic = bool(positive) and positive[-1] > _LOG_SCALE_RATIO * positive[0]
    if logarithmic:
        label += "\n(log scale)"
        axes.set_yscale("log")
        narrow = positive[-1] < 300 * positive[0]
        axes.yaxis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0) if narrow else (1.0,)))
        axes.yaxis.set_minor_locator(LogLocator(10, (2.0, 5.0)) if not narrow else NullLocator())
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda _value, _: ""))
        axes.set_ylim(positive[0] / 1.5, positive[-1] * 1.5)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
        axes.set_ylim(0, positive[-1] * 1.08 if positive else 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
    axes.set_ylabel(label)


def label(artist: Artist, series: str, tip: str = "") -> None:
    """Label an artist for the page, where readers can hide a series, or ask for values.

    Args:
        artist: the drawn object.
        series: the name of the series that it belongs to.
        tip: its tooltip; empty for none.
    """
    artist.set_gid(f"data-{_coded(series)}-{_coded(tip)}")


def add_tooltips(
    axes: Axes, series: str, xs: Sequence[float], ys: Sequence[float], tips: Sequence[str]
) -> None:
    """Add tooltips at points of a drawing, for the page; nothing visible is drawn.

    Args:
        axes: the axes.
        series: the name of the series.
        xs: the horizontal positions.
        ys: the vertical positions.
        tips: the tooltip of each.
    """
    for x, y, tip in zip(xs, ys, tips, strict=True):
        colour = axes.get_facecolor()
        (place,) = axes.plot(
            [x], [y], marker="o", markersize=9, linestyle="", alpha=0.0, color=colour
        )
        label(place, series, tip)


def _coded(text: str) -> str:
    return base64.b32hexencode(text.encode()).decode().rstrip("=")


def _data_attributes(found: re.Match[str]) -> str:
    """Return the start of a group with the data that `label` has put into its identifier."""
    series, tip = (
        html.escape(base64.b32hexdecode(code + "=" * (-len(code) % 8)).decode())
        for code in found.groups()
    )
    return f'<g data-series="{series}"' + (f' data-tip="{tip}"' if tip else "") + ">"


def png(figure: Figure) -> bytes:
    """Render a figure as a PNG image, 1,200 pixels wide."""
    stream = BytesIO()
    with settings():
        canvas = FigureCanvasAgg(figure)
        _lay_out(figure)
        canvas.print_png(stream)  # type: ignore[no-untyped-call]
    return stream.getvalue()


def place_as(figure: Figure, other: Figure) -> None:
    """Place the axes and the title of a figure where those of another one are.

    Computing their places takes as long as drawing.

    Args:
        figure: differs from the other only in its theme, and has not been rendered.
        other: has been rendered.
    """
    figure.set_layout_engine("none")
    for mine, theirs in zip(figure.axes, other.axes, strict=True):
        mine.set_position(theirs.get_position())
    for title, other_title in zip(figure.texts, other.texts, strict=True):
        title.set_position(other_title.get_position())


def _lay_out(figure: Figure) -> None:
    """Place the axes, unless already done.

    Matplotlib's `print_figure` does it for each image, and draws twice each time.
    """
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine("none")


def svg(figure: Figure, prefix: str) -> str:
    """Render a figure as SVG for embedding in the page.

    Its colours become the CSS variables ``--background``, ``--text``, ``--muted``, ``--grid`` and
    ``--c0``, ``--c1``, …, so that one image works in light and dark mode.

    Args:
        figure: a figure drawn in the `LIGHT` theme.
        prefix: prefix that makes identifiers unique on the page.
    """
    stream = BytesIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with settings():
        FigureCanvasAgg(figure)  # this canvas measures text faster than the SVG canvas
        _lay_out(figure)
        FigureCanvasSVG(figure).print_svg(stream, metadata=no_metadata)  # type: ignore[no-untyped-call]
        figure.dpi = _DPI  # print_svg has changed it
    text = stream.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r'<g id="data-([0-9A-V]*)-([0-9A-V]*)">', _data_attributes, text)
    text = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    # Text is drawn as shapes; only the comments still contain names as text.
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    # The page sets the size and the accessible name.
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = text.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
    for colour, variable in css_variables(LIGHT).items():
        text = text.replace(colour, f"var({variable})")
    return text


def css_variables(theme: Theme) -> dict[str, str]:
    """Return the CSS variable of each colour."""
    named = {
        theme.background: "--background",
        theme.text: "--text",
        theme.muted: "--muted",
        theme.grid: "--grid",
    }
    return named | {colour: f"--c{index}" for index, colour in enumerate(theme.colours)}


@contextmanager
def settings() -> Iterator[None]:
    """Apply settings that exist only as rcParams, regardless of the user's configuration.

    Figures are made and drawn with them.
    """
    settings: Any = {
        "font.family": _FONT,
        "text.usetex": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "memlite",
        "savefig.bbox": None,
        "savefig.facecolor": "auto",
    }
    with mpl.rc_context(settings):
        yield


def _thinned(
    values: Sequence[float], far_enough: Callable[[float, float], bool]
) -> Iterator[float]:
    """Yield the values that are far enough from the previous one for both to have a label."""
    last: float | None = None
    for value in values:
        if last is None or far_enough(last, value):
            last = value
            yield value


def _legend_name(name: str) -> str:
    """Return a name with missing glyphs replaced, shortened to fit a legend."""
    font = font_manager.get_font(font_manager.findfont(_FONT))
    text = " ".join(name.split())
    text = "".join(one if font.get_char_index(ord(one)) else "?" for one in text)
    return text if len(text) <= _MAX_NAME_LENGTH else text[: _MAX_NAME_LENGTH - 1] + "…"
