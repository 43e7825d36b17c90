"""Resumed measurements: one process at a time, and differences of systems are named."""

from pathlib import Path

import orjson
import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.machine import machine, versions
from memlite.loadtest.resuming import differences, locked, systems


def test_only_one_process_measures_into_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(ConfigError, match="another process is measuring in this folder")
    with locked(tmp_path), refused, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_lock_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(ConfigError, match=r"\.lock cannot be written: "), locked(tmp_path):
        pass


def test_systems_that_differ_are_named(tmp_path: Path) -> None:
    assert systems(tmp_path, measuring=False) == []
    assert systems(tmp_path, measuring=True) == [(machine(), versions())]
    assert differences(systems(tmp_path, measuring=True)) == ""
    path = tmp_path / "systems.json"
    saved = orjson.loads(path.read_bytes())
    saved[0]["versions"]["memlite"] = "0.0.1"
    saved[0]["machine"]["cores"] = 99
    saved[0]["machine"]["hostname"] = "elsewhere"
    path.write_bytes(orjson.dumps(saved))
    assert len(systems(tmp_path, measuring=False)) == 1
    here = machine()["cores"], versions()["memlite"]
    with pytest.raises(ConfigError) as refused:
        systems(tmp_path, measuring=True)
    assert str(refused.value) == (
        f"bench: --out {tmp_path} contains measurements of another system: "
        f"cores 99, now {here[0]}; "
        f"memlite 0.0.1, now {here[1]}; choose another folder, or add --mix-systems"
    )
    text = differences(systems(tmp_path, measuring=True, mixed=True))
    assert text == (
        f"measurements were made on different systems: cores 99 and {here[0]}, "
        f"memlite 0.0.1 and {here[1]}"
    )
    path.write_text("{")
    with pytest.raises(ConfigError, match="is not a list of systems"):
        systems(tmp_path, measuring=True)


def test_a_version_that_only_one_system_has_is_no_difference() -> None:
    here = machine(), versions()
    assert differences([here, (here[0], {**here[1], "another": "1"})]) == ""
    assert {"memlite", "build"} <= set(here[1])
