"""What a study says first: what speaks against its figures, and what was found."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.checking import with_checks
from memlite.loadtest.multigets.analysis import compare_sizes
from memlite.loadtest.multigets.runs import Run
from memlite.loadtest.results import Results
from memlite.loadtest.statistics import latency, new_histogram
from memlite.loadtest.study.design import QUICK, Sweep, study
from memlite.loadtest.study.measured import Measured, doubts
from tests.unit.loadtest.capacity.systems import system
from tests.unit.loadtest.experiments import experiment
from tests.unit.loadtest.samples import results


def sweep(section: str, workload: str = "read-only", in_flight: int = 0) -> Sweep:
    return Sweep(f"{section}-{workload}-{in_flight}", section, workload, in_flight, ())


def measured(sweeps: dict[Sweep, Results] | None = None, gets: Sequence[Run] = ()) -> Measured:
    """Return a study with these sweeps, or with some without faults."""
    design, runs, analyses = experiment(
        ["clients=2,16", "workers=1,2"], lambda one, other: 1000 * (1 + one) * (2 + other)
    )
    chosen = sweeps or {sweep("direct"): system(nodes=1)}
    wanted = study(QUICK, "memory", [], 1)
    return Measured(wanted, chosen, design, runs, analyses, gets, compare_sizes(gets), {})


def said(found: Measured, words: str) -> Sequence[str]:
    return [one for one in doubts(found) if words in one]


def test_checks_that_found_something() -> None:
    checked = with_checks(results(kinds=("memory",), clients=(10, 20)))
    assert not said(measured({sweep("direct"): checked}), "Checks doubt")
    first, second = checked.points
    assert first.checks is not None
    outlier = replace(first, checks=replace(first.checks, outliers=(2,)))
    found = measured({sweep("direct"): replace(checked, points=[outlier, second])})
    assert said(found, "Checks doubt") == [
        "Checks doubt 1 of 2 measurements of the sweeps; the commonest reason is 'outlier', of 1."
    ]


def test_gets_of_several_keys_are_doubted_as_well() -> None:
    times = latency(new_histogram())
    run = Run(4, True, 1, 0.0, 1.0, 1e4, 3, 2, 0.95, 0.3, times)
    assert said(measured(gets=[run]), "Gets of several keys: ") == [
        (
            "Gets of several keys: a process that generates load used up to 95% of a core, and "
            "response times include its own."
        ),
        "Gets of several keys: other programs used up to 30% of the machine's processors.",
        "Gets of several keys: 2 requests failed.",
        "Gets of several keys: 3 keys were not found.",
    ]
    faultless = replace(run, misses=0, errors=0, generator_share=0.1, other=0.0)
    assert not said(measured(gets=[faultless]), "Gets of several keys")
