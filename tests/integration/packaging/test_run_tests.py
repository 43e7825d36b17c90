"""``scripts/lib/testing.sh``: which test failures make a run fail."""

import fcntl
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert False\n"
# Three tests that fail in their first run.
FAIL_ONCE = """
import pathlib, pytest

def fail_once(name):
    mark = pathlib.Path(name)
    ran = mark.exists()
    mark.touch()
    assert ran

@pytest.mark.parametrize("name", ["a", 'b "c"'])
def test_beside_others(name):
    fail_once(name)

@pytest.mark.alone
def test_alone():
    fail_once("alone")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for tests, with the same options and marks as here."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone: a\n    slow: b\n")
    return tmp_path


def run(folder: Path, tests: str, retries: int, **variables: str) -> tuple[int, str]:
    """Run tests; return the exit code and the output."""
    (folder / "test_it.py").write_text(tests)
    program = (
        f'. "{ROOT}/scripts/lib/testing.sh"; code=0; run_tests "{sys.executable}" all || code=$?;'
        " print_tally tally; exit $code"
    )
    done = subprocess.run(
        ["bash", "-euc", program],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "MEMLITE_TEST_TALLY": "tally",
            "MEMLITE_TEST_WORKERS": "1",
            "MEMLITE_TEST_RETRIES": str(retries),
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_test_that_fails_once_is_named_but_does_not_fail_the_run(folder: Path) -> None:
    code, shown = run(folder, PASSES + FAIL_ONCE, retries=2)
    assert code == 0, shown
    sums, *named = shown.splitlines()[-4:]
    assert sums == "4 passed, 0 failed, 0 skipped"
    assert sorted(named) == [
        f"failed, then passed when rerun: test_it.py::test_{name}"
        for name in ("alone", "beside_others[a]", 'beside_others[b \\"c\\"]')
    ]


@pytest.mark.parametrize(
    ("tests", "retries", "sums"),
    [
        (PASSES + FAIL_ONCE, 0, "1 passed, 3 failed, 0 skipped"),
        (PASSES + FAIL_ONCE, 1, "2 passed, 2 failed, 0 skipped"),  # retries test_alone
        (PASSES + FAILS, 1, "1 passed, 1 failed, 0 skipped"),
    ],
)
def test_failures_fail_the_run(folder: Path, tests: str, retries: int, sums: str) -> None:
    code, shown = run(folder, tests, retries)
    assert code == 1, shown
    assert sums in shown.splitlines(), shown


@pytest.mark.skipif(sys.platform != "linux", reason="locks are listed in /proc")
def test_a_test_that_runs_alone_waits_for_other_runs(folder: Path) -> None:
    lock = folder / "lock"
    lock.touch()
    waiting = re.compile(rf"-> FLOCK .* WRITE \d+ \S+:{lock.stat().st_ino} ")
    tests = "import pathlib, pytest\n" + "".join(
        f"{mark}def test_{name}():\n    pathlib.Path('{name}').touch()\n"
        for name, mark in (("beside_others", ""), ("alone", "@pytest.mark.alone\n"))
    )
    with ThreadPoolExecutor() as threads, lock.open() as other_run:
        fcntl.flock(other_run, fcntl.LOCK_SH)
        ran = threads.submit(run, folder, tests, 0, MEMLITE_TEST_LOCK=str(lock))
        try:
            assert wait_until(lambda: bool(waiting.search(Path("/proc/locks").read_text())), 200)
            assert (folder / "beside_others").exists()
            assert not (folder / "alone").exists()
        finally:
            fcntl.flock(other_run, fcntl.LOCK_UN)
        code, shown = ran.result()
    assert code == 0, shown
    assert (folder / "alone").exists()
