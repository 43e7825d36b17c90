"""All proxies exclude a node that missed changes, even those sent by other proxies."""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.proxies import proxy
from tests.support.servers import RunningServer, Wire, needs_memcached, running
from tests.support.waiting import wait_until

KINDS = [pytest.param("memcached", marks=[needs_memcached, pytest.mark.slow]), "memlite"]
KEYS = [b"key:%d" % number for number in range(20)]
OPTIONS = ("--deadline", "1")


class Line:
    """A link that passes connections on to a node until it is cut."""

    def __init__(self, node: RunningServer) -> None:
        self._node = node
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._whole = True
        self._ends: list[socket.socket] = []
        self._passing: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._whole:
                    near.close()
                    continue
                self._ends.append(near)
                far = socket.create_connection(("127.0.0.1", self._node.port))
                self._ends.append(far)
                for ends in ((near, far), (far, near)):
                    self._passing.append(
                        threading.Thread(target=self._pass, args=ends, daemon=True)
                    )
                    self._passing[-1].start()

    def _pass(self, source: socket.socket, destination: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                destination.sendall(data)
        for end in (source, destination):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._whole = False
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._whole = True

    def close(self) -> None:
        # This wakes the thread that accepts; closing the socket alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()
        for thread in self._passing:
            thread.join()
        for end in self._ends:
            end.close()


class Nodes:
    """Nodes that have all keys, or one and a gutter; the first one will be away.

    Attributes:
        away: the first node.
        nodes: all nodes.
    """

    def __init__(self, stack: contextlib.ExitStack, folder: Path, kind: str, mode: str) -> None:
        self.mode = mode
        self._folder = folder
        count = 2 if mode == "gutter" else 3
        self.nodes = [stack.enter_context(running(kind)) for _ in range(count)]
        self.gutter = [stack.enter_context(running(kind))] if mode == "gutter" else []
        self.away = self.nodes[0]

    def file(self, port: int | None = None) -> Path:
        """Return a topology file, in which the first node may have another port."""
        ports = [port or self.away.port, *(node.port for node in self.nodes[1:])]
        text = "".join(
            f'[[nodes]]\nname = "nöde-{number}"\naddress = "127.0.0.1:{one}"\n'
            for number, one in enumerate(ports)
        )
        if self.gutter:
            text += f'[gutter]\nnodes = ["127.0.0.1:{self.gutter[0].port}"]\n'
        else:
            text = f'replicas = 3\nwrite = "{self.mode}"\n' + text
        path = self._folder / f"{ports[0]}.toml"
        path.write_text(text)
        return path

    @contextlib.contextmanager
    def proxy(self, port: int | None = None, *, waits: bool = True) -> Iterator[RunningServer]:
        """Run a proxy; with `waits`, wait until all nodes are up."""
        count = len(self.nodes)
        with proxy(self.file(port), *OPTIONS) as front:
            assert not waits or wait_until(lambda: int(front.stats()["proxy_nodes_up"]) >= count)
            yield front

    def resume(self) -> None:
        self.away.process.send_signal(signal.SIGCONT)


def state(front: RunningServer) -> str:
    """Return the state of the first node."""
    stats = front.stats()
    return next(value for name, value in stats.items() if name.endswith("de-0:state"))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    params=["majority", "gutter", pytest.param("primary", marks=pytest.mark.slow)],
)
def nodes(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    with contextlib.ExitStack() as stack:
        yield Nodes(stack, tmp_path, kind, request.param)


def values(wire: Wire, keys: Sequence[bytes] = KEYS) -> list[bytes]:
    """Return the values of keys, of one byte each; nothing for misses and errors."""
    found = []
    for key in keys:
        wire.send(b"get %b\r\nmn\r\n" % key)
        found.append(wire.until(b"MN\r\n").removesuffix(b"END\r\nMN\r\n")[-3:-2])
    return found


def fill(nodes: Nodes, front: RunningServer) -> list[bytes]:
    """Store a first value under all keys, and return the keys that the first node holds.

    Without replicas these are its own keys, with replicas those that it has copies of.
    """
    with front.connect() as wire:
        for key in KEYS:
            assert wire.ask(b"set %b 0 0 1\r\n1\r\n" % key) == b"STORED\r\n"
    held = [key for key in KEYS if nodes.away.ask(b"mg %b v\r\n" % key).startswith(b"VA 1")]
    assert held
    return held


def change(front: RunningServer, keys: Sequence[bytes]) -> list[bytes]:
    """Change keys, and return those whose change was acknowledged."""
    with front.connect() as wire:
        replies = [wire.ask(b"set %b 0 0 1\r\n2\r\n" % key) for key in keys]
    return [key for key, reply in zip(keys, replies, strict=True) if reply == b"STORED\r\n"]


def change_without(nodes: Nodes, front: RunningServer, keys: Sequence[bytes]) -> list[bytes]:
    """Pause the first node and change keys; return those whose change was acknowledged."""
    nodes.away.pause()
    found: list[bytes] = []

    def changed() -> bool:
        found[:] = change(front, keys)
        return len(found) >= (len(keys) if nodes.gutter else 1)

    assert wait_until(changed)
    return found


def kill(front: RunningServer) -> None:
    front.process.kill()
    front.process.wait()


def test_another_proxy_reads_nothing_stale(nodes: Nodes) -> None:
    """The proxy that made the changes is killed before the node is back."""
    with nodes.proxy() as first, nodes.proxy() as second:
        held = fill(nodes, first)
        changed = change_without(nodes, first, held)
        kill(first)
        with second.connect() as wire:
            assert wait_until(lambda: values(wire) is not None and state(second) == "down")
            nodes.resume()
            assert wait_until(lambda: b"1" in values(wire, changed) or state(second) == "up")
            assert b"1" not in values(wire, changed) * 3


def test_a_proxy_that_is_started_later_reads_nothing_stale(nodes: Nodes) -> None:
    with nodes.proxy() as first:
        held = fill(nodes, first)
        changed = change_without(nodes, first, held)
        kill(first)
    nodes.resume()
    with nodes.proxy(waits=False) as second, second.connect() as wire:
        assert wait_until(lambda: b"1" in values(wire, changed) or state(second) == "up")
        assert b"1" not in values(wire, changed) * 3
        for key in changed:
            assert not nodes.away.ask(b"mg %b v\r\n" % key).startswith(b"VA 1 1")


def test_the_note_goes_when_the_node_is_back(nodes: Nodes) -> None:
    with nodes.proxy() as first, nodes.proxy() as second:
        change_without(nodes, first, fill(nodes, first))
        others = [*nodes.nodes[1:], *nodes.gutter]
        assert any(map(notes_on, others))
        nodes.resume()
        assert wait_until(lambda: state(first) == state(second) == "up")
        assert wait_until(lambda: not any(map(notes_on, others)))


def notes_on(node: RunningServer) -> bytes:
    """Return a node's notes about the first node."""
    name = sha256("nöde-0".encode()).hexdigest().encode()
    with node.connect() as wire:
        keys = b"memlite:absent:%b memlite:missed:%b" % (name, name)
        wire.send(b"get %b\r\nmn\r\n" % keys)
        return wire.until(b"MN\r\n").removesuffix(b"END\r\nMN\r\n")


@pytest.mark.slow
def test_a_flush_leaves_the_notes(nodes: Nodes) -> None:
    with nodes.proxy() as first, nodes.proxy() as second:
        change_without(nodes, first, fill(nodes, first))
        others = [*nodes.nodes[1:], *nodes.gutter]
        assert any(map(notes_on, others))
        assert wait_until(lambda: state(second) == "down")
        kill(first)
        with second.connect() as wire:
            assert wire.ask(b"flush_all\r\n").startswith(b"SERVER_ERROR")
        # The second proxy may have read the note only with the flush, and then writes it again.
        assert wait_until(lambda: any(map(notes_on, others)))
        nodes.resume()


def test_changes_of_two_proxies_do_not_keep_a_node_out(nodes: Nodes) -> None:
    """Both make changes without the node, and neither waits for the other forever."""
    with nodes.proxy() as first, nodes.proxy() as second:
        held = fill(nodes, first)
        stop = threading.Event()

        def change_on(front: RunningServer) -> None:
            with front.connect() as wire:
                while not stop.is_set():
                    for key in held:
                        wire.ask(b"set %b 0 0 1\r\n1\r\n" % key)

        fronts = (first, second)
        threads = [threading.Thread(target=change_on, args=(one,)) for one in fronts]
        for thread in threads:
            thread.start()
        try:
            nodes.away.pause()
            assert wait_until(lambda: state(first) == state(second) == "down")
            assert wait_until(lambda: bool(notes_on(nodes.nodes[1])))
            nodes.resume()
            assert wait_until(lambda: state(first) == state(second) == "up")
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_a_node_that_one_proxy_cannot_reach_is_out_for_all(nodes: Nodes) -> None:
    with contextlib.closing(Line(nodes.away)) as line, contextlib.ExitStack() as stack:
        first = stack.enter_context(nodes.proxy(line.port))
        second = stack.enter_context(nodes.proxy())
        held = fill(nodes, first)
        line.cut()
        with second.connect() as wire:
            changed: list[bytes] = []
            for _ in range(2):  # it stays out as long as changes are made without it
                assert wait_until(lambda: bool(changed.extend(change(first, held)) or changed))
                assert wait_until(lambda: state(second) == "down")
                assert b"1" not in values(wire, changed)
            kill(first)
            assert wait_until(lambda: b"1" in values(wire, changed) or state(second) == "up")
            assert b"1" not in values(wire, changed) * 3


@pytest.mark.parametrize("started_with", [0, 1], ids=["all", "one silent"])
def test_a_starting_proxy_considers_no_node_absent(started_with: int) -> None:
    """It asks all nodes for notes while it connects to them, and clients wait for nothing else."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(running("memlite")) for _ in range(6)]
        for node in nodes:
            assert node.ask(b"set before 0 0 1\r\n1\r\n") == b"STORED\r\n"
        for silent in nodes[:started_with]:
            silent.pause()
            stack.callback(silent.process.send_signal, signal.SIGCONT)
        options = ("--replicas", "3", "--write", "majority", "--deadline", "3")
        front = stack.enter_context(proxy(nodes, *options))
        with front.connect() as wire:
            replies = {wire.ask(b"set %b 0 0 1\r\n2\r\n" % key) for key in KEYS}
            if not started_with:
                assert replies == {b"STORED\r\n"}
        for node in nodes[started_with:]:
            assert wait_until(lambda one=node: state_of(front, one) == "up")  # type: ignore[misc]
            assert node.ask(b"get before\r\n") == b"VALUE before 0 1\r\n1\r\nEND\r\n"


def state_of(front: RunningServer, node: RunningServer) -> str:
    name = f":{node.port}:state"
    return next(value for stat, value in front.stats().items() if stat.endswith(name))
