"""Workload files: the presets, round trips, and error messages."""

import subprocess
import sys
import tomllib
from dataclasses import replace

import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.workload import Keys, Load, Values, Workload
from memlite.loadtest.workload_files import (
    as_dict,
    from_dict,
    load_workload,
    preset_names,
    to_toml,
    validate,
)

PRESETS = preset_names()


def test_the_presets():
    assert PRESETS == [
        "concurrent",
        "mixed",
        "multiget",
        "read-only",
        "write-only",
        "ycsb-a",
        "ycsb-b",
        "ycsb-c",
        "ycsb-d",
        "ycsb-e",
        "ycsb-f",
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_round_trips(name, tmp_path):
    workload = load_workload(name)
    assert workload.name == name
    assert len(workload.description) > 20
    assert from_dict(as_dict(workload)) == workload
    assert from_dict(tomllib.loads(to_toml(workload))) == workload
    saved = tmp_path / "saved.toml"
    saved.write_text(to_toml(workload))
    assert load_workload(str(saved)) == workload


@pytest.mark.parametrize(
    ("name", "mix", "distribution"),
    [
        ("ycsb-a", {"get": 50, "set": 50}, "zipfian"),
        ("ycsb-b", {"get": 95, "set": 5}, "zipfian"),
        ("ycsb-c", {"get": 100}, "zipfian"),
        ("ycsb-d", {"get": 95, "insert": 5}, "latest"),
        ("ycsb-e", {"scan": 95, "insert": 5}, "zipfian"),
        ("ycsb-f", {"get": 50, "rmw": 50}, "zipfian"),
    ],
)
def test_ycsb(name, mix, distribution):
    workload = load_workload(name)
    assert workload.mix == mix
    assert (workload.keys.distribution, workload.keys.theta) == (distribution, 0.99)
    assert (workload.values.distribution, workload.values.size) == ("fixed", 1_000)
    assert workload.preload


def test_mixed_has_the_default_settings():
    mixed = load_workload("mixed")
    assert replace(mixed, name="custom", description="") == Workload()


def test_concurrent_does_not_preload():
    workload = load_workload("concurrent")
    assert (workload.kind, workload.preload) == ("concurrent", False)


def test_every_setting_survives_a_round_trip(tmp_path):
    trace = tmp_path / 'a "trace" ü.csv'
    trace.write_text("time,operation,key,size\n")
    workload = Workload(
        name="ours",
        description='with "quotes", a \\ and ü',
        mix={"get": 0.25, "append": 1e-7, "touch": 3},
        keys=Keys(7, "hotspot", 1, 0.5, 1.0, "ü%"),
        values=Values("lognormal", 5, 1, 10, 0.5),
        ttl=9,
        preload=False,
        trace=str(trace),
        load=Load(3, 4, True, 1e9, "poisson", 0.5, 10**12, 1e-6, 0, 5),
    )
    assert from_dict(tomllib.loads(to_toml(workload))) == workload


def write(directory, text):
    file = directory / "my.toml"
    file.write_text(text)
    return str(file)


def test_missing_settings_have_defaults(tmp_path):
    workload = load_workload(write(tmp_path, "[mix]\nset = 1\n"))
    assert workload == Workload(name="my", mix={"set": 1})


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "sizes.txt").write_text("1\n")
    (tmp_path / "trace.csv").write_text("time,operation,key,size\n")
    text = 'trace = "trace.csv"\n[values]\ndistribution = "file"\nfile = "sizes.txt"\n'
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path.parent)
    workload = load_workload(f"{tmp_path.name}/my.toml")
    assert workload.values.file == str(tmp_path / "sizes.txt")
    assert workload.trace == str(tmp_path / "trace.csv")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[keys]\ndistribution = 'zipf'",
            (
                "[keys] distribution must be one of uniform, zipfian, "
                "latest, hotspot, sequential, not 'zipf'"
            ),
        ),
        ("kind = 'study'", "kind must be one of steady, concurrent, not 'study'"),
        ("kind = ['steady']", "kind must be one of steady, concurrent, not ['steady']"),
        ("tll = 1", "unknown setting 'tll', did you mean 'ttl'?"),
        ("zzz = 1", "unknown setting 'zzz'"),
        ("ttl = -1", "ttl must be from 0 to 2592000, not -1"),
        ("ttl = 2592001", "ttl must be from 0 to 2592000, not 2592001"),
        ("ttl = true", "ttl must be a whole number, not True"),
        ("preload = 1", "preload must be true or false, not 1"),
        ("description = 1", "description must be a string, not 1"),
        (
            'description = "a\\nb"',
            ("description must be one line of printable characters, not 'a\\nb'"),
        ),
        ("mix = 1", "mix must be a table of operations and their weights"),
        ("[mix]", "[mix] must have an operation with a weight above 0"),
        ("[mix]\nget = 0", "[mix] must have an operation with a weight above 0"),
        ("[mix]\nget = -1", "[mix] get must be from 0 to 1e+12, not -1"),
        ("[mix]\nget = nan", "[mix] get must be from 0 to 1e+12, not nan"),
        ("[mix]\nget = 'x'", "[mix] get must be a number, not 'x'"),
        ("[mix]\ngte = 1", "[mix] unknown operation 'gte', did you mean 'get'?"),
        ("keys = 1", "[keys] must be a table, not 1"),
        ("[keys]\ncuont = 1", "[keys] unknown setting 'cuont', did you mean 'count'?"),
        ("[keys]\ncount = 0", "[keys] count must be from 1 to 1000000000, not 0"),
        ("[keys]\ncount = 1.5", "[keys] count must be a whole number, not 1.5"),
        (
            "[keys]\ncount = 10000001\ndistribution = 'latest'",
            ("[keys] count must be at most 10000000 with distribution latest, not 10000001"),
        ),
        ("[keys]\ntheta = 2.1", "[keys] theta must be from 0 to 2, not 2.1"),
        (
            "[keys]\nhot_fraction = 0",
            ("[keys] hot_fraction must be more than 0 and at most 1, not 0"),
        ),
        ("[keys]\nhot_share = 1.5", "[keys] hot_share must be more than 0 and at most 1, not 1.5"),
        (
            "[keys]\nprefix = 'a b'",
            ("[keys] prefix must not contain spaces or control characters: 'a b'"),
        ),
        (
            "[keys]\nprefix = '" + "ü" * 116 + "'",
            "[keys] prefix must be at most 230 bytes, not 232",
        ),
        (
            "[values]\ndistribution = 'normal'",
            ("[values] distribution must be one of fixed, uniform, lognormal, file, not 'normal'"),
        ),
        ("[values]\nsize = 134217729", "[values] size must be from 0 to 134217728, not 134217729"),
        (
            "[values]\nleast = 2\nmost = 1",
            ("[values] least must not be greater than most (1), not 2"),
        ),
        ("[values]\nsigma = -1", "[values] sigma must be from 0 to 10, not -1"),
        (
            "[values]\nsize = 0\ndistribution = 'lognormal'",
            ("[values] size must be at least 1 with distribution lognormal"),
        ),
        ("[values]\ndistribution = 'file'", "[values] file must be given with distribution file"),
        (
            "[values]\ndistribution = 'file'\nfile = '/none'",
            ("[values] file /none: No such file or directory"),
        ),
        ("trace = '/none'", "trace /none: No such file or directory"),
        ("[load]\npipeline = 0", "[load] pipeline must be from 1 to 10000, not 0"),
        ("[load]\nmultiget = 101", "[load] multiget must be from 1 to 100, not 101"),
        ("[load]\nnoreply = 'yes'", "[load] noreply must be true or false, not 'yes'"),
        ("[load]\nrate = -1", "[load] rate must be from 0 to 1e+09, not -1"),
        ("[load]\nrate = inf", "[load] rate must be from 0 to 1e+09, not inf"),
        (
            "[load]\narrivals = 'normal'",
            ("[load] arrivals must be one of constant, poisson, not 'normal'"),
        ),
        ("[load]\nthink_time = -1", "[load] think_time must be from 0 to 3.1536e+07, not -1"),
        ("[load]\noperations = -1", "[load] operations must be from 0 to 1000000000000000, not -1"),
        (
            "[load]\nduration = 0",
            ("[load] duration must be more than 0 and at most 3.1536e+07, not 0"),
        ),
        ("[load]\nwarm_up = -1", "[load] warm_up must be from 0 to 3.1536e+07, not -1"),
        ("[load]\nrepetitions = 0", "[load] repetitions must be from 1 to 1000, not 0"),
    ],
)
def test_invalid_settings_are_refused(tmp_path, text, problem):
    path = write(tmp_path, text + "\n")
    with pytest.raises(ConfigError) as caught:
        load_workload(path)
    assert str(caught.value) == f"{path}: {problem}"


@pytest.mark.parametrize("text", [b"kind = ", b"\xff", b"ttl = " + b"9" * 5000])
def test_invalid_toml(tmp_path, text):
    file = tmp_path / "my.toml"
    file.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        load_workload(str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_a_trace_requires_a_steady_workload(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("time,operation,key,size\n")
    with pytest.raises(ConfigError, match="x: trace requires kind steady, not concurrent"):
        validate(Workload(name="x", kind="concurrent", trace=str(trace)))


def test_an_error_in_a_trace_names_the_workload_too(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("time,operation\n")
    with pytest.raises(ConfigError) as caught:
        validate(Workload(name="x", trace=str(trace)))
    assert str(caught.value) == (
        f"x: trace {trace}: line 1: must be 'time,operation,key,size', not 'time,operation'"
    )


def test_a_concurrent_workload_needs_no_mix():
    validate(Workload(kind="concurrent", mix={}))


def test_an_unknown_name():
    with pytest.raises(ConfigError) as caught:
        load_workload("ycsb-g")
    assert str(caught.value).startswith("unknown workload 'ycsb-g', did you mean 'ycsb-")
    assert "the presets are concurrent, mixed, " in str(caught.value)


@pytest.mark.parametrize("path", ["none.toml", "./none", "."])
def test_a_missing_file(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        load_workload(path)


def test_validation_errors_name_the_workload():
    mixed = load_workload("mixed")
    assert validate(mixed) is mixed
    with pytest.raises(ConfigError) as caught:
        validate(replace(mixed, load=replace(mixed.load, pipeline=0)))
    assert str(caught.value) == "mixed: [load] pipeline must be from 1 to 10000, not 0"


def test_loading_a_preset_does_not_import_numpy():
    script = (
        "import sys; from memlite.loadtest.workload_files import load_workload; "
        "load_workload('mixed'); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
