"""The first part of a study's report: doubts about its figures, and its findings."""

import functools
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.lab import Station
from memlite.loadtest.checking import with_checks
from memlite.loadtest.models.study import model_targets
from memlite.loadtest.multigets.analysis import compare_sizes
from memlite.loadtest.multigets.runs import Run
from memlite.loadtest.results import Results
from memlite.loadtest.statistics import latency, new_histogram
from memlite.loadtest.study.command import exit_code
from memlite.loadtest.study.design import QUICK, Sweep, study
from memlite.loadtest.study.measured import Measured, answer, doubts
from memlite.loadtest.study.report import sections
from tests.unit.loadtest.capacity.systems import CLIENTS, NOISE, system
from tests.unit.loadtest.experiments import Experiment, experiment
from tests.unit.loadtest.models.synthetic import points
from tests.unit.loadtest.models.synthetic import results as as_results
from tests.unit.loadtest.samples import results


def sweep(section: str, workload: str = "read-only", in_flight: int = 0) -> Sweep:
    return Sweep(f"{section}-{workload}-{in_flight}", section, workload, in_flight, ())


@functools.cache
def some_experiment() -> Experiment:
    return experiment(
        ["clients=2,4,16", "workers=1,2"], lambda one, other: 1000 * (1 + one) * (2 + other)
    )


def measured(sweeps: dict[Sweep, Results] | None = None, gets: Sequence[Run] = ()) -> Measured:
    """Return a study with these sweeps, or with a sweep without faults."""
    design, runs, analyses = some_experiment()
    chosen = sweeps or {sweep("direct"): system(nodes=1)}
    wanted = study(QUICK, "memory", [], 1)
    return Measured(wanted, chosen, design, runs, analyses, gets, compare_sizes(gets), {})


def said(found: Measured, words: str) -> Sequence[str]:
    return [one for one in doubts(found) if words in one]


def test_checks_that_found_something() -> None:
    checked = with_checks(results(kinds=("memory",), clients=(10, 20)))
    assert not said(measured({sweep("direct"): checked}), "Checks cast doubt")
    first, second = checked.points
    assert first.checks is not None
    outlier = replace(first, checks=replace(first.checks, outliers=(2,)))
    found = measured({sweep("direct"): replace(checked, points=[outlier, second])})
    assert said(found, "Checks cast doubt") == [
        (
            "Checks cast doubt on 1 of 2 measurements of the sweeps; the most common reason is "
            "'outlier', in 1 of them."
        )
    ]


def test_gets_of_several_keys_are_doubted_as_well() -> None:
    times = latency(new_histogram())
    run = Run(4, True, 1, 0.0, 1.0, 1e4, 3, 2, 0.95, 0.3, times)
    assert said(measured(gets=[run]), "Gets of several keys: ") == [
        (
            "Gets of several keys: a load generator process used up to 95% of a core, and "
            "response times include its own delays."
        ),
        "Gets of several keys: other programs used up to 30% of the machine's processors.",
        "Gets of several keys: 2 requests failed.",
        "Gets of several keys: 3 keys were not found.",
    ]
    faultless = replace(run, misses=0, errors=0, generator_share=0.1, other=0.0)
    assert not said(measured(gets=[faultless]), "Gets of several keys")


def test_failed_requests_cause_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(4, True, 1, 0.0, 1.0, 1e4, 0, 2, 0.0, 0.0, latency(new_histogram()))
    assert exit_code(measured(gets=[replace(run, errors=0)])) == 0
    assert capsys.readouterr().err == ""
    failing = results(kinds=("memory",), clients=(10,))
    (point,) = failing.points
    point = replace(point, repetitions=[replace(point.repetitions[0], errors={"timeout": 1})])
    for found in (
        measured(gets=[run]),
        measured({sweep("direct"): replace(failing, points=[point])}),
    ):
        assert exit_code(found) == 1
        said = capsys.readouterr().err
        assert said == "memlite: bench: some requests failed; see the results for details\n"


def test_repetitions_that_differ_much() -> None:
    steady = measured({sweep("direct"): system(nodes=1)})
    assert not said(steady, "Throughput varied")
    noisy = measured({sweep("direct"): system(nodes=1, noise=(0.7, 1.0, 1.3))})
    (found,) = said(noisy, "Throughput varied by up to ±")
    # The standard deviation is 0.3 of the mean, and Student's t 4.303: 4.303 * 0.3 / √3 = 0.745.
    assert found == "Throughput varied by up to ±74.5% between repetitions."


@functools.cache
def whole(
    *, noise: Sequence[float] = NOISE, proxy: float = 10, clients: Sequence[int] = CLIENTS
) -> dict[Sweep, Results]:
    """Return all sweeps of a study with a limit of 8 and one of 64, which makes no difference."""
    found = {}
    for workload in ("read-only", "write-only"):
        one, two = (
            system(demand=20, nodes=nodes, clients=clients, noise=noise) for nodes in (1, 2)
        )
        found[sweep("direct", workload)] = replace(
            one, targets=[*one.targets, *two.targets], points=[*one.points, *two.points]
        )
        for limit in (8, 64):
            found[sweep("proxied", workload, limit)] = system(
                demand=20, proxy=proxy, nodes=1, clients=clients, noise=noise
            )
    for limit in (8, 64):
        found[sweep("writes", "write-only", limit)] = system(
            demand=60, proxy=proxy, nodes=3, clients=clients, noise=noise
        )
    return found


def test_figures_have_intervals_and_differences_are_tested_for_significance() -> None:
    one, _, proxied, _, writes, *_ = answer(measured(whole()))
    assert re.fullmatch(
        r"Without a proxy, reads per second: [\d,]+ ± [\d,]+ with 1 nodes \(\d+ clients\); "
        r"[\d,]+ ± [\d,]+ with 2 nodes \(\d+ clients\)\.",
        one,
    )
    assert re.fullmatch(
        r"One node behind 1 proxy, 8 in flight: up to [\d,]+ ± [\d,]+ reads per second, [\d.]+% of "
        r"the rate without a proxy \(the difference is not statistically significant\); with 1 "
        r"client, a response takes 10 µs longer\.",
        proxied,
    )
    assert writes.endswith("with 64 in flight (the difference is not statistically significant).")
    slow = list(answer(measured(whole(proxy=40))))[2]
    assert "of the rate without a proxy; with 1 client, a response takes 40 µs longer." in slow


def test_differences_between_noisy_measurements() -> None:
    servers, _, proxied, *_ = answer(measured(whole(noise=(0.5, 1.0, 1.5), clients=(16, 32, 64))))
    assert servers.endswith("(the difference is not statistically significant).")
    assert proxied.endswith("with 16 clients, the difference in response time is not significant.")


@pytest.mark.slow
def test_a_model_that_fits_is_quoted_with_its_subject() -> None:
    stations = [Station("server", 80e-6), Station("network", 150e-6, 0)]
    known = points("a", stations, lambda _: {"server": 80e-6}, clients=(1, 2, 4, 8))
    (models,) = model_targets(as_results(known))
    assert any(one.fits and not one.model.fitted for one in models.assessments)
    found = replace(measured(whole()), models={"reads from one server": models})
    *_, last = answer(found)
    assert last.startswith(
        "Reads from one server: of the measured stations, the bottleneck is the "
    )
    wrong = replace(
        models, assessments=tuple(one for one in models.assessments if one.model.fitted)
    )
    found = replace(found, models={"reads from one server": wrong})
    assert not [one for one in answer(found) if "bottleneck" in one]


def test_tables_have_only_characters_that_latex_knows() -> None:
    histogram = new_histogram()
    histogram.record_value(100)
    gets = [
        Run(4, sharded, number, 0.0, 1.0, 1e4, 0, 0, 0.1, 0.0, latency(histogram))
        for sharded in (True, False)
        for number in (1, 2)
    ]
    tables = [table for section in sections(measured(whole(), gets)) for table in section.tables]
    assert len(tables) > 6
    assert any("→" in table.csv for table in tables)
    for table in tables:
        assert table.latex.isascii(), table.latex
