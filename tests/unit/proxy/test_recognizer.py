"""Requests that need no parser, and those that do."""

from typing import Final

import pytest

from memlite.protocol import Limits
from memlite.proxy.cluster import Target
from memlite.proxy.node import Node
from memlite.proxy.recognizer import Recognizer
from tests.unit.proxy.clusters import cluster_of


def name_of(target: Target) -> str:
    assert isinstance(target, Node)
    return target.name


A: Final = name_of(cluster_of(2).node_of(b"a"))
"""The node of that key, among two."""


def scan(data: bytes, most: int = 64) -> tuple[list[bytes], list[str], bytes, bool]:
    """Return the requests, their nodes, the rest of the data, and whether all are reads."""
    requests: list[bytes] = []
    targets: list[Target] = []
    recognizer = Recognizer(cluster_of(2), Limits(item_size=3000))
    end, reads = recognizer.scan(data, most, requests, targets)
    assert b"".join(requests) == data[:end]
    return requests, list(map(name_of, targets)), data[end:], reads


USUAL = (
    b"get a\r\n",
    b"set a 0 0 3\r\n\r\n\n\r\n",
    b"add a 5 60 0\r\n\r\n",
    b"replace a 0 0 1\r\n \r\n",
    b"append a 0 0 1\r\n1\r\n",
    b"prepend a 0 0 1\r\n1\r\n",
    b"delete a\r\n",
    b"incr a 1\r\n",
    b"decr a 12\r\n",
    b"touch a 0\r\n",
)


@pytest.mark.parametrize("request_", USUAL)
def test_usual_requests(request_: bytes) -> None:
    assert scan(request_) == ([request_], [A], b"", request_.startswith(b"get"))


def test_a_known_key_with_a_line_feed_is_no_word_of_a_line() -> None:
    """It is known from a meta request in base64. Nodes would end the line at the line feed."""
    cluster = cluster_of(2)
    for key in (b"a\nb", b"\nb", b"a\n", b"a"):
        cluster.node_of(key)
    recognizer = Recognizer(cluster, Limits(item_size=3000))
    for line in (b"set a\nb 0 0 1", b"set \nb 0 0 1", b"set a\n 0 0 1"):
        data = line + b"\r\nx\r\n"
        assert recognizer.lone_set(data) is None
        assert recognizer.scan(data, 64, [], [])[0] == 0
    assert recognizer.lone_set(b"set a 0 0 1\r\n\n\r\n") is not None


def test_requests_of_all_kinds_in_a_row() -> None:
    data = b"".join(USUAL)
    assert scan(data) == (list(USUAL), [A] * len(USUAL), b"", False)
    assert scan(data, 3)[0] == list(USUAL[:3])


def test_the_nodes_of_keys_are_found() -> None:
    cluster, targets = cluster_of(2), list[Target]()
    keys = [b"%d" % number for number in range(20)]
    data = b"".join(b"get %b\r\nincr %b 1\r\n" % (key, key) for key in keys)
    Recognizer(cluster, Limits()).scan(data, 64, [], targets)
    assert targets == [cluster.node_of(key) for key in keys for _ in range(2)]
    assert len(set(targets)) == 2


def test_a_get_is_known_by_its_line_the_second_time() -> None:
    cluster, targets = cluster_of(2), list[Target]()
    recognizer = Recognizer(cluster, Limits())
    recognizer.scan(b"get a\r\n", 64, [], targets)
    assert list(cluster.by_line.items()) == [(b"get a\r\n", targets[0])]
    (other,) = set(cluster.nodes).difference(targets)
    cluster.by_line[b"get a\r\n"] = other
    recognizer.scan(b"get a\r\n", 64, [], targets)
    assert targets[1] is other


@pytest.mark.parametrize(
    "other",
    [
        b"get a",
        b"get a\n",
        b"get \r\n",
        b"get a b\r\n",
        b"get  a\r\n",
        b"get a \r\n",
        b"get %b\r\n" % (b"a" * 251),
        b"get AmazonElastiCache:cluster\r\n",
        b"gets a\r\n",
        b"set a 0 0 1 noreply\r\n1\r\n",
        b"set a 0 0 1\n1\r\n",
        b"set a 0 0 1\r\n1\n\r",
        b"set a 0 0 1\r\n12\r\n",
        b"set a 0 0 1\r\n1\r",
        b"set a 00 0 1\r\n1\r\n",
        b"set a 0 -1 1\r\n1\r\n",
        b"set a 0 0 -1\r\n1\r\n",
        b"set a 0 0 3000\r\n%b\r\n" % (b"1" * 3000),
        b"set a 0 0 5000\r\n%b\r\n" % (b"1" * 5000),
        b"set  0 0 1\r\n1\r\n",
        b"delete a 0\r\n",
        b"delete noreply\r\n",
        b"incr a x\r\n",
        b"incr a 1 noreply\r\n",
        b"touch a -1\r\n",
        b"cas a 0 0 1 1\r\n1\r\n",
        b"mg a v\r\n",
        b"version\r\n",
        b"\r\n",
        b"\n",
        b"x",
    ],
)
def test_requests_that_are_left_to_the_parser(other: bytes) -> None:
    assert scan(other) == ([], [], other, True)
    assert scan(b"get a\r\n" + other + b"get a\r\n")[2] == other + b"get a\r\n"


# A set that comes alone


def lone(data: bytes) -> bool:
    cluster = cluster_of(2)
    node = cluster.node_of(b"a")
    found = Recognizer(cluster, Limits(item_size=3000)).lone_set(data)
    assert found in (None, node)
    return found is not None


@pytest.mark.parametrize(
    "data",
    [
        b"set a 0 0 3\r\n\r\n\n\r\n",
        b"set a 0 0 0\r\n\r\n",
        b"set a 4096 60 5\r\nset a\r\n",
        b"set a 0 0 2000\r\n%b\r\n" % bytes(2000),
    ],
)
def test_a_set_alone(data: bytes) -> None:
    assert lone(data)
    assert scan(data) == ([data], [A], b"", False)
    assert not lone(data + b"get a\r\n")
    assert not lone(data + data)
    assert not lone(data[:-1])
    assert not lone(data.replace(b"set a", b"set b"))  # is not known yet


@pytest.mark.parametrize(
    "data",
    [
        b"set a 0 0 1\r\nxyz",
        b"set a 0 0 1\r\nx\n\n",
        b"set a 0 0 1 noreply\r\nx\r\n",
        b"set a 0 0  1\r\nx\r\n",
        b"set  a 0 0 1\r\nx\r\n",
        b"set a -1 0 1\r\nx\r\n",
        b"set a 0 -1 1\r\nx\r\n",
        b"set a 0 0 +1\r\nx\r\n",
        b"set a 0 1\r\nx\r\n",
        b"set a 0 0 3\n\nx\r\n",
        b"set a 0 0 2900\r\n%b\r\n" % bytes(2900),  # may not fit
        b"set ",
    ],
)
def test_other_sets_alone(data: bytes) -> None:
    assert not lone(data)
