"""Binary clients of a proxy whose nodes are killed or paused, or send garbage."""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from memlite.cluster.topology import parse_nodes
from memlite.protocol.packets import Opcode, Status
from tests.support.packets import HEADER, NOOP, Reply, count, packet, replies, store
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

DEADLINE = 1.5  # which a busy machine must not exceed either
DONE = Reply(Opcode.NOOP)


class Started:
    """Two nodes and a proxy; each node has one of the keys."""

    def __init__(self, front: RunningServer, nodes: tuple[RunningServer, ...]) -> None:
        self.front, self.nodes = front, nodes
        router = parse_nodes(",".join(f"127.0.0.1:{n.port}" for n in nodes)).router()
        keys = [b"k%d" % number for number in range(100)]
        self.keys = [next(key for key in keys if router.index(key) == n) for n in (0, 1)]

    def kill(self) -> None:
        """Kill the first node."""
        self.nodes[0].process.kill()
        self.nodes[0].process.wait()


@pytest.fixture
def started() -> Iterator[Started]:
    with contextlib.ExitStack() as stack:
        nodes = tuple(stack.enter_context(running("memlite")) for _ in range(2))
        front = stack.enter_context(proxy(nodes, "--deadline", str(DEADLINE)))
        assert wait_until(lambda: front.stats()["proxy_nodes_up"] == "2")
        yield Started(front, nodes)


def answers(wire: Wire, request: bytes, number: int) -> list[Reply]:
    """Send a request, and return the given number of replies."""
    wire.send(request)
    found = []
    for _ in range(number):
        head = wire.exactly(HEADER.size)
        found += replies(head + wire.exactly(int.from_bytes(head[8:12])))
    return found


def test_the_keys_of_a_killed_node_are_refused_and_others_served(started: Started) -> None:
    first, second = started.keys
    started.kill()
    requests = [
        packet(Opcode.GET, first),
        packet(Opcode.GETK, first),
        store(Opcode.SET, first, b"x"),
        store(Opcode.SETQ, first, b"x"),
        store(Opcode.SET, first, bytes(1100000)),
        count(Opcode.INCREMENTQ, first, 1),
        packet(Opcode.DELETEQ, first),
        packet(Opcode.FLUSH),
        packet(Opcode.FLUSHQ),
    ]
    with started.front.connect() as wire:
        for request in requests:
            (refused,) = answers(wire, request, 1)
            assert (refused.opcode, refused.status) == (request[1], Status.INTERNAL_ERROR)
            assert refused.value.startswith(b"node 127.0.0.1:")
        stored, done = answers(wire, store(Opcode.SET, second, b"x") + NOOP, 2)
        assert (stored.status, done) == (Status.SUCCESS, DONE)


@pytest.mark.parametrize("opcode", [Opcode.GETQ, Opcode.GETKQ, Opcode.GATQ, Opcode.GATKQ])
def test_quiet_retrievals_survive_a_killed_node(started: Started, opcode: Opcode) -> None:
    first, second = started.keys
    exptime = bytes(4) if opcode in (Opcode.GATQ, Opcode.GATKQ) else b""
    with started.front.connect() as wire:
        stores = [store(Opcode.SETQ, key, b"x") for key in started.keys]
        assert answers(wire, b"".join(stores) + NOOP, 1) == [DONE]
        started.kill()
        requests = [packet(opcode, key, exptime) for key in (first, second, first)]
        found, done = answers(wire, b"".join(requests) + NOOP, 2)
        assert (found.opcode, found.value, done) == (opcode, b"x", DONE)
        assert started.front.stats()["proxy_failed_shards"] == "2"


def test_a_paused_node_delays_its_own_keys_by_the_deadline(started: Started) -> None:
    first, second = started.keys
    node = started.nodes[0]
    with started.front.connect() as wire, started.front.connect() as other:
        node.pause()
        try:
            wire.send(packet(Opcode.GET, first) + packet(Opcode.GET, second))
            (missed,) = answers(other, packet(Opcode.GET, second), 1)
            assert missed.status == Status.NOT_FOUND  # while the other client still waits
            late, missed = answers(wire, b"", 2)
            assert late.value == b"node 127.0.0.1:%d: no reply in 1.5 s" % node.port
            assert missed.status == Status.NOT_FOUND
        finally:
            node.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: started.front.stats()["proxy_nodes_up"] == "2")
        (missed,) = answers(wire, packet(Opcode.GET, first), 1)
        assert missed.status == Status.NOT_FOUND


class Impostor:
    """A node that answers the proxy's own requests, and all others with a given reply.

    Args:
        answer: the reply; None to close the connection instead.

    Attributes:
        received: what arrived, without the proxy's own requests.
    """

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self.received: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self._server.accept()[0] as sock:
                    self._talk(sock)

    def _talk(self, sock: socket.socket) -> None:
        while data := sock.recv(65536):
            if data == b"version\r\n":
                sock.sendall(b"VERSION 1.6.45-memlite-0.1.0\r\n")
                continue
            if data == b"flush_all\r\n":  # it may have missed a change
                sock.sendall(b"OK\r\n")
                continue
            self.received.append(data)
            if self._answer is None:
                return
            sock.sendall(self._answer)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(60)


@contextlib.contextmanager
def impostor(answer: bytes | None) -> Iterator[tuple[Impostor, RunningServer]]:
    with contextlib.closing(Impostor(answer)) as node, proxy([node], "--deadline", "20") as front:  # type: ignore[list-item]
        yield node, front


def test_a_request_is_never_sent_twice() -> None:
    """The node takes a request and closes the connection: the outcome is unknown."""
    with impostor(None) as (node, front), front.connect() as wire:
        for number in range(1, 4):
            assert wait_until(lambda: front.stats()["proxy_nodes_up"] == "1")
            lost, done = answers(wire, count(Opcode.INCREMENTQ, b"k", 1) + NOOP, 2)
            assert (lost.opcode, lost.status) == (Opcode.INCREMENTQ, Status.INTERNAL_ERROR)
            assert done == DONE
            assert node.received == [b"ma k c v MI D1 N0 J0\r\n"] * number


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (packet(Opcode.GET, b"k"), b"VALUE k 99999999999 1 1\r\n1\r\nEND\r\n"),
        (packet(Opcode.GETQ, b"k"), b"VALUE k 99999999999 1 1\r\n1\r\nEND\r\n"),
        (store(Opcode.SET, b"k", b""), b"HD\r\n"),
        (count(Opcode.INCREMENT, b"k", 1), b"VA 1 c1\r\nx\r\n"),
    ],
)
def test_a_reply_that_memcached_never_sends_is_an_error(request_: bytes, answer: bytes) -> None:
    with impostor(answer) as (_node, front), front.connect() as wire:
        assert wait_until(lambda: front.stats()["proxy_nodes_up"] == "1")
        wrong, done = answers(wire, request_ + NOOP, 2)
        assert (wrong.status, wrong.value) == (
            Status.INTERNAL_ERROR,
            b"the node's reply is not one of memcached",
        )
        assert done == DONE
        assert front.stats()["proxy_failed_requests"] == "1"


def test_the_errors_of_a_node_are_those_of_the_proxy() -> None:
    with impostor(b"SERVER_ERROR the bucket is gone\r\n") as (_node, front):
        (failed,) = replies(front.ask(packet(Opcode.GETK, b"k")))
        assert (failed.status, failed.value) == (Status.INTERNAL_ERROR, b"the bucket is gone")
