"""Write docs/reference/results.md from the results' classes; ``--check`` only compares it.

Run it after changing one: ``.venv/bin/python scripts/docs/write_results_reference.py``.
"""

import dataclasses
import re
import sys
import typing
from pathlib import Path

from memlite.loadtest import results

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "results.md"

HEAD = """\
# Results

<!-- Written by scripts/docs/write_results_reference.py from memlite/loadtest/results.py. -->

`memlite bench` saves two files: `results.json`, from which `memlite bench report` can recreate the
report, and `results.csv`, with one row per repetition. Within a version of the format, fields are
only added; readers should ignore unknown fields. Latencies are in microseconds, other times in
seconds, and sizes in bytes.

Until a run is complete, its directory contains `repetitions/`, with one file for each finished
repetition: a `Repetition` as described below. The same command with this directory as `--out`
measures the missing repetitions. The command refuses to continue if the machine or the version of
memlite, Python, a package or a server has changed. With `--mix-systems` it continues, and `mixed`
says what differs.

Histograms are encoded by [HdrHistogram](http://hdrhistogram.org). Decode them with
`HdrHistogram.decode(text)` from the package `hdrhistogram`.
"""

CLASSES = (
    results.Results,
    results.TargetInfo,
    results.ClusterInfo,
    results.Placed,
    results.Point,
    results.Repetition,
    results.Latency,
    results.Slice,
    results.Intervals,
    results.Checks,
    results.RepetitionCheck,
    results.LawCheck,
    results.LittleCheck,
    results.SeriesCheck,
    results.StallFound,
    results.ServerUse,
    results.MachineUse,
    results.ProxyTimes,
    results.Interval,
    results.Knee,
    results.SaturationFound,
    results.UslFit,
    results.Estimate,
)


def page() -> str:
    """Return the page's text."""
    return HEAD + "".join(section(one) for one in CLASSES)


def section(one: type) -> str:
    """Return the section on a class."""
    summary, _, rest = (one.__doc__ or "").partition("\n")
    hints = typing.get_type_hints(one)
    described = descriptions(rest)
    rows = [
        f"| `{field.name}` | {kind(hints[field.name])} | {described[field.name]} |\n"
        for field in dataclasses.fields(one)  # type: ignore[arg-type]
    ]
    title = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", one.__name__).capitalize()
    return (
        f"\n## {title}\n\n{plain(summary)}\n\n| field | type | |\n| --- | --- | --- |\n"
        + "".join(rows)
    )


def descriptions(text: str) -> dict[str, str]:
    """Return the attributes' descriptions of a docstring."""
    found: dict[str, str] = {}
    name = ""
    for line in text.partition("Attributes:")[2].splitlines():
        start = re.fullmatch(r" {8}(\w+): (.*)", line)
        if start:
            name = start[1]
            found[name] = start[2].strip()
        elif name and line.strip():
            found[name] += " " + line.strip()
    return {name: plain(text) for name, text in found.items()}


def plain(text: str) -> str:
    """Return a docstring's text as Markdown."""
    text = re.sub(r"`(FORMAT|VERSION)`", lambda found: f"`{getattr(results, found[1])!r}`", text)
    return text.replace("``", "`").replace("|", "\\|")


def kind(hint: object) -> str:
    """Return the type of a field, in JSON's terms."""
    names = {str: "text", int: "integer", float: "number", bool: "boolean"}
    if isinstance(hint, type) and hint in names:
        return names[hint]
    if dataclasses.is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        anchor = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
        return f"[{re.sub('-', ' ', anchor)}](#{anchor})"
    arguments = [one for one in typing.get_args(hint) if one is not type(None)]
    if type(None) in typing.get_args(hint):
        return f"{kind(arguments[0])} or null"
    if not arguments or hint is typing.Any:
        return "anything"
    if len(arguments) == 2:
        inner = kind(arguments[1])
        return "object" if inner == "anything" else f"object of {inner}"
    return f"list of {kind(arguments[0])}"


def main() -> int:
    """Write the page, or compare it."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
