"""``memlite bench models``: real processes whose service times and workers are known."""

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.lab import Station
from memlite.loadtest.files import save
from memlite.loadtest.models.output import COLUMNS
from tests.support.proxies import proxy
from tests.support.servers import RunningServer
from tests.unit.loadtest.models.synthetic import CLIENTS, points, results

MEAN = 0.05
"""Seconds: far longer than a process waits for a core, even on a busy machine."""
SWEEP = [
    *("--clients", "1,2,4,8,16", "--mix", "get=1", "--keys", "1", "--value-size", "1"),
    *("--duration", "2", "--warm-up", "300ms", "--repetitions", "3", "--workers", "1"),
]


@contextlib.contextmanager
def queueing_server(workers: int) -> Iterator[RunningServer]:
    command = [sys.executable, "-m", "tests.support.queueing_server", str(MEAN), str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield RunningServer("queueing", process, int(process.stdout.readline()))
        finally:
            process.terminate()


def bench(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "memlite", "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def models(folder: Path, *arguments: object) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return what the command prints, its only target, and that target's models by name."""
    shown = bench("models", folder, *arguments)
    (target,) = json.loads((folder / "models.json").read_text())
    return shown, target, {one["name"]: one for one in target["models"]}


def worst(model: dict[str, Any]) -> float:
    """Return the largest error of a model, as a share of the measured value."""
    return max(
        abs(one["predicted"] / one["measured"] - 1) if one["predicted"] is not None else math.inf
        for one in model["checks"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_fit_finds_the_service_time_and_the_workers(workers: int, tmp_path: Path) -> None:
    with queueing_server(workers) as server:
        bench("run", f"127.0.0.1:{server.port}", *SWEEP, "--no-report", "--out", tmp_path)
    shown, _, found = models(tmp_path, "--servers", workers)
    fitted = found[f"fitted M/M/{workers}"]
    assert worst(fitted) < 0.3, shown
    service = fitted["fitted"]["service time"]
    # The interval covers it, but for 5% of runs: with some room it is never chance.
    low, high = service["low"], service["high"]
    assert low * 0.85 <= MEAN <= high * 1.15, shown
    assert service["value"] == pytest.approx(MEAN, rel=0.25), shown
    # By processor time, the server would do far more than it does.
    wrong = found[f"closed M/M/{workers}"]
    assert not wrong["fits"]
    assert worst(wrong) > 2
    assert any("wait for something that is not measured" in one for one in wrong["reasons"]), shown
    # With another number of workers, nothing fits.
    shown, _, found = models(tmp_path, "--servers", workers * 8)
    wrong = found[f"fitted M/M/{workers * 8}"]
    assert not wrong["fits"], shown
    assert worst(wrong) > 0.4, shown


@pytest.mark.slow
def test_a_network_of_a_proxy_and_a_node(tmp_path: Path) -> None:
    """The proxy's two workers wait for a node that takes a known time for each request."""
    trace = tmp_path / "trace.csv"
    with (
        queueing_server(4) as node,
        proxy([node], "--in-flight", "2", "--trace", str(trace), "--deadline", "30") as front,
    ):
        bench("run", f"127.0.0.1:{front.port}", *SWEEP, "--no-report", "--out", tmp_path)
    shown, target, found = models(tmp_path, "--trace", trace)
    assert target["bottleneck"] == "proxy's workers"
    stations = {one["name"]: one for one in target["stations"]}
    workers = stations["proxy's workers"]
    assert workers["servers"] == 2
    assert workers["demand"] == pytest.approx(MEAN, rel=0.25), shown
    assert worst(found["network"]) < 0.3, shown
    # Its arrivals know nothing of the number of clients.
    assert not found["M/M/1"]["fits"]
    assert worst(found["M/M/1"]) > 1
    for name in ("models.html", "models.csv"):
        assert (tmp_path / name).stat().st_size


@pytest.mark.slow
def test_the_command_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = points(
        "one", [Station("server", 80e-6)], lambda _: {"server": 80e-6}, generator=1e-6
    )
    save(results(measured), tmp_path)
    assert main(["bench", "models", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert f"closed M/M/1 holds at {', '.join(map(str, CLIENTS[1:]))} clients." in shown
    assert shown.endswith(f"report: {tmp_path}/out/models.html\n")
    page = (tmp_path / "out" / "models.html").read_text()
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/", "")
    assert (tmp_path / "out" / "models.csv").read_text().startswith(",".join(COLUMNS))
    pictures = sorted(path.name for path in (tmp_path / "out").glob("*.png"))
    assert [name for name in pictures if "dark" not in name] == [
        f"models-1-one-{kind}.png" for kind in ("response-time", "throughput", "utilisation")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models"], "required: RESULTS"),
        (["models", "nowhere"], "nowhere cannot be read"),
        (["models", "x", "--servers", "0"], "--servers: must be 1 or more"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 64
    text = capsys.readouterr().err
    assert message in text
    assert len(text.splitlines()) == 1
