"""The report about multi-gets: ``multigets.html``, its figures, and their numbers as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from memlite.loadtest import files
from memlite.loadtest.cells import Cell, count, microseconds, with_interval
from memlite.loadtest.multigets.analysis import (
    PERCENTILES,
    Comparison,
    Side,
    buckets,
    sentence,
)
from memlite.loadtest.multigets.cluster import SAMPLE
from memlite.loadtest.multigets.plots import plots_of
from memlite.loadtest.multigets.runs import Settings
from memlite.loadtest.report.page import draw, render
from memlite.loadtest.report.tables import Column, Table
from memlite.loadtest.results import Interval, Latency
from memlite.loadtest.units import duration, grouped, size

__all__ = ["tables_of", "write_multigets"]


def write_multigets(
    settings: Settings, warnings: Sequence[str], found: Sequence[Comparison], folder: Path
) -> Path:
    """Write the page, the figures as PNG, ``multigets.csv`` and ``histograms.csv``.

    Args:
        settings: the settings of the measurements.
        warnings: reasons to doubt the measurement, in sentences.
        found: the comparisons.
        folder: the destination directory.

    Returns:
        The path of the page.

    Raises:
        ConfigError: a file cannot be written.
    """
    plots = plots_of(found)
    drawings, _ = draw(plots, folder)
    files.write(folder / "multigets.csv", _percentile_rows(found).encode())
    files.write(folder / "histograms.csv", _bucket_rows(found).encode())
    page = render(
        "multigets.html.j2",
        title="Multi-gets, sharded and from one node",
        subtitle=f"{settings.nodes} nodes behind a proxy, {settings.clients} clients, values of "
        f"{size(settings.value_size)}",
        answer=sentence(found),
        doubts=warnings,
        plots=plots,
        drawings=drawings,
        tables=tables_of(found),
        how=f"{settings.nodes} processes generated the load, each with {grouped(settings.keys)} "
        f"keys of its own, in a closed loop; each measurement took "
        f"{duration(settings.duration * 1e6)} after a warm-up, {settings.repetitions} times. The "
        f"proxy traced one request in {SAMPLE}.",
    )
    path = folder / "multigets.html"
    files.write(path, page.encode())
    return path


def _sides(found: Sequence[Comparison]) -> Iterator[tuple[Comparison, str, Side]]:
    for one in found:
        yield one, "sharded", one.sharded
        yield one, "one node", one.together


def tables_of(found: Sequence[Comparison]) -> list[Table]:
    """Return the comparison, and the percentiles, as tables."""
    numbers = ("Sharded, mean", "One node, mean", "Ratio", "Ratio of p99")
    rates = ("Sharded, gets per second", "One node, gets per second")
    return [
        Table(
            "multigets",
            "Gets of several keys: sharded and from one node",
            [Column("Keys"), *map(Column, (*numbers, *rates)), Column("Sharding", text=True)],
            [
                [
                    count(one.size),
                    _time(one.sharded.mean),
                    _time(one.together.mean),
                    _ratio(one.ratio),
                    _ratio(one.tail),
                    _rate(one.sharded.requests),
                    _rate(one.together.requests),
                    one.decision,
                ]
                for one in found
            ],
            "Ratio: the mean response time of sharded gets, divided by that of gets from one node, "
            "with its 95% confidence interval.",
        ),
        Table(
            "multigets-percentiles",
            "Percentiles of response times",
            [
                Column("Keys"),
                Column("Way", text=True),
                Column("Where", text=True),
                *(Column(f"p{one}") for one in PERCENTILES),
            ],
            [
                [count(one.size), way, where, *map(microseconds, values)]
                for one, way, side in _sides(found)
                for where, values in (("clients", side.client), ("proxy", side.proxy))
                if values
            ],
        ),
    ]


def _time(value: Interval) -> Cell:
    return with_interval(duration(value.mean), value, "µs")


def _rate(value: Interval) -> Cell:
    return with_interval(grouped(value.mean), value)


def _ratio(value: Interval) -> Cell:
    text = f"{value.mean:.2f}"
    if value.low is not None and value.high is not None:
        text += f" ({value.low:.2f} to {value.high:.2f})"
    return with_interval(text, value)


def _percentile_rows(found: Sequence[Comparison]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f"p{one}_us" for one in PERCENTILES]
    writer.writerow(["keys", "way", "where", "count", "mean_us", *names, "requests_per_second"])
    for one, way, side in _sides(found):
        for where, times, values in (
            ("client", side.at_client, side.client),
            ("proxy", side.at_proxy, side.proxy),
        ):
            if values:
                rate = side.requests.mean
                writer.writerow([one.size, way, where, times.count, times.mean, *values, rate])
    return text.getvalue()


def _bucket_rows(found: Sequence[Comparison]) -> str:
    places: list[tuple[int, str, str, Latency]] = [
        (one.size, way, where, times)
        for one, way, side in _sides(found)
        for where, times in (("client", side.at_client), ("proxy", side.at_proxy))
    ]
    bounds, counts = buckets([times for *_, times in places])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["keys", "way", "where", "from_us", "to_us", "requests"])
    for (keys, way, where, _), own in zip(places, counts, strict=True):
        for low, high, number in zip(bounds[:-1], bounds[1:], own, strict=True):
            writer.writerow([keys, way, where, f"{low:.6g}", f"{high:.6g}", round(number)])
    return text.getvalue()
