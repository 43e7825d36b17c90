"""Topology files and lists of addresses: their meaning, and the errors for invalid ones."""

from pathlib import Path

import pytest

from memlite.client import Address
from memlite.cluster.topology import Gutter, Node, Topology, parse_nodes, read_topology
from memlite.core.errors import ConfigError

FILE = """
hash = "ketama-fnv1a"
hash_tag = "{}"
replicas = 1

[[nodes]]
name = "cache-1"
address = "10.0.0.1:11211"
weight = 3

[[nodes]]
address = "10.0.0.2"
"""


def read(folder: Path, text: str) -> Topology:
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return read_topology(path)


def test_a_file(tmp_path: Path) -> None:
    first = Node("cache-1", Address("10.0.0.1", 11211), 3)
    second = Node("10.0.0.2", Address("10.0.0.2", 11211), 1)
    assert read(tmp_path, FILE) == Topology((first, second), "ketama-fnv1a", "{}")


def test_what_happens_when_a_node_fails(tmp_path: Path) -> None:
    nodes = '[[nodes]]\naddress = "a"\n'
    kept = read(tmp_path, 'on_return = "keep"\n' + nodes)
    assert (kept.on_return, kept.gutter) == ("keep", None)
    topology = read(tmp_path, nodes + '[gutter]\nnodes = ["b", "c:1"]\nttl = 10\n')
    assert topology.on_return == "flush"
    gutter = (Node("b", Address("b", 11211)), Node("c:1", Address("c", 1)))
    assert topology.gutter == Gutter(gutter, 10)
    assert topology.nodes == (Node("a", Address("a", 11211)),)


def test_owners_depend_on_names_and_not_on_addresses(tmp_path: Path) -> None:
    nodes = '[[nodes]]\nname="a"\naddress="x:1"\n[[nodes]]\nname="b"\naddress="y:%d"\n'
    routers = [read(tmp_path, nodes % port).router() for port in (2, 3)]
    keys = [b"key:%d" % number for number in range(200)]
    assert list(map(routers[0].index, keys)) == list(map(routers[1].index, keys))


@pytest.mark.parametrize(
    ("hash_name", "names"),
    [
        ("ketama", ["a", "b:11212", "/run/socket"]),
        ("ketama-fnv1a", ["a", "b:11212", "/run/socket"]),
        ("rendezvous", ["a:11211", "b:11212", "/run/socket"]),
        ("jump", ["a:11211", "b:11212", "/run/socket"]),
    ],
)
def test_default_names_are_those_that_clients_use(hash_name: str, names: list[str]) -> None:
    nodes = parse_nodes("a, b:11212,/run/socket", hash_name).nodes
    assert [node.name for node in nodes] == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nodes: there must be at least one"),
        ("nodes = 3", r"nodes: must be tables, each headed \[\[nodes\]\]"),
        ("nodes = [3]", r"nodes: must be tables"),
        (
            "replica = 1",
            "replica: unknown key; known keys: hash, hash_tag, replicas, write, read, multi_gets",
        ),
        (
            "replicas = 2\n[[nodes]]\naddress='a'",
            "replicas: must be from 1 to the number of nodes, 1, not 2",
        ),
        ("write = 'some'", "write: must be one of all, majority, primary, not 'some'"),
        ("read = 'all'", "read: must be one of any, primary, not 'all'"),
        (
            "replicas = 2\non_return = 'keep'\n[[nodes]]\naddress='a'\n[[nodes]]\naddress='b'",
            'on_return: must be "flush" with replicas',
        ),
        (
            "replicas = 2\n[gutter]\nnodes=['g']\n[[nodes]]\naddress='a'\n[[nodes]]\naddress='b'",
            "replicas: must be 1 with a gutter",
        ),
        ("hot_keys = 'k'", "hot_keys: must be a list of keys"),
        ("hot_keys = ['']", "hot_keys: a hot key must have 1 to 250 bytes: ''"),
        (f"hot_keys = ['{'x' * 251}']", "hot_keys: a hot key must have 1 to 250 bytes"),
        (f"hot_keys = ['a {'x' * 186}']", "hot key with white space .* must have 1 to 186 bytes"),
        (f"hot_keys = {[str(one) for one in range(65)]}", "65 keys exceed the limit of 64"),
        (
            "hot_keys = ['k']\nread = 'primary'\n[[nodes]]\naddress='a'",
            'read: must be "any" with hot_keys',
        ),
        (
            "hot_keys = ['k']\non_return = 'keep'\n[[nodes]]\naddress='a'",
            'on_return: must be "flush" with hot_keys',
        ),
        (
            "hot_keys = ['k']\n[gutter]\nnodes=['g']\n[[nodes]]\naddress='a'",
            "hot_keys: must be empty with a gutter",
        ),
        ("replicas = true", "replicas: must be a whole number, not True"),
        ("hash = 'md5'", "hash: must be one of ketama, .*, not 'md5'"),
        ("hash = 1", "hash: must be a string, not 1"),
        ("hash_tag = '{'\n[[nodes]]\naddress='a'", "hash_tag: must be two characters"),
        ("[[nodes]]\nname = 'a'", "nodes: number 1: address: is missing"),
        ("[[nodes]]\naddress = 'a:x'", "nodes: number 1: address: not HOST:PORT"),
        ("[[nodes]]\naddress = 7", "nodes: number 1: address: must be a string, not 7"),
        ("[[nodes]]\naddress = 'a'\nweight = 0", "number 1: weight: must be from 1 to 1000, not 0"),
        ("[[nodes]]\naddress = 'a'\nweight = 1.5", "weight: must be a whole number, not 1.5"),
        ("[[nodes]]\naddress = 'a'\nzone = 'z'", "number 1: zone: unknown key"),
        ("[[nodes]]\naddress = 'a'\nname = ''", "name: must be text without spaces, not ''"),
        ("[[nodes]]\naddress='a'\n[[nodes]]\naddress='b'\nname='a'", "nodes: duplicate name 'a'"),
        ("[[nodes]]\naddress='a'\n[[nodes]]\naddress='a'\nname='b'", "duplicate address a:11211"),
        ("on_return = 'empty'", "on_return: must be one of flush, keep, not 'empty'"),
        ("gutter = 3", r"gutter: must be a table, headed \[gutter\]"),
        ("[gutter]\nttl = 1", r"gutter: nodes: must be a list of addresses, such as \["),
        ("[gutter]\nnodes = 'a'", "gutter: nodes: must be a list of addresses"),
        ("[gutter]\nnodes = []", "gutter: "),
        ("[gutter]\nnodes = ['a']\nttl = 0", "gutter: ttl: must be from 1 to 3600 seconds, not 0"),
        ("[gutter]\nnodes = ['a']\ntime = 0", "gutter: time: unknown key; known keys: nodes, ttl"),
        ("[gutter]\nnodes = ['a']\n[[nodes]]\naddress = 'a'", "duplicate address a:11211"),
        ("on_return = 'keep'\n[gutter]\nnodes = ['a']", 'on_return: must be "flush" with a gutter'),
        ("[[nodes]", "not TOML: "),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'cluster.toml'}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing: No such file"):
        read_topology(tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="bytes: not UTF-8"):
        read_topology(tmp_path / "bytes")


@pytest.mark.parametrize("text", ["", "a,,b", "a,a", "a,a:11211", "a:0"])
def test_wrong_lists(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_nodes(text)
