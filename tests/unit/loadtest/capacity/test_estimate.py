"""How many servers a load needs: systems with known answers, and loads without an estimate."""

import dataclasses
from typing import Any

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.capacity import Estimate, Range, Request, UnknowableError, estimate
from memlite.loadtest.capacity.balance import Balance
from memlite.loadtest.results import MachineUse, Results
from memlite.loadtest.workload import Keys
from tests.unit.loadtest.capacity.systems import system


def ask(results: Results, rate: float, p99: float = 5_000.0, **more: float) -> Estimate:
    (target,) = results.targets
    request = dataclasses.replace(Request(rate, p99), **more)
    return estimate(results, target, request)


def test_a_server_of_known_demand() -> None:
    """At 10 µs each, a server handles 100,000 per second, and nearly as many fast enough."""
    found = ask(system(), 90_000)
    assert found.servers == Range(1, 1)
    assert 90_000 < found.each.low < found.each.high < 105_000
    assert found.bottleneck == "the server's processor: an operation takes 10 µs of its time"
    assert found.measured.model_error is not None
    assert found.measured.model_error < 0.02
    assert found.extrapolation == 1
    assert found.utilisation is not None
    assert found.utilisation.low == pytest.approx(0.9, rel=0.01)


@pytest.mark.parametrize("rate", [150_000, 250_000, 380_000, 700_000])
def test_several_servers(rate: float) -> None:
    """Servers suffice for the processor time, and for the busiest one to be fast enough."""
    found = ask(system(), rate)
    assert found.servers.low >= rate / 102_000
    busiest = Balance(Keys()).busiest(int(found.servers.high))
    assert rate * busiest <= found.each.low
    assert found.servers.high <= rate / 95_000 * 1.3 + 1
    assert found.extrapolation == found.servers.high


def test_a_shorter_time_limit_needs_more_servers() -> None:
    slow, fast = (ask(system(), 300_000, p99) for p99 in (5_000.0, 800.0))
    assert fast.each.low < 0.97 * slow.each.low
    for longer, shorter in ((50_000.0, 5_000.0), (5_000.0, 1_000.0), (1_000.0, 800.0)):
        relaxed, strict = (ask(system(), 200_000, p99) for p99 in (longer, shorter))
        assert relaxed.servers.low <= strict.servers.low
        assert relaxed.servers.high <= strict.servers.high


def test_noise_widens_the_range() -> None:
    quiet = ask(system(noise=(0.999, 1.0, 1.001)), 500_000).servers
    noisy = ask(system(noise=(0.9, 1.0, 1.1)), 500_000).servers
    assert noisy.high > quiet.high
    assert noisy.low <= quiet.low


def test_a_model_that_does_not_fit_is_not_used() -> None:
    """Nothing explains why everything takes twice as long: only measurements count."""
    found = ask(system(slowdown=2.0), 90_000)
    assert found.measured.model_error == pytest.approx(1.0, abs=0.1)
    assert not found.measured.fits
    assert found.each.high < 52_000
    assert found.servers.low == 2


def test_a_cluster_whose_nodes_are_the_limit() -> None:
    found = ask(system(demand=30, proxy=2, nodes=3), 250_000)
    assert found.bottleneck.startswith("the node's processor")
    assert 8 <= found.servers.low <= 9
    assert found.servers.high <= 12
    # The proxy was not busy: it handled 97,000, and could perhaps handle twice as many.
    assert found.proxies == Range(2, 3)


def test_a_cluster_whose_proxy_is_the_limit() -> None:
    found = ask(system(demand=6, proxy=10, nodes=3), 250_000)
    assert found.bottleneck.startswith("the proxy's processor")
    assert found.proxies.low == 3
    assert found.proxies.high <= 4
    # The nodes were not busy: each handled a third of 100,000, and could perhaps handle twice that.
    assert 32_000 <= found.each.low <= 35_000
    assert 60_000 <= found.each.high <= 70_000


def test_a_cluster_without_a_proxy() -> None:
    found = ask(system(demand=30, nodes=3), 250_000)
    assert found.proxies == Range(0, 0)
    assert found.servers.low >= 3


def test_a_remote_server() -> None:
    """Its processor time is unknown; its throughput is not."""
    results = system()
    points = [
        dataclasses.replace(
            point,
            repetitions=[dataclasses.replace(one, server=None) for one in point.repetitions],
        )
        for point in results.points
    ]
    found = ask(dataclasses.replace(results, points=points), 90_000)
    # Random arrivals queue more than a closed loop: only 70% of its throughput is certain.
    assert found.each.low == pytest.approx(70_000, rel=0.03)
    assert found.each.high == pytest.approx(100_000, rel=0.03)
    assert found.servers == Range(1, 2)
    assert found.utilisation is None
    assert found.measured.model_error is None
    assert found.bottleneck.startswith("unknown")


def test_measurements_of_larger_values_suffice() -> None:
    small, large = system(demand=10, size=100), system(demand=20, size=1000)
    both = dataclasses.replace(small, points=[*small.points, *large.points])
    assert ask(both, 90_000, value_size=100).servers.high == 1
    assert ask(both, 90_000, value_size=500).servers.low == 2
    with pytest.raises(UnknowableError, match="larger than any that was measured"):
        ask(both, 90_000, value_size=1001)


@pytest.mark.parametrize(
    ("measured", "rate", "more", "reason"),
    [
        ({"network": 9_000}, 1_000, {}, "more servers do not make responses faster"),
        ({}, 5_000_000, {}, "times as many as were measured, which is too far"),
        ({"hits": 0.5}, 1_000, {"hit_ratio": 0.9}, "50% of reads found an item"),
        ({"noise": (0.1, 1.0, 1.9)}, 1_000, {}, "varied too much"),
    ],
)
def test_loads_that_cannot_be_estimated(
    measured: dict[str, Any], rate: float, more: dict[str, float], reason: str
) -> None:
    with pytest.raises(UnknowableError, match=reason):
        ask(system(**measured), rate, **more)


def test_no_estimate_is_possible_without_points() -> None:
    with pytest.raises(UnknowableError, match="no operation succeeded"):
        ask(dataclasses.replace(system(), points=()), 1_000)


def test_a_key_too_hot_for_a_server() -> None:
    results = system()
    keys = {"count": 1000, "distribution": "zipfian", "theta": 1.5}
    skewed = dataclasses.replace(results, workload={**results.workload, "keys": keys})
    hottest = Balance(Keys(**keys)).hottest
    assert hottest > 0.3
    assert ask(skewed, 50_000).servers.high == 1
    with pytest.raises(UnknowableError, match="of operations are for one key"):
        ask(skewed, 110_000 / hottest)


def test_a_hit_ratio_near_the_measured_one() -> None:
    assert ask(system(hits=0.92), 1_000, hit_ratio=0.9).servers.high == 1


def test_doubts() -> None:
    results = system(noise=(1.0,))
    busy = [
        dataclasses.replace(
            point,
            generator_limited=True,
            repetitions=[
                dataclasses.replace(one, machine=MachineUse(0.5, 0), errors={"timeout": 3})
                for one in point.repetitions
            ],
        )
        for point in results.points
    ]
    doubts = " ".join(ask(dataclasses.replace(results, points=busy), 1_000).measured.doubts)
    assert "only one repetition" in doubts
    assert "the load generator was the bottleneck" in doubts
    assert "other programs used up to 50%" in doubts
    assert "21 operations failed" in doubts


def test_the_balance_of_uniform_keys() -> None:
    balance = Balance(Keys(count=1_000_000))
    for servers in (1, 2, 5, 20):
        assert 1 / servers <= balance.busiest(servers) + 1e-9
        assert balance.busiest(servers) < 1.4 / servers


def with_load(results: Results, **load: float) -> Results:
    """Return the results of a workload with these members of its load."""
    return dataclasses.replace(results, workload={**results.workload, "load": load})


def test_an_answer_between_two_measured_loads() -> None:
    """Nothing was measured between 1 and 64 clients, but the model fits both."""
    found = ask(system(clients=(1, 64)), 50_000, 2_500.0)
    assert found.servers == Range(1, 1)
    assert found.each.high > 90_000


@pytest.mark.parametrize("network", [20.0, 100.0, 1_000.0])
def test_a_longer_time_limit_never_needs_more_servers(network: float) -> None:
    last = (float("inf"), float("inf"))
    for p99 in (100, 300, 510, 520, 540, 560, 700, 1_000, 2_000, 5_000, 20_000, 1_000_000):
        try:
            found = ask(system(network=network), 200_000, float(p99)).servers
        except UnknowableError:
            assert last == (float("inf"), float("inf"))  # only shorter limits have no estimate
            continue
        assert (found.low, found.high) <= last
        last = (found.low, found.high)
    assert last[1] <= 4


def test_utilisation_never_exceeds_1() -> None:
    for rate in (90_000, 150_000, 200_000):
        found = ask(system(noise=(0.7, 1.0, 1.3)), rate, 50_000.0)
        assert found.utilisation is not None
        assert found.utilisation.high <= 1.0


def test_only_saturated_loads() -> None:
    with pytest.raises(UnknowableError, match=r"even without a queue|was saturated"):
        ask(system(clients=(64, 128)), 50_000, 100.0)


def test_requests_in_flight_are_clients_of_the_model() -> None:
    """Eight requests in flight on each connection count as eight clients."""
    piped = system(clients=(8, 16, 32, 64))
    points = [dataclasses.replace(point, clients=point.clients // 8) for point in piped.points]
    found = ask(with_load(dataclasses.replace(piped, points=points), pipeline=8), 90_000)
    assert found.measured.model_error is not None
    assert found.measured.model_error < 0.1  # even the lowest load has eight in flight


def test_threads_that_do_the_work_are_counted() -> None:
    """A process that uses 1.2 cores, of which one thread uses 1.0, has a worker and helpers."""
    results = system()

    def threads(share: float) -> Results:
        return dataclasses.replace(
            results,
            points=[
                dataclasses.replace(
                    point,
                    repetitions=[
                        dataclasses.replace(
                            one,
                            server=dataclasses.replace(
                                one.server, thread_share=one.server.cpu_share / share
                            ),
                        )
                        for one in point.repetitions
                        if one.server is not None
                    ],
                )
                for point in results.points
            ],
        )

    assert [part.workers for part in ask(threads(1.1), 1_000).measured.parts] == [1]
    assert [part.workers for part in ask(threads(3.8), 1_000).measured.parts] == [4]


def test_measurements_with_multigets_or_replicas_are_refused() -> None:
    with pytest.raises(UnknowableError, match="gets of several keys"):
        ask(with_load(system(), multiget=10), 1_000)
    results = system(nodes=3, proxy=5)
    (target,) = results.targets
    copied = dataclasses.replace(target, details={"proxies' options": "--replicas=3"})
    with pytest.raises(UnknowableError, match="on several nodes"):
        ask(dataclasses.replace(results, targets=[copied]), 1_000)


def test_nodes_that_shared_a_machine() -> None:
    """Three nodes on one core did a third each, and may do three times as much elsewhere."""
    results = system(demand=30, nodes=3, slowdown=3.0)
    shared = dataclasses.replace(results, machine={**results.machine, "cores": 1})
    found = ask(shared, 30_000, 50_000.0)
    assert found.measured.shared
    assert found.bottleneck.startswith("unknown: the processes that shared the machine")
    assert found.each.low < 11_000
    assert found.each.high > 30_000


def test_a_measurement_that_ended_early_is_doubted() -> None:
    early = dataclasses.replace(system(), partial=True)
    assert "the measurement ended early" in ask(early, 1_000).measured.doubts


def test_a_ring_is_uneven_for_many_keys_too() -> None:
    few, many = Balance(Keys(count=10_000)), Balance(Keys(count=10_000_000))
    assert few.busiest(10) == pytest.approx(many.busiest(10), rel=0.1)
    assert many.busiest(10) > 1.1 / 10
    assert many.hottest == pytest.approx(1e-7)
    assert Balance(Keys(count=2000)).hottest == pytest.approx(1 / 2000)
