"""What figures look like: colours for light and dark, markers, axes, legends, names."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
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
    "Look",
    "Series",
    "finish",
    "load_axis",
    "png",
    "series",
    "sheet",
    "svg",
    "value_axis",
    "variables",
]

_WIDTH = 8.0  # inches: 1,200 pixels at 150 a inch
_DPI = 150
_FONT = "DejaVu Sans"  # comes with matplotlib: figures are the same everywhere
_LONGEST_NAME = 40
_WIDE = 20
"""Where the largest is so many times the smallest, a linear axis would hide the small."""

# Seven colours, eight markers and five dashes: no two of the first 280 targets look the same.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))


@dataclass(frozen=True, slots=True)
class Look:
    """Colours.

    Attributes:
        paper: behind everything.
        text: of titles, labels and axes.
        faint: of ticks' labels and what is said in passing.
        grid: of lines that help to read a value.
        colours: of targets: Okabe's and Ito's, which colour-blind people can tell apart, in the
            order in which they stand out from the paper.
    """

    paper: str
    text: str
    faint: str
    grid: str
    colours: tuple[str, ...]


LIGHT = Look(
    paper="#ffffff",
    text="#1b1f24",
    faint="#57606b",
    grid="#dde1e6",
    colours=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9"),
)
DARK = Look(
    paper="#15191e",
    text="#eceff3",
    faint="#a7b0ba",
    grid="#343b44",
    colours=("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#fefefe", "#d55e00", "#f0e442"),
)


@dataclass(frozen=True, slots=True)
class Series:
    """How a target is drawn, the same in all figures.

    Attributes:
        name: the target's, as the font can show it.
        colour: of lines, markers and bands.
        marker: as matplotlib spells it.
        dash: likewise.
    """

    name: str
    colour: str
    marker: str
    dash: Any


def series(names: Iterable[str], look: Look) -> dict[str, Series]:
    """Return how each target is drawn."""
    return {
        name: Series(
            _drawable(name),
            look.colours[index % len(look.colours)],
            _MARKERS[index % len(_MARKERS)],
            _DASHES[index % len(_DASHES)],
        )
        for index, name in enumerate(names)
    }


def sheet(
    look: Look, title: str, height: float = 4.4, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure and its axes, row by row.

    Args:
        look: its colours.
        title: over all axes.
        height: in inches; figures are 8 wide.
        rows: of axes.
        columns: of axes.
        **options: as for matplotlib's ``subplots``.
    """
    figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor=look.paper)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # type: ignore[union-attr,call-arg]
    figure.suptitle(
        title, x=0.015, ha="left", color=look.text, fontsize=12.5, fontweight="bold", family=_FONT
    )
    found = figure.subplots(rows, columns, squeeze=False, **options)
    all_axes: list[Axes] = list(found.flat)
    for axes in all_axes:
        axes.set_facecolor(look.paper)
        axes.grid(visible=True, color=look.grid, linewidth=0.8)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(look.faint)
        axes.tick_params(which="both", color=look.faint, labelcolor=look.faint, labelsize=9.5)
        axes.tick_params(which="minor", length=0)
    return figure, all_axes


def finish(
    figure: Figure, look: Look, drawn: Sequence[Series], extra: Sequence[tuple[Line2D, str]] = ()
) -> Figure:
    """Set labels' looks and add the legend, below the axes, with what was drawn.

    Args:
        figure: with everything drawn.
        look: its colours.
        drawn: the targets.
        extra: more entries: how a line looks, and what it means.
    """
    for axes in figure.axes:
        for text in (axes.xaxis.label, axes.yaxis.label):
            text.set(color=look.text, fontsize=10.5, family=_FONT)
        axes.title.set(color=look.text, fontsize=10.5, family=_FONT)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set_fontfamily(_FONT)
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
        labelcolor=look.text,
        prop={"family": _FONT, "size": 10},
        handlelength=3.4,
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        # Not as the legend's labels: there a name may not begin with "_", and "$" means formulas.
        text.set_parse_math(False)
        text.set_text(name)
    return figure


def load_axis(axes: Axes, values: Iterable[float], label: str) -> None:
    """Set the horizontal axis up for loads, each of which was measured.

    Args:
        axes: whose.
        values: that occur.
        label: with the unit.
    """
    wanted = sorted(set(values))
    axes.set_xlabel(label)
    positive = [value for value in wanted if value > 0]
    logarithmic = bool(positive) and positive[-1] > _WIDE * positive[0]
    if logarithmic:
        axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    room = 12 / axes.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    if logarithmic:
        factor = (positive[-1] / positive[0]) ** (1 / room)
        ticks = list(_apart(positive, lambda one, other: other >= one * factor))
    else:
        gap = (wanted[-1] - wanted[0]) / room if wanted else 0
        ticks = list(_apart(wanted, lambda one, other: other >= one + gap))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    if not logarithmic and wanted:
        axes.set_xlim(left=0 if wanted[0] < wanted[-1] else None)


def value_axis(
    axes: Axes, values: Iterable[float], label: str, unit: Callable[[float], str]
) -> None:
    """Set the vertical axis up: from 0 on, or logarithmic where values differ much.

    Args:
        axes: whose.
        values: that occur.
        label: without the unit, which each tick has.
        unit: makes a tick's text.
    """
    positive = sorted(value for value in values if value > 0)
    logarithmic = bool(positive) and positive[-1] > _WIDE * positive[0]
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


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file, 1,200 pixels wide."""
    stream = BytesIO()
    with _settings():
        FigureCanvasAgg(figure).print_figure(stream, format="png", dpi=_DPI)
    return stream.getvalue()


def svg(figure: Figure, prefix: str) -> str:
    """Return a figure in the colours of `LIGHT` as SVG for a page, which sets the colours.

    Colours are the CSS variables ``--paper``, ``--text``, ``--faint``, ``--grid`` and ``--c0``,
    ``--c1``, …, so that one picture serves light and dark.

    Args:
        figure: drawn in `LIGHT`.
        prefix: for identifiers, which have to be unique on the page.
    """
    stream = BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _settings():
        FigureCanvasSVG(figure).print_figure(stream, format="svg", metadata=nothing)
    text = stream.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    # Of names, which are drawn as shapes, comments are all that is left as text.
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    # The page gives it its size and its name.
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = text.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
    for colour, variable in variables(LIGHT).items():
        text = text.replace(colour, f"var({variable})")
    return text


def variables(look: Look) -> dict[str, str]:
    """Return the CSS variable of each colour."""
    named = {
        look.paper: "--paper",
        look.text: "--text",
        look.faint: "--faint",
        look.grid: "--grid",
    }
    return named | {colour: f"--c{index}" for index, colour in enumerate(look.colours)}


@contextmanager
def _settings() -> Iterator[None]:
    """Settings matplotlib has no other place for, whatever its user set."""
    wanted: Any = {
        "text.usetex": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "memlite",
        "savefig.bbox": None,
        "savefig.facecolor": "auto",
    }
    with mpl.rc_context(wanted):
        yield


def _tick(value: float) -> str:
    return short(value)


def _apart(values: Sequence[float], apart: Callable[[float, float], bool]) -> Iterator[float]:
    """Return the values that are far enough from the one before for both to have a label."""
    last: float | None = None
    for value in values:
        if last is None or apart(last, value):
            last = value
            yield value


def _drawable(name: str) -> str:
    """Return a name with what the font lacks replaced, and shortened to what a legend takes."""
    font = font_manager.get_font(font_manager.findfont(_FONT))
    text = " ".join(name.split())
    text = "".join(one if font.get_char_index(ord(one)) else "?" for one in text)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
