"""Changes that the move commands make to a cluster."""

import pytest

from memlite.cluster.hot_keys import HotKey
from memlite.cluster.membership.document import Document, Entry
from memlite.cluster.mover.changes import change_of
from memlite.core.errors import ConfigError, StartError

NONCE = "00112233445566778899aabbccddeeff"
NOW = 1_800_000_000.0
CLUSTER = Document(
    members=(Entry("a", "h:1", 5), Entry("b", "h:2", 0, leased=False), Entry("c", "h:3", 5)),
    spares=(Entry("d", "h:4", 5), Entry("e", "h:5", 0, leased=False)),
)


@pytest.mark.parametrize(
    ("action", "nodes", "target", "added", "forgets"),
    [
        ("add", ["d"], "abcd", [], ""),
        ("add", ["h:4"], "abcd", [], ""),
        ("add", ["e", "d"], "abcde", [], ""),
        ("add", ["e=h:5"], "abce", [], ""),
        ("add", ["f=h:6", "d"], "abcdf", ["f"], ""),
        ("add", ["e=h:6"], "abce", ["e"], ""),
        ("add", ["a"], "abc", [], ""),
        ("drain", ["a", "h:2"], "c", [], ""),
        ("drain", ["d"], "abc", [], ""),
        ("remove", ["b", "c"], "a", [], "b"),
        ("remove", ["e"], "abc", [], "e"),
    ],
)
def test_the_meaning_of_arguments(
    action: str, nodes: list[str], target: str, added: list[str], forgets: str
) -> None:
    change = change_of(CLUSTER, action, nodes)
    assert "".join(change.target) == target
    assert [one.name for one in change.added] == added
    assert "".join(change.forgets) == forgets


def test_a_node_without_a_name_is_called_by_its_address() -> None:
    (added,) = change_of(CLUSTER, "add", ["h:9"]).added
    assert (added.name, added.address, added.leased) == ("h:9", "h:9", False)


@pytest.mark.parametrize(
    ("action", "nodes", "message"),
    [
        ("add", ["x"], "unknown spare 'x'; the spares are d, e"),
        ("add", ["a=h:9"], "node a at h:1 already exists"),
        ("add", ["d=h:9"], "node d at h:4 already exists"),
        ("add", ["x=h:1"], "node a at h:1 already exists"),
        ("add", ["b=h:9"], "node b at h:2 already exists"),
        ("add", ["=h:9"], "a name must be text without spaces, not ''"),
        ("add", ["x=h:p"], "not HOST:PORT"),
        ("drain", ["x"], "unknown node 'x'; known nodes: a, b, c, d, e"),
        ("remove", ["a", "b", "c"], "no node would be left"),
    ],
)
def test_wrong_arguments(action: str, nodes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"cluster {action}: ") as error:
        change_of(CLUSTER, action, nodes)
    assert message in str(error.value)


def test_a_move_begins() -> None:
    begun = change_of(CLUSTER, "add", ["f=h:6"]).begun(CLUSTER, NONCE, NOW)
    assert begun.move is not None
    assert begun.move.target == ("a", "b", "c", "f")
    assert [one.name for one in begun.members] == ["a", "b", "c"]
    assert [one.name for one in begun.spares] == ["d", "e", "f"]


def test_the_first_nodes_are_members_at_once() -> None:
    empty = Document()
    begun = change_of(empty, "add", ["a=h:1", "b=h:2"]).begun(empty, NONCE, NOW)
    assert begun.move is None
    assert [one.name for one in begun.members] == ["a", "b"]
    assert not begun.spares


def test_a_node_that_has_left_meanwhile() -> None:
    change = change_of(CLUSTER, "add", ["d"])
    with pytest.raises(StartError, match="d left the cluster in the meantime"):
        change.begun(CLUSTER.without("d", 5, NOW), NONCE, NOW)


def test_no_move_begins_while_there_are_hot_keys() -> None:
    hot = CLUSTER.with_hot_keys((HotKey(b"key", 1),), NOW)
    with pytest.raises(StartError, match="promoted in the meantime"):
        change_of(hot, "add", ["d"]).begun(hot, NONCE, NOW)


def test_a_spare_without_a_lease_is_forgotten_without_a_move() -> None:
    change = change_of(CLUSTER, "remove", ["e", "d"])
    left = change.without_a_move(CLUSTER, NOW)
    assert [one.name for one in left.spares] == ["d"]
