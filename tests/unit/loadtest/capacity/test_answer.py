"""``memlite bench plan``: what it prints, machines and prices, JSON, exit codes and errors."""

import dataclasses
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.loadtest.files import save
from memlite.loadtest.results import Results, TargetInfo
from tests.unit.loadtest.capacity.systems import system

TABLE = """
currency = "USD"
[small]
hour = 0.1
cores = 2
memory = 4
[large]
hour = 0.15
cores = 4
memory = 16
[bought]
purchase = 1
years = 3
cores = 64
memory = 1024
[shared]
hour = 0.0001
cores = 1
memory = 1024
[unpriced]
cores = 64
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the handlers of signals that a command replaces."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def compared() -> Results:
    """Return the results of three backends of different speed."""
    several = [
        system(kind="memory", demand=10),
        system(kind="file", demand=40, network=200),
        system(kind="gcs", demand=50, network=30_000),
    ]
    return dataclasses.replace(
        several[0],
        targets=[target for one in several for target in one.targets],
        points=[point for one in several for point in one.points],
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(compared(), tmp_path)
    (tmp_path / "machines.toml").write_text(TABLE)
    return tmp_path


def plan(folder: Path, *arguments: object) -> int:
    machines = ("--machines", str(folder / "machines.toml"))
    return main(["bench", "plan", str(folder), *machines, *map(str, arguments)])


def test_the_answer(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(saved, "--rate", "200k", "--p99", "50ms") == 0
    shown = capsys.readouterr().out
    assert all(len(line) < 80 for line in shown.splitlines())
    assert shown.splitlines()[:3] == [
        "For 200,000 operations per second, with 99 of 100 responses within 50 ms:",
        "  - if a cold cache after a crash is acceptable: memory, 3 servers of 1 worker,",
        "    on 1 large, 109.50 USD a month",
    ]
    for need in ("several servers must share items", "items must survive the loss of a machine"):
        assert f"  - if {need}: none of the measured targets\n" in shown
    assert "No estimate for gcs: 99 of 100 responses take up to" in shown
    assert "The bottleneck is the server's processor" in shown
    assert "This estimate is wrong if\n  - the machines' cores are slower" in shown


def test_json(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(saved, "--rate", "200k", "--p99", "50ms", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    memory, file, gcs = found["options"]
    assert memory["servers"] == {"low": 3, "high": 3}
    assert memory["machine"] == "large"
    assert memory["machines"] == {"low": 1, "high": 1}
    assert memory["month"]["low"] == pytest.approx(0.15 * 730)
    assert memory["model_error"] < 0.05
    # The disk of each machine is added to the price.
    assert file["machine"] == "small"
    assert file["machines"] == file["servers"]
    assert file["month"]["low"] > file["machines"]["low"] * 0.1 * 730
    assert gcs == {"target": "gcs", "unknown": gcs["unknown"]}
    assert found["request"]["rate"] == 200_000


def test_buckets_are_priced_per_operation(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(saved, "--rate", "1k", "--p99", "1s", "--json") == 0
    gcs = json.loads(capsys.readouterr().out)["options"][2]
    # Only reads: 2,628 million of them in a month of 730 hours, at 0.0004 per 1,000.
    machines = gcs["machines"]["low"] * 0.1 * 730
    assert gcs["month"]["low"] - machines == pytest.approx(1000 * 730 * 3600 * 0.0004 / 1000)


def test_machine_types_can_be_chosen(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = ("--machine", "small", "--machine", "shared")
    assert plan(saved, "--rate", "200k", "--p99", "50ms", "--json", *named) == 0
    memory = json.loads(capsys.readouterr().out)["options"][0]
    assert (memory["machine"], memory["machines"]) == ("small", {"low": 3, "high": 3})
    assert plan(saved, "--rate", "200k", "--p99", "50ms", "--machine", "bought") == 0
    assert "1 bought" in capsys.readouterr().out
    assert plan(saved, "--rate", "200k", "--p99", "50ms", "--machine", "shared") == 0
    assert "no type known" in capsys.readouterr().out


def test_memory_needs_machines(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A billion values of 100 bytes take 170 to 420 GB; a large machine has 13.7 for items."""
    assert plan(saved, "--rate", "1k", "--p99", "1s", "--keys", "1000m", "--json") == 0
    memory, _, gcs = json.loads(capsys.readouterr().out)["options"]
    assert memory["machine"] == "large"
    assert memory["machines"] == {"low": 13, "high": 31}
    assert gcs["machines"]["high"] <= 2


def test_no_estimate_is_possible(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(saved, "--rate", "100", "--p99", "1us") == 1
    assert "no estimate is possible for any of the measured targets" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--rate, --p99"),
        (("--rate", "0", "--p99", "2ms"), "must be 1 or more"),
        (("--rate", "100k", "--p99", "soon"), "not a duration"),
        (("--rate", "1", "--p99", "1s", "--hit-ratio", "110%"), "not a share from 0 to 1"),
        (("--rate", "1", "--p99", "1s", "--value-size", "1,2"), "--value-size"),
        (("--rate", "1", "--p99", "1", "--machine", "smal"), "did you mean 'small'"),
        (("--rate", "1", "--p99", "0"), "--p99: must be more than 0"),
    ],
)
def test_errors(
    saved: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert plan(saved, *arguments) == 64
    assert message in capsys.readouterr().err


def test_missing_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "plan", str(tmp_path), "--rate", "1k", "--p99", "1s"]) == 64
    assert "cannot be read: No such file" in capsys.readouterr().err


def test_a_running_server_is_recommended_only_as_a_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is unknown whether a server that was already running keeps its items."""
    results = system()
    (point, *_) = results.points
    target = TargetInfo(point.target, "server", "127.0.0.1:11211")
    save(dataclasses.replace(results, targets=(target,)), tmp_path)
    assert main(["bench", "plan", str(tmp_path), "--rate", "1k", "--p99", "1s"]) == 0
    shown = capsys.readouterr().out
    assert "acceptable: memory, 1 server of 1 worker, on 1 e2-standard-2, 48.92 USD" in " ".join(
        shown.split()
    )
    assert "must survive a crash: none of the measured targets" in shown


def plan_of(results: Results, folder: Path, *arguments: object) -> int:
    save(results, folder)
    (folder / "machines.toml").write_text(TABLE)
    return plan(folder, *arguments)


def test_memory_determines_the_number_of_servers(
    tmp_path: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server uses the memory of its own machine, so there are as many servers as machines."""
    alone = tmp_path / "alone"
    asked = ("--rate", "1k", "--p99", "1s", "--keys", "1000m", "--json")
    assert plan_of(system(), alone, *asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["options"][0]["servers"] == {"low": 13, "high": 31}
    assert "on 13 to 31 large (as many as memory requires)" in found["advice"][0]
    assert plan(saved, "--rate", "1k", "--p99", "1s", "--keys", "99999999m") == 0
    assert "No estimate for memory: its items would need the memory of up to" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_target_that_may_cost_no_more_is_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = system(kind="memory", demand=10, noise=(0.9, 1.0, 1.1))
    other = system(kind="other", demand=10, noise=(0.9, 1.0, 1.1))
    both = dataclasses.replace(
        one, targets=[*one.targets, *other.targets], points=[*one.points, *other.points]
    )
    server = dataclasses.replace(both.targets[1], kind="server")
    both = dataclasses.replace(both, targets=[both.targets[0], server])
    assert plan_of(both, tmp_path, "--rate", "200k", "--p99", "50ms") == 0
    assert "may cost no more" in " ".join(capsys.readouterr().out.split())


def test_no_machines_for_a_server_of_unknown_processor_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = system()
    points = [
        dataclasses.replace(
            point,
            repetitions=[dataclasses.replace(one, server=None) for one in point.repetitions],
        )
        for point in results.points
    ]
    unknown = dataclasses.replace(results, points=points)
    assert plan_of(unknown, tmp_path, "--rate", "60k", "--p99", "50ms") == 0
    shown = capsys.readouterr().out
    assert "memory, 1 server\n" in shown
    assert "no type known" in shown
    assert "worker" not in shown


@pytest.mark.parametrize("name", ["[/x]:1", "[fe80::1]:11211", "[bold]b"])
def test_names_are_shown_as_they_are(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = system()
    renamed = dataclasses.replace(
        results,
        targets=[dataclasses.replace(results.targets[0], name=name)],
        points=[dataclasses.replace(point, target=name) for point in results.points],
    )
    assert plan_of(renamed, tmp_path, "--rate", "1k", "--p99", "50ms") == 0
    assert f"\n{name} " in capsys.readouterr().out


def test_nodes_with_files_keep_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = system(demand=30, nodes=3)
    target = dataclasses.replace(results.targets[0], details={"backend": "file"})
    files = dataclasses.replace(results, targets=[target])
    assert plan_of(files, tmp_path, "--rate", "100k", "--p99", "50ms") == 0
    assert "if items must survive a crash: 3 nodes, direct" in capsys.readouterr().out


def test_larger_values_are_said_to_be_assumed(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(saved, "--rate", "1k", "--p99", "1s", "--value-size", "50") == 0
    assert "values of 50 B cost more than those of 100 B" in capsys.readouterr().out


def test_prices_in_different_currencies_are_not_added(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (saved / "machines.toml").write_text(TABLE.replace("USD", "EUR"))
    assert plan(saved, "--rate", "1k", "--p99", "1s") == 64
    assert (
        "prices of machines are in EUR, but those of disks and buckets in USD"
        in capsys.readouterr().err
    )
