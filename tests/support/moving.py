"""A proxy in a thread; tests change its topology while it serves."""

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import uvloop

from memlite.client import Address
from memlite.cluster.membership.lease import Lease
from memlite.cluster.moving.answers import Place, answer_of
from memlite.cluster.moving.marks import PROBE, Marks, assigns
from memlite.cluster.moving.steps import BusyKeyError, Moved, MovingKey, Outcome
from memlite.cluster.topology import Move, Node, Phase, Topology
from memlite.config import Config
from memlite.proxy.node import Access
from memlite.proxy.proxy import Proxy
from memlite.server.connections.listeners import listen_tcp
from tests.support.servers import RunningServer, Wire

__all__ = ["NONCE", "Mover", "MovingProxy", "meta", "moving_proxy", "topology_of"]

NONCE = "0123456789abcdef" * 2


def topology_of(
    before: Sequence[RunningServer], after: Sequence[RunningServer], phase: Phase | None
) -> Topology:
    """Return the topology in a phase of a move; for None, the one before the move."""

    def nodes(servers: Sequence[RunningServer]) -> tuple[Node, ...]:
        return tuple(Node(f"node-{one.port}", Address("127.0.0.1", one.port)) for one in servers)

    topology = Topology(nodes(before), on_return="keep")
    if phase is None:
        return topology
    return replace(topology, move=Move(phase, nodes(after), NONCE))


@dataclass
class MovingProxy:
    """A proxy in a thread.

    Attributes:
        server: where clients connect.
        proxy: the proxy.
        lease: until when its topology is valid.
    """

    server: RunningServer
    proxy: Proxy
    lease: Lease

    def change(self, topology: Topology) -> None:
        """Change the topology of the proxy, and return once it is in use."""
        done = threading.Event()

        def change() -> None:
            self.proxy.cluster.change(topology)
            done.set()

        self.proxy.scheduler.loop.call_soon_threadsafe(change)
        assert done.wait(10)

    def until_connected(self) -> None:
        """Return when all nodes are up, or known to be down."""
        with self.server.connect() as wire:
            while "connecting" in {
                value for name, value in wire.stats().items() if name.endswith(":state")
            }:
                pass


@contextlib.contextmanager
def moving_proxy(topology: Topology, deadline: float = 5) -> Iterator[MovingProxy]:
    """Run a proxy in a thread."""
    lease = Lease.unlimited()
    listeners = listen_tcp(["127.0.0.1"], 0, 64)
    access = Access(deadline, lease=lease)
    proxy = Proxy(Config(), topology, listeners, access=access, owns_process=False)
    ready = threading.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(proxy.run(ready.set, lambda: None))

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    process = cast("subprocess.Popen[bytes]", None)
    server = RunningServer("memlite-proxy", process, listeners[0].port)
    moving = MovingProxy(server, proxy, lease)
    try:
        moving.until_connected()
        yield moving
    finally:
        proxy.scheduler.loop.call_soon_threadsafe(proxy.request_stop)
        thread.join(20)
        assert not thread.is_alive()


class Mover:
    """Moves keys between two nodes, one at a time.

    Args:
        source: holds the keys before.
        destination: holds the keys afterwards.
        keys: the keys.
    """

    def __init__(
        self, source: RunningServer, destination: RunningServer, keys: Sequence[bytes]
    ) -> None:
        self._servers = {Place.SOURCE: source, Place.DESTINATION: destination}
        self._keys = keys

    def run(self) -> list[Moved]:
        """Move all keys once; return the outcome of each move."""
        with contextlib.ExitStack() as stack:
            wires = {
                place: stack.enter_context(server.connect())
                for place, server in self._servers.items()
            }
            assigns = all(_lets_assign(wire) for wire in wires.values())
            marks = Marks(NONCE)
            return [_move(MovingKey(key, marks, assigns), wires) for key in self._keys]


def _lets_assign(wire: Wire) -> bool:
    return assigns(wire.ask(PROBE))


def _move(moving: MovingKey, wires: dict[Place, Wire]) -> Moved:
    steps = moving.move()
    try:
        asks = next(steps)
        while True:
            asks = steps.send(tuple(answer_of(meta(wires[place], ask)) for place, ask in asks))
    except StopIteration as stop:
        return cast("Moved", stop.value)
    except BusyKeyError:
        return Moved(Outcome.NOTHING)


def meta(wire: Wire, request: bytes) -> bytes:
    """Return the reply to a meta command."""
    wire.send(request)
    line = wire.line()
    if not line.startswith(b"VA "):
        return line
    return line + wire.exactly(int(line.split()[1]) + 2)
