"""Figures: there where there are data, in every colour, whatever names are."""

import dataclasses
import re
import struct

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite[bench]")
pytest.importorskip("jinja2", reason="the load tester needs memlite[bench]")

from memlite.errors import ConfigError
from memlite.loadtest import prices
from memlite.loadtest.report import write_report
from memlite.loadtest.report.compare import cautions, combine, names
from memlite.loadtest.report.figures import Drawing, figures
from memlite.loadtest.report.look import DARK, LIGHT, png, series, svg, variables
from tests.unit.loadtest_samples import KNEE, results

STEADY = ["throughput", "response-time", "percentiles", "timeline", "cost"]
NASTY = [
    "<script>alert(1)</script>",
    "_hidden",
    "$x_$ $\\frac{$",
    "猫 \U0001f600",
    "a\nb",
    "n" * 300,
]


def pictures(made):
    table = prices.load()
    return {one.name: one for one in figures(Drawing(made, prices.costs(made, table), table))}


def renamed(made, name):
    """The results with another name for the target ``memory``."""

    def other(values, field):
        return tuple(
            dataclasses.replace(value, **{field: name})
            if getattr(value, field) == "memory"
            else value
            for value in values
        )

    return dataclasses.replace(
        made,
        targets=other(made.targets, "name"),
        points=other(made.points, "target"),
        knees=other(made.knees, "target"),
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, STEADY),
        ({"rates": (500, 5000)}, [*STEADY[:-1], "open-loop", "cost"]),
        ({"clients": (), "rates": (500, 5000)}, ["percentiles", "timeline", "open-loop", "cost"]),
        ({"sizes": (100, 1000), "clients": (10,)}, [*STEADY[:3], "value-size", "timeline", "cost"]),
        ({"kind": "concurrent"}, ["execution-time", "single-set", "percentiles", "cost"]),
        ({"clients": ()}, []),
    ],
)
def test_figures_are_there_where_the_data_are(arguments, names):
    found = pictures(results(**arguments))
    assert list(found) == names
    for picture in found.values():
        assert picture.title
        assert picture.reading.endswith(".")


@pytest.mark.parametrize(
    "arguments",
    [
        {"rates": (500, 50_000), "knees": (KNEE,)},
        {"kind": "concurrent", "repetitions": 1},
        {"sizes": (100, 1000), "clients": (1, 1000)},
        {"clients": (10,), "kinds": ("memory",), "repetitions": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_every_figure_is_1200_pixels_wide(arguments, look):
    for picture in pictures(results(**arguments)).values():
        content = png(picture.draw(look))
        assert content.startswith(b"\x89PNG")
        assert struct.unpack(">I", content[16:20]) == (1200,)


def test_a_drawing_has_its_colours_from_the_page():
    for name, picture in pictures(results(rates=(500,), knees=(KNEE,))).items():
        text = svg(picture.draw(LIGHT), name)
        assert re.findall(r"#[0-9a-f]{6}\b", text) == []
        used = set(re.findall(r"var\((--[a-z0-9]+)\)", text))
        assert {"--paper", "--text", "--c0"} <= used <= set(variables(LIGHT).values())


def test_identifiers_are_the_figures_own():
    picture = pictures(results())["throughput"]
    text = svg(picture.draw(LIGHT), "mine")
    identifiers = re.findall(r'\sid="([^"]*)"', text)
    assert len(set(identifiers)) == len(identifiers)
    assert all(one.startswith("mine-") for one in identifiers)
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= set(identifiers)
    assert "<!--" not in text
    assert "<metadata" not in text


def test_a_figure_is_drawn_the_same_again():
    picture = pictures(results())["throughput"]
    assert svg(picture.draw(LIGHT), "a") == svg(picture.draw(LIGHT), "a")


def test_colours_are_told_apart():
    for look in (LIGHT, DARK):
        assert len(variables(look)) == 4 + 7
        styles = series(map(str, range(280)), look).values()
        assert len({(one.colour, one.marker, str(one.dash)) for one in styles}) == 280


@pytest.mark.parametrize("name", NASTY)
def test_names_are_drawn_as_they_are(name):
    made = renamed(results(clients=(10, 20), rates=(500,), knees=(KNEE,)), name)
    for key, picture in pictures(made).items():
        assert "script" not in svg(picture.draw(LIGHT), key)


def test_a_legend_entry_for_each_target():
    made = renamed(results(clients=(10, 20)), "_hidden")
    figure = pictures(made)["throughput"].draw(LIGHT)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["_hidden", "file", "gcs"]


def test_where_the_generator_was_the_limit_points_are_hollow():
    made = results(clients=(10, 20))
    points = tuple(dataclasses.replace(point, generator_limited=True) for point in made.points)
    figure = pictures(dataclasses.replace(made, points=points))["throughput"].draw(LIGHT)
    (legend,) = figure.legends
    assert legend.get_texts()[-1].get_text() == "hollow: the generator was the limit"


def test_many_targets_have_a_legend_inside_the_figure():
    made = results(clients=(10, 20))
    points = tuple(
        dataclasses.replace(point, target=f"{point.target} number {number}")
        for number in range(4)
        for point in made.points
    )
    figure = pictures(dataclasses.replace(made, targets=(), points=points))["throughput"].draw(
        LIGHT
    )
    png(figure)
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1


# Several runs


def test_runs_are_called_by_what_tells_them_apart():
    one, other = results(title="before"), results(title="after")
    assert names([one, other]) == ["before", "after"]
    one, other = results(), results(version="0.2.0")
    assert names([one, other]) == ["0.1.0", "0.2.0"]
    assert names([one, one]) == ["run 1", "run 2"]


def test_runs_are_put_together():
    one, other = results(version="0.1.0", knees=(KNEE,)), results(version="0.2.0")
    both = combine([one, other])
    assert len(both.points) == len(one.points) + len(other.points)
    assert {point.target for point in both.points} == {target.name for target in both.targets}
    assert both.targets[0].name == "memory (0.1.0)"
    assert both.knees[0].target == "memory (0.1.0)"
    assert combine([one]) is one
    assert cautions([one, other]) == []


def test_runs_of_different_workloads_have_a_caution():
    one = results()
    other = dataclasses.replace(one, workload={"kind": "steady"}, machine={})
    assert cautions([one, other]) == [
        (
            "The runs had different workloads and machines: differences between them may come from "
            "that."
        )
    ]


def test_what_cannot_be_put_together():
    with pytest.raises(ConfigError, match="no results"):
        combine([])
    with pytest.raises(ConfigError, match="cannot be compared"):
        combine([results(), results(kind="concurrent")])


# The page


def test_the_page_and_its_pictures_are_written(tmp_path):
    folder = tmp_path / "report"
    files = write_report([results(clients=(10, 20))], folder)
    assert files[0] == folder / "report.html"
    assert [path.name for path in files[1:]] == [
        name for picture in STEADY for name in (f"{picture}.png", f"{picture}-dark.png")
    ]
    assert sorted(folder.iterdir()) == sorted(files)


def test_everything_is_escaped(tmp_path):
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
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_a_run_of_nothing_has_a_page(tmp_path):
    (page,) = write_report([results(clients=())], tmp_path)
    assert "Nothing was measured." in page.read_text()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_report([results(clients=(10,))], tmp_path / "file" / "folder")
