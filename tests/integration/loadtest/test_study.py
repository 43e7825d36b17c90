"""``memlite bench study``: interrupted, completed, its report in a browser, and a plan from it.

So it is described in docs/how-to/study-a-system.md.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.loadtest.files import load
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.study.design import QUICK, study
from memlite.loadtest.study.output import runs_of
from memlite.loadtest.study.progress import StudyProgress
from memlite.loadtest.study.runs import Sweeps
from tests.support.drawing import interrupted_while_drawing

CHROMIUM = shutil.which("chromium")
COMMAND = (
    *(sys.executable, "-m", "memlite", "bench", "study", "--quick", "--clients", "1,4,16"),
    *("--duration", "60ms", "--warm-up", "10ms", "--repetitions", "2", "--keys", "100"),
)
SECTIONS = ("direct", "proxied", "writes", "whole", "multigets", "experiment")


def sweeps(folder: Path) -> dict[str, int]:
    """Return the sweeps that are there, with the time when each was saved."""
    return {
        path.parent.name: path.stat().st_mtime_ns for path in folder.glob("sweeps/*/results.json")
    }


class InterruptedAfter(ProgressDisplay):
    """As if the user pressed Ctrl+C at the end of a measurement."""

    def __init__(self, measurements: int) -> None:
        self.left = measurements

    def finish_measurement(self) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_sweep_keeps_the_repetitions_that_are_complete(tmp_path: Path) -> None:
    scale = replace(QUICK, clients=(1, 3, 4), duration=0.05, warm_up=0.0, repetitions=2)
    wanted = study(scale, "memory", ["--workers=1", "--keys=10"], 1)
    sweeps = Sweeps(replace(wanted, sweeps=wanted.sweeps[:1]), tmp_path)
    (sweep,) = sweeps.study.sweeps
    assert sweeps.missing({}) == 3 * 2 * 2
    with pytest.raises(KeyboardInterrupt):  # in the second load
        sweeps.measure({}, StudyProgress(InterruptedAfter(6)))
    before = sweeps.there()
    assert list(before) == [(sweep, 1)]
    assert sweeps.missing(before) == 2 * 2 * 2 - 2
    kept = tmp_path / sweep.name / "3" / "repetitions"
    parts = {path: path.read_bytes() for path in kept.glob("steady-*")}
    assert len(parts) == 2
    assert not (tmp_path / sweep.name / "results.json").exists()

    measured = sweeps.measure(before, StudyProgress(ProgressDisplay()))[sweep]
    assert sweeps.there()[sweep, 1] == before[sweep, 1]
    assert [point.clients for point in measured.points] == [1, 3, 4] * 2
    assert list(measured.points[0].repetitions) == list(before[sweep, 1].points[0].repetitions)
    (third,) = {orjson.dumps(point.repetitions[0]) for point in measured.points[1:2]}
    assert third == parts[kept / "steady-0-3-0.0-0-1.json"]
    assert not kept.exists()
    saved = load(tmp_path / sweep.name)
    assert [point.clients for point in saved.points] == [1, 3, 4] * 2
    assert all(point.checks is not None for point in saved.points)
    assert len(measured.saturation) == 2
    assert list(measured.command)[-1].startswith("--")
    assert "--clients=1,3,4" in measured.command


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study(tmp_path: Path) -> None:
    # This is a single test, as a study takes a minute or two.
    folder = tmp_path / "out"
    command = [*COMMAND, "--out", str(folder)]
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
    goes_on = f"the same command with --out {folder} goes on"
    assert shown[-1] == f"memlite: bench: interrupted; {goes_on}\n"
    before = sweeps(folder)
    assert len(before) >= 2

    # Another study is not mixed with it.
    other = subprocess.run(
        [*command, "--in-flight", "4,8"], capture_output=True, text=True, timeout=60
    )
    assert other.returncode == 64
    assert "contains something other than this study; choose another folder" in other.stderr

    done = subprocess.run([*command, "-q"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert before.items() <= sweeps(folder).items()  # none of these was measured again
    assert f"report: {folder / 'report.html'}" in done.stdout
    assert all(len(line) < 80 for line in done.stdout.splitlines() if "report:" not in line)

    check_file(folder)
    check_plan(folder)
    check_what_ends_early([*command, "-q"], folder)
    if CHROMIUM is not None:
        check_page(folder / "report.html")


def check_what_ends_early(command: list[str], folder: Path) -> None:
    """Check what a study says that cannot be completed, or of which a part has failed."""
    shown = interrupted_while_drawing(command, folder)
    assert shown == (
        f"memlite: bench: interrupted after everything was measured, which is in {folder}; the "
        f"same command with --out {folder} writes the report\n"
    )
    path = folder / "multigets" / "multigets.json"
    document = json.loads(path.read_bytes())
    document["runs"][0]["errors"] = 3
    path.write_text(json.dumps(document))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert done.stderr == "memlite: bench: requests have failed; the results say how\n"
    # Now a run of the experiment is missing, and its server cannot start.
    (first, *_) = (folder / "experiment" / "runs").iterdir()
    shutil.rmtree(first)
    broken = {**os.environ, "MEMLITE_DURABILITY": "unheard-of"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=broken)
    assert done.returncode not in (0, 1, 130), done.stderr
    (said,) = done.stderr.splitlines()
    assert "unheard-of" in said
    assert said.endswith(f"; the same command with --out {folder} goes on")
    assert str(folder / "experiment") not in said
    # Later this is another system.
    path = folder / "systems.json"
    systems = json.loads(path.read_bytes())
    systems[0]["machine"]["python"] = "CPython 2.7"
    path.write_text(json.dumps(systems))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 64
    assert "has measurements of another system: python CPython 2.7, now CPython 3" in done.stderr
    mixed = [*command, "--mix-systems"]
    done = subprocess.run(mixed, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("Measurements are of different systems: python CPython 2.7 and")


def check_file(folder: Path) -> None:
    """Check that every table is filled, and that tables and figures are there as files."""
    document = json.loads((folder / "results.json").read_bytes())
    assert document["format"] == "memlite-study"
    assert set(document["sweeps"]) == set(sweeps(folder))
    tables = document["tables"]
    assert {*("direct", "proxied", "writes", "whole", "multigets")} <= set(tables)
    for name, table in tables.items():
        assert table["rows"], name
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        if not name.startswith("experiment"):
            assert all(cell for row in table["rows"] for cell in row), name
        assert (folder / "tables" / f"{name}.csv").exists()
    assert len(tables["direct"]["rows"]) == 6
    assert len(tables["proxied"]["rows"]) == 8
    assert document["answer"]
    assert len(document["models"]) == 3
    assert len(list((folder / "figures").glob("*-dark.png"))) >= 20


def check_plan(folder: Path) -> None:
    """Check that a plan takes the runs with the workload that it asks for."""
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
