"""The report: plots for the available data, in both themes, with arbitrary target names."""

import base64
import dataclasses
import hashlib
import html
import re
import struct

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("jinja2", reason="the load tester needs memlite-cache[bench]")

from memlite.core.errors import ConfigError
from memlite.loadtest import prices
from memlite.loadtest.report import write_report
from memlite.loadtest.report.all_plots import all_plots
from memlite.loadtest.report.compare import combine, comparison_warnings, names
from memlite.loadtest.report.plots import PlotData
from memlite.loadtest.report.style import DARK, LIGHT, css_variables, png, svg, target_styles
from tests.support.copied import copied_tables, without_numbers
from tests.unit.loadtest.samples import KNEE, results

STEADY = ["throughput", "response-time", "percentiles", "cost"]
NASTY = [
    "<script>alert(1)</script>",
    "_hidden",
    "$x_$ $\\frac{$",
    "猫 \U0001f600",
    "a\nb",
    "n" * 300,
]


def plots_by_name(made):
    table = prices.load()
    data = PlotData(made, prices.costs(made, table), table)
    return {plot.name: plot for plot in all_plots(data)}


def renamed(made, name, *, old="memory"):
    """Return the results with the target `old` renamed."""

    def replaced(values, field):
        return tuple(
            dataclasses.replace(value, **{field: name}) if getattr(value, field) == old else value
            for value in values
        )

    return dataclasses.replace(
        made,
        targets=replaced(made.targets, "name"),
        points=replaced(made.points, "target"),
        knees=replaced(made.knees, "target"),
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, [*STEADY, "saturation", "timeline"]),
        ({"clients": (10, 20, 40)}, [*STEADY, "timeline"]),
        ({"rates": (500, 5000)}, [*STEADY[:-1], "open-loop", "cost", "saturation", "timeline"]),
        ({"clients": (), "rates": (500, 5000)}, ["percentiles", "open-loop", "cost", "timeline"]),
        ({"sizes": (100, 1000), "clients": (10,)}, [*STEADY[:3], "value-size", "cost", "timeline"]),
        ({"kind": "concurrent"}, ["execution-time", "single-set", "percentiles", "cost"]),
        ({"clients": ()}, []),
    ],
)
def test_each_kind_of_data_has_its_plots(arguments, names):
    found = plots_by_name(results(**arguments))
    assert list(found) == names
    for plot in found.values():
        assert plot.title
        assert plot.caption.endswith(".")


# Each kind of plot in the light theme, and all plots of one kind of results in the dark theme.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "arguments"),
    [
        (LIGHT, {"rates": (500, 50_000), "knees": (KNEE,)}),
        (LIGHT, {"kind": "concurrent", "repetitions": 1}),
        (LIGHT, {"sizes": (100, 1000), "clients": (1, 1000)}),
        (DARK, {"clients": (10,), "kinds": ("memory",), "repetitions": 1}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_every_image_is_1200_pixels_wide(theme, arguments):
    for plot in plots_by_name(results(**arguments)).values():
        content = png(plot.draw(theme))
        assert content.startswith(b"\x89PNG")
        assert struct.unpack(">I", content[16:20]) == (1200,)


@pytest.mark.slow
def test_svg_takes_all_its_colours_from_css_variables():
    for name, plot in plots_by_name(results(rates=(500,), knees=(KNEE,))).items():
        text = svg(plot.draw(LIGHT), name)
        assert re.findall(r"#[0-9a-f]{6}\b", text) == []
        used = set(re.findall(r"var\((--[a-z0-9]+)\)", text))
        assert {"--background", "--text", "--c0"} <= used <= set(css_variables(LIGHT).values())


def test_svg_identifiers_are_prefixed_and_unique():
    plot = plots_by_name(results())["throughput"]
    text = svg(plot.draw(LIGHT), "mine")
    identifiers = re.findall(r'\sid="([^"]*)"', text)
    assert len(set(identifiers)) == len(identifiers)
    assert all(one.startswith("mine-") for one in identifiers)
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= set(identifiers)
    assert "<!--" not in text
    assert "<metadata" not in text


def test_drawing_is_deterministic():
    plot = plots_by_name(results())["throughput"]
    assert svg(plot.draw(LIGHT), "a") == svg(plot.draw(LIGHT), "a")


def test_280_targets_have_distinct_styles():
    for theme in (LIGHT, DARK):
        assert len(css_variables(theme)) == 4 + 7
        styles = target_styles(map(str, range(280)), theme).values()
        assert len({(one.colour, one.marker, str(one.dash)) for one in styles}) == 280


@pytest.mark.slow
@pytest.mark.parametrize("three", [NASTY[:3], NASTY[3:]], ids=["first three", "others"])
def test_names_cannot_inject_markup(three):
    made = results(clients=(10, 20), rates=(500,), knees=(KNEE,))
    for old, name in zip(("memory", "file", "gcs"), three, strict=True):
        made = renamed(made, name, old=old)
    for key, plot in plots_by_name(made).items():
        assert "<script" not in svg(plot.draw(LIGHT), key)


def test_the_legend_has_an_entry_for_each_target():
    made = renamed(results(clients=(10, 20)), "_hidden")
    figure = plots_by_name(made)["throughput"].draw(LIGHT)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["_hidden", "file", "gcs"]


def test_generator_limited_points_are_explained_in_the_legend():
    made = results(clients=(10, 20))
    points = tuple(dataclasses.replace(point, generator_limited=True) for point in made.points)
    figure = plots_by_name(dataclasses.replace(made, points=points))["throughput"].draw(LIGHT)
    (legend,) = figure.legends
    assert legend.get_texts()[-1].get_text() == "hollow: limited by the generator"


def test_a_legend_of_many_targets_stays_inside_the_figure():
    made = results(clients=(10, 20))
    points = tuple(
        dataclasses.replace(point, target=f"{point.target} number {number}")
        for number in range(4)
        for point in made.points
    )
    plot = plots_by_name(dataclasses.replace(made, targets=(), points=points))["throughput"]
    figure = plot.draw(LIGHT)
    png(figure)
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1


# Several runs


def test_runs_are_named_by_title_version_or_number():
    few = {"clients": (10,)}
    one, other = results(title="before", **few), results(title="after", **few)
    assert names([one, other]) == ["before", "after"]
    one, other = results(**few), results(version="0.2.0", **few)
    assert names([one, other]) == ["0.1.0", "0.2.0"]
    assert names([one, one]) == ["run 1", "run 2"]


def test_runs_are_combined():
    one, other = results(version="0.1.0", knees=(KNEE,)), results(version="0.2.0")
    both = combine([one, other])
    assert len(both.points) == len(one.points) + len(other.points)
    assert {point.target for point in both.points} == {target.name for target in both.targets}
    assert both.targets[0].name == "memory (0.1.0)"
    assert both.knees[0].target == "memory (0.1.0)"
    assert combine([one]) is one
    assert comparison_warnings([one, other]) == []


def test_differing_conditions_cause_a_warning():
    one = results()
    other = dataclasses.replace(one, workload={"kind": "steady"}, machine={})
    assert comparison_warnings([one, other]) == [
        (
            "The runs had different workloads and machines, which may explain differences between "
            "them."
        )
    ]


def test_incomparable_runs_are_refused():
    with pytest.raises(ConfigError, match="no results"):
        combine([])
    with pytest.raises(ConfigError, match="cannot be compared"):
        combine([results(), results(kind="concurrent")])


# The page


def test_the_page_and_its_images_are_written(tmp_path):
    folder = tmp_path / "report"
    files = write_report([results(clients=(10, 20))], folder)
    assert files[0] == folder / "report.html"
    assert [path.name for path in files[1:]] == [
        name for plot in [*STEADY, "timeline"] for name in (f"{plot}.png", f"{plot}-dark.png")
    ]
    assert sorted(folder.iterdir()) == sorted(files)
    tables = copied_tables(files[0].read_text())
    assert {"checks-of-each-measurement", "where-targets-saturate", "targets"} < set(tables)
    assert tables.pop("targets")
    assert [without_numbers(rows) for rows in tables.values()] == [[]] * len(tables)
    first, second = tables["checks-of-each-measurement"][:2]
    assert (first["N"], second["N"]) == ("10", "20")
    assert float(first["Server, CPU (%)"]) > 0
    assert first["X"] == ""  # it follows from times that the sample lacks


@pytest.mark.usefixtures("without_figures")
def test_all_text_on_the_page_is_escaped(tmp_path):
    evil = "<script>alert('1')</script>\"><img src=x onerror=alert(1)>"
    made = renamed(results(clients=(10,), rates=(500,), repetitions=1), evil)
    point = made.points[0]
    repetition = dataclasses.replace(point.repetitions[0], errors={evil: 3})
    made = dataclasses.replace(
        made,
        title=evil,
        command=("memlite", evil),
        machine={evil: evil},
        versions={"memlite": evil},
        workload={"name": evil, evil: {evil: evil}},
        targets=tuple(
            dataclasses.replace(target, address=evil, server=evil, details={evil: evil})
            for target in made.targets
        ),
        points=(dataclasses.replace(point, repetitions=(repetition,)), *made.points[1:]),
    )
    page = write_report([made, dataclasses.replace(made, title="other")], tmp_path)[0].read_text()
    assert page.count("<script") == 1  # the page's own, the only one that its policy allows
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(page)
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_results_without_measurements_still_have_a_page(tmp_path):
    (page,) = write_report([results(clients=())], tmp_path)
    assert "Nothing was measured." in page.read_text()


def test_a_folder_that_is_not_writable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_report([results(clients=(10,))], tmp_path / "file" / "folder")
