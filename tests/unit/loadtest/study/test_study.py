"""A study: what it measures, and what its tables say of systems that are known."""

from dataclasses import replace

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.core.errors import ConfigError
from memlite.loadtest.options import parse
from memlite.loadtest.report.style import LIGHT, png
from memlite.loadtest.report.tables import Table
from memlite.loadtest.results import ProxyTimes, Results
from memlite.loadtest.study.design import FULL, QUICK, Scale, Sweep, study
from memlite.loadtest.study.figures import sweep_plot, times_plot
from memlite.loadtest.study.sections import (
    lines,
    table_of_direct,
    table_of_proxied,
    table_of_writes,
)
from tests.unit.loadtest.capacity.systems import system


def sweep(section: str, workload: str = "read-only", in_flight: int = 0) -> Sweep:
    return Sweep(f"{section}-{workload}-{in_flight}", section, workload, in_flight, ())


def timed(results: Results, queue: float, service: float, think: float) -> Results:
    """Return results in which the proxies measured these times, in microseconds."""
    times = ProxyTimes(queue / 100, queue, service, think, {"node-1": service / 2})
    return replace(
        results,
        points=[
            replace(point, repetitions=[replace(one, proxies=times) for one in point.repetitions])
            for point in results.points
        ],
    )


def cells(table: Table) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in table.rows}


@pytest.mark.parametrize("scale", [QUICK, FULL])
def test_all_runs_are_possible(scale: Scale) -> None:
    wanted = study(scale, "memory", ["--keys=100"], 1)
    assert len({one.name for one in wanted.sweeps}) == len(wanted.sweeps)
    for one in wanted.sweeps:
        parsed = parse(wanted.arguments(one))
        assert parsed is not None
        assert parsed.clients == list(scale.clients)
    assert {one.in_flight for one in wanted.sweeps} == {0, *scale.in_flight}
    assert [one.partition("=")[0] for one in wanted.factors] == [
        *("servers", "proxies", "in-flight", "workload"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": (1, 2)}, "three numbers of clients"),
        ({"clients": (1, 2, 3)}, "must be 3 or more"),
        ({"in_flight": (8,)}, "two limits"),
    ],
)
def test_too_little_to_compare(changes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(replace(QUICK, **changes), "memory", [], 1)


def test_servers_of_known_demand() -> None:
    """Of 10 µs each, a server takes 100,000 per second, and two take nearly twice as many."""
    one, two = system(demand=10, nodes=1), system(demand=10, nodes=2)
    both = replace(one, targets=[*one.targets, *two.targets], points=[*one.points, *two.points])
    found = lines({sweep("direct"): both}, "direct")
    assert [each.name for each in found] == ["1 nodes, direct", "2 nodes, direct"]
    rows = cells(table_of_direct(found))
    first, second = rows["read-only, 1 nodes"], rows["read-only, 2 nodes"]
    assert float(first[1].split()[0].replace(",", "")) == pytest.approx(100_000, rel=0.05)
    assert float(second[1].split()[0].replace(",", "")) > 150_000
    assert first[-1] == "a node"
    assert first[-2] == "10 µs"
    assert png(sweep_plot("direct", "Reads", found).draw(LIGHT)).startswith(b"\x89PNG")


def test_times_that_proxies_measured() -> None:
    measured = {
        sweep("proxied", "read-only", limit): timed(
            system(demand=6, proxy=10, nodes=1), queue, 300.0, 40.0
        )
        for limit, queue in ((8, 250.0), (64, 0.0))
    }
    found = lines(measured, "proxied")
    assert [one.name for one in found] == ["1 proxy, 8 in flight", "1 proxy, 64 in flight"]
    rows = cells(table_of_proxied(found))
    eight = rows["read-only, 1 proxy, 8 in flight"]
    assert eight[4:8] == ["250 µs", "300 µs", "150 µs", "2.5"]
    assert eight[-1] == "the proxy"
    assert rows["read-only, 1 proxy, 64 in flight"][4] == "0 µs"
    plot = times_plot("times", "Where the time goes", found)
    assert plot is not None
    assert png(plot.draw(LIGHT)).startswith(b"\x89PNG")


def test_throughput_by_the_law() -> None:
    """With N clients and a cycle of queue, service and think time, N / cycle."""
    measured = {
        sweep("writes", "write-only", 8): timed(
            system(demand=6, proxy=10, nodes=3), 200.0, 300.0, 140.0
        )
    }
    found = lines(measured, "writes")
    rows = cells(table_of_writes(found))
    clients = int(rows["Clients"][0])
    by_law = float(rows["Operations per second, by the law N / (R + Z)"][0].replace(",", ""))
    assert by_law == pytest.approx(clients / 640e-6, rel=0.01)


def test_without_times_of_proxies_there_is_no_such_figure() -> None:
    found = lines({sweep("direct"): system(nodes=1)}, "direct")
    assert times_plot("times", "Where the time goes", found) is None


def test_only_lines_of_a_section_and_a_workload() -> None:
    measured = {
        sweep("direct", "read-only"): system(nodes=1),
        sweep("direct", "write-only"): system(nodes=2),
        sweep("writes", "write-only", 8): system(nodes=3, proxy=5),
    }
    assert len(lines(measured, "direct")) == 2
    assert [one.sweep.workload for one in lines(measured, "direct", "write-only")] == ["write-only"]
