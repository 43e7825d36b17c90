"""The gutter serves the keys of a node that is down, and nothing stale when it is used again."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlite.cluster.topology import read_topology
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

TTL = 30
KEYS = [b"key:%d" % number for number in range(60)]


class Started:
    """Nodes, a gutter of two and a proxy; `keys` are those of the first node."""

    def __init__(
        self, front: RunningServer, nodes: list[RunningServer], gutter: list[RunningServer]
    ) -> None:
        self.front, self.nodes, self.gutter = front, nodes, gutter
        self.keys = KEYS

    def state(self, node: RunningServer) -> str:
        return node_stat(self.front, node, "state")

    @contextlib.contextmanager
    def away(self, wire: Wire, number: int = 0) -> Iterator[None]:
        """Pause a node, whose keys the gutter then serves; finally, wait until it is up again."""
        node = self.nodes[number]
        node.pause()
        try:
            for key in self.keys:
                wire.ask(b"mg %b\r\n" % key)
            assert self.state(node) == "down"
            assert wait_until(
                lambda: {wire.ask(b"mg %b\r\n" % k)[:2] for k in KEYS} <= {b"EN", b"HD"}
            )
            yield
        finally:
            node.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: self.state(node) == "up")


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 3], ids="{} nodes".format)
def started(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Started]:
    path = tmp_path / "cluster.toml"
    with contextlib.ExitStack() as stack:
        nodes, gutter = (
            [stack.enter_context(running("memlite")) for _ in range(count)]
            for count in (request.param, 2)
        )
        addresses = [f'"127.0.0.1:{node.port}"' for node in gutter]
        path.write_text(
            "".join(f'[[nodes]]\naddress = "127.0.0.1:{node.port}"\n' for node in nodes)
            + f"[gutter]\nnodes = [{', '.join(addresses)}]\nttl = {TTL}\n"
        )
        front = stack.enter_context(proxy(path, "--deadline", "0.3"))
        started = Started(front, nodes, gutter)
        router = read_topology(path).router()
        started.keys = [key for key in KEYS if router.index(key) == 0]
        assert wait_until(lambda: all(started.state(node) == "up" for node in nodes))
        yield started


def test_the_gutter_serves_the_keys_of_a_node_that_is_down(started: Started) -> None:
    with started.front.connect() as wire:
        for key in KEYS:
            assert wire.ask(b"set %b 0 0 1\r\n1\r\n" % key) == b"STORED\r\n"
        with started.away(wire):
            for key in started.keys:
                assert wire.ask(b"mg %b v\r\n" % key) == b"EN\r\n"
                assert wire.ask(b"set %b 0 0 1\r\n2\r\n" % key) == b"STORED\r\n"
                reply = wire.ask(b"mg %b t\r\n" % key)
                assert reply.startswith(b"HD t")
                assert 0 < int(reply[4:]) <= TTL
            wire.send(b"get " + b" ".join(KEYS) + b"\r\n")
            values = dict.fromkeys(KEYS, b"1") | dict.fromkeys(started.keys, b"2")
            items = (b"VALUE %b 0 1\r\n%b\r\n" % item for item in values.items())
            assert wire.until(b"END\r\n") == b"".join(items) + b"END\r\n"
            assert wire.ask(b"delete %b\r\n" % started.keys[0]) == b"DELETED\r\n"
            assert int(wire.stats()["proxy_gutter_requests"]) > len(started.keys)
            held = [int(node.stats()["curr_items"]) for node in started.gutter]
            # Each also has a note that the node is away.
            assert sum(held) == len(started.keys) - 1 + len(held)
            assert all(number > 1 for number in held)
        for key in started.keys:  # neither changes made meanwhile nor earlier items are there
            assert wire.ask(b"mg %b\r\n" % key) == b"EN\r\n"


@pytest.mark.slow
def test_items_left_by_an_earlier_outage_are_not_served(started: Started) -> None:
    with started.front.connect() as wire:
        for _ in range(2):
            with started.away(wire):
                for key in started.keys:
                    assert wire.ask(b"mg %b\r\n" % key) == b"EN\r\n"
                    assert wire.ask(b"set %b 0 0 1\r\n1\r\n" % key) == b"STORED\r\n"


@pytest.mark.slow
def test_the_gutter_refuses_commands_that_depend_on_items_of_the_node(started: Started) -> None:
    key = started.keys[0]
    with started.front.connect() as wire, started.away(wire):
        for request in (b"incr %b 1\r\n", b"gets %b\r\n", b"append %b 0 0 1\r\nx\r\n"):
            assert b"the gutter has no such command" in wire.ask(request % key)


@pytest.mark.slow
def test_flush_all_is_for_the_gutter_too(started: Started) -> None:
    key = started.keys[0]
    with started.front.connect() as wire, started.away(wire):
        assert wire.ask(b"set %b 0 0 1\r\n1\r\n" % key) == b"STORED\r\n"
        assert wire.ask(b"flush_all\r\n").startswith(b"SERVER_ERROR")  # the node is down
        assert wire.ask(b"mg %b\r\n" % key) == b"EN\r\n"


def test_the_gutter_stands_in_for_at_most_half_of_the_nodes(started: Started) -> None:
    if len(started.nodes) == 1:
        pytest.skip("the gutter stands in for a single node")
    with started.front.connect() as wire:
        for node in started.nodes[:2]:
            node.process.kill()
            node.process.wait()
            assert wait_until(lambda node=node: started.state(node) == "down")
        assert wait_until(lambda: wire.ask(b"mg %b\r\n" % started.keys[0]) == b"EN\r\n")
        replies = [wire.ask(b"mg %b\r\n" % key) for key in KEYS]
        assert {reply[:3] for reply in replies} == {b"EN\r", b"SER"}
        for key in started.keys:
            assert wire.ask(b"mg %b\r\n" % key) == b"EN\r\n"


@pytest.mark.slow
def test_a_gutter_that_is_down_gives_the_error_of_the_node(started: Started) -> None:
    node = started.nodes[0]
    with started.front.connect() as wire:
        for one in (*started.gutter, node):
            one.process.kill()
            one.process.wait()
        assert wait_until(lambda: started.state(node) == "down")
        reply = wire.ask(b"get %b\r\n" % started.keys[0])
        assert reply.startswith(b"SERVER_ERROR node 127.0.0.1:%d: down: " % node.port)
        assert node_stat(started.front, started.gutter[0], "state", kind="gutter") == "down"
