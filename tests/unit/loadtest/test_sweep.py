"""Saturation of targets, from their points: what is saved, reported and shown."""

import dataclasses
import random

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.files import load, save
from memlite.loadtest.report.check_tables import sweep_rows
from memlite.loadtest.results import MachineUse
from memlite.loadtest.sweep import findings, sweeps, with_saturation
from tests.unit.loadtest.samples import results

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def limited(made):
    points = tuple(dataclasses.replace(point, generator_limited=True) for point in made.points)
    return dataclasses.replace(made, points=points)


def test_the_saved_saturation(tmp_path):
    made = with_saturation(results(kinds=("memory",), clients=CLIENTS))
    (found,) = made.saturation
    # The samples' server does 41,200 operations a second at most, each of which takes 600 µs.
    assert found.asymptotic_knee == pytest.approx(0.0006 * 41_200, rel=0.05)
    assert found.under == (1, 2, 4, 8, 16, 32)
    assert found.saturated == (64, 128, 256, 512)
    assert found.over == ()
    assert found.knee == 64
    assert (found.knee_above, found.knee_at_most) == (32, 128)
    # Throughput levels off and does not fall, contrary to the law.
    assert any("does not fit" in warning for warning in found.usl.warnings)
    save(made, tmp_path)
    assert load(tmp_path).saturation == (found,)


def test_the_findings():
    (sentence,) = findings(results(kinds=("memory",), clients=CLIENTS))
    assert sentence.startswith(
        "memory is under-saturated at 1, 2, 4, 8, 16 and 32, saturated at 64, 128, 256 and 512 "
        "clients (uncertain at 64). Its knee is above 32 and at most 128 clients."
    )
    (sentence,) = findings(results(kinds=("memory",), clients=CLIENTS, repetitions=1))
    assert sentence == (
        "The saturation point of memory cannot be determined: there is only one repetition."
    )
    # Three loads have a row in the table, but no sentence.
    assert findings(results(clients=(1, 2, 4))) == []


BUSY = MachineUse(other=0.43, steal=0.0)


def test_no_knee_is_claimed_if_something_else_is_the_limit():
    made = results(kinds=("memory",), clients=CLIENTS)
    last = dataclasses.replace(made.points[-1], generator_limited=True)
    (sentence,) = findings(dataclasses.replace(made, points=(*made.points[:-1], last)))
    assert sentence == (
        "The saturation point of memory cannot be determined: the load generator is the bottleneck."
    )
    last = dataclasses.replace(
        made.points[-1],
        repetitions=[dataclasses.replace(one, machine=BUSY) for one in last.repetitions],
    )
    (sentence,) = findings(dataclasses.replace(made, points=(*made.points[:-1], last)))
    assert sentence == (
        "The saturation point of memory cannot be determined: "
        "other programs used up to 43% of the machine's "
        "processors."
    )
    # A limit at a load below the knee does not move the knee.
    first = dataclasses.replace(made.points[0], generator_limited=True)
    (sentence,) = findings(dataclasses.replace(made, points=(first, *made.points[1:])))
    assert "Its knee is above 32 and at most 128 clients" in sentence


def test_a_sweep_that_shows_no_knee_has_warnings():
    (found,) = sweeps(limited(results(kinds=("memory",), clients=(1, 2, 4, 8))))
    assert any("still rising at 8 clients" in warning for warning in found.warnings)
    assert any("bottleneck at 4 of 4 loads" in warning for warning in found.warnings)


def following_the_law(spread):
    """Return results whose throughput obeys the Universal Scalability Law; its peak is at 31."""
    noise = random.Random(1)
    made = results(kinds=("memory",), clients=(1, 2, 4, 8, 16, 32, 64, 128))
    points = []
    for point in made.points:
        clients = point.clients
        rate = 1000 * clients / (1 + 0.03 * (clients - 1) + 0.001 * clients * (clients - 1))
        repetitions = [
            dataclasses.replace(one, operations=round(rate * 4 * noise.gauss(1, spread)))
            for one in point.repetitions
        ]
        points.append(dataclasses.replace(point, repetitions=repetitions))
    return dataclasses.replace(made, points=tuple(points))


def test_a_target_that_follows_the_law():
    made = following_the_law(0.02)
    (sentence,) = findings(made)
    assert "over-saturated at 64 and 128 clients" in sentence
    assert "puts the peak at 31 clients (" in sentence
    (found,) = with_saturation(made).saturation
    assert found.usl.contention.low < 0.03 < found.usl.contention.high
    assert found.usl.coherency.low < 0.001 < found.usl.coherency.high
    assert found.warnings == ()


def test_a_peak_beyond_the_loads_is_described_as_such():
    made = following_the_law(0.005)
    made = dataclasses.replace(made, points=made.points[:5])  # up to 16 clients
    (sentence,) = findings(made)
    assert "puts the peak at 3" in sentence
    assert "), beyond the measured 16, with " in sentence


def test_a_law_fitted_to_points_limited_by_the_generator_is_not_believed():
    made = following_the_law(0.02)
    assert sweeps(made)[0].law_is_plausible
    first = dataclasses.replace(made.points[0], generator_limited=True)
    made = dataclasses.replace(made, points=(first, *made.points[1:]))
    assert not sweeps(made)[0].law_is_plausible
    (sentence,) = findings(made)
    assert "over-saturated at 64 and 128 clients" in sentence
    assert "Universal Scalability Law" not in sentence


def test_a_law_without_the_fall_that_it_predicts_is_not_believed():
    made = following_the_law(0.02)
    (sweep,) = sweeps(dataclasses.replace(made, points=made.points[:6]))  # up to 32 clients
    assert sweep.law_is_plausible
    falling = dataclasses.replace(sweep.law, coherency=0.01, peak_clients=10.0)
    assert not dataclasses.replace(sweep, law=falling).law_is_plausible


def test_results_without_a_sweep():
    assert sweeps(results(clients=(10,))) == []
    assert sweeps(results(clients=(), rates=(500, 5000))) == []
    assert sweeps(results(kind="concurrent")) == []


def test_the_table():
    made = results(kinds=("memory", "file"), clients=CLIENTS, sizes=(100, 1000))
    rows = sweep_rows(made)
    assert [(row["target"], row["size"]) for row in rows] == [
        ("memory", "100 B"), ("file", "100 B"), ("memory", "1 kB"), ("file", "1 kB"),
    ]  # fmt: skip
    assert rows[0]["knee"] == "above 32 and at most 128 clients"
    assert rows[0]["over"] == "–"
    (row, _) = sweep_rows(results(kinds=("memory", "file"), clients=(1, 2, 4), repetitions=1))
    assert (row["under"], row["contention"]) == ("1?, 2?, 4?", "–")
