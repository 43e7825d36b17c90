"""Answers for known systems: the bottleneck, and models that could not be tested."""

import dataclasses
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.lab import Station, fit_demands
from memlite.loadtest.models.assess import Outcome, assess, doubts
from memlite.loadtest.models.build import inputs_of, models_of
from memlite.loadtest.models.fitting import best_queue
from memlite.loadtest.models.output import print_models
from memlite.loadtest.models.page import write_models
from memlite.loadtest.models.study import TargetModels, model_targets
from memlite.loadtest.models.sweep import Sweep, sweeps
from memlite.loadtest.models.traces import Traced
from memlite.loadtest.results import Point
from memlite.loadtest.statistics import point
from tests.support.copied import copied_tables, without_numbers
from tests.unit.loadtest.models.synthetic import CLIENTS, SECONDS, points, results

SERVER, DELAY = Station("server", 80e-6), Station("network", 150e-6, 0)


def modelled(measured: Sequence[Point]) -> TargetModels:
    (target,) = model_targets(results(measured))
    return target


def test_no_bound_is_below_what_was_measured() -> None:
    """A request takes 100 µs of the server with few clients, and 50 µs with many."""

    def demand(clients: int) -> float:
        return 100e-6 if clients < 4 else 50e-6

    target = modelled(
        [
            one
            for count in CLIENTS
            for one in points(
                "batching",
                [Station("server", demand(count)), DELAY],
                lambda clients: {"server": demand(clients)},
                clients=[count],
                noise=0.001,
            )
        ]
    )
    measured = max(load.throughput.mean for load in target.sweep.loads)
    assert measured == pytest.approx(20_000, rel=0.01)
    found = re.search(r"with ([\d.]+) µs .* at most ([\d,]+) requests", target.answer[0])
    assert found is not None
    assert float(found[1]) == pytest.approx(50, rel=0.01)
    # The answer has three digits.
    assert float(found[2].replace(",", "")) >= measured * 0.995
    # With few clients, the network's bounds show that its demands are not the same.
    assert target.inputs.bounds[-1].throughput[1] >= measured * 0.999


def test_the_bound_has_an_interval() -> None:
    """It follows from the processor times at the busiest load, which vary by a few percent."""
    measured = points("a", [SERVER, DELAY], lambda _: {"server": 40e-6}, noise=0.0)
    varied = []
    for one in measured:
        repetitions = []
        for each, factor in zip(one.repetitions, (1.95, 2.0, 2.05), strict=True):
            assert each.server is not None
            seconds = each.server.cpu_seconds * factor
            busy = seconds / SECONDS
            use = dataclasses.replace(
                each.server, cpu_seconds=seconds, cpu_share=busy, thread_share=busy
            )
            repetitions.append(dataclasses.replace(each, server=use))
        varied.append(point("a", one.clients, 0.0, 100, repetitions))
    answer = modelled(varied).answer[0]
    found = re.search(r"at most ([\d,]+) \(([\d,]+) to ([\d,]+)\) requests", answer)
    assert found is not None, answer
    most, low, high = (float(one.replace(",", "")) for one in found.groups())
    assert low == most == 12_500
    # t of 2 degrees of freedom is 4.3; the standard error is 1.4% of 80 µs.
    assert high == pytest.approx(12_500 / (1 - 4.303 * 0.025 / 3**0.5), rel=0.01)


def test_a_station_that_is_not_busy_is_not_called_the_bottleneck() -> None:
    disk = [Station("disk", 5e-3, 2), Station("rest", 1e-3, 0)]
    (said, *_) = modelled(points("disk", disk, lambda _: {"server": 20e-6})).answer
    assert said.startswith(
        "disk: none of the measured stations is the bottleneck. The server takes "
    )
    assert "for at most 0.8" in said
    assert "the bottleneck is the server" not in said


def test_a_node_is_named_without_an_article() -> None:
    stations = [Station("node-1", 80e-6), Station("node-2", 20e-6), DELAY]
    uses = {"node-1": 80e-6, "node-2": 20e-6}
    assert (
        "the bottleneck is node-1, with"
        in modelled(points("c", stations, lambda _: uses)).answer[0]
    )


def test_one_load_cannot_test_a_model() -> None:
    target = modelled(points("a", [SERVER, DELAY], lambda _: {"server": 80e-6}, clients=[16]))
    assert {one.outcome for one in target.assessments} == {Outcome.UNKNOWN}
    text = " ".join(target.answer)
    assert "No model" not in text
    assert "could not be tested (too few loads, or values vary too much): M/M/1; " in text


def with_think_times(measured: Sequence[Point], seconds: Mapping[int, float]) -> list[Point]:
    """Return the points with think times, and response times shorter by as much."""
    found = []
    for one in measured:
        think = seconds[one.clients]
        repetitions = []
        for each in one.repetitions:
            latency = each.response["all"]
            shorter = dataclasses.replace(latency, mean=latency.mean - think * 1e6)
            repetitions.append(
                dataclasses.replace(each, response={"all": shorter}, think_time=think * 1e6)
            )
        found.append(point(one.target, one.clients, 0.0, 100, repetitions))
    return found


def test_measured_think_times_count_at_each_load() -> None:
    """The clients' pause grows with their number, which is not the server's fault."""
    pauses = {count: 20e-6 * count for count in CLIENTS}
    measured = [
        one
        for count in CLIENTS
        for one in points(
            "a",
            [SERVER, Station("pause", pauses[count], 0)],
            lambda _: {"server": 80e-6},
            clients=[count],
        )
    ]
    target = modelled(with_think_times(measured, pauses))
    assert [load.think_time for load in target.sweep.loads] == pytest.approx(list(pauses.values()))
    found = {one.model.name: one for one in target.assessments}
    assert found["closed M/M/1"].fits
    assert not target.doubts
    unknown = modelled(measured).sweep
    assert {load.think_time for load in unknown.loads} == {unknown.think_time}


def test_a_law_that_does_not_hold_is_a_doubt() -> None:
    measured = points("a", [SERVER, DELAY], lambda _: {"server": 80e-6})
    wrong = with_think_times(measured, dict.fromkeys(CLIENTS, 10e-6))
    repetitions = [dataclasses.replace(one, think_time=5000.0) for one in wrong[2].repetitions]
    wrong[2] = point("a", wrong[2].clients, 0.0, 100, repetitions)
    (said,) = modelled(wrong).doubts
    assert said.startswith("a: at 4 clients, R differs from N/X − Z")


# Proxies


def traced(throughput: float, service: float, *, seconds: float = 6.0) -> Traced:
    """Return a trace of requests at regular intervals, with random service times."""
    made = Traced(seconds, round(throughput * seconds), workers=1)
    source = np.random.default_rng(5)
    made.service.add(source.exponential(service, 500))
    made.queue.add(np.zeros(500))
    made.gaps.add(np.full(500, 1 / throughput))
    return made


def swept(of_load: Sequence[Mapping[str, Traced]]) -> Sweep:
    measured = points("p", [Station("server", 80e-6), DELAY], lambda _: {"server": 10e-6})
    (found,) = sweeps(results(measured), traced=of_load)
    return found


def test_a_proxy_without_requests_at_some_load_is_left_out_there() -> None:
    names = "proxy 1's workers", "proxy 2's workers"
    of_load = [
        {name: traced(2000.0, 80e-6) for name in (names[:1] if count == 1 else names)}
        for count in CLIENTS
    ]
    found = swept(of_load)
    assert [one.name for one in found.resources][:2] == list(names)
    assert names[1] not in found.loads[0].utilisations
    inputs = inputs_of(found)
    assert inputs is not None
    models = {one.name: one for one in models_of(found, inputs)}
    clients = [one.clients for one in models[f"M/M/1 of {names[1]}"].predictions]
    assert clients == list(CLIENTS[1:])
    assert len(models[f"M/M/1 of {names[0]}"].predictions) == len(CLIENTS)


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_gaps_of_a_sample_are_not_tested(share: float) -> None:
    """Gaps that are all equal are not exponential, but those of a sample say nothing."""
    rates = [load.throughput.mean for load in swept([{} for _ in CLIENTS]).loads]
    found = swept([{"proxy's workers": traced(rate * share, 70e-6)} for rate in rates])
    assert all(load.sampled == (share < 1) for load in found.loads)
    inputs = inputs_of(found)
    assert inputs is not None
    reasons = [
        reason
        for model in models_of(found, inputs)
        for reason in assess(found, inputs, model).reasons
    ]
    assert any("times between arrivals" in one for one in reasons) == (share == 1)
    assert list(doubts(found)) == []


@pytest.mark.usefixtures("without_figures")
def test_doubts_come_first(tmp_path: Path) -> None:
    """Doubts about all targets precede answers and tables, in the terminal and on the page."""
    measured = [
        dataclasses.replace(one, generator_limited=name == "b")
        for name in "ab"
        for one in points(name, [SERVER, DELAY], lambda _: {"server": 80e-6}, clients=(1, 2))
    ]
    made = results(measured)
    found = model_targets(made)
    out = io.StringIO()
    print_models(found, out)
    text = out.getvalue()
    assert text.startswith("b: the load generator was the bottleneck at 1, 2 clients.\n")
    assert text.index("a: none of the measured stations") < text.index("M/M/1  ")
    page = write_models(made, found, tmp_path).read_text()
    assert page.count("b: the load generator was the bottleneck at") == 1
    at = page.index("b: the load generator was the bottleneck at 1, 2 clients")
    assert 0 < at < page.index('id="answer"') < page.index("<table")
    tables = copied_tables(page)
    assert set(tables) == {
        f"{name}-{number}"
        for name in ("stations", "throughput", "response-time")
        for number in (0, 1)
    }
    assert [without_numbers(rows) for rows in tables.values()] == [[]] * 6
    assert float(tables["stations-0"][0]["Demand per request (µs)"]) == pytest.approx(80, rel=0.1)
    assert {"1 client (1/s)", "1 client, error (%)"} < set(tables["throughput-0"][0])


def test_thousands_of_clients_are_fitted() -> None:
    """Two requests at a time, of 5 ms each: a network of stations gives the same result."""
    disk, rest = Station("disk", 5e-3, 2), Station("rest", 100e-3, 0)
    clients = (1, 8, 32, 128)
    measured = points("disk", [disk, rest], lambda _: {}, clients=clients)
    sweep = swept_of(measured)
    found = best_queue(sweep.loads, [1, 2, 3, 8])
    assert found.servers == 2
    for fitted, true in ((found.service, 5e-3), (found.elsewhere, 100e-3)):
        low, high = fitted.interval
        assert low <= true <= high
        assert high - low < true / 2
    network = fit_demands(
        [disk, rest],
        ["disk", "rest"],
        clients,
        [load.throughput.mean for load in sweep.loads],
        sweep.think_time,
    )
    assert found.service.value == pytest.approx(network.demands["disk"].value, rel=1e-4)
    assert found.service.interval == pytest.approx(network.demands["disk"].interval, rel=1e-3)
    assert found.deviation == pytest.approx(network.deviation, rel=1e-3)
    many = [*sweep.loads, dataclasses.replace(sweep.loads[-1], clients=5000)]
    assert best_queue(many, [2]).service.value == pytest.approx(5e-3, rel=0.05)


def swept_of(measured: Sequence[Point]) -> Sweep:
    (found,) = sweeps(results(measured))
    return found
