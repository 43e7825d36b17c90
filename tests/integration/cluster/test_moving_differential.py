"""While keys move between nodes, clients of a proxy get the same bytes as clients of a server.

The page about replicas and moves documents the differences: a new expiry gives an item a new cas
unique, as with the file backend, and ``h`` is reset when an item is rewritten, as with a bucket.
"""

import contextlib
import random
import threading
from collections.abc import Iterator

import pytest

from memlite.cluster.topology import Phase
from memlite.protocol.packets import Opcode
from tests.support.differential import ITEMS, NUMBERS, PEER_OPTIONS, Batch, Comparison, Conversation
from tests.support.differential import Generator as Conversations
from tests.support.moving import Mover, MovingProxy, moving_proxy, topology_of
from tests.support.servers import RunningServer, memcached_path, running

CONVERSATIONS = 10
# These commands concern a single node, so a proxy answers them differently, even if malformed.
OF_NODES = (b"cache_memlimit", b"stats", b"flush_all -\r\n")
KINDS = [
    "memlite",
    pytest.param(
        "memcached", marks=pytest.mark.skipif(not memcached_path(), reason="needs memcached")
    ),
]


class Three:
    """A node that is asked directly, and two nodes behind a proxy."""

    def __init__(
        self,
        kind: str,
        direct: RunningServer,
        nodes: tuple[RunningServer, RunningServer],
        front: MovingProxy,
    ) -> None:
        self.kind = kind
        self.direct = direct
        self.nodes = nodes
        self.front = front

    def enter(self, phase: Phase) -> None:
        before, after = self.nodes
        self.front.change(topology_of([before], [after], phase))


@pytest.fixture(scope="module", params=KINDS)
def three(request: pytest.FixtureRequest) -> Iterator[Three]:
    kind: str = request.param
    with contextlib.ExitStack() as stack:
        direct = stack.enter_context(running("memlite"))
        options = PEER_OPTIONS if kind == "memcached" else ()
        nodes = [stack.enter_context(running(kind, *options)) for _ in range(2)]
        topology = topology_of(nodes[:1], nodes[1:], Phase.PREPARE)
        front = stack.enter_context(moving_proxy(topology))
        yield Three(kind, direct, (nodes[0], nodes[1]), front)


def left_out(request: bytes, binary: bool) -> bool:
    """Return whether a request is not compared.

    The right to recache an item that has no expiry cannot be copied once a client has won it.
    """
    if binary:
        return request[1] in (Opcode.STAT, Opcode.TOUCH)
    flags = request.split()[2:] if request.startswith(b"mg ") else []
    letters = {flag[:1] for flag in flags}
    return letters >= {b"R", b"T"} or bool({b"N0", b"N-", b"N-0"} & set(flags))


def forwarded(conversation: Conversation) -> Conversation:
    """Return the part of a conversation that is compared; see `test_proxy_binary_differential`."""
    batches = [
        Batch(
            batch.binary,
            tuple(
                unit
                for unit in batch.units
                if not unit.data.lstrip().startswith(OF_NODES)
                and not left_out(unit.data, batch.binary)
            ),
            batch.cuts,
            batch.last,
        )
        for batch in conversation
    ]
    return [batch for batch in batches if batch.units or batch.last]


def compare(servers: tuple[RunningServer, RunningServer], seed: int) -> None:
    comparison = Comparison(servers, versioned=True, forgets_reads=True)
    rng = random.Random(seed)
    conversation = forwarded(Conversations(rng, versioned=True).conversation())
    found = comparison.difference(conversation) if conversation else None
    assert found is None, f"seed {seed}, the node first:\n{comparison.shrink(found)}"


@pytest.mark.slow
@pytest.mark.parametrize("phase", Phase)
def test_conversations_in_a_phase(three: Three, phase: Phase) -> None:
    if three.kind == "memcached" and phase in (Phase.GATHER, Phase.SPREAD):
        pytest.skip("no keys move yet: requests are forwarded as they are, and versions differ")
    three.enter(phase)
    for seed in range(CONVERSATIONS):
        compare((three.direct, three.front.server), seed)


class Front(RunningServer):
    """A proxy whose keys a mover begins to move after each flush."""

    def __init__(self, three: Three, seed: int) -> None:
        super().__init__("memlite-proxy", three.direct.process, three.front.server.port)
        self._three = three
        self._rng = random.Random(seed)
        self._mover = Mover(*three.nodes, [*ITEMS, *NUMBERS, b"b b", b"ccc", b"e" * 250])
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, request: bytes) -> bytes:
        """Send ``flush_all``, and move the items stored from now on."""
        self.stop_moving()
        self._three.enter(Phase.PREPARE)
        reply = super().ask(request)
        self._stopping.clear()
        self._thread = threading.Thread(target=self._move, args=[self._rng.random() / 50])
        self._thread.start()
        return reply

    def stop_moving(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _move(self, delay: float) -> None:
        self._stopping.wait(delay)
        self._three.enter(Phase.MOVE)
        while not self._stopping.is_set():
            self._mover.run()


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_conversations_while_keys_are_moved(three: Three, part: int) -> None:
    front = Front(three, part)
    try:
        for seed in range(part * CONVERSATIONS, (part + 1) * CONVERSATIONS):
            compare((three.direct, front), seed)
    finally:
        front.stop_moving()
