"""Guarantees of all ways of routing: few keys move, weights are respected, tags decide."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlite.core.errors import ConfigError
from memlite.routing import HASHES, HashTag, Member, make_router

RNG = random.Random(3)
KEYS = [b"%x" % RNG.getrandbits(64) for _ in range(2000)]
names = st.lists(st.text("abcdefghij0123456789.-", min_size=1, max_size=20), unique=True)


@pytest.mark.parametrize("hash_name", HASHES)
@settings(max_examples=15, deadline=None)
@given(names=names.filter(lambda names: 2 <= len(names) <= 8))
def test_a_new_node_takes_keys_and_no_others_move(hash_name: str, names: list[str]) -> None:
    members = [Member(name) for name in names]
    before = make_router(hash_name, members[:-1])
    after = make_router(hash_name, members)
    added = len(members) - 1
    for key in KEYS[:100]:
        assert after.index(key) in (before.index(key), added)


@pytest.mark.parametrize("hash_name", HASHES)
def test_weights_are_respected(hash_name: str) -> None:
    router = make_router(hash_name, [Member("a:1", 1), Member("b:1", 2), Member("c:1", 5)])
    counts = Counter(map(router.index, KEYS))
    for node, weight in enumerate((1, 2, 5)):
        assert counts[node] / len(KEYS) == pytest.approx(weight / 8, rel=0.35)


@pytest.mark.parametrize("hash_name", HASHES)
@settings(max_examples=50, deadline=None)
@given(key=st.binary(min_size=1, max_size=250))
def test_a_place_says_the_same_as_an_index(hash_name: str, key: bytes) -> None:
    router = make_router(hash_name, [Member("a:1"), Member("b:1"), Member("c:1")], "{}")
    assert router.place(key).node == router.index(key)


@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize("tag", ["", "{}"])
@settings(max_examples=50, deadline=None)
@given(key=st.binary(min_size=1, max_size=250))
def test_a_finder_finds_the_same_node_as_an_index(hash_name: str, tag: str, key: bytes) -> None:
    router = make_router(hash_name, [Member("a:1"), Member("b:1", 2), Member("c:1")], tag)
    for one in (key, b"x{" + key + b"}"):
        assert router.finder(["a", "b", "c"])(one) == "abc"[router.index(one)]


@pytest.mark.parametrize("hash_name", HASHES)
def test_one_node_has_every_key(hash_name: str) -> None:
    one = make_router(hash_name, [Member("a")])
    assert {one.index(key) for key in KEYS} == {0}


@pytest.mark.parametrize("hash_name", HASHES)
def test_keys_with_the_same_tag_live_together(hash_name: str) -> None:
    router = make_router(hash_name, [Member("a:1"), Member("b:1"), Member("c:1")], "{}")
    nodes = {router.index(b"user:{42}:%d" % number) for number in range(100)}
    assert nodes == {router.index(b"42")}


@pytest.mark.parametrize(
    ("key", "part"),
    [
        (b"a{b}c", b"b"),
        (b"a{b}{c}", b"b"),
        (b"a{}c", b"a{}c"),
        (b"a{}{c}", b"a{}{c}"),
        (b"}a{b", b"}a{b"),
        (b"}a{b}", b"b"),
        (b"{{b}", b"{b"),
    ],
)
def test_the_part_between_the_first_tags_counts(key: bytes, part: bytes) -> None:
    assert HashTag("{}").part(key) == part


def test_both_characters_of_a_tag_may_be_the_same() -> None:
    assert HashTag("||").part(b"a|b|c") == b"b"


@pytest.mark.parametrize(
    ("hash_name", "members", "tag", "message"),
    [
        ("crc", [Member("a")], "", "hash: must be one of ketama, ketama-fnv1a, rendezvous, jump"),
        ("jump", [], "", "nodes: there must be at least one"),
        ("jump", [Member("a"), Member("a")], "", "nodes: duplicate name 'a'"),
        ("jump", [Member("a", 0)], "", "the weight of 'a' must be at least 1, not 0"),
        ("jump", [Member("a")], "{", "hash_tag: must be two characters"),
    ],
)
def test_wrong_arguments(hash_name: str, members: list[Member], tag: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_router(hash_name, members, tag)


@pytest.mark.parametrize("hash_name", HASHES)
def test_replicas_are_distinct_nodes_and_begin_with_the_owner(hash_name: str) -> None:
    members = [Member(f"n{number}", 1 + number % 2) for number in range(5)]
    router = make_router(hash_name, members)
    for number in range(200):
        key = b"key%d" % number
        every = router.replicas(key, 5)
        assert every[0] == router.index(key)
        assert sorted(every) == [0, 1, 2, 3, 4]
        assert all(router.replicas(key, count) == every[:count] for count in range(1, 5))


@pytest.mark.parametrize("hash_name", ["ketama", "ketama-fnv1a", "rendezvous"])
def test_a_replica_takes_over_what_a_removed_node_had(hash_name: str) -> None:
    members = [Member(f"n{number}") for number in range(5)]
    fewer = make_router(hash_name, members[:4])
    for number in range(200):
        key = b"key%d" % number
        left = [node for node in make_router(hash_name, members).replicas(key, 5) if node != 4]
        assert fewer.replicas(key, 4) == left


def test_nodes_without_points_come_last() -> None:
    router = make_router("ketama", [Member("a", 1), Member("b", 1000), Member("c", 1000)])
    assert router.replicas(b"k", 3)[2] == 0


@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize("weights", [(1,), (1, 1, 1), (1, 2, 5)])
def test_shares_are_those_of_many_keys(hash_name: str, weights: tuple[int, ...]) -> None:
    members = [Member(f"{name}:1", weight) for name, weight in zip("abc", weights, strict=False)]
    router = make_router(hash_name, members)
    shares = router.shares()
    assert sum(shares) == pytest.approx(1)
    counts = Counter(map(router.index, KEYS))
    for node, share in enumerate(shares):
        assert counts[node] / len(KEYS) == pytest.approx(share, abs=0.05)
