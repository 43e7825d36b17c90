"""``memlite bench study``: interrupted, completed, its report in a browser, and a plan from it.

docs/how-to/study-a-system.md describes these steps.
"""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.loadtest.files import load
from memlite.loadtest.pool import Pool
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.results import Results
from memlite.loadtest.study.design import QUICK, Sweep, study
from memlite.loadtest.study.output import runs_of
from memlite.loadtest.study.progress import StudyProgress
from memlite.loadtest.study.runs import Sweeps
from tests.support.bench import bench
from tests.support.drawing import interrupted_while_drawing

CHROMIUM = shutil.which("chromium")
# memcached starts in a tenth of the time of a memlite.
BACKEND = "memcached" if shutil.which("memcached") else "memory"
OPTIONS = (
    *("bench", "study", "--quick", "--backend", BACKEND, "--clients", "1,3,4"),
    *("--in-flight", "8,64", "--duration", "100ms", "--warm-up", "0", "--repetitions", "2"),
    *("--keys", "100"),
)
SECTIONS = ("direct", "proxied", "writes", "whole", "multigets", "experiment")


def sweeps(folder: Path) -> dict[str, int]:
    """Return the saved sweeps, with the time when each was saved."""
    return {
        path.parent.name: path.stat().st_mtime_ns for path in folder.glob("sweeps/*/results.json")
    }


class InterruptedAfter(ProgressDisplay):
    """A progress display that interrupts at the end of a measurement, as Ctrl+C would."""

    def __init__(self, measurements: int) -> None:
        self.left = measurements

    def finish_measurement(self) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def measure(sweeps: Sweeps, display: ProgressDisplay) -> dict[Sweep, Results]:
    with Pool(1) as pool:
        return sweeps.measure(StudyProgress(display), pool)


@pytest.mark.slow
def test_an_interrupted_sweep_keeps_the_repetitions_that_are_complete(tmp_path: Path) -> None:
    scale = replace(QUICK, clients=(1, 3, 4), duration=0.1, warm_up=0.0, repetitions=2)
    wanted = study(scale, "memory", ["--workers=1", "--keys=10"], 1)
    sweeps = Sweeps(replace(wanted, sweeps=wanted.sweeps[:1]), tmp_path)
    (sweep,) = sweeps.study.sweeps
    assert sweeps.missing() == {sweep: 3 * 2 * 2}
    assert not sweeps.begun(sweeps.missing())
    with pytest.raises(KeyboardInterrupt):  # in the second load
        measure(sweeps, InterruptedAfter(6))
    assert sweeps.missing() == {sweep: 3 * 2 * 2 - 6}
    assert sweeps.begun(sweeps.missing())
    kept = tmp_path / sweep.name / "repetitions"
    parts = {path.name: path.read_bytes() for path in kept.glob("steady-*")}
    assert len(parts) == 6
    assert not (tmp_path / sweep.name / "results.json").exists()

    measured = measure(sweeps, ProgressDisplay())[sweep]
    assert sweeps.missing() == {sweep: 0}
    assert [point.clients for point in measured.points] == [1, 3, 4] * 2
    for number in (0, 1):
        again = orjson.dumps(measured.points[0].repetitions[number])
        assert again == parts[f"steady-0-1-0.0-0-{number + 1}.json"]
    assert orjson.dumps(measured.points[1].repetitions[0]) == parts["steady-0-3-0.0-0-1.json"]
    assert not kept.exists()
    saved = load(tmp_path / sweep.name)
    assert [point.clients for point in saved.points] == [1, 3, 4] * 2
    assert all(point.checks is not None for point in saved.points)
    assert len(measured.saturation) == 2
    assert list(measured.command)[-1].startswith("--")
    assert "--clients=1,3,4" in measured.command
    # As if it had been killed after it had saved the results.
    kept.mkdir()
    for name, content in parts.items():
        (kept / name).write_bytes(content)
    assert sweeps.missing() == {sweep: 0}
    assert not kept.exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # This is a single test, as a study takes half a minute.
    folder = tmp_path / "out"
    options = [*OPTIONS, "--out", str(folder)]
    command = [sys.executable, "-m", "memlite", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        shown = []
        for line in process.stderr:
            shown.append(line)
            if len(sweeps(folder)) >= 2:
                break
        process.send_signal(signal.SIGINT)
        shown += process.stderr.readlines()
        assert process.wait() == 130
    assert re.fullmatch(r"150 measurements and the report: about \d+ min \d+ s\n", shown[0])
    goes_on = f"run the same command with --out {folder} to resume"
    assert shown[-1] == f"memlite: bench: interrupted; {goes_on}\n"
    before = sweeps(folder)
    assert len(before) >= 2

    # Another study is not mixed with it.
    assert main([*options, "--in-flight", "4,8"]) == 64
    problem = "contains data that is not from this study; choose another folder"
    assert problem in capsys.readouterr().err

    done = completed(options, f"no operation succeeded; {goes_on}")
    assert done.returncode == 0, done.stderr
    assert before.items() <= sweeps(folder).items()  # none of these was measured again
    assert f"report: {folder / 'report.html'}" in done.stdout
    assert re.fullmatch(r"time: \d+ min \d+ s", done.stdout.splitlines()[-1])
    assert all(len(line) < 80 for line in done.stdout.splitlines() if "report:" not in line)

    check_file(folder)
    check_plan(folder)
    check_what_ends_early([*options, "-q"], folder, capsys)
    if CHROMIUM is not None:
        check_page(folder / "report.html")


def completed(options: Sequence[str], chance: str) -> subprocess.CompletedProcess[str]:
    """Complete a study; repeat if 100 ms passed without a reply, as on a busy machine."""
    for _ in range(5):
        done = bench(*options[1:], "-q")
        if not done.stderr.endswith(f"{chance}\n"):
            break
    return done


def check_what_ends_early(
    options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check the messages of a study that cannot be completed, or that has failed in part."""
    command = [sys.executable, "-m", "memlite", *options]
    path = folder / "multigets" / "multigets.json"
    document = json.loads(path.read_bytes())
    document["runs"][0]["errors"] = 3
    path.write_text(json.dumps(document))
    # A run of the experiment is missing, too, and its server cannot start.
    (first, *_) = (folder / "experiment" / "runs").iterdir()
    shutil.rmtree(first)
    broken = {**os.environ, "MEMLITE_DURABILITY": "unheard-of"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=broken)
    assert done.returncode not in (0, 1, 130), done.stderr
    (said,) = done.stderr.splitlines()
    assert "unheard-of" in said
    assert said.endswith(f"; run the same command with --out {folder} to resume")
    assert str(folder / "experiment") not in said
    # From here on, the measurements are of another system.
    path = folder / "systems.json"
    systems = json.loads(path.read_bytes())
    systems[0]["machine"]["python"] = "CPython 2.7"
    path.write_text(json.dumps(systems))
    assert main(options) == 64
    said = capsys.readouterr().err
    assert "contains measurements of another system: python CPython 2.7, now CPython 3" in said
    # With --mix-systems the run is measured, and everything is evaluated before figures are drawn.
    shown = interrupted_while_drawing([*command, "--mix-systems"], folder)
    assert shown == (
        f"memlite: bench: interrupted after the last measurement; all of them are saved in "
        f"{folder}; run the same command with --out {folder} to write the report\n"
    )
    assert first.exists()
    first_of_all, *others = json.loads((folder / "results.json").read_bytes())["doubts"]
    assert first_of_all.startswith(
        "Measurements were made on different systems: python CPython 2.7 and"
    )
    assert "Gets of several keys: 3 requests failed." in others


def check_file(folder: Path) -> None:
    """Check that every table is filled, and that tables and figures are there as files."""
    document = json.loads((folder / "results.json").read_bytes())
    assert document["format"] == "memlite-study"
    assert set(document["sweeps"]) == set(sweeps(folder))
    tables = document["tables"]
    assert set(tables) == {
        *("direct", "proxied", "writes", "whole", "multigets", "multigets-percentiles"),
        *("experiment-throughput", "experiment-response_time", "experiment-p99"),
    }
    for name, table in tables.items():
        assert table["rows"], name
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        with (folder / "tables" / f"{name}.csv").open(newline="") as file:
            head, *rows = csv.reader(file)
        assert head == table["columns"]
        assert len(rows) == len(table["rows"])
        for row in table["rows"]:
            for column, value in zip(head, row, strict=True):
                check_cell(name, column, value, row)
    # Without a proxy: reads, writes and both, with one server and two.
    assert rows_of(tables["direct"]) == [
        f"{workload}, {servers}"
        for workload in ("read-only", "write-only", "mixed")
        for servers in ("1 node", "2 nodes")
    ]
    assert rows_of(tables["proxied"]) == [
        f"{workload}, {proxies}, {limit} in flight"
        for workload in ("read-only", "write-only")
        for limit in (8, 64)
        for proxies in ("1 proxy", "2 proxies")
    ]
    assert {"8 in flight", "64 in flight"} <= set(tables["writes"]["columns"])
    assert rows_of(tables["multigets"]) == [1, 3, 6, 9]
    # The proxy traces one request in ten, perhaps none of some sizes.
    places = [row[:3] for row in tables["multigets-percentiles"]["rows"]]
    at_clients = [
        [size, way, "clients"] for size in (1, 3, 6, 9) for way in ("sharded", "one node")
    ]
    assert [one for one in places if one[2] == "clients"] == at_clients
    assert any(one[2] == "proxy" for one in places)
    assert len(tables["experiment-throughput"]["rows"]) == 2**4 - 1
    assert document["answer"]
    assert list(document["models"]) == [
        *("reads from one server", "reads through one proxy", "writes to the whole system"),
    ]
    for name, models in document["models"].items():
        known = {one["name"] for one in models["models"]}
        assert {"M/M/1", "network"} <= known, name
        if name != "reads from one server":
            assert "M/M/m of the proxies' workers" in known, name
    assert len(list((folder / "figures").glob("*-dark.png"))) >= 20


def rows_of(table: Mapping[str, Any]) -> list[Any]:
    return [row[0] for row in table["rows"]]


def check_cell(table: str, column: str, value: object, row: Sequence[object]) -> None:
    """Check that a cell has a number or a word, and is empty only for a reason."""
    if column == "Unit":
        return
    where = f"{table}, {column}: {row}"
    if value is None:
        # A quantity whose spread only clients know, in a table with several quantities.
        assert table == "writes", where
        assert column.endswith(("95% low", "95% high")), where
        return
    if (table, column, row[0]) == ("multigets", "Sharding", 1):
        return  # a single key is on one node
    assert value != "", where
    assert not isinstance(value, str) or not re.search(r"\d [kMµ]|±|–|%$", value), where


def check_plan(folder: Path) -> None:
    """Check that a plan uses the runs with the requested workload."""
    assert {run.workload["name"] for run in runs_of(folder, "write-only")} == {"write-only"}
    assert len(runs_of(folder, "mixed")) == 2
    assert runs_of(folder / "sweeps" / "direct-mixed", "any") == [
        load(folder / "sweeps" / "direct-mixed")
    ]
    asked = ["bench", "plan", str(folder), "--rate", "1", "--p99", "60s"]
    assert main([*asked, "--workload", "ycsb-a"]) == 64


def check_page(file: Path) -> None:
    """Check the page in a browser: complete, without errors, and tables can be copied."""
    from playwright import sync_api as playwright

    said: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page: Any = browser.new_page(viewport={"width": 1100, "height": 900})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 1100
        for name in SECTIONS:
            assert page.locator(f"h2#{name}").is_visible()
        assert page.get_by_role("heading", name="Models:").count() == 3
        identifiers = page.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
        assert len(set(identifiers)) == len(identifiers)
        assert page.locator("figure svg").count() >= 20
        page.locator("details.take").first.locator("summary").click()
        button = page.locator("[data-copy=direct-LaTeX]")
        button.click()
        playwright.expect(button).not_to_have_text("Copy LaTeX")
        latex = page.locator("#direct-LaTeX")
        assert latex.inner_text().startswith(r"\begin{table}")
        assert said == []
        browser.close()
