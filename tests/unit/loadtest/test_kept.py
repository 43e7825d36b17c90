"""Finished repetitions that are kept until their run is complete."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.kept import Kept, Slot
from memlite.loadtest.levels import Level
from tests.unit.loadtest.samples import results

ONE = Slot(0, Level(2), 1)
SETTINGS = {"workload": {"keys": 100}}
(MEASURED, *_) = results(kinds=("memory",), clients=(2,), repetitions=2).points[0].repetitions


def test_a_repetition_is_read_as_it_was_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path, SETTINGS)
    with kept.locked():
        assert kept.begin({}) == ""
        assert kept.find(ONE) is None
        kept.keep(ONE, MEASURED)
    found = Kept(tmp_path, SETTINGS).find(ONE)
    assert orjson.dumps(found) == orjson.dumps(MEASURED)
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
        other.keep(ONE, MEASURED)
    with pytest.raises(ConfigError, match=r"has an unfinished run with other options; repeat"):
        kept.count()
    with pytest.raises(ConfigError, match=r"another system: server 1\.6\.40, now 1\.6\.41; choose"):
        other.begin({"server": "1.6.41"})
    mixed = Kept(tmp_path, {"workload": {"keys": 50}}, mixed=True)
    expected = "measurements are of different systems: server 1.6.40 and 1.6.41"
    assert mixed.begin({"server": "1.6.41"}) == expected
    # It was told once, and is still so.
    assert mixed.begin({"server": "1.6.41"}) == expected


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    kept = Kept(tmp_path, SETTINGS)
    with kept.locked():
        kept.begin({})
        kept.keep(ONE, MEASURED)
    path = tmp_path / "repetitions" / ONE.name
    for content in (b"{", b"[]", b'{"number": "1"}'):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="is not a repetition"):
            kept.find(ONE)


def test_one_process_measures_for_a_folder(tmp_path: Path) -> None:
    kept = Kept(tmp_path, SETTINGS)
    refused = pytest.raises(ConfigError, match=f"--out {tmp_path}: another process measures there")
    with kept.locked(), refused, Kept(tmp_path, SETTINGS).locked():
        pass
