"""Models of known systems: which hold, which do not, and the reasons given."""

import csv
import dataclasses
import functools
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.core.errors import ConfigError
from memlite.lab import Station, mmm
from memlite.loadtest.models.assess import Assessment
from memlite.loadtest.models.output import COLUMNS, as_csv, as_json, print_models
from memlite.loadtest.models.study import TargetModels, model_targets
from memlite.loadtest.results import ClusterInfo, ProxyTimes
from memlite.loadtest.statistics import point
from tests.unit.loadtest.models.synthetic import CLIENTS, STARTED, points, repetition, results

SERVER, DELAY = Station("server", 80e-6), Station("network", 150e-6, 0)


def assessments(target: TargetModels) -> dict[str, Assessment]:
    return {one.model.name: one for one in target.assessments}


def named(reason: str, one: Assessment) -> bool:
    return any(re.search(reason, text) for text in one.reasons)


@functools.cache
def one_server() -> TargetModels:
    stations = [SERVER, Station("generator", 10e-6), DELAY]
    measured = points("a", stations, lambda _: {"server": 80e-6}, generator=10e-6)
    (target,) = model_targets(results(measured))
    return target


def test_the_model_of_a_network_holds_for_one_at_all_loads() -> None:
    target = one_server()
    assert target.inputs.bottleneck == "server"
    demand = target.inputs.demands["server"]
    assert demand.interval[0] <= 80e-6 * (1 + 1e-4)
    assert demand.value == pytest.approx(80e-6, rel=1e-3)
    assert target.inputs.demands["rest"].value == pytest.approx(150e-6, rel=0.05)
    # 80 + 10 + 150 µs, of which 80 at the bottleneck.
    assert target.inputs.knee == pytest.approx(3, rel=0.03)
    network = assessments(target)["network"]
    assert network.fits
    assert network.verdict == "holds at 2, 4, 8, 16, 32 clients"
    assert not network.reasons
    for check in network.checks:
        assert check.tests == (check.clients != 1)
        assert abs(check.error) < 0.05
    for load, bounds in zip(target.sweep.loads, target.inputs.bounds, strict=True):
        low, high = bounds.throughput
        assert low * 0.95 <= load.throughput.mean <= high * 1.05
    assert "the bottleneck is the server, with 80 µs per request" in target.answer[0]
    # 12,500, apart from the noise of the measurement.
    assert "at most 12,600 requests per second, and queueing from 3" in target.answer[0]


def test_an_open_queue_does_not_fit_a_closed_loop() -> None:
    found = assessments(one_server())["M/M/1"]
    assert not found.fits
    assert named("arrivals are not independent|for ever", found)


def test_a_wrong_number_of_servers_does_not_fit() -> None:
    stations = [Station("server", 400e-6, 4), DELAY]
    measured = points("four", stations, lambda _: {"server": 400e-6}, threads=4)
    (target,) = model_targets(results(measured))
    found = assessments(target)
    assert target.inputs.stations[0].servers == 4
    assert found["closed M/M/4"].fits
    (wrong,) = model_targets(results(measured), servers=1)
    found = assessments(wrong)
    assert not found["closed M/M/1"].fits
    assert found["closed M/M/1"].verdict.startswith("does not fit")


def test_a_server_that_waits_for_something_else_is_found_by_a_fit() -> None:
    """Its processor is idle; two requests at a time wait for 5 ms each."""
    stations = [Station("disk", 5e-3, 2), Station("rest", 1e-3, 0)]
    measured = points("disk", stations, lambda _: {"server": 20e-6})
    (target,) = model_targets(results(measured))
    found = assessments(target)
    assert not found["closed M/M/1"].fits
    assert any(
        "wait for something that is not measured" in one for one in found["closed M/M/1"].reasons
    )
    fitted = found["fitted M/M/2"]
    assert fitted.fits
    service = fitted.model.fitted["service time"]
    low, high = service.interval
    assert low <= 5e-3 <= high
    assert high - low < 1e-3


def test_a_remote_server_is_fitted() -> None:
    measured = points("remote", [Station("server", 200e-6), DELAY], lambda _: {}, generator=1e-6)
    (target,) = model_targets(results(measured))
    low, high = target.inputs.demands["server"].interval
    assert low <= 200e-6 <= high
    assert target.inputs.sources["server"] == "fitted to throughput"
    with pytest.raises(ConfigError, match="require at least two loads"):
        model_targets(results(measured[:1]))


def test_processor_times_that_are_too_short_to_be_measured_are_unknown() -> None:
    measured = points("idle", [Station("s", 5e-3), DELAY], lambda _: {"server": 0.0})
    (target,) = model_targets(results(measured))
    low, high = target.inputs.demands["server"].interval
    assert low <= 5e-3 <= high
    assert target.inputs.demands["load generator"].value == 0


def test_demands_that_depend_on_the_load_are_named() -> None:
    """A server needs half the time for a request when there are many."""

    def demand(clients: int) -> float:
        return 100e-6 if clients < 4 else 50e-6

    measured = [
        one
        for count in CLIENTS
        for one in points(
            "batching",
            [Station("server", demand(count)), DELAY],
            lambda clients: {"server": demand(clients)},
            clients=[count],
        )
    ]
    (target,) = model_targets(results(measured))
    found = assessments(target)
    assert not found["closed M/M/1"].fits
    assert named("service times depend on the load: .* 100 µs .* 50 µs", found["closed M/M/1"])
    assert found["network, demands by load"].fits


def test_processes_that_share_the_cores_are_named() -> None:
    """Two cores, three processes: requests queue for the machine."""
    total = 150e-6
    measured = points(
        "crowded",
        [Station("machine", total, 2)],
        lambda _: {"node-1": 50e-6, "node-2": 50e-6},
        generator=50e-6,
    )
    (target,) = model_targets(results(measured, cores=2))
    found = assessments(target)
    assert found["shared machine"].fits
    network = found["network"]
    assert not network.fits
    assert any(
        "share this machine's 2 cores, which were up to 100% busy" in one for one in network.reasons
    )


def test_values_that_vary_too_much_cannot_test_a_model() -> None:
    measured = points("noisy", [SERVER, DELAY], lambda _: {"server": 80e-6}, noise=0.4)
    (target,) = model_targets(results(measured))
    found = assessments(target)["closed M/M/1"]
    assert not found.fits
    assert not all(one.tests for one in found.checks)
    assert any("varies by up to" in one for one in target.doubts)


def test_numbers_are_the_same_in_all_forms() -> None:
    target = one_server()
    rows = list(csv.DictReader(io.StringIO(as_csv([target]))))
    assert tuple(rows[0]) == COLUMNS
    document = json.loads(as_json([target]))
    (saved,) = document
    assert [one["name"] for one in saved["models"]] == list(assessments(target))
    for row in rows:
        if row["quantity"] == "throughput" and row["model"] == "network":
            (check,) = [
                one
                for model in saved["models"]
                if model["name"] == "network"
                for one in model["checks"]
                if one["quantity"] == "throughput" and one["clients"] == int(row["clients"])
            ]
            assert float(row["predicted"]) == check["predicted"]
            assert row["holds"] == str(check["holds"])
    text = io.StringIO()
    print_models([target], text)
    shown = text.getvalue()
    assert "network holds at 2, 4, 8, 16, 32 clients." in shown
    assert max(map(len, shown.splitlines())) <= 79


def test_results_without_a_closed_loop(tmp_path: Path) -> None:
    measured = points("a", [SERVER], lambda _: {"server": 80e-6})
    rated = [dataclasses.replace(one, rate=100.0) for one in measured]
    with pytest.raises(ConfigError, match="models require results of a closed loop"):
        model_targets(results(rated))


def with_workers(
    arrivals: Sequence[float], service: float, workers: int, in_flight: int
) -> TargetModels:
    """Return the models of a proxy whose queue behaves like M/M/m with this number of workers."""
    measured = []
    for number, rate in enumerate(arrivals):
        queue = mmm(rate, 1 / service, workers).waiting_time
        times = ProxyTimes(0.0, queue * 1e6, service * 1e6, 0.0, {})
        repetitions = [
            dataclasses.replace(
                repetition(one, STARTED + number * 100, rate, queue + service, {"proxy": 1e-6}),
                proxies=times,
            )
            for one in (1, 2, 3)
        ]
        measured.append(point("a", 2**number, 0.0, 100, repetitions))
    found = results(measured)
    target = dataclasses.replace(found.targets[0], cluster=ClusterInfo(1, "proxied", 1, in_flight))
    (models,) = model_targets(dataclasses.replace(found, targets=(target,)))
    return models


def test_the_limit_in_flight_acts_as_the_number_of_workers() -> None:
    arrivals, service = (50.0, 150.0, 250.0, 320.0, 370.0), 0.01
    right = assessments(with_workers(arrivals, service, 4, 4))["M/M/m of the proxies' workers"]
    assert right.fits
    assert all(abs(check.error) < 0.01 for check in right.checks)
    wrong = assessments(with_workers(arrivals, service, 4, 8))["M/M/m of the proxies' workers"]
    assert not wrong.fits
    unlimited = assessments(with_workers(arrivals, service, 4, 0))
    assert "M/M/m of the proxies' workers" not in unlimited
