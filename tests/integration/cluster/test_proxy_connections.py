"""Ten thousand clients of one proxy, and peers that do not read."""

import contextlib
import resource
import select
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from memlite.cluster.topology import parse_nodes
from memlite.protocol.packets import Opcode
from tests.support.certificates import Authority, client_context
from tests.support.packets import packet
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

CLIENTS = 10_000
MOST_PER_CLIENT = 8  # KiB of memory; 3 to 5 are usual


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 1000:
        pytest.skip("processes may not have that many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 1000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_ten_thousand_clients_are_served() -> None:
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(running("memlite"))
        front = stack.enter_context(proxy([node], "-c", str(CLIENTS + 500), "--deadline", "60"))
        assert wait_until(lambda: node_stat(front, node, "state") == "up")
        before = front.resident_kib()
        clients = []
        for _ in range(CLIENTS):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", front.port), 60))
            clients.append(sock)
            if len(clients) % 500 == 0:  # do not overrun the listen queue
                sock.sendall(b"get k\r\n")
                assert sock.recv(100) == b"END\r\n"
        for number, sock in enumerate(clients):
            sock.sendall(b"set k%d 0 0 1\r\nx\r\n" % number)
        for sock in clients:
            assert sock.recv(100) == b"STORED\r\n"
        each = (front.resident_kib() - before) / CLIENTS
        assert each < MOST_PER_CLIENT


def keys_on_each(nodes: Sequence[RunningServer]) -> list[bytes]:
    """Return one key for each node."""
    index = parse_nodes(",".join(f"127.0.0.1:{node.port}" for node in nodes)).router().index
    keys = [b"k%d" % number for number in range(1000)]
    return [next(key for key in keys if index(key) == number) for number in range(len(nodes))]


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[tuple[list[RunningServer], RunningServer]]:
    """Run two nodes, and a proxy that never gives up a node."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(running("memlite")) for _ in range(2)]
        front = stack.enter_context(proxy(nodes, "--deadline", "600", *arguments))
        assert wait_until(lambda: all(node_stat(front, one, "state") == "up" for one in nodes))
        yield nodes, front


def send_all_it_takes(wire: Wire, data: bytes) -> None:
    """Send repeatedly until the peer stops reading."""
    wire.sock.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        while True:
            wire.sock.sendall(data)


@pytest.mark.slow
def test_clients_that_do_not_read_take_a_bounded_share_of_memory() -> None:
    """Each occupies memory for replies to at most 64 requests, plus the requests of one read."""
    size, greedy, most = 100_000, 20, 64 + 20
    with started() as (nodes, front), contextlib.ExitStack() as stack:
        asked, other = keys_on_each(nodes)
        wire = stack.enter_context(front.connect())
        assert wire.ask(b"set %b 0 0 %d\r\n%b\r\n" % (asked, size, bytes(size))) == b"STORED\r\n"
        before = front.resident_kib()
        for _ in range(greedy):
            one = stack.enter_context(front.connect())
            send_all_it_takes(one, b"get %b\r\n" % asked * 1000)
            assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % other) == b"STORED\r\n"
        name = f"node:127.0.0.1:{nodes[0].port}:pending"
        assert wait_until(lambda: wire.stats()[name] == "0")
        # In addition, the system buffers some megabytes for each client.
        assert int(node_stat(front, nodes[0], "requests")) < 2 * greedy * most
        grown = (front.resident_kib() - before) * 1024
        assert grown < 1.5 * greedy * most * size


@pytest.mark.slow
def test_clients_that_do_not_read_large_replies_are_disconnected() -> None:
    """Unread replies take a bounded amount of memory in total, and other clients are served."""
    size, greedy, most = 1_000_000, 10, 128 * 1024 * 1024
    with started("--unread-limit", "128m") as (nodes, front), contextlib.ExitStack() as stack:
        asked, other = keys_on_each(nodes)
        wire = stack.enter_context(front.connect())
        assert wire.ask(b"set %b 0 0 %d\r\n%b\r\n" % (asked, size, bytes(size))) == b"STORED\r\n"
        before = front.resident_kib()
        clients = []
        for _ in range(greedy):
            client = stack.enter_context(front.connect())
            clients.append(client)
            client.send(b"get %b\r\n" % asked * 60)
            assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % other) == b"STORED\r\n"
        name = f"node:127.0.0.1:{nodes[0].port}:pending"
        assert wait_until(lambda: wire.stats()[name] == "0")
        stats = wire.stats()
        disconnected = int(stats["proxy_unread_disconnects"])
        assert 0 < disconnected < greedy  # how many depends on the system's buffers
        assert 0 < int(stats["proxy_unread_bytes"]) <= most
        # In addition, a node's replies are read in parts that are joined.
        assert (front.resident_kib() - before) * 1024 < 1.5 * most
        assert "MB of unread replies" in front.log.read_text()
        whole = sum(read_all(client) == 60 for client in clients)
        assert whole == greedy - disconnected
        assert wire.stats()["proxy_unread_bytes"] == "0"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "tls", "in-flight"])
def test_the_unread_limit_applies_to_all_kinds_of_clients(kind: str, tmp_path: Path) -> None:
    size, requests, most = 1_000_000, 60, 8 * 1024 * 1024
    options, tls = ["--unread-limit", "8m"], None
    if kind == "tls":
        issued = Authority(tmp_path).issue("server")
        options += issued.flags
        tls = client_context(issued.ca)
    elif kind == "in-flight":
        options += ["--in-flight", "8"]
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(running("memlite"))
        front = stack.enter_context(proxy([node], "--deadline", "600", *options, tls=tls))
        assert wait_until(lambda: node_stat(front, node, "state") == "up")
        with node.connect() as wire:
            assert wire.ask(b"set k 0 0 %d\r\n%b\r\n" % (size, bytes(size))) == b"STORED\r\n"
        client = stack.enter_context(front.connect())
        request = packet(Opcode.GET, b"k") if kind == "binary" else b"get k\r\n"
        client.send(request * requests)
        assert wait_until(lambda: front.stats()["proxy_unread_disconnects"] == "1")
        assert wait_until(lambda: front.stats()["proxy_unread_bytes"] == "0")
        one = stack.enter_context(front.connect())  # asks for one value, and does not read it
        one.send(request)
        assert wait_until(lambda: node_stat(front, node, "pending") == "0")
        assert int(front.stats()["proxy_unread_bytes"]) <= most
        assert front.stats()["proxy_unread_disconnects"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gets", "multi-gets", "in-flight"])
def test_replies_queued_behind_a_late_one_count_as_unread(kind: str) -> None:
    """One node is paused; replies of the other node queue behind the reply that is missing."""
    size, most, clients = 1_000_000, 32 * 1024 * 1024, 4
    options = ["--in-flight", "300"] if kind == "in-flight" else []
    with started("--unread-limit", "32m", *options) as (nodes, front), front.connect() as wire:
        stuck, large = keys_on_each(nodes)
        assert wire.ask(b"set %b 0 0 %d\r\n%b\r\n" % (large, size, bytes(size))) == b"STORED\r\n"
        if kind == "multi-gets":
            request = b"get %b%b\r\n" % (stuck, b" %b" % large * 10) * 2
        else:
            request = b"get %b\r\n" % stuck + b"get %b\r\n" % large * 20
        name = f"node:127.0.0.1:{nodes[1].port}:pending"
        with contextlib.ExitStack() as stack:
            nodes[0].pause()
            stack.callback(nodes[0].process.send_signal, signal.SIGCONT)
            for _ in range(clients):
                stack.enter_context(front.connect()).send(request)
            assert wait_until(lambda: wire.stats()["proxy_unread_disconnects"] != "0")
            assert wait_until(lambda: wire.stats()[name] == "0")
            assert wait_until(lambda: 0 < int(wire.stats()["proxy_unread_bytes"]) <= most)
        assert wait_until(lambda: wire.stats()["proxy_unread_bytes"] == "0")


def read_all(wire: Wire) -> int:
    """Read all replies and return their number, or 0 if the client was disconnected."""
    with contextlib.suppress(AssertionError, BrokenPipeError, ConnectionResetError):
        wire.send(b"mn\r\n")
        return wire.until(b"MN\r\n").count(b"VALUE ")
    return 0


@pytest.mark.slow
def test_a_node_that_does_not_read_takes_a_bounded_share_of_memory() -> None:
    """Up to 64 MiB of requests wait for it; more are refused. Other nodes are unaffected."""
    size, clients = 500_000, 300
    with started() as (nodes, front), contextlib.ExitStack() as stack:
        stuck, other = keys_on_each(nodes)
        wire = stack.enter_context(front.connect())
        before = front.resident_kib()
        nodes[0].pause()
        stack.callback(nodes[0].process.send_signal, signal.SIGCONT)
        request = b"set %b 0 0 %d\r\n%b\r\n" % (stuck, size, bytes(size))
        waiting = [stack.enter_context(front.connect()) for _ in range(clients)]
        for one in waiting:
            one.send(request)
            if len(waiting) % 20 == 0:
                assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % other) == b"STORED\r\n"

        def counted() -> tuple[int, int]:
            pending, refused = (node_stat(front, nodes[0], name) for name in ("pending", "refused"))
            return int(pending), int(refused)

        assert wait_until(lambda: sum(counted()) == clients)
        pending, refused = counted()
        assert refused > 0
        assert wait_until(lambda: sum(map(has_reply, waiting)) == refused)
        assert pending * size < 80 * 1024 * 1024
        assert front.resident_kib() - before < 300 * 1024
        nodes[0].process.send_signal(signal.SIGCONT)
        answers = [one.line() for one in waiting]
        assert answers.count(b"STORED\r\n") == pending
        assert len([one for one in answers if one.startswith(b"SERVER_ERROR node ")]) == refused


def has_reply(wire: Wire) -> bool:
    """Return whether there is data to read; unlike select, poll supports large descriptors."""
    poller = select.poll()
    poller.register(wire.sock, select.POLLIN)
    return bool(poller.poll(0))
