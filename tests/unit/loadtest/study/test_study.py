"""A study: its measurements, and its tables for known systems."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.core.errors import ConfigError
from memlite.loadtest.factorial.design import design_of
from memlite.loadtest.options import parse
from memlite.loadtest.report.style import LIGHT, png
from memlite.loadtest.report.tables import Table
from memlite.loadtest.results import MachineUse, ProxyTimes, Results
from memlite.loadtest.scaling import row_of
from memlite.loadtest.selection import highest_throughput
from memlite.loadtest.study.design import FULL, QUICK, Scale, Sweep, study
from memlite.loadtest.study.expected import expected_seconds
from memlite.loadtest.study.output import check, keep
from memlite.loadtest.study.plots import sweep_plot, times_plot
from memlite.loadtest.study.runs import Sweeps
from memlite.loadtest.study.sections import (
    lines,
    table_of_direct,
    table_of_proxied,
    table_of_writes,
)
from memlite.loadtest.units import percent
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
    assert {one.in_flight for one in wanted.sweeps} == {0, *scale.in_flight, *scale.of_writes}
    assert [one.in_flight for one in wanted.sweeps if one.section == "writes"] == [8, 16, 32, 64]
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


def test_three_load_generators_one_or_two_proxies_and_one_to_three_nodes() -> None:
    wanted = study(QUICK, "memory", ["--workers=3"], 1)
    plans = Sweeps(wanted, Path()).plans()
    assert {plan.workers for plan in plans.values()} == {3}
    clusters = {target.name for plan in plans.values() for target in plan.targets}
    assert clusters == {
        *("1 node, direct", "2 nodes, direct", "1 node, proxied", "1 node, 2 proxies"),
        *("3 nodes, 2 proxies", "3 nodes, proxied"),
    }
    in_flight = "--in-flight=8", "--in-flight=64"
    assert all(any(one in sweep.options for sweep in wanted.sweeps) for one in in_flight)


def test_how_long_a_study_takes() -> None:
    sweeps = Sweeps(study(QUICK, "memory", ["--workers=3"], 1), Path())
    missing = sweeps.missing()
    assert sum(missing.values()) == 228
    whole = expected_seconds(sweeps, missing, 32, 24, start=0.3)
    # Load alone takes 228 and 32 times 0.6 s, and 24 times 0.75 s.
    assert 174 < whole < 330
    nothing = dict.fromkeys(missing, 0)
    report = expected_seconds(sweeps, nothing, 0, 0, start=0.3)
    assert report < 30
    (first, *_) = missing
    assert report < expected_seconds(sweeps, {**nothing, first: 6}, 0, 0, start=0.3) < report + 10


def test_the_order_of_loads_and_limits_does_not_matter() -> None:
    given = study(replace(QUICK, clients=(64, 16, 4, 1), in_flight=(64, 8)), "memory", [], 1)
    assert given == study(QUICK, "memory", [], 1)
    assert "--clients=64" in given.of_experiment
    assert "in-flight=8,64" in given.factors


def test_each_command_can_be_run_alone() -> None:
    wanted = study(QUICK, "memory", ["--keys=100"], 5)
    *sweeps, experiment, gets = wanted.commands
    assert sweeps == [wanted.arguments(one) for one in wanted.sweeps]
    parsed = parse(experiment)
    assert parsed is not None
    assert parsed.command == "factorial"
    assert design_of(parsed.factor, parsed.others, parsed.repetitions, parsed.seed) == design_of(
        wanted.factors, wanted.of_experiment, QUICK.of_experiment, 5
    )
    parsed = parse(gets)
    assert parsed is not None
    assert (parsed.command, parsed.keys, parsed.seed) == ("multigets", 100, 5)
    assert parsed.sizes == list(QUICK.keys_per_get)
    # That command has no such nodes.
    assert study(QUICK, "file", [], 1).commands[-1][0] == "factorial"


def test_the_gets_of_several_keys_have_the_options_of_the_study() -> None:
    usual = study(QUICK, "memory", [], 7).multigets
    assert (usual.backend, usual.keys, usual.value_size, usual.seed) == ("memory", 2000, 1024, 7)
    assert "--keys=2000" in study(QUICK, "memory", [], 7).common
    others = ["--keys", "100", "--value-size=2k", "--server-option", "durability=always"]
    found = study(QUICK, "file", others, 7).multigets
    assert (found.backend, found.keys, found.value_size) == ("file", 100, 2048)
    assert found.options == (("durability", "always"),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "100"], "study: --rate cannot be used in a study"),
        (["--pipeline=4"], "study: --pipeline cannot be used in a study"),
        (["--multiget=4"], "study: --multiget cannot be used in a study"),
        (["--think-time=1ms"], "study: --think-time cannot be used in a study"),
        (["--trace", "a.csv"], "study: --trace cannot be used in a study"),
        (["--find-knee"], "study: --find-knee cannot be used in a study"),
        (["--target=127.0.0.1:1"], "study: --target cannot be used in a study"),
        (["--cluster=2"], "study: --cluster is set by the study itself"),
        (["--keys=100", "--servers", "2"], "study: --cluster is set by the study itself"),
        (["--proxies=2"], "study: --proxies is set by the study itself"),
        (["--proxy-option=replicas=2"], "study: --proxy-option is set by the study itself"),
        (["--paths=direct"], "study: --paths is set by the study itself"),
        (["--backends=file"], "study: --backends is set by the study itself: use --backend"),
        (["--workload=ycsb-a"], "study: --workload is set by the study itself"),
        (["--mix=get=1"], "study: --mix is set by the study itself"),
        (["--value-size=100,1k"], "study: --value-size: only one size"),
        (["--key=100"], "unrecognized arguments: --key=100"),
    ],
)
def test_options_that_are_not_for_a_study(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert main(["bench", "study", "--quick", "--out", str(folder), *options]) == 64
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_a_folder_of_something_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_text("{}")
    assert main(["bench", "study", "--quick", "--out", str(tmp_path)]) == 64
    assert f"--out {tmp_path} contains data that is not from this study" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["results.json"]


def test_another_seed_is_another_study(tmp_path: Path) -> None:
    keep(tmp_path, study(QUICK, "memory", [], 1))
    assert check(tmp_path, study(QUICK, "memory", [], 1))
    for other in (study(QUICK, "memory", [], 2), study(QUICK, "file", [], 1)):
        with pytest.raises(ConfigError, match=f"--out {tmp_path} contains data that is not"):
            check(tmp_path, other)


def test_servers_of_known_demand() -> None:
    """At 10 µs each, a server handles 100,000 per second, and two handle nearly twice as many."""
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
    head, *values = table_of_direct(found).values
    assert head == [
        *("Workload and servers", "Clients", "Operations per second"),
        *("Operations per second, 95% low", "Operations per second, 95% high"),
        *("Mean response time (µs)", "p99 (µs)", "Busiest server (%)", "Time per operation (µs)"),
        "Limited by",
    ]
    assert values[0][2] == pytest.approx(found[0].saturated.throughput.mean, rel=1e-5)
    assert values[0][-2] == pytest.approx(10)
    assert png(sweep_plot("direct", "Reads", found).draw(LIGHT)).startswith(b"\x89PNG")


def test_a_row_shows_a_single_measurement() -> None:
    """The busiest server is that of the point at which throughput stops growing."""
    (line,) = lines({sweep("direct"): system(demand=10, nodes=1)}, "direct")
    points = line.results.points
    (info,) = line.results.targets
    assert line.saturated is not highest_throughput(points)
    busiest = [
        percent(row_of(line.results, info, point).nodes[0])
        for point in (line.saturated, highest_throughput(points))
    ]
    (row,) = table_of_direct([line]).rows
    assert row[5] == busiest[0] != busiest[1]


def test_other_programs_are_a_doubt_and_not_a_limit() -> None:
    busy = system(demand=10, nodes=1)
    points = [
        replace(
            point,
            repetitions=[
                replace(one, machine=MachineUse(other=0.5, steal=0.0)) for one in point.repetitions
            ],
        )
        for point in busy.points
    ]
    found = lines({sweep("direct"): replace(busy, points=points)}, "direct")
    assert table_of_direct(found).rows[0][-1] == "a node"


def test_unknown_figures_are_not_zero() -> None:
    def without_processes(results: Results) -> Results:
        points = [
            replace(point, repetitions=[replace(one, processes={}) for one in point.repetitions])
            for point in results.points
        ]
        return replace(results, points=points)

    direct = lines({sweep("direct"): without_processes(system(nodes=1))}, "direct")
    assert table_of_direct(direct).rows[0][5:7] == ["–", "–"]
    proxied = lines({sweep("proxied", in_flight=8): without_processes(system(nodes=1))}, "proxied")
    assert table_of_proxied(proxied).rows[0][5:10] == ["–"] * 5


def test_times_that_proxies_measured() -> None:
    measured = {
        sweep("proxied", "read-only", limit): timed(
            system(demand=6, proxy=10, nodes=1), queue, 300.0, 40.0
        )
        for limit, queue in ((8, 250.0), (32, 0.02), (64, 0.0))
    }
    found = lines(measured, "proxied")
    assert [one.name for one in found] == [f"1 proxy, {one} in flight" for one in (8, 32, 64)]
    rows = cells(table_of_proxied(found))
    eight = rows["read-only, 1 proxy, 8 in flight"]
    assert eight[4:8] == ["250 µs", "300 µs", "150 µs", "2.5"]
    assert eight[-1] == "the proxy"
    assert rows["read-only, 1 proxy, 32 in flight"][4] == "<0.1 µs"
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
    # The rows have different units.
    head, *values = table_of_writes(found).values
    limit = "8 in flight"
    assert head == ["", "Unit", limit, f"{limit}, 95% low", f"{limit}, 95% high"]
    in_csv = {row[0]: row[1:] for row in values}
    assert in_csv["Clients"] == ["", clients, None, None]
    assert in_csv["Limited by"] == ["", "the proxy", None, None]
    assert in_csv["Time in the queue"] == ["µs", 200, None, None]


def test_without_times_of_proxies_they_are_not_plotted() -> None:
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
