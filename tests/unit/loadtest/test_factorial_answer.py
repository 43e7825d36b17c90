"""Answers of experiments with known effects: sentences, tables and files."""

import csv
import dataclasses
import io
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.lab import compare_models
from memlite.loadtest.factorial import sentences
from memlite.loadtest.factorial.analysis import RESPONSES, Analysis
from memlite.loadtest.factorial.design import design_of
from memlite.loadtest.factorial.output import save_analysis
from memlite.loadtest.factorial.sentences import answer, doubts, why_this_model
from memlite.loadtest.factorial.tables import print_table
from memlite.loadtest.report import factorial_page
from memlite.loadtest.report.factorial_plots import interactions, main_effects, variation
from memlite.loadtest.report.factorial_residuals import residuals
from memlite.loadtest.report.style import DARK, LIGHT
from memlite.loadtest.results import Checks, LawCheck, RepetitionCheck
from tests.support.copied import copied_tables, without_numbers
from tests.unit.loadtest.experiments import Experiment, experiment

FACTORS = ["clients=2,8,32", "value-size=100,10k"]


@pytest.fixture(scope="module")
def multiplying() -> Experiment:
    return experiment(FACTORS, lambda clients, size: 1000 * 3.0**clients * 0.5**size)


@pytest.fixture(scope="module")
def adding() -> Experiment:
    return experiment(
        FACTORS, lambda clients, size: 1000 + 5000 * clients - 600 * size, multiplies=False
    )


def numbers(text: str) -> list[float]:
    """Return the numbers of a sentence that have a decimal point or three digits."""
    words = text.replace(",", "").replace("(", " ").replace(")", " ").replace(";", " ").split()
    return [float(one.strip(".%")) for one in words if one.strip(".%").replace(".", "").isdigit()]


def test_factors_that_multiply(multiplying: Experiment) -> None:
    design, _, analyses = multiplying
    first, second, *others = answer(design, analyses[0])
    assert first.startswith("Changing clients from 2 to 8 multiplies throughput by ")
    _, _, by_8, low, high, _, by_32, *_ = numbers(first)
    assert by_8 == pytest.approx(3, rel=0.05)
    assert low < 3 < high
    assert by_32 == pytest.approx(9, rel=0.05)
    assert second.startswith("Changing value-size from 100 to 10k multiplies throughput by 0.")
    (last,) = others
    assert last.startswith(
        "Differences between repetitions explain 0.0%: their standard deviation is "
    )
    # It was 1%; the interval is that of 12 degrees of freedom.
    assert 0.5 < numbers(last)[-1] < 1.7
    assert why_this_model(analyses[0]).startswith(
        "Factors are assumed to multiply, which fits clearly better."
    )


def test_factors_that_add(adding: Experiment) -> None:
    design, _, analyses = adding
    first, second, *_ = answer(design, analyses[0])
    assert first.startswith("Changing clients from 2 to 8 raises throughput by ")
    assert "operations per second (" in first
    assert second.startswith("Changing value-size from 100 to 10k lowers throughput by ")
    lowered = numbers(second)[1]
    assert lowered == pytest.approx(600, rel=0.05)
    assert why_this_model(analyses[0]).startswith("Factors are assumed to add")


def test_bounds_have_the_responses_unit_and_sign() -> None:
    """Factors change response times by 5 ms, by -600 µs, and hardly at all."""
    design = design_of(["clients=2,8", "value-size=100,10k", "keys=10,20"], [], 3, 1)
    source = random.Random(3)

    def time(levels: Sequence[int]) -> float:
        return 2000.0 + 5000 * levels[0] - 600 * levels[1] + source.gauss(0, 10)

    responses = {levels: [time(levels) for _ in range(3)] for levels in design.combinations}
    models = compare_models(design.names, responses)
    response = next(one for one in RESPONSES if one.name == "response_time")
    first, second, third, *_ = answer(
        design, Analysis(response, dataclasses.replace(models, advantage=-10.0))
    )
    found = re.fullmatch(
        r"Changing clients from 2 to 8 raises the mean response time by ([\d.]+) ms "
        r"\(([\d.]+) to ([\d.]+) ms\); it explains .*",
        first,
    )
    assert found is not None, first
    value, low, high = map(float, found.groups())
    assert 4.9 < low <= value <= high < 5.1
    found = re.search(r"lowers the mean response time by (\d+) µs \((\d+) to (\d+) µs\)", second)
    assert found is not None, second
    value, low, high = map(float, found.groups())
    assert 550 < low <= value <= high < 650
    assert third.startswith("There is no statistically significant effect of keys (p = ")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ("4.97 ms", "5.01 ms", "4.97 to 5.01 ms"),
        ("990 µs", "1.01 ms", "990 µs to 1.01 ms"),
        ("-3 µs", "12 µs", "-3 to 12 µs"),
        ("4,900 operations per second", "5,100 operations per second",
         "4,900 to 5,100 operations per second"),
    ],
)  # fmt: skip
def test_a_unit_is_written_once(low: str, high: str, text: str) -> None:
    assert sentences.span(low, high) == text


def test_the_model_cannot_be_determined_from_one_factor_measured_once() -> None:
    design, _, analyses = experiment(["clients=2,8"], lambda n: 1000 * 3.0**n, repetitions=1)
    assert "cannot be determined" in why_this_model(analyses[0])
    first, *_ = answer(design, analyses[0])
    assert first.startswith("Changing clients from 2 to 8 raises throughput by ")
    _, _, twice = experiment(["clients=2,8"], lambda n: 1000 * 3.0**n, repetitions=2)
    assert "cannot be determined" not in why_this_model(twice[0])


def test_failed_checks_are_reported_as_doubts() -> None:
    design, measured, _ = experiment(["clients=2,8"], lambda n: 1000 * 3.0**n)
    before = list(doubts(design, measured))
    one, point = measured[0], measured[0].point
    law = LawCheck(2, 1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 0.02, holds=False)
    checks = Checks((RepetitionCheck(point.repetitions[0].number, law),))
    wrong = dataclasses.replace(point, checks=checks)
    measured[0] = dataclasses.replace(
        one, results=dataclasses.replace(one.results, points=(wrong,))
    )
    assert list(doubts(design, measured)) == [
        *before, "checks of 6 runs found: R is not N/X − Z in 1",
    ]  # fmt: skip


def test_factors_that_depend_on_each_other() -> None:
    design, _, analyses = experiment(
        ["servers=1,3", "proxies=1,2"], lambda servers, proxies: 1000 * 4.0 ** (servers * proxies)
    )
    said = list(answer(design, analyses[0]))
    (together,) = (one for one in said if "depends on" in one)
    assert together.startswith("The effect of servers depends on proxies: from 1 to 3, with ")
    assert "and with proxies 2 it multiplies it by 4" in together or "by 3.9" in together
    three = experiment(
        ["servers=1,3", "proxies=1,2", "clients=1,2"],
        lambda *all_of: 1000 * 4.0 ** math.prod(all_of),
    )
    sentences = list(answer(three[0], three[2][0]))
    assert any(
        one.startswith("Together, servers, proxies and clients explain") for one in sentences
    )


def test_insignificant_effects_are_reported_as_such() -> None:
    design, measured, analyses = experiment(FACTORS, lambda *_: 1000)
    said = list(answer(design, analyses[0]))
    assert any(
        one.startswith("There is no statistically significant effect of clients (p = ")
        and one.endswith(") on throughput.")
        for one in said
    )
    assert list(doubts(design, measured)) == []
    once = experiment(FACTORS, lambda clients, _: 1000 * 2.0**clients, repetitions=1)
    assert list(doubts(*once[:2])) == ["with one repetition, statistical significance is unknown"]
    first, *_ = answer(once[0], once[2][0])
    assert first.startswith("Changing clients from 2 to 8 multiplies throughput by ")
    assert "(" not in first


def test_the_table_on_a_terminal(multiplying: Experiment) -> None:
    design, _, analyses = multiplying
    out = io.StringIO()
    print_table(design, analyses[0], out)
    lines = out.getvalue().splitlines()
    assert lines[1] == "throughput, operations per second (factors multiply)"
    assert [line.split("  ")[1] for line in lines[3:]] == [
        "clients 2 → 8", "clients 2 → 32", "value-size 100 → 10k", "clients × value-size", "errors",
    ]  # fmt: skip
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("name", ["multiplying", "adding"])
def test_predictions_and_residuals_in_the_files_reproduce_the_measurements(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    design, measured, analyses = request.getfixturevalue(name)
    save_analysis(tmp_path, design, measured, analyses)
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [row["run"] for row in rows] == [one.run.name for one in measured]
    for row, one in zip(rows, measured, strict=True):
        value, predicted, residual = (
            float(row[f"throughput{end}"]) for end in ("", "_predicted", "_residual")
        )
        again = predicted + residual if name == "adding" else predicted * math.exp(residual)
        assert value == pytest.approx(again)
        assert value == pytest.approx(one.point.throughput.mean)
    effects = list(csv.DictReader((tmp_path / "effects.csv").read_text().splitlines()))
    for model in ("additive", "multiplicative"):
        shares = {
            row["factors"]: float(row["variation"])
            for row in effects
            if (row["response"], row["model"]) == ("throughput", model)
        }
        assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.usefixtures("without_figures")
def test_doubts_come_first_on_the_page(tmp_path: Path) -> None:
    """The experiment has no repetitions, and therefore fewer figures than others."""
    design, measured, analyses = experiment(["clients=1,2"], lambda n: 1000 * 2.0**n, repetitions=1)
    for number, one in enumerate(measured):
        limited = dataclasses.replace(one.point, generator_limited=True)
        whole = dataclasses.replace(one.results, points=(limited,))
        measured[number] = dataclasses.replace(one, results=whole)
    page, *_ = factorial_page.write(design, measured, analyses, tmp_path)
    text = page.read_text()
    at = text.index("The load generator was the bottleneck in 2 of 2 runs")
    assert 0 < at < text.index('class="verdict answer"') < text.index("<table")


@pytest.mark.slow
def test_the_page_is_complete_and_text_is_escaped(tmp_path: Path) -> None:
    design, measured, analyses = experiment(
        ["clients=1,2", "distribution=<b>,&"],
        lambda clients, _: 1000 * 2.0**clients,
    )
    page, *images = factorial_page.write(design, measured, analyses, tmp_path)
    text = page.read_text()
    assert text.count("<svg") == 1 + 3 * 3
    assert len(images) == 2 * (1 + 3 * 3)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in images)
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    for part in ("Sign table", "Analysis of variance", "What matters", "Changing clients from 1"):
        assert part in text
    for outside in ("http://", "https://", "<script src", "src="):
        assert outside not in text.replace("http://www.w3.org/", "")
    tables = copied_tables(text)
    first, *_ = tables["throughput-what-each-factor-does"]
    assert float(first["Change (ratio)"]) == pytest.approx(2, rel=0.05)
    low, high = first["95% interval, low (ratio)"], first["95% interval, high (ratio)"]
    assert float(low) < float(first["Change (ratio)"]) < float(high)
    tables.pop("factors")
    assert [without_numbers(rows) for rows in tables.values()] == [[]] * len(tables)


def test_plots_show_the_estimated_effects(multiplying: Experiment, adding: Experiment) -> None:
    for design, measured, analyses in (multiplying, adding):
        analysis = analyses[0]
        log = analysis.result.multiplicative
        effects = main_effects(design, analysis).draw(DARK)
        shown = [one for axes in effects.axes for one in axes.lines if one.get_linestyle() == "-"]
        expected = [
            analysis.result.estimate({factor.name: level}).value
            for factor in design.factors
            for level in range(len(factor.levels))
        ]
        assert [y for line in shown for y in line.get_ydata()] == pytest.approx(expected)
        assert {axes.get_yscale() for axes in effects.axes} == {"log" if log else "linear"}
        pairs = interactions(design, analysis)
        assert pairs is not None
        (axes,) = pairs.draw(LIGHT).axes
        assert axes.get_xlabel() == "clients"
        diagnosed = residuals(analysis, measured)
        assert diagnosed is not None
        drawn = diagnosed.draw(LIGHT).axes
        titles = [one.get_title(loc="left") for one in drawn if one.get_title(loc="left")]
        better = " (fits better)"
        assert titles == [
            f"If factors add{'' if log else better}", f"If factors multiply{better if log else ''}",
        ]  # fmt: skip
        over_time = drawn[2].lines[0].get_ydata()
        added = analysis.models.additive.residuals
        assert list(over_time) == [added[one.run.levels][one.run.number - 1] for one in measured]
    bars = variation(design, analyses).draw(LIGHT).axes[0].patches
    # All of the variation; response times of the sample have none.
    assert sum(bar.get_width() for bar in bars) == pytest.approx(1)
    once = experiment(["clients=1,2"], lambda clients: 1000 * 2.0**clients, repetitions=1)
    assert residuals(once[2][0], once[1]) is None
    assert interactions(once[0], once[2][0]) is None
