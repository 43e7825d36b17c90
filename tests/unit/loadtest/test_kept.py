"""Finished repetitions that are kept until their run is complete."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from memlite.cli.main import main
from memlite.core.errors import ConfigError
from memlite.loadtest.kept import Kept, Slot
from memlite.loadtest.levels import Level
from memlite.loadtest.options import parse
from memlite.loadtest.planning import plan_of, settings_of
from memlite.loadtest.results import Repetition
from tests.support.ports import unused_port
from tests.unit.loadtest.samples import results

ONE = Slot(0, Level(2), 1)
SETTINGS = {"workload": {"keys": 100}}


def measured() -> Repetition:
    (point,) = results(kinds=("memory",), clients=(2,), repetitions=2).points
    return point.repetitions[0]


def test_a_repetition_is_read_as_it_was_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path, SETTINGS)
    with kept.locked():
        assert kept.begin({}) == ""
        assert kept.find(ONE) is None
        kept.keep(ONE, measured())
    found = Kept(tmp_path, SETTINGS).find(ONE)
    assert orjson.dumps(found) == orjson.dumps(measured())
    others = (replace(ONE, target=1), replace(ONE, number=2), replace(ONE, burst=True))
    levels = (Level(3), Level(2, rate=5.0), Level(2, value_size=9))
    for other in (*others, *(replace(ONE, level=level) for level in levels)):
        assert kept.find(other) is None
    assert kept.count() == 1
    kept.remove()
    assert list(tmp_path.iterdir()) == []
    assert kept.count() == 0


def test_other_options_are_refused_only_if_there_is_something_to_lose(tmp_path: Path) -> None:
    kept, other = Kept(tmp_path, SETTINGS), Kept(tmp_path, {"workload": {"keys": 50}})
    with kept.locked():
        kept.begin({"server": "1.6.18"})
    with other.locked():
        other.begin({"server": "1.6.40"})
        other.keep(ONE, measured())
    with pytest.raises(
        ConfigError, match=r"contains an unfinished run with other options; use the same"
    ):
        kept.count()
    with pytest.raises(ConfigError, match=r"another system: server 1\.6\.40, now 1\.6\.41; choose"):
        other.begin({"server": "1.6.41"})
    mixed = Kept(tmp_path, {"workload": {"keys": 50}}, mixed=True)
    expected = "measurements were made on different systems: server 1.6.40 and 1.6.41"
    assert mixed.begin({"server": "1.6.41"}) == expected
    # The warning is repeated, as it still applies.
    assert mixed.begin({"server": "1.6.41"}) == expected


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    kept = Kept(tmp_path, SETTINGS)
    with kept.locked():
        kept.begin({})
        kept.keep(ONE, measured())
    path = tmp_path / "repetitions" / ONE.name
    for content in (b"{", b"[]", b'{"number": "1"}'):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="is not a repetition"):
            kept.find(ONE)


def test_only_one_process_measures_into_a_folder(tmp_path: Path) -> None:
    kept = Kept(tmp_path, SETTINGS)
    refused = pytest.raises(
        ConfigError, match=f"--out {tmp_path}: another process is measuring in this folder"
    )
    with kept.locked(), refused, Kept(tmp_path, SETTINGS).locked():
        pass


def test_repetitions_without_their_settings_are_not_reused(tmp_path: Path) -> None:
    kept = Kept(tmp_path, SETTINGS)
    with kept.locked():
        kept.begin({})
        kept.keep(ONE, measured())
    (tmp_path / "repetitions" / "run.json").unlink()
    other = Kept(tmp_path, {"workload": {"keys": 50}})
    with other.locked():
        other.begin({})
        assert other.find(ONE) is None
        assert other.count() == 0


def test_settings_are_removed_after_the_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, SETTINGS)
    with kept.locked():
        kept.begin({})
        kept.keep(ONE, measured())
    settings, unlink = tmp_path / "repetitions" / "run.json", Path.unlink

    def note(path: Path, *, missing_ok: bool = False) -> None:
        assert settings.exists()
        unlink(path, missing_ok=missing_ok)
        noted.append(path.name)

    noted: list[str] = []
    monkeypatch.setattr(Path, "unlink", note)
    kept.remove()
    assert noted == [ONE.name]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "repetitions").write_bytes(b"")
    problem = r"repetitions/\.lock cannot be written: "
    with pytest.raises(ConfigError, match=problem), Kept(tmp_path, SETTINGS).locked():
        pass


def test_a_refused_command_leaves_the_files_of_the_running_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, folder = Kept(tmp_path, SETTINGS), tmp_path / "repetitions"
    command = ["bench", "run", f"127.0.0.1:{unused_port()}", "--out", str(tmp_path), "--quiet"]
    with kept.locked():
        kept.begin({})
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert before.keys() == {".lock", "run.json", "systems.json"}
        assert main(command) == 64
        assert "another process is measuring in this folder" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        kept.keep(ONE, measured())
    assert main(command) == 64  # its options differ
    assert "contains an unfinished run with other options" in capsys.readouterr().err
    assert kept.find(ONE) is not None


def test_options_only_for_the_report_may_change(tmp_path: Path) -> None:
    def settings(*more: str) -> object:
        arguments = ["run", "h:1", *more]
        options = parse(arguments)
        assert options is not None
        return settings_of(plan_of(options, arguments, Path()), options)

    assert settings("--machine=c4-standard-2", "--title=x", "--quiet") == settings()
    assert settings("--keys=5") != settings()
    trace = tmp_path / "trace.csv"
    trace.write_text("time,operation,key,size\n,get,a,\n")
    before = settings(f"--trace={trace}")
    assert settings(f"--trace={trace}") == before
    trace.write_text("time,operation,key,size\n,get,b,\n")
    assert settings(f"--trace={trace}") != before
