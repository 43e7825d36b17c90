"""Nodes that are killed, paused, come back or answer rubbish, and clients that do not read."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from memlite.cluster.topology import parse_nodes
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

DEADLINE = 0.3
PATIENCE = 30  # seconds: the limit for what takes DEADLINE, if the machine is busy
DOWN = b"SERVER_ERROR node "


class Started:
    """Two nodes and a proxy; each node has one of the keys."""

    def __init__(self, front: RunningServer, nodes: tuple[RunningServer, ...]) -> None:
        self.front, self.nodes = front, nodes
        router = parse_nodes(",".join(f"127.0.0.1:{n.port}" for n in nodes)).router()
        keys = [b"k%d" % number for number in range(100)]
        self.keys = [next(key for key in keys if router.index(key) == n) for n in (0, 1)]

    def stat(self, node: int, name: str) -> str:
        with self.front.connect() as wire:
            return wire.stats()[f"node:127.0.0.1:{self.nodes[node].port}:{name}"]


@pytest.fixture
def started() -> Iterator[Started]:
    with contextlib.ExitStack() as stack:
        nodes = tuple(stack.enter_context(running("memlite")) for _ in range(2))
        front = stack.enter_context(proxy(nodes, "--deadline", str(DEADLINE)))
        started = Started(front, nodes)
        assert wait_until(lambda: [started.stat(n, "state") for n in (0, 1)] == ["up", "up"])
        yield started


def kill(node: RunningServer) -> None:
    node.process.kill()
    node.process.wait()


def timed(wire: Wire, request: bytes) -> tuple[bytes, float]:
    start = time.monotonic()
    return wire.ask(request), time.monotonic() - start


def test_the_keys_of_a_killed_node_are_refused_and_others_served(started: Started) -> None:
    first, second = started.keys
    with started.front.connect() as wire:
        assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % second) == b"STORED\r\n"
        kill(started.nodes[0])
        for request in (b"get %b\r\n", b"set %b 0 0 1\r\nx\r\n", b"incr %b 1\r\n", b"mg %b v\r\n"):
            assert wire.ask(request % first).startswith(DOWN)
        assert wire.ask(b"mg %b\r\n" % second) == b"HD\r\n"


def test_a_get_of_many_keys_survives_a_killed_node(started: Started) -> None:
    first, second = started.keys
    with started.front.connect() as wire:
        for key in started.keys:
            assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % key) == b"STORED\r\n"
        kill(started.nodes[0])
        wire.send(b"get %b %b\r\n" % (first, second))
        assert wire.until(b"END\r\n") == b"VALUE %b 0 1\r\nx\r\nEND\r\n" % second
        assert wire.stats()["proxy_failed_shards"] == "1"


def test_requests_are_refused_if_all_nodes_fail(started: Started) -> None:
    for node in started.nodes:
        kill(node)
    with started.front.connect() as wire:
        assert wire.ask(b"get %b %b\r\n" % tuple(started.keys)).startswith(DOWN)
        assert wire.ask(b"flush_all\r\n").startswith(DOWN)


def test_a_paused_node_delays_its_own_keys_by_the_deadline(started: Started) -> None:
    first, second = started.keys
    node = started.nodes[0]
    with started.front.connect() as wire, started.front.connect() as other:
        node.pause()
        try:
            wire.send(b"get %b\r\n" % first)
            reply, _ = timed(other, b"mg %b\r\n" % second)
            assert reply == b"EN\r\n"  # while the other client still waits
            assert wire.line() == DOWN + b"127.0.0.1:%d: no reply in 0.3 s\r\n" % node.port
            # It accepts connections, but it is down until it has answered.
            reply, seconds = timed(wire, b"get %b\r\n" % first)
            assert reply.startswith(DOWN)
            assert b": down: " in reply
            assert seconds < PATIENCE
            assert started.stat(0, "state") == "down"
            assert int(started.stat(0, "timeouts")) == 1
        finally:
            node.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: started.stat(0, "state") == "up")
        assert wire.ask(b"mg %b\r\n" % first) == b"EN\r\n"


def test_a_paused_node_delays_no_earlier_reply_of_a_pipeline(started: Started) -> None:
    first, second = started.keys
    node = started.nodes[0]
    with proxy(started.nodes, "--deadline", "60") as front, front.connect() as wire:
        item = b"VALUE %b 0 1\r\nx\r\nEND\r\n"
        for key in started.keys:
            assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % key) == b"STORED\r\n"
        node.pause()
        try:
            wire.send(b"get %b\r\nget %b\r\nget %b\r\n" % (second, first, second))
            assert wire.until(b"END\r\n") == item % second
        finally:
            node.process.send_signal(signal.SIGCONT)
        assert wire.until(item % second) == item % first + item % second


def test_a_pipeline_to_a_killed_node_has_its_errors_in_order(started: Started) -> None:
    first, second = started.keys
    with started.front.connect() as wire:
        kill(started.nodes[0])
        assert wire.ask(b"get %b\r\n" % first).startswith(DOWN)
        for _ in range(2):  # the second time, the lines are known
            wire.send(b"get %b\r\nincr %b 1\r\nget %b\r\n" % (second, first, second))
            assert wire.line() == b"END\r\n"
            assert wire.line().startswith(DOWN)
            assert wire.line() == b"END\r\n"


def test_a_node_that_comes_back_is_used_again(started: Started) -> None:
    first = started.keys[0]
    port = started.nodes[0].port
    kill(started.nodes[0])
    with started.front.connect() as wire:
        assert wire.ask(b"get %b\r\n" % first).startswith(DOWN)
        with running("memlite", "-p", str(port)):
            assert wait_until(lambda: started.stat(0, "state") == "up")
            assert wire.ask(b"get %b\r\n" % first) == b"END\r\n"


class Impostor:
    """A node that answers the proxy's own requests, and all others with a given reply.

    Attributes:
        received: what arrived, without the proxy's own requests.
        connections: the number of connections so far.
        piece: the number of bytes sent at a time.
    """

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.piece = max(len(answer or b""), 1)
        self.received: list[bytes] = []
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock = self._server.accept()[0]
                self.connections += 1
                with sock, contextlib.suppress(OSError):
                    while data := sock.recv(65536):
                        if data == b"version\r\n":
                            sock.sendall(b"VERSION 1.6.45\r\n")
                        else:
                            self.received.append(data)
                            if self.answer is None:
                                break
                            for start in range(0, len(self.answer), self.piece):
                                sock.sendall(self.answer[start : start + self.piece])

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(60)


@contextlib.contextmanager
def impostor(answer: bytes | None, *arguments: str) -> Iterator[tuple[Impostor, RunningServer]]:
    with (
        contextlib.closing(Impostor(answer)) as node,
        proxy([node], *arguments) as front,  # type: ignore[list-item]
    ):
        yield node, front


@pytest.mark.parametrize(
    "answer",
    [
        b"STORED\r\nSTORED\r\n",
        b"VALUE k 0 x\r\n",
        b"VALUE k 0 1\r\nxyz\r\nEND\r\n",
        b"VALUE k 0 99999999999\r\n",
        b"x" * 200_000,
    ],
    ids=["excess", "no-length", "wrong-length", "huge-length", "endless-line"],
)
def test_rubbish_is_an_error_and_the_connection_is_given_up(answer: bytes) -> None:
    with impostor(answer) as (node, front), front.connect() as wire:
        assert b": unexpected reply " in wire.ask(b"get k\r\n")
        assert wait_until(lambda: node.connections >= 2)


ITEM = b"VALUE k 0 1\r\nx\r\n"
REQUESTS = [
    b"get k\r\n", b"gets k\r\n", b"gat 0 k\r\n", b"set k 0 0 1\r\nx\r\n",
    b"cas k 0 0 1 1\r\nx\r\n", b"delete k\r\n", b"incr k 1\r\n", b"touch k 0\r\n", b"mg k v k\r\n",
    b"ms k 1\r\nx\r\n", b"md k\r\n", b"ma k\r\n",
]  # fmt: skip
ANSWERS = [
    b"\x00\xff rubbish\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"VALUE other 0 1\r\nx\r\nEND\r\n",
    ITEM * 2 + b"END\r\n", b"VALUE k 0\r\nEND\r\n", b"VALUE k 0 -1\r\n\r\nEND\r\n",
    b"VALUE k 0 1 x\r\nx\r\nEND\r\n", b"STORED x\r\n", b"VA 1 kother\r\nx\r\n", b"-7\r\n",
    b"OKAY\r\n",
    b"VALUE k 0 1\r\nxyz\r\nEND\r\n", b"VA -1\r\n\r\n",
]  # fmt: skip
KINDS = {
    ITEM + b"END\r\n": b"get gat", b"END\r\n": b"get gets gat", b"STORED\r\n": b"set cas",
    b"DELETED\r\n": b"delete", b"7\r\n": b"incr", b"TOUCHED\r\n": b"touch",
    b"HD\r\n": b"mg ms md ma",
    b"EN\r\n": b"mg", b"VA 1 kk\r\nx\r\n": b"mg ma",
}  # fmt: skip
"""Replies, and the commands that may have them."""


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_reply_of_another_kind_or_key_is_never_passed_on(request_: bytes) -> None:
    name = request_.split()[0]
    with impostor(b"", "--on-return", "keep") as (node, front), front.connect() as wire:
        node.piece = 1000
        wrong = [answer for answer, names in KINDS.items() if name not in names.split()]
        for answer in ANSWERS + wrong:
            node.answer = answer
            assert wait_until(lambda: wire.stats()["proxy_nodes_up"] == "1")
            # Requests after the first are discarded with the connection.
            wire.send(request_ + b"get k\r\n" + request_)
            for _ in range(3):
                line = wire.line()
                assert line.startswith(DOWN), answer
                assert b"unexpected reply '" in line
                assert line.isascii()
                assert len(line) < 200
        for answer in [answer for answer, names in KINDS.items() if name in names.split()]:
            if name != b"gets" and answer[:2] not in (b"VA", b"EN"):
                node.answer = answer
                assert wait_until(lambda: wire.stats()["proxy_nodes_up"] == "1")
                assert wire.ask(request_) == answer


@pytest.mark.parametrize("items", [b"b a", b"a a", b"a other"])
def test_items_out_of_order_or_not_requested_are_not_passed_on(items: bytes) -> None:
    answer = b"".join(b"VALUE %b 0 1\r\nx\r\n" % key for key in items.split()) + b"END\r\n"
    with impostor(answer) as (node, front), front.connect() as wire:
        assert b"unexpected reply 'VALUE " in wire.ask(b"get a b c\r\n")
        assert wait_until(lambda: node.connections >= 2)


def test_a_rubbish_node_harms_no_other_and_is_emptied() -> None:
    with (
        contextlib.closing(Impostor(b"DELETED\r\n")) as node,
        running("memlite") as good,
        proxy([node, good]) as front,  # type: ignore[list-item]
        front.connect() as wire,
    ):
        router = parse_nodes(f"127.0.0.1:{node.port},127.0.0.1:{good.port}").router()
        keys = [b"k%d" % number for number in range(100)]
        own, other = (next(key for key in keys if router.index(key) == n) for n in (0, 1))
        assert wait_until(lambda: wire.stats()["proxy_nodes_up"] == "2")
        wire.send(b"set %b 0 0 1\r\nx\r\nset %b 0 0 1\r\nx\r\n" % (own, other))
        assert b"unexpected reply 'DELETED'" in wire.line()
        assert wire.line() == b"STORED\r\n"
        wire.send(b"get %b %b\r\n" % (own, other))
        assert wire.until(b"END\r\n") == b"VALUE %b 0 1\r\nx\r\nEND\r\n" % other
        # The outcome of the set is unknown, so the node must be flushed, which it refuses.
        assert wait_until(lambda: "flush_all: unexpected reply: DELETED" in wire.stats().get(
            f"node:127.0.0.1:{node.port}:error", ""))  # fmt: skip


def test_half_a_reply_is_an_error_after_the_deadline() -> None:
    with (
        impostor(b"VALUE k 0 10\r\nabc", "--deadline", str(DEADLINE)) as (_, front),
        front.connect() as wire,
    ):
        assert wire.ask(b"get k\r\n").startswith(DOWN)


def test_a_reply_may_come_byte_by_byte() -> None:
    with impostor(b"VALUE k 0 1\r\nx\r\nEND\r\n") as (node, front), front.connect() as wire:
        node.piece = 1
        wire.send(b"get k\r\n")
        assert wire.until(b"END\r\n") == node.answer


def test_a_request_is_never_sent_twice() -> None:
    """The node takes a request and closes the connection: the outcome is unknown."""
    with impostor(None, "--on-return", "keep") as (node, front), front.connect() as wire:
        for number in range(1, 4):
            assert wait_until(lambda: wire.stats()["proxy_nodes_up"] == "1")
            assert wire.ask(b"incr k 1\r\n").startswith(DOWN)
            assert node.received == [b"incr k 1\r\n"] * number


def test_a_client_that_does_not_read_is_not_read() -> None:
    key = b"k"
    with (
        running("memlite") as node,
        proxy([node], "--deadline", "60") as front,
        front.connect() as wire,
        front.connect() as greedy,
    ):
        assert wire.ask(b"set %b 0 0 1000000\r\n%b\r\n" % (key, bytes(10**6))) == b"STORED\r\n"
        greedy.sock.setblocking(False)
        request = b"get %b\r\n" % key * 1000
        sent = 0
        with contextlib.suppress(BlockingIOError):
            for _ in range(10000):
                sent += greedy.sock.send(request)
        assert wire.ask(b"mg %b s\r\n" % key) == b"HD s1000000\r\n"
        asked = int(node_stat(front, node, "requests"))
        assert asked < 2000


def test_nothing_is_executed_after_quit() -> None:
    patient = ("--deadline", "60")
    with running("memlite") as node, proxy([node], *patient) as front, front.connect() as wire:
        for key in (b"a", b"k"):
            assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % key) == b"STORED\r\n"
            assert wire.ask(b"mg %b\r\n" % key) == b"HD\r\n"
        node.pause()
        with front.connect() as leaving:
            leaving.send(b"get a\r\n")
            assert wait_until(lambda: node_stat(front, node, "pending") == "1")
            leaving.send(b"quit\r\n")
            # The proxy reads in order, so replies to later clients show that it has read this one.
            assert wait_until(lambda: _served_twice(front))
            leaving.send(b"delete k\r\nset k 0 0 1\r\ny\r\n")
            assert wait_until(lambda: _served_twice(front))
            assert node_stat(front, node, "pending") == "1"
            node.process.send_signal(signal.SIGCONT)
            assert leaving.rest() == b"VALUE a 0 1\r\nx\r\nEND\r\n"
        assert wire.ask(b"mg k v\r\n") == b"VA 1\r\n"
        assert wire.line() == b"x\r\n"


def _served_twice(front: RunningServer) -> bool:
    with front.connect() as wire:
        return wire.ask(b"mn\r\n") == wire.ask(b"mn\r\n") == b"MN\r\n"


def test_a_noreply_set_gets_no_reply_even_if_its_node_is_down() -> None:
    with running("memlite") as node, proxy([node]) as front, front.connect() as wire:
        node.process.kill()
        assert wait_until(lambda: node_stat(front, node, "state") == "down")
        size = 2_000_000
        wire.send(b"set k 0 0 %d noreply\r\n%b\r\nversion\r\n" % (size, bytes(size)))
        assert wire.line().startswith(b"VERSION ")
