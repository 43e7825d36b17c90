"""``memlite bench``: a run that was interrupted or killed can be resumed without losing results."""

import signal
import subprocess
import sys
import time

import orjson
import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest import experiment
from memlite.loadtest.experiment import run
from memlite.loadtest.kept import Kept
from memlite.loadtest.options import parse
from memlite.loadtest.planning import plan_of, settings_of
from memlite.loadtest.progress import ProgressDisplay
from tests.support.bench import bench
from tests.support.drawing import interrupted_while_drawing

REPETITIONS = 2
LOADS = "1:6"
# The second load must not end before the interruption, even if the test is delayed.
MANY_LOADS = "1:24"
OPTIONS = (
    *("--clients", LOADS, "--repetitions", str(REPETITIONS), "--duration", "200ms"),
    *("--warm-up", "20ms", "--keys", "100", "--no-report"),
)


def command(server, folder, *more):
    return [
        *(sys.executable, "-m", "memlite", "bench", "run", f"127.0.0.1:{server.port}"),
        *(*OPTIONS, "--out", str(folder), *more),
    ]


def kept_in(folder):
    """Return the finished repetitions: their files' names and contents."""
    found = (folder / "repetitions").glob("steady-*.json")
    return {path.name: path.read_bytes() for path in found}


def wait_until(true, process):
    deadline = time.monotonic() + 60
    while not true():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def end_in_second_load(arguments, folder, number):
    """Run a command until the second load has a finished repetition; return its errors."""
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: len(kept_in(folder)) > REPETITIONS, process)
        finally:
            process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number), errors
    return errors.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "loads"), [(signal.SIGKILL, LOADS), (signal.SIGINT, MANY_LOADS)]
)
def test_a_run_goes_on_in_the_middle_of_a_load(memlite, tmp_path, number, loads):
    folder = tmp_path / "out"
    arguments = command(memlite, folder, "--clients", loads)
    errors = end_in_second_load(arguments, folder, number)
    before = kept_in(folder)
    total = int(loads.removeprefix("1:")) * REPETITIONS
    assert REPETITIONS < len(before) < total
    assert (folder / "results.json").exists() == (number == signal.SIGINT)
    if number == signal.SIGINT:
        assert (
            f"partial results were saved; run the same command with --out {folder} to resume"
            in errors
        )

    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    there = len(before)
    assert f"{there} of {total} repetitions have already been measured\n" in done.stderr
    assert f"[{total - there}/{total - there}]" in done.stderr  # only the missing ones
    document = orjson.loads((folder / "results.json").read_bytes())
    assert not document["partial"]
    found = {
        f"steady-0-{point['clients']}-0.0-0-{one['number']}.json": orjson.dumps(one)
        for point in document["points"]
        for one in point["repetitions"]
    }
    assert len(found) == total
    assert before.items() <= found.items()  # byte for byte
    assert not (folder / "repetitions").exists()


@pytest.mark.slow
def test_an_interrupted_report_is_written_from_what_was_measured(memlite, tmp_path):
    folder = tmp_path / "out"
    words = [one for one in command(memlite, folder, "--quiet") if one != "--no-report"]
    said = interrupted_while_drawing(words, folder)
    assert said == (
        f"memlite: bench: interrupted after the last measurement; all of them are saved in "
        f"{folder / 'results.json'}; 'memlite bench report {folder}' writes the report\n"
    )
    assert not (folder / "repetitions").exists()
    before = (folder / "results.json").read_bytes()
    assert bench("report", folder).returncode == 0
    assert (folder / "report.html").exists()
    assert (folder / "results.json").read_bytes() == before


class InterruptedAfter(ProgressDisplay):
    """A progress display that interrupts at the end of a measurement, as Ctrl+C would."""

    def __init__(self, measurements):
        self.left = measurements

    def finish_measurement(self):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_remaining_repetitions_keep_their_seeds(memlite, tmp_path, monkeypatch):
    seeds = []
    measure = experiment.measure

    def note(pool, target, tasks, number, display):
        seeds.append((number, [task.seed for task in tasks]))
        return measure(pool, target, tasks, number, display)

    monkeypatch.setattr(experiment, "measure", note)
    arguments = [
        *("run", f"127.0.0.1:{memlite.port}", "--clients=1,2", "--value-size=10,20", "--keys=10"),
        *("--repetitions=2", "--duration=20ms", "--warm-up=0s", "--workers=1"),
    ]
    options = parse(arguments)

    def measured(display, kept):
        return run(plan_of(options, arguments, tmp_path), display, kept)

    measured(ProgressDisplay(), None)
    wanted = list(seeds)
    seeds.clear()
    kept = Kept(tmp_path, settings_of(plan_of(options, arguments, tmp_path), options))
    with kept.locked():
        assert measured(InterruptedAfter(5), kept).partial
        assert measured(ProgressDisplay(), kept).partial is False
    assert seeds == wanted
    assert len(seeds) == 8


@pytest.mark.slow
def test_measurements_of_another_system_are_not_mixed_unless_told(memlite, tmp_path):
    folder = tmp_path / "out"
    end_in_second_load(command(memlite, folder), folder, signal.SIGKILL)
    path = folder / "repetitions" / "systems.json"
    saved = orjson.loads(path.read_bytes())
    saved[0]["versions"]["memlite"] = "0.0.1"
    saved[0]["machine"]["cores"] = 99
    assert f"127.0.0.1:{memlite.port}" in saved[0]["versions"]
    path.write_bytes(orjson.dumps(saved))
    before = kept_in(folder)
    refused = bench(*command(memlite, folder)[4:])
    assert refused.returncode == 64
    (said,) = refused.stderr.splitlines()[-1:]
    assert f"--out {folder} contains measurements of another system: cores 99, now " in said
    assert "; memlite 0.0.1, now " in said
    assert "--mix-systems" in said
    assert kept_in(folder) == before

    done = bench(*command(memlite, folder, "--mix-systems")[4:])
    assert done.returncode == 0, done.stderr
    shown = done.stdout.replace("\n", " ")
    assert "Measurements were made on different systems: cores 99 and " in shown
    results = orjson.loads((folder / "results.json").read_bytes())
    assert results["mixed"].startswith("measurements were made on different systems: cores 99 and ")
