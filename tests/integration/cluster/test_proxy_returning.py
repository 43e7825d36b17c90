"""A node that was away serves none of its old items if it may have missed a change."""

import contextlib
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.foreign_servers import serving
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, needs_memcached, running
from tests.support.waiting import wait_until

DOWN = b"SERVER_ERROR node "
PAIR = [pytest.param("memcached", marks=needs_memcached), "memlite"]


@contextlib.contextmanager
def started(kind: str, *arguments: str) -> Iterator[tuple[RunningServer, RunningServer]]:
    """Run a node and a proxy in front of it."""
    with running(kind) as node, proxy([node], "--deadline", "0.3", *arguments) as front:
        assert wait_until(lambda: node_stat(front, node, "state") == "up")
        yield node, front


@contextlib.contextmanager
def paused(front: RunningServer, node: RunningServer) -> Iterator[None]:
    """Pause a node until the proxy considers it down; on leaving, wait until it is up again."""
    node.pause()
    try:
        with front.connect() as wire:
            assert wire.ask(b"mg nothing\r\n").startswith(DOWN)
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)
    assert wait_until(lambda: node_stat(front, node, "state") == "up")


def value(wire: Wire, key: bytes = b"k") -> bytes:
    """Return a value of one byte, or nothing for a miss."""
    wire.send(b"get %b\r\nmn\r\n" % key)
    return wire.until(b"MN\r\n").removesuffix(b"END\r\nMN\r\n")[-3:-2]


@pytest.mark.parametrize("kind", PAIR)
def test_a_late_change_never_appears(kind: str) -> None:
    """The change waits in the paused node's socket, and is carried out when the node continues."""
    with started(kind) as (node, front), front.connect() as wire:
        for turn in range(3):
            assert wire.ask(b"set k 0 0 1\r\n1\r\n") == b"STORED\r\n"
            node.pause()
            try:
                wire.send(b"set k 0 0 1\r\n2\r\n" * 50)
                assert wire.line().startswith(DOWN)
            finally:
                node.process.send_signal(signal.SIGCONT)
            for _ in range(49):
                assert wire.line().startswith(DOWN)
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            assert [value(wire) for _ in range(100)] == [b""] * 100
            assert node_stat(front, node, "flushes") == str(turn + 1)


@pytest.mark.parametrize("request_", [b"set k 0 0 1\r\n2\r\n", b"delete k\r\n", b"gat 1 k\r\n"])
def test_a_node_that_missed_a_change_comes_back_empty(request_: bytes) -> None:
    with started("memlite") as (node, front), front.connect() as wire:
        assert wire.ask(b"set k 0 0 1\r\n1\r\n") == b"STORED\r\n"
        with paused(front, node):
            assert wire.ask(request_).startswith(DOWN)
        assert value(wire) == b""
        assert node_stat(front, node, "flushes") == "1"


def test_a_node_that_missed_nothing_keeps_its_items() -> None:
    with started("memlite") as (node, front), front.connect() as wire:
        assert wire.ask(b"set k 0 0 1\r\n1\r\n") == b"STORED\r\n"
        with paused(front, node):
            for request in (b"get k\r\n", b"gets k\r\n", b"mg k v\r\n"):
                assert wire.ask(request).startswith(DOWN)
        assert value(wire) == b"1"
        assert node_stat(front, node, "flushes") == "0"


def test_nodes_can_be_kept_as_they_are() -> None:
    with started("memlite", "--on-return", "keep") as (node, front), front.connect() as wire:
        assert wire.ask(b"set k 0 0 1\r\n1\r\n") == b"STORED\r\n"
        with paused(front, node):
            assert wire.ask(b"set k 0 0 1\r\n2\r\n").startswith(DOWN)
        assert value(wire) == b"1"


def test_late_changes_never_overwrite_newer_ones() -> None:
    """Even if a node is not emptied, an older value must not replace a newer one."""
    with started("memlite", "--on-return", "keep") as (node, front), front.connect() as wire:
        for _ in range(3):
            node.pause()
            try:
                assert wire.ask(b"set k 0 0 1\r\n1\r\n").startswith(DOWN)
            finally:
                node.process.send_signal(signal.SIGCONT)
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            assert value(wire) == b"1"
            assert wire.ask(b"set k 0 0 1\r\n2\r\n") == b"STORED\r\n"
            assert [value(wire) for _ in range(50)] == [b"2"] * 50


@needs_memcached
def test_a_node_that_cannot_be_emptied_stays_down() -> None:
    with running("memcached", "-F") as node, proxy([node], "--deadline", "0.3") as front:
        assert wait_until(lambda: node_stat(front, node, "state") == "up")
        with front.connect() as wire:
            node.pause()
            try:
                assert wire.ask(b"set k 0 0 1\r\n1\r\n").startswith(DOWN)
            finally:
                node.process.send_signal(signal.SIGCONT)
            assert wait_until(lambda: "flush_all: " in node_stat(front, node, "error"))
            assert b": down: flush_all: unexpected reply: CLIENT_ERROR" in wire.ask(b"get k\r\n")


class KeepingMemcached:
    """Acts as a memcached that keeps an item despite ``flush_all`` until that second is over.

    memcached keeps an item that is read for the second time in the second of the flush. This server
    closes the connection on a ``set`` of the key ``lost``, so that its outcome is unknown.
    """

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}
        self.second_is_flushed = False
        self.asked: list[bytes] = []

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as requests:
            while words := requests.readline().split():
                self.asked.append(b" ".join(words))
                value = requests.read(int(words[4]) + 2) if words[0] == b"set" else b""
                if words[:2] == [b"set", b"lost"]:
                    return
                connection.sendall(self._reply(words, value))

    def _reply(self, words: list[bytes], value: bytes) -> bytes:
        if words[0] == b"version":
            return b"VERSION 1.6.45\r\n"
        if words[0] == b"flush_all":
            self.second_is_flushed = len(words) > 1
            kept = () if self.second_is_flushed else (b"k",)
            self.items = {key: self.items[key] for key in kept if key in self.items}
            return b"OK\r\n"
        if words[0] == b"set":
            if not self.second_is_flushed:
                self.items[words[1]] = value
            return b"STORED\r\n"
        found = self.items.get(words[1])
        item = b"" if found is None else b"VALUE %b 0 %d\r\n%b" % (words[1], len(found) - 2, found)
        return item + b"END\r\n"


def test_items_that_memcached_keeps_despite_a_flush_are_never_served() -> None:
    node = KeepingMemcached()
    with serving(node.serve) as port:
        nodes: Any = [SimpleNamespace(port=port)]
        with proxy(nodes) as front, front.connect() as wire:
            assert wait_until(lambda: wire.stats()["proxy_nodes_up"] == "1")
            assert wire.ask(b"set k 0 0 1\r\n1\r\n") == b"STORED\r\n"
            assert value(wire) == b"1"
            assert wire.ask(b"set lost 0 0 1\r\n1\r\n").startswith(DOWN)
            assert wait_until(lambda: sum(b"memlite:probe:" in one for one in node.asked) > 4)
            assert wire.stats()["proxy_nodes_up"] == "0"  # the second of the flush is not over
            node.second_is_flushed = False
            assert wait_until(lambda: wire.stats()["proxy_nodes_up"] == "1")
            assert value(wire) == b""
            assert wire.ask(b"set k 0 0 1\r\n2\r\n") == b"STORED\r\n"
            assert value(wire) == b"2"


def write(path: Path, nodes: Sequence[RunningServer], *lines: str) -> None:
    new = path.with_suffix(".new")
    tables = (f'[[nodes]]\naddress = "127.0.0.1:{node.port}"' for node in nodes)
    new.write_text("\n".join([*lines, *tables]))
    new.replace(path)


@pytest.mark.parametrize(
    ("lines", "left"), [((), b""), (('on_return = "keep"',), b"1")], ids=["flush", "keep"]
)
def test_a_node_that_is_added_again(tmp_path: Path, lines: tuple[str, ...], left: bytes) -> None:
    path = tmp_path / "cluster.toml"
    with running("memlite") as one, running("memlite") as other:
        write(path, [one], *lines)
        with proxy(path) as front, front.connect() as wire:
            assert wire.ask(b"set k 0 0 1\r\n1\r\n") == b"STORED\r\n"
            for nodes in ([other], [one]):
                write(path, nodes, *lines)
                front.process.send_signal(signal.SIGHUP)
                name = f"node:127.0.0.1:{nodes[0].port}:state"
                assert wait_until(lambda name=name: wire.stats().get(name) == "up")
            assert value(wire) == left


def test_a_starting_proxy_does_not_empty_the_nodes() -> None:
    with started("memlite") as (node, front):
        with front.connect() as wire:
            assert wire.ask(b"set k 0 0 1\r\n1\r\n") == b"STORED\r\n"
        with proxy([node]) as another, another.connect() as wire:
            assert value(wire) == b"1"
