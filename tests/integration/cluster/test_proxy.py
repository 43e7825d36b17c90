"""A proxy in front of three nodes: clients, the order of replies, and statistics."""

import contextlib
from collections.abc import Iterator

import pytest
from pymemcache.client.base import Client

from memlite.cluster.topology import parse_nodes
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running

Cluster = tuple[RunningServer, tuple[RunningServer, ...]]
KEYS = [b"key:%d" % number for number in range(60)]


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        nodes = tuple(stack.enter_context(running("memlite")) for _ in range(3))
        yield stack.enter_context(proxy(nodes)), nodes


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    with started[0].connect() as wire:
        assert wire.ask(b"flush_all\r\n") == b"OK\r\n"
    return started


def owner(cluster: Cluster, key: bytes) -> int:
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster[1])
    return parse_nodes(addresses).router().index(key)


def store(cluster: Cluster) -> bytes:
    """Store an item under every key; return the reply to a get of all."""
    with cluster[0].connect() as wire:
        wire.send(b"".join(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(key), key) for key in KEYS))
        assert [wire.line() for _ in KEYS] == [b"STORED\r\n"] * len(KEYS)
    items = (b"VALUE %b 0 %d\r\n%b\r\n" % (key, len(key), key) for key in KEYS)
    return b"".join(items) + b"END\r\n"


def test_pymemcache(cluster: Cluster) -> None:
    with contextlib.closing(Client(("127.0.0.1", cluster[0].port), timeout=60)) as client:
        values = {f"k{number}": b"%d" % number for number in range(100)}
        assert client.set_many(values, noreply=False) == []
        assert client.get_many(list(values)) == values
        _, unique = client.gets("k5")
        assert client.cas("k5", b"new", unique) is True
        assert client.cas("k5", b"newer", unique) is False
        assert client.incr("k6", 4) == 10
        assert client.decr("k6", 1) == 9
        assert client.touch("k7", 100, noreply=False)
        assert client.add("k8", b"x", noreply=False) is False
        assert client.append("k8", b"9", noreply=False)
        assert client.get("k8") == b"89"
        assert client.delete("k9", noreply=False)
        assert client.get("k9", "gone") == "gone"


def test_a_get_of_many_keys_returns_them_in_order(cluster: Cluster) -> None:
    reply = store(cluster)
    with cluster[0].connect() as wire:
        wire.send(b"get " + b" ".join(KEYS) + b"\r\n")
        assert wire.until(b"END\r\n") == reply


@pytest.mark.parametrize("others", [0, 20])
def test_a_key_with_a_line_feed_consumes_no_other_reply(cluster: Cluster, others: int) -> None:
    """A meta request in base64 may have such a key; sent as text, it would end the line."""
    store(cluster)
    data = b"set a\nb 0 0 1\r\nx\r\n" + b"".join(b"get %b\r\n" % key for key in KEYS[:others])
    with cluster[0].connect() as wire, cluster[0].connect() as other:
        assert wire.ask(b"mg YQpi b\r\n") == b"EN\r\n"
        wire.send(data)
        assert all(b"ERROR" in wire.line() for _ in range(3))
        for key in KEYS[:others]:
            assert wire.line() == b"VALUE %b 0 %d\r\n" % (key, len(key))
            assert (wire.line(), wire.line()) == (key + b"\r\n", b"END\r\n")
        for key in KEYS:
            other.send(b"get %b\r\n" % key)
            assert other.until(b"END\r\n").split(b"\r\n")[1] == key


@pytest.mark.parametrize("times", [1, 2, 20])
def test_a_get_of_a_key_with_a_line_feed_is_two_requests(cluster: Cluster, times: int) -> None:
    store(cluster)
    with cluster[0].connect() as wire, cluster[0].connect() as other:
        for _ in range(3):  # the key is known from the first meta request on
            assert wire.ask(b"mg YQpi b\r\n") == b"EN\r\n"
            wire.send(b"get a\nb\r\n" * times)
            replies = [wire.line() for _ in range(2 * times)]
            assert replies == [b"END\r\n", b"CLIENT_ERROR bad command line format\r\n"] * times
        for key in KEYS:
            other.send(b"get %b\r\n" % key)
            assert other.until(b"END\r\n").split(b"\r\n")[1] == key


@pytest.mark.parametrize(
    "before", [b"get %b k\r\n", b"set %b 0 0 1\r\nx\r\n", b"delete %b\r\n", b"mg %b\r\n"]
)
def test_the_list_of_nodes_is_no_item_whatever_was_asked_before(
    cluster: Cluster, before: bytes
) -> None:
    key = b"AmazonElastiCache:cluster"
    with cluster[0].connect() as wire:
        for times in (1, 2, 1):
            wire.send(b"get %b\r\n" % key * times)
            for _ in range(times):
                lines = [wire.line() for _ in range(5)]
                assert lines[0].startswith(b"VALUE %b 0 " % key)
                assert lines[2].count(b"|") == 6  # three nodes
                assert lines[3:] == [b"\r\n", b"END\r\n"]
            wire.send(before % key)
            assert wire.line()


def test_gats_of_many_keys(cluster: Cluster) -> None:
    store(cluster)
    with cluster[0].connect() as wire:
        wire.send(b"gats 100 " + b" ".join(KEYS) + b"\r\n")
        assert wire.until(b"END\r\n").count(b"VALUE ") == len(KEYS)
        for key in KEYS[:9]:
            assert wire.ask(b"mg %b t\r\n" % key) in (b"HD t100\r\n", b"HD t99\r\n")


def test_each_node_has_the_keys_that_the_router_gives_it(cluster: Cluster) -> None:
    store(cluster)
    for index, node in enumerate(cluster[1]):
        with node.connect() as wire:
            found = {key for key in KEYS if wire.ask(b"mg %b\r\n" % key) == b"HD\r\n"}
        assert found == {key for key in KEYS if owner(cluster, key) == index}


def test_replies_come_in_the_order_of_the_requests(cluster: Cluster) -> None:
    store(cluster)
    requests = []
    expected = b""
    for number, key in enumerate(KEYS * 5):
        requests.append(b"mg %b O%d\r\n" % (key, number))
        expected += b"HD O%d\r\n" % number
        if number % 7 == 0:
            requests += [b"version\r\n", b"nonsense\r\n"]
            expected += b"VERSION\r\nERROR\r\n"
    requests.append(b"mn\r\n")
    with cluster[0].connect() as wire:
        wire.send(b"".join(requests))
        got = wire.until(b"MN\r\n").removesuffix(b"MN\r\n")
    lines = [b"VERSION" if line.startswith(b"VERSION") else line for line in got.split(b"\r\n")]
    assert b"\r\n".join(lines) == expected


def test_quiet_requests_have_no_reply_and_change_the_nodes(cluster: Cluster) -> None:
    with cluster[0].connect() as wire:
        wire.send(
            b"set a 0 0 1 noreply\r\n1\r\nincr a 4 noreply\r\nset b 0 0 1 noreply\r\nb\r\n"
            b"append b 0 0 1 noreply\r\nb\r\ndelete noreply\r\nset noreply 0 0 1 noreply\r\nx\r\n"
            b"ms c 1 q\r\nc\r\nmd d q\r\nmg e v q\r\nma f q\r\nmg c v k q\r\n"
            b"cas b 0 0 1 99999999 noreply\r\nz\r\nflush_all bad noreply\r\nget a b\r\n"
        )
        assert wire.until(b"END\r\n") == (
            b"NF\r\nNF\r\nVA 1 kc\r\nc\r\nVALUE a 0 1\r\n5\r\nVALUE b 0 2\r\nbb\r\nEND\r\n"
        )
        assert wire.ask(b"delete noreply x\r\n") == b"DELETED\r\n"


def test_a_quiet_me_is_answered_like_any(cluster: Cluster) -> None:
    with cluster[0].connect() as wire:
        assert wire.ask(b"set k 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert wire.ask(b"me k q\r\n").startswith(b"ME k ")
        assert wire.ask(b"me none q\r\n") == b"EN\r\n"


def test_a_delete_of_the_key_noreply_is_silent(cluster: Cluster) -> None:
    with cluster[0].connect() as wire:
        assert wire.ask(b"set noreply 0 0 1\r\nx\r\n") == b"STORED\r\n"
        wire.send(b"delete noreply\r\nget noreply\r\n")
        assert wire.line() == b"END\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"set s 0 0 1 noreply noreply\r\nx\r\n",
        b"set s 0 0 1 x y noreply noreply\r\nx\r\n",
        b"set s 0 0 1 " + b"x " * 30 + b"noreply\r\nx\r\n",
        b"cas s 0 0 1 5 noreply noreply\r\nx\r\n",
        b"delete noreply noreply\r\n",
        b"delete s noreply noreply\r\n",
        b"incr s 5 noreply noreply\r\n",
        b"touch s 5 noreply noreply\r\n",
        b"  flush_all 0 noreply\r\n",
        b"flush_all noreply noreply\r\n",
        b"verbosity 0 noreply\r\n",
        b"mg s q O1\r\n",
    ],
)
def test_a_silent_request_leaves_the_connection_to_the_node_in_step(
    cluster: Cluster, request_: bytes
) -> None:
    with cluster[0].connect() as wire:
        wire.send(request_)
        for key in KEYS[:9]:
            assert wire.ask(b"mg %b\r\n" % key) == b"EN\r\n"


def test_a_value_that_is_too_large_removes_the_old_one(cluster: Cluster) -> None:
    with cluster[0].connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        request = b"set a 0 0 1100000\r\n" + bytes(1100000) + b"\r\n"
        assert wire.ask(request) == b"SERVER_ERROR object too large for cache\r\n"
        assert wire.ask(b"get a\r\n") == b"END\r\n"


def test_large_values_pass(cluster: Cluster) -> None:
    value = bytes(range(256)) * 4000
    with cluster[0].connect() as wire:
        assert wire.ask(b"set a 3 0 %d\r\n%b\r\n" % (len(value), value)) == b"STORED\r\n"
        wire.send(b"get a\r\n")
        assert wire.line() == b"VALUE a 3 %d\r\n" % len(value)
        assert wire.exactly(len(value) + 7) == value + b"\r\nEND\r\n"


def test_flush_all_reaches_every_node(cluster: Cluster) -> None:
    store(cluster)
    with cluster[0].connect() as wire:
        assert wire.ask(b"flush_all\r\n") == b"OK\r\n"
    for node in cluster[1]:
        with node.connect() as wire:
            wire.send(b"get " + b" ".join(KEYS) + b"\r\n")
            assert wire.until(b"END\r\n") == b"END\r\n"


def test_quit_comes_after_the_replies_before_it(cluster: Cluster) -> None:
    store(cluster)
    with cluster[0].connect() as wire:
        wire.send(b"mg key:1 k\r\nmg key:2 k\r\nquit\r\nmg key:3 k\r\n")
        assert wire.rest() == b"HD kkey:1\r\nHD kkey:2\r\n"


def test_input_that_ends_is_answered(cluster: Cluster) -> None:
    import socket

    store(cluster)
    with cluster[0].connect() as wire:
        wire.send(b"get key:1\r\nget key:2\r\n")
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.rest().count(b"VALUE") == 2


def test_statistics_are_those_of_the_proxy(cluster: Cluster) -> None:
    with cluster[0].connect() as wire:
        stats = wire.stats()
        assert stats["proxy_nodes"] == stats["proxy_nodes_up"] == "3"
        for node in cluster[1]:
            assert stats[f"node:127.0.0.1:{node.port}:state"] == "up"
        assert wire.ask(b"stats items\r\n").startswith(b"SERVER_ERROR ")
        assert wire.ask(b"lru_crawler enable\r\n").startswith(b"SERVER_ERROR ")
        assert wire.ask(b"verbosity 0\r\n") == b"OK\r\n"
        assert wire.ask(b"verbosity\r\n") == b"CLIENT_ERROR bad command line format\r\n"


def test_a_reply_never_goes_to_another_client(cluster: Cluster) -> None:
    store(cluster)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(cluster[0].connect()) for _ in range(20)]
        for turn in range(10):
            for number, wire in enumerate(wires):
                wire.send(b"mg %b k O%d\r\n" % (KEYS[(number + turn) % 60], number))
            for number, wire in enumerate(wires):
                assert wire.line() == b"HD k%b O%d\r\n" % (KEYS[(number + turn) % 60], number)


def test_clients_that_disconnect_do_not_affect_others(cluster: Cluster) -> None:
    store(cluster)
    with cluster[0].connect() as stays:
        for _ in range(20):
            with cluster[0].connect() as goes:
                goes.send(b"get key:1 key:2 key:3 key:4\r\nget key:1\r\n" * 20)
            assert stays.ask(b"mg key:5 k\r\n") == b"HD kkey:5\r\n"
