"""A topology file that changes while a proxy serves."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from memlite.cluster.topology import read_topology
from memlite.proxy.replica_requests import Key, hold
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, Wire, needs_memcached, running
from tests.support.waiting import wait_until

KEYS = [b"key:%d" % number for number in range(60)]


def write(path: Path, nodes: Sequence[RunningServer], settings: str = "") -> None:
    """Replace the file atomically, as editors and deployment tools do."""
    new = path.with_suffix(".new")
    new.write_text(
        settings
        + "".join(
            f'[[nodes]]\nname = "n{node.port}"\naddress = "127.0.0.1:{node.port}"\n'
            for node in nodes
        )
    )
    new.replace(path)


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RunningServer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(running("memlite")) for _ in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.toml"


def nodes_up(wire: Wire) -> set[str]:
    """Return the names of the nodes that are up."""
    names = (name.split(":") for name, text in wire.stats().items() if text == "up")
    return {name[1] for name in names if name[2:] == ["state"]}


def number_of_nodes(front: RunningServer) -> int:
    with front.connect() as wire:
        return int(wire.stats()["proxy_nodes"])


@pytest.mark.parametrize("by_signal", [True, False], ids=["SIGHUP", "changed"])
def test_nodes_are_added_and_removed_without_dropping_a_connection(
    nodes: list[RunningServer], path: Path, by_signal: bool
) -> None:
    write(path, nodes[:2])
    with proxy(path) as front, front.connect() as wire:
        arrivals = 0
        for some in (nodes, nodes[1:], nodes[:2]):
            write(path, some)
            if by_signal:
                front.process.send_signal(signal.SIGHUP)
            assert wait_until(lambda some=some: nodes_up(wire) == {f"n{n.port}" for n in some})
            router = read_topology(path).router()
            for key in KEYS:
                assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % key) == b"STORED\r\n"
                with some[router.index(key)].connect() as direct:
                    assert direct.ask(b"md %b\r\n" % key) == b"HD\r\n"
            arrivals += len(KEYS)
            wire.send(b"stats proxy\r\n")
            assert b"STAT arrivals %d\r\n" % arrivals in wire.until(b"END\r\n")


def test_no_request_fails_while_the_topology_changes(
    nodes: list[RunningServer], path: Path
) -> None:
    write(path, nodes)
    over = threading.Event()
    replies: set[bytes] = set()

    def ask() -> None:
        with front.connect() as wire:
            while not over.is_set():
                wire.send(b"".join(b"mg %b\r\n" % key for key in KEYS) + b"mn\r\n")
                replies.update(wire.until(b"MN\r\n").split(b"\r\n"))

    with proxy(path) as front:
        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        try:
            for turn in range(8):
                count = 1 + turn % 3
                write(path, nodes[:count])
                front.process.send_signal(signal.SIGHUP)
                assert wait_until(lambda count=count: number_of_nodes(front) == count)
        finally:
            over.set()
            for client in clients:
                client.join(30)
    assert replies <= {b"HD", b"EN", b"MN", b""}


@pytest.mark.parametrize(
    "content", ["nodes = 3", "[[nodes", None], ids=["wrong", "no TOML", "gone"]
)
def test_the_old_topology_stays_if_the_file_is_wrong(
    nodes: list[RunningServer], path: Path, content: str | None
) -> None:
    write(path, nodes)
    with proxy(path) as front, front.connect() as wire:
        if content is None:
            path.unlink()
            front.process.send_signal(signal.SIGHUP)
        else:
            path.write_text(content)
        assert wait_until(lambda: "topology not reloaded: " in front.log.read_text())
        assert str(path) in front.log.read_text()
        assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        write(path, nodes[:1])
        assert wait_until(lambda: number_of_nodes(front) == 1)


def test_a_file_named_by_a_relative_path(nodes: list[RunningServer], path: Path) -> None:
    write(path, nodes[:1])
    relative = Path(os.path.relpath(path))
    with proxy(relative) as front:
        write(path, nodes)
        assert wait_until(lambda: number_of_nodes(front) == 3)


KINDS = ["memlite", pytest.param("memcached", marks=needs_memcached)]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_first_of_several_proxies_empties_a_new_node(kind: str, tmp_path: Path) -> None:
    """Items that clients of the first proxy store are kept when others learn of the node."""
    with contextlib.ExitStack() as stack:
        old, new = (stack.enter_context(running(kind)) for _ in range(2))
        paths = [tmp_path / name for name in ("one", "two")]
        for path in paths:
            write(path, [old])
        first, second = (stack.enter_context(proxy(path)) for path in paths)
        for turn in range(2):  # the note left by the first turn must not count in the second
            assert new.ask(b"set stale 0 0 1\r\nx\r\n") == b"STORED\r\n"
            write(paths[0], [old, new])
            assert wait_until(lambda: up_nodes(first) == 2)
            assert new.ask(b"mg stale\r\n") == b"EN\r\n"
            stored = store_at(first, new, b"%d" % turn)
            assert len(stored) > 10
            write(paths[1], [old, new])
            assert wait_until(lambda: up_nodes(second) == 2)
            with second.connect() as wire:
                for key in stored:
                    wire.send(b"get %b\r\n" % key)
                    assert wire.until(b"END\r\n").startswith(b"VALUE"), key
            for path, front in zip(paths, (first, second), strict=True):
                write(path, [old])
                assert wait_until(lambda: number_of_nodes(front) == 1)  # noqa: B023 - called at once


def up_nodes(front: RunningServer) -> int:
    with front.connect() as wire:
        return len(nodes_up(wire))


def store_at(front: RunningServer, node: RunningServer, value: bytes) -> list[bytes]:
    """Store all keys; return those that a node has received."""
    with front.connect() as wire:
        for key in KEYS:
            assert wire.ask(b"set %b 0 0 1\r\n%b\r\n" % (key, value)) == b"STORED\r\n"
    with node.connect() as wire:
        return [key for key in KEYS if wire.ask(b"mg %b\r\n" % key) == b"HD\r\n"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_becomes_the_primary_does_not_take_a_hold_for_an_item(
    kind: str, path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        some = [stack.enter_context(running(kind)) for _ in range(3)]
        write(path, some, "replicas = 2\n")
        router = read_topology(path).router()
        key = next(key for key in KEYS if router.replicas(key, 2) == [0, 1])
        front = stack.enter_context(proxy(path, "--deadline", "2"))
        assert wait_until(lambda: up_nodes(front) == 3)
        # The hold left by a change with an unknown outcome, as it is some seconds later.
        left = hold(Key(key, b""), 20)
        assert some[1].ask(left).startswith(b"HD")
        write(path, some[1:], "replicas = 2\n")
        assert wait_until(lambda: number_of_nodes(front) == 2)
        with front.connect() as wire:
            assert wire.ask(b"incr %b 1\r\n" % key) == b"NOT_FOUND\r\n"
            assert wire.ask(b"add %b 0 0 1\r\n1\r\n" % key) == b"STORED\r\n"
            assert wire.ask(b"append %b 0 0 1\r\n2\r\n" % key) == b"STORED\r\n"
            wire.send(b"get %b\r\n" % key)
            assert wire.until(b"END\r\n") == b"VALUE %b 0 2\r\n12\r\nEND\r\n" % key
