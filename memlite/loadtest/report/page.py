"""The common parts of all pages: their style, and figures that follow the colour scheme."""

import base64
import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from memlite.core.version import __version__
from memlite.loadtest import files, units
from memlite.loadtest.report.interruption import interruptible
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.style import (
    DARK,
    LIGHT,
    Theme,
    css_variables,
    place_as,
    png,
    settings,
    svg,
)
from memlite.loadtest.report.tables import as_table
from memlite.loadtest.results import Results

__all__ = ["PAGE_NAME", "date", "draw", "render", "run_facts"]

PAGE_NAME = "report.html"


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
    with interruptible():
        for plot in plots:
            with settings():
                light, dark = plot.draw(LIGHT), plot.draw(DARK)
            # Text is drawn as shapes, so the SVG contains no user-supplied text.
            drawings[plot.name] = Markup(svg(light, plot.name))  # noqa: S704
            place_as(dark, light)
            for name, figure in ((f"{plot.name}.png", light), (f"{plot.name}-dark.png", dark)):
                written.append(folder / name)
                files.write(written[-1], png(figure))
    return drawings, written


def render(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: the name of the file in this package.
        **values: the values that the template uses, besides its style and the version.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_source),
    )
    environment.filters["typeset"] = _typeset
    environment.globals["as_table"] = as_table
    script = _source("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        version=__version__,
        script=Markup(script),  # noqa: S704 - our own script
        script_hash=f"sha256-{digest}",
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


def date(unix_time: float) -> str:
    """Return a unix time as text."""
    return datetime.fromtimestamp(unix_time, UTC).strftime("%Y-%m-%d %H:%M UTC")


def run_facts(name: str, run: Results) -> dict[str, Any]:
    """Return the facts of a run's measurement, for its tables.

    Args:
        name: the run's.
        run: its results.
    """
    machine = {
        _label(key): units.size(value) if key.endswith("_bytes") else value
        for key, value in run.machine.items()
    }
    return {
        "name": name,
        "facts": [
            ("Command", [shlex.quote(word) for word in run.command]),
            ("Seed", run.seed),
            ("Client", run.client),
            ("Worker processes", run.workers),
            ("Started", date(run.started)),
            ("Duration", units.duration(run.seconds * 1e6)),
        ],
        "machine": machine,
        "versions": run.versions,
        "workload": dict(_flattened(run.workload)),
    }


def _flattened(members: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield the rows of a nested table; inner names are prefixed with the outer name."""
    for name, value in members.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        elif value not in ("", None):
            # Truth values are written as in a workload file.
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def _label(key: str) -> str:
    text = key.removesuffix("_bytes").replace("_", " ")
    return "CPU" if text == "cpu" else text[:1].upper() + text[1:]
