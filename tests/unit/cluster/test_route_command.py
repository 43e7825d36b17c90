"""``memlite cluster route`` says where keys live, and why."""

import json
from pathlib import Path

import pytest

from memlite.cli.main import main
from memlite.core.errors import ConfigError
from memlite.routing import HASHES

NODES = "127.0.0.1:11211,127.0.0.1:11212,127.0.0.1:11213"


def route(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["cluster", "route", *arguments]) == 0
    return capsys.readouterr().out


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    output = route(capsys, "foo", "--nodes", NODES)
    assert output.splitlines()[:3] == [
        "foo",
        "  node    127.0.0.1 at 127.0.0.1:11211",
        "  hash    3675831724 (first 32 bits of the MD5)",
    ]
    assert output.splitlines()[3].startswith("  point   3682376632 (")


def test_json_has_a_line_for_each_key(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--nodes", NODES, "--hash", "ketama-fnv1a", "--json")
    rows = [json.loads(line) for line in route(capsys, "foo", "bar", *flags).splitlines()]
    assert [row["node"] for row in rows] == ["127.0.0.1:11212", "127.0.0.1"]
    assert set(rows[0]) == {
        "key", "node", "address", "weight", "algorithm", "hashed", "hash", "point",
    }  # fmt: skip


@pytest.mark.parametrize("hash_name", HASHES)
def test_every_hash_explains_itself(capsys: pytest.CaptureFixture[str], hash_name: str) -> None:
    assert "(" in route(capsys, "foo", "--nodes", NODES, "--hash", hash_name)


def test_a_hash_tag_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    output = route(capsys, "user:{42}", "--nodes", NODES, "--hash-tag", "{}")
    assert "  hashed  42 (hash tag {})\n" in output


def test_a_topology_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[[nodes]]\nname = "one"\naddress = "h:1"\nweight = 2\n', encoding="utf-8")
    assert "  node    one at h:1, weight 2\n" in route(capsys, "foo", "--topology", str(path))


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "KEY" in route(capsys, "--help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "cluster: the following arguments are required: COMMAND"),
        (("route", "k"), "one of the arguments --nodes --topology --cluster is required"),
        (("route", "a b", "--nodes", "a"), "cluster route: a key must have 1 to 250 bytes"),
        (("route", "", "--nodes", "a"), "cluster route: a key must have 1 to 250 bytes"),
        (("route", "k" * 251, "--nodes", "a"), "cluster route: a key must have 1 to 250 bytes"),
        (("route", "k", "--topology", "f", "--hash", "jump"), "--hash applies only to --nodes"),
        (("route", "k", "--nodes", "a", "--topology", "f"), "not allowed with argument --nodes"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", *arguments]) == ConfigError("").exit_code
    assert message in capsys.readouterr().err


def test_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--nodes", NODES, "--replicas", "2")
    last = route(capsys, "foo", *flags).splitlines()[-1]
    assert last.startswith("  replica 127.0.0.1")
    (row,) = [json.loads(line) for line in route(capsys, "foo", *flags, "--json").splitlines()]
    assert (row["node"], len(row["replicas"])) == ("127.0.0.1", 1)


def test_hot_keys(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--nodes", NODES, "--hot-key", "foo")
    assert route(capsys, "foo", *flags).splitlines()[-1].startswith("  copies  on all other nodes")
    assert json.loads(route(capsys, "foo", *flags, "--json"))["hot"] is True
    assert "copies" not in route(capsys, "bar", *flags)


def test_too_many_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "route", "foo", "--nodes", NODES, "--replicas", "4"]) != 0
    message = "cluster route: --nodes: replicas: must be from 1 to the number of nodes, 3, not 4"
    assert message in capsys.readouterr().err
