"""A key with a NUL, which ends the line for older memcacheds, never starts another request."""

import contextlib
from collections.abc import Iterator

import pytest

from memlite.protocol.packets import Opcode, Status
from tests.support.packets import NOOP, count, packet, replies, store, touch
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, needs_memcached, running
from tests.support.waiting import wait_until

REFUSED = b"CLIENT_ERROR a key with a NUL needs base64 through a proxy\r\n"
KINDS = [pytest.param("memcached", marks=needs_memcached), "memlite"]

Cluster = tuple[RunningServer, RunningServer]


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(running(request.param))
        front = stack.enter_context(proxy([node]))
        assert wait_until(lambda: node_stat(front, node, "state") == "up")
        yield front, node


@pytest.mark.parametrize(
    "request_",
    [
        b"get a\0b\r\n",
        b"gets \0\r\n",
        b"gat 0 a\0b\r\n",
        b"delete a\0\r\n",
        b"incr a\0b 1\r\n",
        b"touch a\0b 1\r\n",
        b"set a\0b 0 0 11\r\nset x 0 0 1\r\n",
        b"set a\0b 0 0 11  \r\nset x 0 0 1\r\n",
        b"append a\0b 0 0 11\r\nset x 0 0 1\r\n",
        b"cas a\0b 0 0 11 1\r\nset x 0 0 1\r\n",
        b"ms a\0b 11\r\nset x 0 0 1\r\n",
        b"ms a 11 O\0\r\nset x 0 0 1\r\n",
        b"mg a O\0 v\r\n",
        b"mg a\0b\r\n",
        b"md a\0b\r\n",
        b"ma a\0b\r\n",
    ],
)
def test_a_text_request_with_a_nul_is_refused(cluster: Cluster, request_: bytes) -> None:
    front, node = cluster
    with front.connect() as wire:
        wire.send(request_ + b"mn\r\n")
        assert wire.until(b"MN\r\n") == REFUSED + b"MN\r\n"
        wire.send(b"mg x\r\nmn\r\n")
        assert wire.until(b"MN\r\n") == b"EN\r\nMN\r\n"
    assert node_stat(front, node, "connects") == "1"


def test_the_value_of_a_refused_noreply_set_is_not_executed(cluster: Cluster) -> None:
    front, node = cluster
    with front.connect() as wire:
        wire.send(b"set a\0b 0 0 11 noreply\r\nset x 0 0 1\r\nmg x\r\nmn\r\n")
        assert wire.until(b"MN\r\n") == b"EN\r\nMN\r\n"
    assert node_stat(front, node, "connects") == "1"


def test_a_key_with_a_nul_among_several_is_a_miss_if_other_nodes_answer(cluster: Cluster) -> None:
    front, _ = cluster
    with front.connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        wire.send(b"get a a\0b\r\n")
        assert wire.until(b"END\r\n") == b"VALUE a 0 1\r\n1\r\nEND\r\n"


def test_values_and_base64_keys_may_contain_a_nul(cluster: Cluster) -> None:
    front, node = cluster
    with front.connect() as wire:
        assert wire.ask(b"set k 0 0 1\r\n\0\r\n") == b"STORED\r\n"
        assert wire.ask(b"ms k 1\r\n\0\r\n") == b"HD\r\n"
        assert wire.ask(b"ms YQBi 1 b\r\nx\r\n") == b"HD\r\n"
        assert wire.ask(b"mg YQBi b k\r\n") == b"HD kYQBi b\r\n"
        # The proxy knows the key from now on, and still refuses it in text.
        assert wire.ask(b"delete a\0b\r\n") == REFUSED
        assert wire.ask(b"md YQBi b\r\n") == b"HD\r\n"
    assert node_stat(front, node, "connects") == "1"


@pytest.mark.parametrize("key", [b"\0", b"a\0b", b"\0\1"])
def test_binary_keys_may_contain_a_nul(cluster: Cluster, key: bytes) -> None:
    front, node = cluster
    requests = (
        store(Opcode.SET, key, b"1", 5)
        + packet(Opcode.GETK, key)
        + touch(Opcode.GATKQ, key, 100)
        + touch(Opcode.TOUCH, key, 100)
        + count(Opcode.INCREMENT, key, 41)
        + packet(Opcode.GETKQ, key)
        + packet(Opcode.DELETE, key)
        + packet(Opcode.GETKQ, key)
        + NOOP
    )
    found = replies(front.ask(requests))
    assert [one.status for one in found] == [Status.SUCCESS] * 8
    assert [(one.key, one.value) for one in found[1:3]] == [(key, b"1")] * 2
    assert (found[5].key, found[5].value) == (key, b"42")
    assert node_stat(front, node, "connects") == "1"
