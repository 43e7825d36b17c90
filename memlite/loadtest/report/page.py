"""What all pages have in common: their style, and figures that follow the colour scheme."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from memlite.core.version import __version__
from memlite.loadtest import files
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.style import DARK, LIGHT, Theme, css_variables, png, svg

__all__ = ["draw", "render"]


def draw(plots: Sequence[Plot], folder: Path) -> tuple[dict[str, Markup], list[Path]]:
    """Draw plots, and write each as ``NAME.png`` and ``NAME-dark.png``.

    Args:
        plots: the plots; their names are different.
        folder: the destination directory; created if missing.

    Returns:
        The drawing of each plot by its name, for a page, and the paths of the files.

    Raises:
        ConfigError: a file cannot be written.
    """
    drawings: dict[str, Markup] = {}
    written: list[Path] = []
    for plot in plots:
        light = plot.draw(LIGHT)
        # Text is drawn as shapes, so the SVG contains no user-supplied text.
        drawings[plot.name] = Markup(svg(light, plot.name))  # noqa: S704
        for name, figure in (
            (f"{plot.name}.png", light),
            (f"{plot.name}-dark.png", plot.draw(DARK)),
        ):
            written.append(folder / name)
            files.write(written[-1], png(figure))
    return drawings, written


def render(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: the file's name, in this package.
        **values: what the template uses, besides its style and the version.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_source),
    )
    environment.filters["typeset"] = _typeset
    return environment.get_template(template).render(
        version=__version__,
        light=Markup(_css_colours(LIGHT)),  # noqa: S704 - our own colours
        dark=Markup(_css_colours(DARK)),  # noqa: S704 - likewise
        **values,
    )


def _source(name: str) -> str:
    return resources.files("memlite.loadtest.report").joinpath(name).read_text(encoding="utf-8")


def _css_colours(theme: Theme) -> str:
    return " ".join(f"{variable}: {colour};" for colour, variable in css_variables(theme).items())


def _typeset(text: str) -> str:
    """Return the text with typographic apostrophes, and numbers on the same line as their units."""
    text = re.sub(r"(?<=\w)'(?=\w)", "\N{RIGHT SINGLE QUOTATION MARK}", text)
    return re.sub(r"(?<=\d) (?=(?:[mµ]?s|min|[kMG]?B|GiB|[A-Z]{3})\b)", "\N{NO-BREAK SPACE}", text)
