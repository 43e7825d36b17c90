"""``memlite bench models``: the files that it writes, and the arguments that it refuses."""

import csv
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.lab import Station
from memlite.loadtest.files import save
from memlite.loadtest.models.output import COLUMNS
from tests.support.bench import bench
from tests.unit.loadtest.models.synthetic import CLIENTS, SECONDS, points, results
from tests.unit.loadtest.models.test_traces import queue_rows, write


@pytest.mark.slow
def test_the_command_writes_its_files(tmp_path: Path) -> None:
    measured = points(
        "one", [Station("server", 80e-6)], lambda _: {"server": 80e-6}, generator=1e-6
    )
    save(results(measured), tmp_path)
    done = bench("models", tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 0
    shown = done.stdout
    assert f"closed M/M/1 holds at {', '.join(map(str, CLIENTS[1:]))} clients." in shown
    assert shown.endswith(f"report: {tmp_path}/out/models.html\n")
    page = (tmp_path / "out" / "models.html").read_text()
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/", "")
    assert (tmp_path / "out" / "models.csv").read_text().startswith(",".join(COLUMNS))
    pictures = sorted(path.name for path in (tmp_path / "out").glob("*.png"))
    assert [name for name in pictures if "dark" not in name] == [
        f"models-1-one-{kind}.png" for kind in ("response-time", "throughput", "utilisation")
    ]


@pytest.mark.slow
def test_a_trace_goes_into_the_models(tmp_path: Path) -> None:
    """Two workers of a proxy that take 10 ms each become a station."""
    measured = points("p", [Station("w", 0.01, 2)], lambda _: {"server": 1e-5}, clients=[1, 2])
    rows = [
        row
        for one in measured
        for repetition in one.repetitions
        for row in queue_rows(repetition.started, SECONDS, one.clients, 2, [0.01] * 500)
    ]
    write(tmp_path / "trace.csv", rows)
    save(results(measured), tmp_path)
    out = tmp_path / "out"
    trace = tmp_path / "trace.csv"
    assert bench("models", tmp_path, "--trace", trace, "--out", out).returncode == 0
    with (out / "models.csv").open(newline="") as file:
        assert "M/M/2 of proxy's workers" in {row["model"] for row in csv.DictReader(file)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models"], "required: RESULTS"),
        (["models", "nowhere"], "nowhere cannot be read"),
        (["models", "x", "--servers", "0"], "--servers: must be 1 or more"),
    ],
)
def test_errors_are_reported_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 64
    text = capsys.readouterr().err
    assert message in text
    assert len(text.splitlines()) == 1
