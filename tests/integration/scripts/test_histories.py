"""The script that records histories of clusters reports its findings."""

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from tests.support.linearizability import Operation
from tests.support.linearizability.clients import Recording
from tests.support.linearizability.history import Result
from tests.support.paths import ROOT

SCRIPT = ROOT / "scripts" / "cluster" / "histories.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("histories", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_history_that_is_not_linearizable_is_counted(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = Operation("a", "set", b"k", 0.0, 1.0, Result("STORED"), b"new")
    read = Operation("b", "get", b"k", 2.0, 3.0, Result("HIT", b"old"))
    row = script.Row("2 copies", "paused")
    row.take(Recording([stored]), [], "seed 1")
    row.take(Recording([stored, read]), [], "seed 2")
    assert (row.histories, row.operations, len(row.violations)) == (2, 3, 1)
    script.show([row])
    shown = capsys.readouterr()
    assert "| all | | 2 | 0 | 3 | 0 | 1 |" in shown.out
    assert "2 copies, paused, seed 2:" in shown.err


def test_histories_are_spread_over_all_configurations(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[str, int] = dict.fromkeys(script.FAULTS, 0)

    def fail(_promise: object, _kind: str, fault: str, count: int, _seed: int) -> None:
        counts[fault] += count

    def change(_copies: int, _kind: str, faults: list[str], count: int, _seed: int) -> list[None]:
        for fault in faults:
            counts[fault] += count
        return []

    monkeypatch.setattr(script, "fail", fail)
    monkeypatch.setattr(script, "change", change)
    list(script.recorded(200, script.FAULTS, ["memlite", "memcached"], 0))
    assert counts == dict.fromkeys(script.FAULTS, 40)


@pytest.mark.slow
def test_it_prints_a_table() -> None:
    ended = subprocess.run(
        [sys.executable, SCRIPT, "--count", "1", "--faults", "killed", "--nodes", "memlite"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("| all | | 1 | ")
