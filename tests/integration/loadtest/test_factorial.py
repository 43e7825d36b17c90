"""``memlite bench factorial``: real servers and clients, files, exit codes."""

import csv
import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memlite.cli.main import main
from memlite.loadtest.factorial.runs import problem_of
from memlite.loadtest.files import load
from tests.support.bench import bench
from tests.support.drawing import interrupted_while_drawing
from tests.support.servers import running
from tests.support.waiting import wait_until
from tests.unit.loadtest.samples import results

COMMAND = [
    *("factorial", "--factor", "clients=1,8", "--factor", "value-size=10,10k"),
    *("--repetitions", "2", "--duration", "300ms", "--warm-up", "20ms", "--keys", "100"),
]


def runs(folder: Path) -> dict[str, int]:
    """Return the saved runs, with the time when each was saved."""
    return {
        path.parent.name: path.stat().st_mtime_ns for path in folder.glob("runs/*/results.json")
    }


@pytest.mark.slow
def test_an_experiment_that_is_interrupted_is_completed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "memlite", "bench", *COMMAND, "--out", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert wait_until(lambda: len(runs(folder)) >= 2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # a second signal, while the first is handled
        assert process.stderr is not None
        shown = process.stderr.read()
        assert process.wait() == 130
    assert shown.startswith("run 1 of 8: clients ")
    goes_on = f"run the same command with --out {folder} to resume"
    assert shown.endswith(f"memlite: bench: interrupted; {goes_on}\n")
    before = runs(folder)
    assert 2 <= len(before) < 8
    done = bench(*COMMAND, "--out", folder)
    assert done.returncode == 0, done.stderr
    after = runs(folder)
    assert sorted(after) == [f"{a}.{b}-{n}" for a in (0, 1) for b in (0, 1) for n in (1, 2)]
    assert before.items() <= after.items()
    assert done.stderr.startswith(f"{len(before)} of 8 runs have already been measured\n")
    check(folder, done.stdout)
    assert bench(*COMMAND, "--out", folder).stdout == done.stdout
    assert runs(folder) == after
    shown = interrupted_while_drawing(command, folder)
    assert shown.endswith(
        f"memlite: bench: interrupted after the last measurement; all of them are saved in "
        f"{folder}; run the same command with --out {folder} to write the report\n"
    )


def check(folder: Path, shown: str) -> None:
    """Check the analysis of an experiment."""
    saved: dict[str, Any] = json.loads((folder / "factorial.json").read_text())
    assert saved["factors"] == [
        {"name": "clients", "levels": ["1", "8"]},
        {"name": "value-size", "levels": ["10", "10k"]},
    ]
    throughputs: dict[str, list[float]] = {}
    for levels in ("0.0", "0.1", "1.0", "1.1"):
        for number in (1, 2):
            (point,) = load(folder / "runs" / f"{levels}-{number}").points
            assert point.clients == (1, 8)[int(levels[0])]
            assert point.value_size == (10, 10240)[int(levels[2])]
            throughputs.setdefault(levels, []).append(point.throughput.mean)
    for model in ("additive", "multiplicative"):
        found = saved["analysis"]["throughput"][model]
        shares = [found["error_variation"], *(one["variation"] for one in found["effects"])]
        assert sum(shares) == pytest.approx(1)
        assert [one["factors"] for one in found["effects"]] == [
            ["clients"], ["value-size"], ["clients", "value-size"],
        ]  # fmt: skip
    # The saved predictions and residuals add up to the measurements.
    added = saved["analysis"]["throughput"]["additive"]
    for levels, values in throughputs.items():
        assert added["predicted"][levels] == pytest.approx(sum(values) / 2)
        again = [added["predicted"][levels] + one for one in added["residuals"][levels]]
        assert again == pytest.approx(values)
    rows = list(csv.DictReader((folder / "runs.csv").read_text().splitlines()))
    assert [int(row["order"]) for row in rows] == list(range(1, 9))
    assert sorted(float(row["throughput"]) for row in rows) == pytest.approx(
        sorted(one for values in throughputs.values() for one in values)
    )
    effects = list(csv.DictReader((folder / "effects.csv").read_text().splitlines()))
    assert {row["factors"] for row in effects if row["response"] == "p99"} == {
        "clients", "value-size", "clients × value-size", "errors",
    }  # fmt: skip
    shown_once = " ".join(shown.split())
    assert "Differences between repetitions explain " in shown_once
    for words in ("throughput, operations per second (factors ", "  clients 1 → 8  ",
                  "  value-size 10 → 10k  ", "  clients × value-size  ", "  errors  "):  # fmt: skip
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 80 + len(str(folder))


@pytest.mark.slow
def test_a_running_server(tmp_path: Path) -> None:
    with running("memlite") as server:
        target = ("--target", f"127.0.0.1:{server.port}", "--out", tmp_path)
        done = bench(*COMMAND[:3], *COMMAND[5:], *target, "--no-report")
        assert done.returncode == 0, done.stderr
        assert int(server.stats()["cmd_get"]) > 0


@pytest.mark.slow
def test_clusters_are_restarted_for_each_run(tmp_path: Path) -> None:
    done = bench(
        *("factorial", "--factor", "cluster=1,2", "--clients", "2", *COMMAND[5:]),
        *("--out", tmp_path, "--mix", "get=1", "--no-report"),
    )
    assert done.returncode == 0, done.stderr
    assert "cluster 1 → 2" in done.stdout


@pytest.mark.slow
def test_options_of_servers_and_proxies_are_factors(tmp_path: Path) -> None:
    done = bench(
        *("factorial", "--servers", "2", "--factor", "proxies=1,2"),
        *("--factor", "in-flight=1,8", "--factor", "server:loop=asyncio,auto"),
        *("--repetitions", "1", "--duration", "100ms", "--warm-up", "20ms", "--keys", "50"),
        *("--workload", "write-only", "--out", tmp_path, "--no-report"),
    )
    assert done.returncode == 0, done.stderr
    assert "with one repetition, statistical significance is unknown\n" in done.stdout
    for path in tmp_path.glob("runs/*"):
        proxies, in_flight, loop = path.name.partition("-")[0].split(".")
        results = load(path)
        (target,) = results.targets
        assert target.cluster is not None
        assert (target.cluster.nodes, target.cluster.proxies) == (2, int(proxies) + 1)
        assert target.details["proxies' options"] == f"--in-flight={(1, 8)[int(in_flight)]}"
        assert target.details["nodes' options"] == f"--loop={('asyncio', 'auto')[int(loop)]}"
        names = results.points[0].repetitions[0].processes
        assert len(names) == target.cluster.nodes + target.cluster.proxies


@pytest.mark.slow
def test_a_factor_with_three_levels(tmp_path: Path) -> None:
    done = bench(
        *("factorial", "--factor", "clients=1,2,8", "--factor", "noreply=off,on"),
        *("--repetitions", "2", "--duration", "100ms", "--warm-up", "20ms", "--keys", "50"),
        *("--mix", "set=1", "--out", tmp_path, "-q", "--no-report"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in ("  clients 1 → 2  ", "  clients 1 → 8  ", "  noreply off → on  "):
        assert words in done.stdout
    clients = {path.name: load(path).points[0].clients for path in tmp_path.glob("runs/*-1")}
    assert clients == {f"{a}.{b}-1": (1, 2, 8)[a] for a in range(3) for b in range(2)}
    noreply = load(tmp_path / "runs" / "0.1-1").workload["load"]["noreply"]
    assert noreply is True


@pytest.mark.slow
def test_runs_of_another_workload_or_process_are_not_mixed_in(tmp_path: Path) -> None:
    command = [*COMMAND, "--out", tmp_path, "--mix", "set=1", "-q", "--no-report"]
    assert bench(*command).returncode == 0
    for path in tmp_path.glob("runs/0.0-*/results.json"):
        saved = json.loads(path.read_text())
        saved["workload"]["load"]["pipeline"] = 7
        path.write_text(json.dumps(saved))
    refused = bench(*command)
    assert refused.returncode == 64
    shown = refused.stderr.replace("0.0-2", "0.0-1")
    assert "runs/0.0-1 was measured with other options" in shown
    for path in tmp_path.glob("runs/0.0-*/results.json"):
        path.unlink()
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another process is measuring in this folder" in bench(*command).stderr
    assert bench(*command).returncode == 0


def test_runs_without_a_success_have_nothing_to_analyse() -> None:
    one = dataclasses.replace(results(), points=results().points[:1])
    assert problem_of(one) == ""
    assert problem_of(results(clients=())) == "no operation succeeded"
    first, second, *_ = results().points
    failed = [dataclasses.replace(one, errors={"timeout": 3}) for one in second.repetitions]
    silent = dataclasses.replace(second, response={}, repetitions=failed)
    found = problem_of(dataclasses.replace(one, points=(first, silent)))
    assert found == f"no operation succeeded at {silent.clients} clients (timeout)"
    found = problem_of(dataclasses.replace(one, points=(silent,)))
    assert found == "no operation succeeded (timeout)"


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """Return a function that returns the error of a wrong command."""
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]

    def run(*arguments: object) -> str:
        assert main(["bench", "factorial", *map(str, arguments)]) == 64
        return capsys.readouterr().err

    yield run
    for number, handler in handlers:
        signal.signal(number, handler)


def test_another_experiment_is_not_mixed_in(tmp_path: Path, refused: Callable[..., str]) -> None:
    command = [*COMMAND[1:], "--out", tmp_path]
    (tmp_path / "factorial.json").write_text('{"factors": []}')
    assert "the runs of another experiment" in refused(*command)
    # The names of the runs' folders would refer to other levels.
    swapped = [COMMAND[0], *COMMAND[3:5], *COMMAND[1:3], *COMMAND[5:], "--out", tmp_path]
    experiment = {
        "factors": [
            {"name": "clients", "levels": ["1", "8"]},
            {"name": "value-size", "levels": ["10", "10k"]},
        ],
        "options": ["--backends", "memory", *COMMAND[7:]],
        "repetitions": 2,
        "seed": 1,
    }
    (tmp_path / "factorial.json").write_text(json.dumps(experiment))
    assert "the runs of another experiment" in refused(*swapped[1:])
    (tmp_path / "factorial.json").write_text("{")
    assert "factorial.json: Expecting" in refused(*command)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "factorial: --factor OPTION=VALUE,VALUE is required"),
        (["--factor", "clients"], "two or more values, such as clients=2,16"),
        (["--factor", "clients=1"], "two or more values"),
        (["--factor", "clients=2,2"], "two or more values"),
        (["--factor", "clients=1,x"], "argument --clients: not a number: 'x'"),
        (["--factor", "nothing=1,2"], "not an option of compare, a proxy or a server"),
        (["--factor", "client-s=1,2"], "did you mean clients?"),
        (["--factor", "in-flight=1,2"], "--proxy-option in-flight requires --cluster"),
        (["--factor", "servers=1,2", "--factor", "cluster=1,2"], "same name"),
        (["--factor", "servers=1,2", "--factor", "loop=auto,asyncio"], "server:loop or proxy:loop"),
        (["--factor", "servers=1,2", "--factor", "replicas=1,2"], "number of nodes, 1, not 2"),
        (["--factor", "durability=always,never"], "durability: must be one of"),
        (["--factor", "near-cache=0,16m", "--server-option", "near-cache=1m"], "is a factor"),
        (
            ["--cluster", "2", "--factor", "in-flight=1,2", "--proxy-option", "in-flight=3"],
            "--in-flight is a factor",
        ),
        (["--factor", "write-back=off,perhaps"], "--factor write-back: must be"),
        (["--factor", "server-option=a=1,b=2"], "server-option cannot be a factor"),
        (["--factor", "server:port=1,2"], "the load tester sets this option itself"),
        (["--factor", "clients=2,16", "--server-option", "durabilty=none"], "did you mean durabil"),
        (["--factor", "clients=1,2", "--factor", "clients=3,4"], "same name"),
        (["--factor", "clients=1,2", "--clients", "3"], "--clients is a factor"),
        (["--factor", "clients=1,2", "--clients=3"], "--clients is a factor"),
        (["--factor", "seed=1,2"], "seed cannot be a factor"),
        (["--factor", "clients=1,2", "--backends", "memory,file"], "one server at one load"),
        (["--factor", "clients=1,2", "--find-knee"], "one server at one load"),
        (["--factor", "pipeline=1,2", "--clients", "1,2"], "one server at one load"),
        (["--factor", "clients=1,2", "--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(*arguments)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - also of hidden files
