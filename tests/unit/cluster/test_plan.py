"""The planned move of keys, from key dumps read line by line."""

import json
from collections.abc import Sequence
from urllib.parse import quote_from_bytes

import pytest

from memlite.cluster.plan import Plan, as_json, as_text, changed, plan_of, surveys
from memlite.cluster.topology import Topology, parse_nodes
from memlite.core.errors import ConfigError
from memlite.routing import HASHES

KEYS = [b"key:%d" % number for number in range(300)] + [b"with space", b"caf\xc3\xa9", b"a%20b"]


def line(key: bytes, size: int = 100) -> bytes:
    return b"key=%b exp=-1 la=1 cas=2 fetch=no cls=1 size=%d flags=0 " % (
        quote_from_bytes(key, safe="").encode(),
        size,
    )


def planned(before: Topology, after: Topology, keys: Sequence[bytes] = KEYS) -> Plan:
    """Return the plan for keys that are stored on their owners."""
    counted = surveys(before, after)
    router = before.router()
    for key in keys:
        assert counted[router.index(key)].add(line(key))
    return plan_of(before, after, counted)


@pytest.mark.parametrize("hash_name", HASHES)
def test_keys_move_as_the_routers_say(hash_name: str) -> None:
    before = parse_nodes("a:1,b:1,c:1", hash_name)
    after = changed(before, ["d:1"], ["b:1"])
    plan = planned(before, after)
    old, new = before.router(), after.router()
    names = [(before.nodes[old.index(key)].name, after.nodes[new.index(key)].name) for key in KEYS]
    for index, node in enumerate(plan.nodes):
        assert plan.held[index].items == sum(one == node.name for one, _ in names)
        assert plan.leave[index].items == sum(one == node.name != two for one, two in names)
        assert plan.arrive[index].items == sum(one != node.name == two for one, two in names)
        assert plan.leave[index].bytes == 100 * plan.leave[index].items
    assert [node.address.host for node in plan.nodes] == ["a", "b", "c", "d"]
    assert plan.leave[1] == plan.held[1]  # a removed node loses all keys
    assert plan.total.items == len(KEYS)
    assert plan.elsewhere.items == 0


def test_items_that_proxies_do_not_see_are_left_out() -> None:
    before = parse_nodes("a:1,b:1")
    after = changed(before, ["c:1"], [])
    counted = surveys(before, after)
    for key in KEYS:
        assert counted[0].add(line(key))
    plan = plan_of(before, after, counted)
    seen = sum(before.router().index(key) == 0 for key in KEYS)
    assert plan.elsewhere.items == len(KEYS) - seen
    assert plan.leave[0].items <= seen
    assert " items on nodes that do not own their key" in as_text(plan)


@pytest.mark.parametrize(
    "text", [b"", b"BUSY currently processing crawler request", b"key=a exp=1"]
)
def test_a_line_that_is_no_item(text: bytes) -> None:
    topology = parse_nodes("a:1,b:1")
    assert not surveys(topology, topology)[0].add(text)


def test_text_and_json() -> None:
    before = parse_nodes("a:1,b:1", "rendezvous")
    plan = planned(before, changed(before, ["c:1"], []))
    lines = as_text(plan).splitlines()
    assert lines[0].split() == ["NODE", "ITEMS", "BYTES", "LEAVE", "BYTES", "ARRIVE", "BYTES"]
    assert lines[3].split()[:3] == ["c:1", "0", "0"]
    assert lines[4].startswith(f"{plan.moved.items} of 303 items (")
    document = json.loads(as_json(plan))
    assert document["moved"] == {"items": plan.moved.items, "bytes": plan.moved.bytes}
    assert document["nodes"][2]["arrive"] == document["moved"]


def test_empty_nodes() -> None:
    before = parse_nodes("a:1")
    plan = planned(before, changed(before, ["b:1"], []), [])
    assert as_text(plan).splitlines()[-1] == "0 of 0 items would move: 0 B of 0 B"


def test_members_are_sorted_by_name_and_named_by_their_address() -> None:
    before = parse_nodes("m:11211")
    assert [node.name for node in changed(before, ["a:11211", "z=b:1"], []).nodes] == [
        "m",
        "a",
        "z",
    ]
    members = changed(before, ["a:11211", "z=b:1"], [], by_name=True).nodes
    assert [node.name for node in members] == ["a:11211", "m", "z"]


@pytest.mark.parametrize(
    ("add", "remove", "message"),
    [
        (["a:1"], [], "--add: node a:1 at a:1 already exists"),
        (["x=b:1"], [], "--add: node x at b:1 already exists"),
        (["c:1", "c:1"], [], "--add: node c:1 at c:1 already exists"),
        (["c:none"], [], "--add: not HOST:PORT"),
        (["=c:1"], [], "--add: a name must be text without spaces, not ''"),
        (["a b=c:1"], [], "--add: a name must be text without spaces, not 'a b'"),
        ([], ["c"], "--remove: unknown node 'c'; known nodes: a:1, b:1"),
        ([], ["a:1", "b:1"], "--remove: no node would be left"),
    ],
)
def test_wrong_changes(add: list[str], remove: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        changed(parse_nodes("a:1,b:1"), add, remove)


def test_only_new_copies_are_counted() -> None:
    before = parse_nodes("a:1,b:1,c:1", replicas=2)
    after = changed(before, ["d:1"], [])
    counted = surveys(before, after)
    expected = [0, 0, 0, 0]
    for number in range(200):
        key = b"key:%d" % number
        owners = before.router().replicas(key, 2)
        following = after.router().replicas(key, 2)
        for node in owners:
            assert counted[node].add(b"key=%b exp=-1 la=1 cas=1 fetch=no cls=1 size=100" % key)
        for place, node in enumerate(following):
            expected[node] += node not in owners or (place == 0 and node != owners[0])
    plan = plan_of(before, after, counted)
    assert [one.items for one in plan.arrive] == expected
    assert plan.moved.items == sum(expected)
    assert plan.total.items == 400
    assert not plan.elsewhere.items
