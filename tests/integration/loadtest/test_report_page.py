"""The report in a browser: complete, readable in light and dark mode, without network access."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("jinja2", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("playwright", reason="playwright is not installed")

from memlite.loadtest.report import factorial_page, write_report
from memlite.loadtest.results import MachineUse, Results
from tests.support.bench import drawing_one_image
from tests.unit.loadtest.experiments import experiment
from tests.unit.loadtest.samples import KNEE, results

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("no browser (apt install chromium)", allow_module_level=True)


def with_warnings(run: Results) -> Results:
    """Return results with one point that other programs and the generator disturbed."""
    first, *others = run.points
    busy = [replace(one, machine=MachineUse(0.43, 0.0)) for one in first.repetitions]
    return replace(run, points=(replace(first, repetitions=busy, generator_limited=True), *others))


RATES = (500, 1000, 2000, 5000, 15_000, 30_000, 45_000)
# The fixture calls this; creating the reports at import would slow down every collection.
RUNS: dict[str, Callable[[], list[Any]]] = {
    "steady": lambda: [with_warnings(results(rates=RATES, knees=(KNEE,)))],
    "sizes": lambda: [results(sizes=(100, 1000, 10_000), clients=(10, 50))],
    "concurrent": lambda: [results(kind="concurrent")],
    "compared": lambda: [results(), results(version="0.2.0", seed=2)],
    "long names": lambda: [results(title="n" * 200), results(title="w" * 30 + " " + "m" * 170)],
    "empty": lambda: [results(clients=())],
}
FIGURES = {"steady": 7, "sizes": 6, "concurrent": 4, "compared": 6, "long names": 6, "empty": 0}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Imported here: it is slow, and the workers that run the fast tests collect this file too.
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=RUNS)
def report(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("report")
    with drawing_one_image():
        return write_report(RUNS[request.param](), folder)[0], FIGURES[request.param]


@pytest.fixture(scope="module")
def experiment_report(tmp_path_factory: Any) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("experiment")
    made = experiment(["clients=2,8,32", "value-size=100,10k"], lambda a, b: 1000 * 3.0**a / 2**b)
    with drawing_one_image():
        return factorial_page.write(*made, folder)[0], 10


@pytest.mark.slow
def test_the_page_of_an_experiment(browser: Any, experiment_report: tuple[Path, int]) -> None:
    test_the_page(browser, experiment_report)


@pytest.mark.slow
def test_the_page(browser: Any, report: tuple[Path, int]) -> None:
    # A single test on one page, because drawing a report takes seconds, and opening it another.
    file, count = report
    page = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(file.as_uri())
        # Colors do not depend on the width, nor sizes on the colors.
        for scheme, width in (("light", 1280), ("light", 800), ("dark", 800), ("dark", 360)):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            check_page(page, count, scheme, width)
        check_structure(page)
        check_figures(page)
        check_printing(page)
        assert said == []
        assert asked == [file.as_uri()]
    finally:
        page.close()


def check_page(page: Any, count: int, scheme: str, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drawings = page.locator("figure svg")
    assert drawings.count() == count
    for drawing in drawings.all():
        assert drawing.is_visible()
        box = drawing.bounding_box()
        assert box["width"] >= 500
        assert box["height"] >= 100
    warnings = page.get_by_role("region", name="Warnings", exact=True)
    if warnings.count():
        box = warnings.bounding_box()
        assert box["y"] + box["height"] <= 900  # seen without scrolling
    names = page.locator(".points tbody th").all_inner_texts()
    if width == 1280 and max(map(len, names), default=0) < 30:
        # All columns are visible. With longer names, the table scrolls in its own box.
        assert page.eval_on_selector_all(
            ".wide:has(.points)", "all => all.map(one => one.scrollWidth - one.clientWidth)"
        ) == [0]
    paper = background(page)
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 25, 30)")
    for drawing in drawings.all():
        # The background of the figure, its first shape, changes with the page's.
        first = drawing.locator("path").first
        assert first.evaluate("element => getComputedStyle(element).fill") == paper


def check_printing(page: Any) -> None:
    """Check that the page is printed on a white background."""
    page.emulate_media(media="print", color_scheme="dark")
    assert background(page) == "rgb(255, 255, 255)"


def background(page: Any) -> str:
    found: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return found


# For each choice: the series, the number of its parts in the drawing, and how many of them are
# visible while it is hidden, and afterwards. Evaluated in the page, because each query from here
# redraws it.
HIDE_AND_SHOW = """figure => [...figure.querySelectorAll("input[type=checkbox]")].map(box => {
    const name = box.parentElement.textContent.slice(1);
    const drawn = [...figure.querySelectorAll("[data-series]")].filter(
        one => one.dataset.series === name);
    const visible = () => drawn.filter(one => {
        const {width, height} = one.getBoundingClientRect();
        return width > 0 && height > 0 && getComputedStyle(one).visibility === "visible";
    }).length;
    box.click();
    const hidden = visible();
    box.click();
    return [name, drawn.length, hidden, visible()];
})"""


def check_figures(page: Any) -> None:
    """Check that a marker shows its value, and that a series can be hidden."""
    page.set_viewport_size({"width": 1280, "height": 900})
    for figure in page.locator("figure:has([data-tip])").all():
        marker = figure.locator("[data-tip]").last  # none is drawn over it
        marker.hover()
        shown = page.locator(".tip")
        assert shown.inner_text() == " ".join(marker.get_attribute("data-tip").split())
        tip, box = shown.bounding_box(), marker.bounding_box()
        assert abs(tip["y"] + tip["height"] / 2 - box["y"] - box["height"] / 2) < 60
        page.mouse.move(0, 0)
        assert not shown.is_visible()
        choices = figure.get_by_role("checkbox").all()
        if choices:
            choices[0].uncheck()
            choices[0].check()
        for name, drawn, hidden, shown_again in figure.evaluate(HIDE_AND_SHOW):
            assert drawn, name
            assert hidden == 0, name
            assert shown_again, name


def check_structure(page: Any) -> None:
    """Check the headings, identifiers and labels."""
    assert page.locator("h1").count() == 1
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(one => +one.tagName[1])")
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("figure [role=img]:not([aria-label])").count() == 0
    names = page.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
    assert len(set(names)) == len(names)
    targets = page.eval_on_selector_all("nav a", "all => all.map(one => one.hash.slice(1))")
    assert set(targets) <= set(names)
