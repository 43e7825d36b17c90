"""Factors and designs: which options they set, and in what order runs are made."""

from pathlib import Path

import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.factorial.design import design_of, keep
from memlite.loadtest.factorial.factors import given, parse_factors


@pytest.mark.parametrize(
    ("text", "others", "arguments"),
    [
        ("clients=2,16", [], ["--clients=2", "--clients=16"]),
        ("--clients = 2, 16", [], ["--clients=2", "--clients=16"]),
        ("servers=1,3", [], ["--cluster=1", "--cluster=3"]),
        ("mix=get=1;get=1,set=1", [], ["--mix=get=1", "--mix=get=1,set=1"]),
        ("noreply=off,on", [], ["", "--noreply"]),
        ("in-flight=8,32", [], ["--proxy-option=in-flight=8", "--proxy-option=in-flight=32"]),
        ("replicas=1,2", [], ["--proxy-option=replicas=1", "--proxy-option=replicas=2"]),
        (
            "durability=always,none",
            [],
            ["--server-option=durability=always", "--server-option=durability=none"],
        ),
        ("loop=auto,asyncio", [], ["--server-option=loop=auto", "--server-option=loop=asyncio"]),
        (
            "proxy:loop=auto,asyncio",
            ["--servers", "2"],
            ["--proxy-option=loop=auto", "--proxy-option=loop=asyncio"],
        ),
        ("server:threads=1,2", [], ["--server-option=threads=1", "--server-option=threads=2"]),
    ],
)
def test_a_factor_sets_an_option(text: str, others: list[str], arguments: list[str]) -> None:
    (factor,) = parse_factors([text], others)
    assert [factor.argument(level) for level in range(len(factor.levels))] == arguments


def test_options_that_are_given() -> None:
    arguments = ["--clients=3", "--servers", "2", "--in-flight", "4", "--tls"]
    arguments += ["--server-option", "loop=asyncio", "--proxy-option=--replicas=2", "--unknown=1"]
    assert given(arguments) == {
        ("compare", "clients"),
        ("compare", "cluster"),
        ("compare", "tls"),
        ("proxy", "in-flight"),
        ("proxy", "replicas"),
        ("server", "loop"),
    }


def test_an_option_cannot_be_both_a_factor_and_given() -> None:
    with pytest.raises(ConfigError, match="replicas is a factor and cannot be given as well"):
        parse_factors(["replicas=1,2"], ["--servers=2", "--proxy-option", "replicas=2"])
    with pytest.raises(ConfigError, match="two factors have the same name"):
        parse_factors(["in-flight=1,2", "proxy:in-flight=3,4"], ["--servers=2"])


def test_runs_are_in_random_order_and_the_same_each_time() -> None:
    design = design_of(["clients=1,2,4", "pipeline=1,8"], ["--keys", "50"], 2, 7)
    runs = design.runs
    assert runs == design_of(["clients=1,2,4", "pipeline=1,8"], ["--keys", "50"], 2, 7).runs
    assert runs != design_of(["clients=1,2,4", "pipeline=1,8"], ["--keys", "50"], 2, 8).runs
    assert sorted(one.name for one in runs) == [
        f"{clients}.{pipeline}-{number}"
        for clients in range(3)
        for pipeline in range(2)
        for number in (1, 2)
    ]
    assert [one.name for one in runs] != sorted(one.name for one in runs)
    (run,) = (one for one in runs if one.name == "2.1-2")
    assert design.arguments(run) == [
        *("compare", "--backends", "memory", "--keys", "50", "--clients=4", "--pipeline=8"),
        *("--repetitions=1", "--seed=8"),
    ]


def test_an_experiment_resumes_if_only_the_way_to_its_machines_changes(tmp_path: Path) -> None:
    path = tmp_path / "factorial.json"
    hosts = ["--servers=2", "--hosts=a,b"]

    def check(*others: str) -> None:
        keep(path, design_of(["clients=1,2"], [*hosts, *others], 2, 7))

    check("--ssh=ssh -i key", "--ports", "7:9")
    check("--ssh=ssh -i other", "--remote-memlite", "/opt/memlite")
    check()
    with pytest.raises(ConfigError, match="contains the runs of another experiment"):
        check("--keys=50")
