"""Keys are placed exactly where libmemcached, twemproxy and pymemcache place them."""

import random
import socket

import pytest
from pymemcache.client.hash import HashClient
from pymemcache.client.murmur3 import murmur3_32 as reference_murmur3
from pymemcache.client.rendezvous import RendezvousHash

from memlite.routing import HashTag, Ketama, Member, make_router
from memlite.routing.hashes import fnv1a_64_word, md5_word, md5_words, murmur3_32
from memlite.routing.jump import jump

NODES = [Member("127.0.0.1"), Member("127.0.0.1:11212"), Member("127.0.0.1:11213")]
KEYS = [b"%x" % random.Random(7).getrandbits(n % 90 + 4) for n in range(1, 2000)]


def test_keys_are_hashed_as_libmemcached_does() -> None:
    assert md5_word(b"test") == 3446378249
    assert md5_word(b"VDEAAAAA") == 0xFFFCD1B5


def test_a_digest_gives_four_points() -> None:
    assert md5_words(b"127.0.0.1:11212-0") == (647876633, 3420366637, 96110928, 4175585575)


def test_the_ring_of_three_nodes() -> None:
    ring = Ketama(NODES, HashTag(""), md5_word).ring
    assert (ring.points[0], ring.owners[0]) == (15946801, 1)
    assert (ring.points[-1], ring.owners[-1]) == (4292932786, 0)
    assert len(ring.points) == 3 * 160


@pytest.mark.parametrize(("hash_name", "foo", "others"), [("ketama", 0, 1), ("ketama-fnv1a", 1, 0)])
def test_known_keys(hash_name: str, foo: int, others: int) -> None:
    router = make_router(hash_name, NODES)
    assert router.index(b"foo") == foo
    assert [router.index(key) for key in (b"bar", b"key1", b"coconut")] == [others] * 3


def test_a_hash_beyond_the_last_point_wraps() -> None:
    placement = make_router("ketama", NODES).place(b"VDEAAAAA")
    assert placement == (1, b"VDEAAAAA", 0xFFFCD1B5, "point", 15946801)


def test_bytes_from_128_on_are_hashed_with_their_sign() -> None:
    # Observed in the behaviour of nutcracker; see tests/integration/cluster.
    assert fnv1a_64_word(b"\x80") == (0x84222325 ^ 0xFFFFFF80) * 0x1B3 & 0xFFFFFFFF


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 3, 2), (1, 100, 7)])
def test_libmemcached_names_the_same_node(weights: tuple[int, int, int]) -> None:
    pylibmc = pytest.importorskip("pylibmc", reason="pylibmc is not installed")
    servers = [f"127.0.0.1:{11211 + n}:{weight}" for n, weight in enumerate(weights)]
    client = pylibmc.Client(servers, behaviors={"ketama_weighted": True})
    members = [Member(node.name, weight) for node, weight in zip(NODES, weights, strict=True)]
    router = make_router("ketama", members)
    assert [client.hash(key.decode()) for key in KEYS] == list(map(router.index, KEYS))


def test_the_same_as_uhashring() -> None:
    uhashring = pytest.importorskip("uhashring", reason="uhashring is not installed")
    names = ["a:11212", "b:11212", "c:11212", "d:11212"]
    ring = uhashring.HashRing(names, hash_fn="ketama")
    router = make_router("ketama", [Member(name) for name in names])
    ours = [names[router.index(key)] for key in KEYS]
    assert ours == [ring.get_node(key.decode()) for key in KEYS]


@pytest.mark.parametrize("length", range(12))
def test_murmur3_is_that_of_pymemcache(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert murmur3_32(data) == reference_murmur3(data.decode("latin-1"))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_rendezvous_is_that_of_pymemcache(count: int) -> None:
    names = [f"10.0.0.{n}:11211" for n in range(count)]
    reference = RendezvousHash(list(names))
    router = make_router("rendezvous", [Member(name) for name in names])
    for key in [*KEYS, "schlüssel".encode(), "鍵-key-鍵鍵".encode()]:
        assert names[router.index(key)] == reference.get_node(key.decode())


def test_rendezvous_is_that_of_its_hash_client() -> None:
    client = HashClient([("a", 11211), ("b", 11212), ("/run/socket", None)][:2])
    router = make_router("rendezvous", [Member("a:11211"), Member("b:11212")])
    for key in KEYS[:200]:
        server = client.hasher.get_node(key.decode())
        assert server == ("a:11211", "b:11212")[router.index(key)]


def test_the_greater_name_wins_among_equal_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlite.routing.rendezvous.murmur3_32", lambda data: 5)
    reference = RendezvousHash(["b", "c", "a"], hash_function=lambda data, seed: 5)
    assert reference.get_node("k") == "c"
    assert make_router("rendezvous", [Member("b"), Member("c"), Member("a")]).index(b"k") == 1


def test_jump_gives_the_published_buckets() -> None:
    # Computed with the paper's C code.
    assert [jump(value, 1000) for value in (0, 1, 0xDEAD10CC)] == [0, 549, 361]


def test_a_name_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "getaddrinfo")
    assert make_router("ketama", [Member("cache-1"), Member("cache-2")]).index(b"k") in (0, 1)
