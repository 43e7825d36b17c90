"""Saved results load unchanged; anything else is refused with a one-line message."""

import csv
import dataclasses
import json
import os

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from hypothesis import given
from hypothesis import strategies as st

from memlite.core.errors import ConfigError
from memlite.loadtest.files import COLUMNS, load, save
from memlite.loadtest.results import Latency, Repetition, Results, Slice
from tests.unit.loadtest.samples import KNEE, results


@pytest.fixture(scope="module")
def sample():
    return results(clients=(1, 10), rates=(500,), knees=(KNEE,))


def saved(folder, **changes):
    save(results(clients=(1,), kinds=("memory",)), folder)
    file = folder / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return file


@pytest.mark.parametrize("name", ["", "results.json"])
def test_round_trip(sample, tmp_path, name):
    folder = tmp_path / "a" / "b"
    files = save(sample, folder)
    assert files == [folder / "results.json", folder / "results.csv"]
    assert load(folder / name) == sample
    assert sorted(path.name for path in folder.iterdir()) == ["results.csv", "results.json"]


texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**53)
latencies = st.builds(Latency, counts, numbers, numbers, numbers)


@given(
    st.builds(
        Repetition,
        number=counts,
        started=numbers,
        seconds=numbers,
        operations=counts,
        errors=st.dictionaries(texts, counts),
        response=st.dictionaries(texts, latencies),
        series=st.lists(
            st.builds(Slice, counts, counts, counts, st.none() | numbers, st.none() | numbers)
        ).map(tuple),
        server=st.none(),
        generator_share=numbers,
    )
)
def test_round_trip_of_any_repetition(tmp_path_factory, repetition):
    sample = results(clients=(1,), kinds=("memory",))
    point = dataclasses.replace(sample.points[0], repetitions=(repetition,))
    # `point` is not recomputed: JSON cannot represent an infinite throughput.
    sample = dataclasses.replace(sample, points=(point,))
    folder = tmp_path_factory.getbasetemp() / "any"
    save(sample, folder)
    assert load(folder) == sample


def test_the_csv_file_has_a_row_for_each_repetition(sample, tmp_path):
    save(sample, tmp_path)
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == sum(len(point.repetitions) for point in sample.points)
    first = sample.points[0].repetitions[0]
    assert rows[0]["target"] == "memory"
    assert float(rows[0]["throughput"]) == first.throughput
    assert float(rows[0]["p99.9_us"]) == first.response["all"].p999
    assert int(rows[0]["server_memory_bytes"]) == first.server.memory_bytes


def test_unknown_fields_are_ignored(tmp_path):
    file = saved(tmp_path, later="more")
    document = json.loads(file.read_text())
    document["points"][0]["later"] = {"a": [1]}
    file.write_text(json.dumps(document))
    assert isinstance(load(file), Results)


def test_fields_with_defaults_may_be_missing(tmp_path):
    file = saved(tmp_path)
    document = json.loads(file.read_text())
    del document["knees"]
    del document["points"][0]["repetitions"][0]["series"]
    file.write_text(json.dumps(document))
    assert load(file).points[0].repetitions[0].series == ()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": "other"}, "its format is not 'memlite-bench'"),
        ({"version": 2}, "was written by a newer memlite: it uses version 2"),
        ({"version": "1"}, "its version is not a number"),
        ({"version": 0}, "its version is not a number"),
        ({"seed": "1"}, "seed has the wrong type"),
        ({"seed": True}, "seed has the wrong type"),
        ({"seconds": None}, "seconds has the wrong type"),
        ({"points": {}}, "points has the wrong type"),
        ({"points": [{}]}, r"points\[0\].target is missing"),
        ({"versions": {"memlite": 1}}, "versions.memlite has the wrong type"),
        ({"targets": [3]}, r"targets\[0\] has the wrong type"),
    ],
)
def test_invalid_results_are_refused(tmp_path, changes, complaint):
    file = saved(tmp_path, **changes)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"NaN"])
def test_invalid_json(tmp_path, content):
    (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(ConfigError, match="is not JSON"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"[]", b"3", b"{}"])
def test_json_that_is_not_results(tmp_path, content):
    (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a results file"):
        load(tmp_path)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"results\.json cannot be read: No such file"):
        load(tmp_path)


def test_a_folder_that_cannot_be_created(tmp_path, sample):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        save(sample, tmp_path / "file" / "folder")


def test_a_failed_write_leaves_the_old_file_unchanged(tmp_path, monkeypatch):
    file = saved(tmp_path)
    before = file.read_bytes()

    def fail(*_arguments):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("memlite.loadtest.files.Path.replace", fail)
    with pytest.raises(ConfigError, match="No space left"):
        save(results(clients=(1,), kinds=("file",)), tmp_path)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "results.json"]
