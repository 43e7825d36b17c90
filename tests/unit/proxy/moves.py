"""A proxy while keys with copies move; its nodes answer when a test says so."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from memlite.cluster.topology import Move, Phase, Topology, parse_nodes
from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Access, Node, Receiver
from memlite.server.scheduler import Scheduler
from tests.unit.proxy.copies import Client

__all__ = ["Scene", "play", "reply_to"]

_NONCE = "0" * 32


class Scene:
    """A proxy of three nodes with two replicas of each key; a fourth node is added.

    Attributes:
        before: the topology before the move.
        after: the topology after the move.
        cluster: the proxy's nodes.
        waiting: requests that nodes have not answered: the node, the request, and its receiver.
        sent: all requests sent to nodes.
        items: the replies of nodes that have an item.
    """

    def __init__(self) -> None:
        scheduler = Scheduler()
        scheduler.loop = asyncio.get_running_loop()
        self.before = replace(_topology_of(3), replicas=2)
        self.after = replace(_topology_of(4), replicas=2)
        self.cluster = Cluster(self.before, scheduler, Access(60), follows_within=2.0)
        self.waiting: deque[tuple[str, bytes, Receiver]] = deque()
        self.sent: list[tuple[str, bytes]] = []
        self.items: dict[str, bytes] = {}

    def send(self, node: Node, request: bytes, receiver: Receiver) -> None:
        if node.down:
            receiver.fail(node.refusal)
            return
        self.sent.append((node.name, request))
        self.waiting.append((node.name, request, receiver))

    def fail(self, name: str) -> None:
        """Mark a node as down."""
        (node,) = (one for one in self.cluster.nodes if one.name == name)
        node._refusal = b"SERVER_ERROR node %b: down\r\n" % name.encode()

    def ask(self, key: bytes, request: bytes) -> Client:
        client = Client()
        self.cluster.node_of(key).send(request, client)
        return client

    def flush(self) -> Client:
        client = Client()
        (target,) = self.cluster.targets
        target.send(b"flush_all\r\n", client)
        return client

    def enter(self, phase: Phase) -> None:
        move = Move(phase, self.after.nodes, _NONCE)
        self.cluster.change(replace(self.before, move=move))

    def spread(self) -> None:
        move = Move(Phase.SPREAD, self.after.nodes, _NONCE)
        self.cluster.change(replace(self.after, move=move))

    async def run(self) -> None:
        """Make nodes answer, with `items` or as if empty, until there are no more requests."""
        idle = 0
        while idle < 10:
            idle = 0 if self.waiting else idle + 1
            while self.waiting:
                name, request, receiver = self.waiting.popleft()
                looks = request.startswith(b"mg ") and b" v" in request
                item = self.items.get(name) if looks else None
                receiver.answer(item or reply_to(request))
            await asyncio.sleep(0)

    async def run_until_asked(self) -> None:
        """Answer the proxy's first requests until it asks for an item.

        A pair of nodes first asks both nodes what they can do.
        """
        while not any(request.startswith(b"mg ") for _, request, _ in self.waiting):
            if self.waiting:
                _, request, receiver = self.waiting.popleft()
                receiver.answer(reply_to(request))
            await asyncio.sleep(0)

    async def turn(self) -> None:
        """Let the event loop run for a few iterations."""
        for _ in range(10):
            await asyncio.sleep(0)

    def holders(self, key: bytes) -> set[str]:
        """Return the names of the nodes at which copies of a key were held."""
        return {name for name, request in self.sent if request.startswith(b"ms %b " % key)}

    def moved(self) -> bytes:
        """Return a key whose copy moves to the new node."""
        old, new = self.before.router().replicas, self.after.router().replicas
        keys = (b"key:%d" % number for number in range(1000))
        return next(key for key in keys if old(key, 2)[0] == new(key, 2)[0] and new(key, 2)[1] == 3)


def reply_to(request: bytes) -> bytes:
    """Return the reply of a node without items."""
    replies = {b"set": b"STORED\r\n", b"flush_all": b"OK\r\n", b"version": b"VERSION 1\r\n"}
    replies |= {b"get": b"END\r\n", b"ms": b"HD c1\r\n", b"md": b"HD\r\n", b"mg": b"EN\r\n"}
    return replies[request.split()[0]]


def _topology_of(nodes: int) -> Topology:
    return parse_nodes(",".join(f"127.0.0.1:{number + 1}" for number in range(nodes)))


def play(
    scenario: Callable[[Scene], Coroutine[None, None, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carry out a scenario."""

    async def whole() -> None:
        scene = Scene()
        monkeypatch.setattr(Node, "send", lambda node, *asked: scene.send(node, *asked))
        await scenario(scene)

    asyncio.run(whole())
