"""The gain from more nodes, and the limits of clusters."""

import dataclasses

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest import scaling
from memlite.loadtest.prices import Prices, assumptions, costs
from memlite.loadtest.report import write_report
from memlite.loadtest.report.compare import combine
from memlite.loadtest.results import ClusterInfo, MachineUse, ServerUse, TargetInfo
from memlite.loadtest.statistics import point
from memlite.loadtest.verdict import findings
from tests.unit.loadtest.samples import results

ROUND = Prices("List", "2026-01", "EUR", "vm", 0.36, "disk", 10, 0.073, "bucket", 0.005, 0.0004)


def use(seconds, length):
    return ServerUse(seconds, seconds / length, 1_000_000, seconds / length)


def measured(target, throughput, shares, *, clients=20, size=100, generator=0.5, other=0.0):
    """Return a point of one repetition of 4 s; `shares` are the processes' shares of a core."""
    (sample,) = results(kinds=("memory",), clients=(10,)).points
    repetition = dataclasses.replace(
        sample.repetitions[0],
        seconds=4.0,
        operations=round(throughput * 4),
        processes={name: use(share * 4, 4) for name, share in shares.items()},
        generator_share=generator,
        generator_cpu=10.0,
        machine=MachineUse(other, 0.0),
    )
    return point(target, clients, 0.0, size, [repetition])


def run(*points, cores=64):
    targets = []
    for name in dict.fromkeys(one.target for one in points):
        cluster = ClusterInfo(int(name.split()[0]), name.partition(", ")[2])
        targets.append(TargetInfo(name, "cluster", "127.0.0.1:1", cluster=cluster))
    made = results(kinds=("memory",), clients=(10,))
    return dataclasses.replace(
        made, targets=targets, points=points, machine=made.machine | {"cores": cores}
    )


def proxied():
    return measured("2 nodes, proxied", 50_000, {"proxy": 0.9, "node-1": 0.5, "node-2": 0.3})


def test_figures_of_a_cluster():
    (row,) = scaling.rows(run(proxied()))
    assert row.proxy == pytest.approx(0.9)
    assert row.nodes == pytest.approx((0.5, 0.3))
    assert row.proxy_demand == pytest.approx(18)  # 0.9 s for 50,000 operations
    assert row.node_demand == pytest.approx(16)
    # 1.7 cores of the cluster's, and 50,000 times 10 µs of the generator's.
    assert row.machine == pytest.approx((1.7 + 0.5) / 64)
    assert (row.label, row.limit) == ("proxied", "the proxy")


@pytest.mark.parametrize(
    ("changes", "cores", "limit"),
    [
        ({"shares": {"node-1": 0.2, "node-2": 0.9}}, 64, "a node"),
        ({"generator": 0.99}, 64, "the load generator"),
        ({}, 1, "the machine"),
        ({"other": 0.9}, 64, "the machine"),
        ({}, 64, ""),
    ],
)
def test_what_limits_a_cluster(changes, cores, limit):
    arguments = {"shares": {"node-1": 0.2, "node-2": 0.3}} | changes
    (row,) = scaling.rows(run(measured("2 nodes, direct", 50_000, **arguments), cores=cores))
    assert row.proxy is row.proxy_demand is None
    assert row.limit == limit


def test_the_highest_throughput_of_each_size_counts():
    low, high = (
        measured("1 node, direct", number, {"node-1": 0.5}, clients=clients)
        for number, clients in ((1000, 5), (2000, 20))
    )
    large = measured("1 node, direct", 100, {"node-1": 0.5}, size=1000)
    assert [row.point for row in scaling.rows(run(low, high, large))] == [high, large]


def test_process_figures_of_an_interrupted_run_are_unknown():
    (row,) = scaling.rows(run(measured("1 node, proxied", 1000, {})))
    assert (row.proxy, row.nodes, row.node_demand, row.machine) == (None, (), None, None)


def test_findings():
    direct = measured("2 nodes, direct", 90_000, {"node-1": 0.4, "node-2": 0.5})
    one = measured("1 node, direct", 60_000, {"node-1": 0.9})
    text = " ".join(findings(run(proxied(), direct, one)))
    assert "direct: 60,000 with 1 node (limited by a node); 90,000 with 2 nodes." in text
    assert "proxied: 50,000 with 2 nodes (limited by the proxy)." in text
    assert "at most about 55,600 operations per second" in text
    assert "shared this machine" not in text
    assert "shared this machine" in " ".join(findings(run(direct, cores=2)))
    assert not scaling.findings(results())


def test_each_node_and_the_proxy_cost_a_machine():
    direct = measured("2 nodes, direct", 1000, {"node-1": 0.4, "node-2": 0.5})
    proxied = measured("2 nodes, proxied", 1000, {"proxy": 0.4})
    found = costs(run(direct, proxied), ROUND)
    assert [cost.total for cost in found] == pytest.approx([0.2, 0.3])
    assert "Each node of a cluster" in " ".join(assumptions(ROUND, found, run(direct)))


@pytest.mark.usefixtures("without_figures")
def test_the_report(tmp_path):
    one = measured("1 node, direct", 60_000, {"node-1": 0.9})
    direct = measured("2 nodes, direct", 90_000, {"node-1": 0.4, "node-2": 0.5})
    page, *_ = write_report([run(proxied(), direct, one)], tmp_path)
    text = page.read_text()
    assert 'id="figure-nodes"' in text
    assert 'id="figure-processor-time"' in text
    assert '<h2 id="clusters">' in text
    assert "the proxy" in text
    other = results(kinds=("memory",), clients=(10,), repetitions=1)
    page, *_ = write_report([other], tmp_path / "other")
    assert "clusters" not in page.read_text()


def test_runs_that_are_combined_have_lines_of_their_own():
    both = combine([run(proxied()), dataclasses.replace(run(proxied()), title="later")])
    labels = [row.label for row in scaling.rows(both)]
    assert labels == ["proxied (Backends compared)", "proxied (later)"]
