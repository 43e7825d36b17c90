"""``memlite bench multigets``: real nodes, a proxy, clients, files and exit codes."""

import csv
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.loadtest.multigets.cluster import TracedCluster
from memlite.loadtest.multigets.measuring import complete
from memlite.loadtest.multigets.runs import Settings
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.resuming import locked
from memlite.loadtest.targets import LaunchSettings
from tests.support.bench import bench
from tests.support.waiting import wait_until

COMMAND = [
    *("multigets", "--sizes", "1,4", "--nodes", "2", "--clients", "2", "--keys", "50"),
    *("--duration", "1s", "--repetitions", "2"),
]


def saved(folder: Path) -> list[dict[str, Any]]:
    path = folder / "multigets.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    return found


@pytest.mark.slow
def test_an_interrupted_run_is_completed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "memlite", "bench", *COMMAND, "--out", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert wait_until(lambda: len(saved(folder)) >= 2, 60)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        shown = process.stderr.read()
        assert process.wait() == 130, shown
    assert shown.endswith(f"interrupted; run the same command with --out {folder} to resume\n")
    before = saved(folder)
    assert 2 <= len(before) < 8
    done = bench(*COMMAND, "--out", folder)
    assert done.returncode == 0, done.stderr
    runs = saved(folder)
    ways = {(run["size"], run["sharded"], run["number"]) for run in runs}
    assert ways == {(size, way, n) for size in (1, 4) for way in (True, False) for n in (1, 2)}
    assert len(runs) == 8
    for run, early in zip(runs, before, strict=False):
        assert run["started"] == early["started"]
        assert run["client"] == early["client"]
    for run in runs:
        assert not run["errors"]
        assert not run["misses"]
        assert run["client"]["count"] > 0
    assert sum(run["proxy"]["count"] for run in runs) > 0
    check_nodes(folder, runs)
    pages = {path.name for path in folder.iterdir()}
    assert pages >= {"multigets.html", "multigets.csv", "histograms.csv", "trace.csv"}
    assert {f"multigets-{kind}.png" for kind in ("ratio", "histograms", "percentiles")} <= pages
    with (folder / "histograms.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    bounds = {
        tuple((row["from_us"], row["to_us"]) for row in rows if key(row) == one)
        for one in {key(row) for row in rows}
    }
    assert len(bounds) == 1
    other = [*command, "--seed", "2"]
    done = subprocess.run(other, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    assert "contains measurements with other options; choose another folder" in done.stderr


def key(row: dict[str, str]) -> tuple[str, str, str]:
    return row["keys"], row["way"], row["where"]


def check_nodes(folder: Path, runs: list[dict[str, Any]]) -> None:
    """Check in the trace how many nodes each get of four keys was sent to."""
    asked: dict[bool, list[int]] = {True: [], False: []}
    with (folder / "trace.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            arrival = int(row["arrival"]) / 1e6
            for run in runs:
                if run["started"] <= arrival < run["started"] + run["seconds"] and run["size"] == 4:
                    asked[run["sharded"]].append(len(row["nodes"].split()))
    assert set(asked[False]) == {1}
    # One get of four keys in eight has all keys on the same one of two nodes.
    assert set(asked[True]) <= {1, 2}
    assert asked[True].count(2) > asked[True].count(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "0"], "argument --sizes: must be 1 or more"),
        (["--sizes", "200"], "--sizes: at most 100 keys, not 200"),
        (["--nodes", "1"], "--nodes: sharding needs 2 nodes or more"),
        (["--clients", "2"], "--clients must be at least the number of nodes, 3"),
        (["--value-size", "1,2"], "not a size: '1,2'"),
    ],
)
def test_errors_are_reported_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "multigets", *arguments, "--out", str(tmp_path / "out")]) == 64
    text = capsys.readouterr().err
    assert message in text
    assert len(text.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_nodes_with_another_backend_and_values_of_more_than_a_megabyte(tmp_path: Path) -> None:
    settings = Settings((1, 2), 2, 2, 4, 2_000_000, 0.2, 1, 1, "file", (("durability", "none"),))
    runs = complete(settings, tmp_path, ProgressDisplay())
    assert len(runs) == 4
    assert not any(run.errors or run.misses for run in runs)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("memcached"), reason="memcached is not on the PATH")
def test_nodes_that_are_memcacheds(tmp_path: Path) -> None:
    launch = LaunchSettings(tmp_path)
    with TracedCluster(2, tmp_path / "trace.csv", launch, "memcached") as target:
        assert {target.processes_by_name[f"node-{one}"].name() for one in (1, 2)} == {"memcached"}


def test_one_process_measures_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(tmp_path):
        assert main(["bench", *COMMAND, "--out", str(tmp_path)]) == 64
    assert (
        f"--out {tmp_path}: another process is measuring in this folder" in capsys.readouterr().err
    )
    assert not (tmp_path / "multigets.json").exists()
