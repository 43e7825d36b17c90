"""Requests that wait in the queue while their keys are assigned to other nodes."""

from collections.abc import Sequence
from typing import Any, cast

from memlite.cluster.topology import parse_nodes
from memlite.protocol.replies import END, OK
from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Receiver
from memlite.proxy.queue import RequestQueue, Ticket
from memlite.proxy.refusal import NO_NUL
from memlite.proxy.resend import Target
from memlite.server.scheduler import Scheduler
from tests.unit.proxy.clusters import cluster_of
from tests.unit.proxy.transcripts import Loop

KEYS = [b"k%d" % number for number in range(40)]


class Client:
    """The client that sends a request."""

    gone = False
    number = 1
    peer = ""
    replied = 0


class Outcome:
    """Takes the reply to a part of a request."""

    reads = False

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def answer(self, reply: bytes) -> None:
        self.replies.append(reply)

    fail = answer


class Setup:
    """A queue with one worker, which is busy, in front of two nodes that are not connected."""

    def __init__(self) -> None:
        scheduler = Scheduler()
        scheduler.loop = loop = cast("Any", Loop())
        self.cluster: Cluster = cluster_of(2, loop)
        self.queue = RequestQueue(self.cluster, scheduler, in_flight=1, deadline=60)
        self._busy: list[Receiver] = []
        self._submit([(cast("Target", self), b"get busy\r\n")])

    def send(self, _request: bytes, receiver: Receiver) -> None:
        self._busy.append(receiver)

    def _submit(self, parts: Sequence[tuple[Target, bytes]]) -> list[Outcome]:
        outcomes = [Outcome() for _ in parts]
        sends = [(*part, outcome) for part, outcome in zip(parts, outcomes, strict=True)]
        ticket = Ticket(self.queue, Client(), sends, None, reads=False)
        self.queue.submit(ticket, awaited=True)
        return outcomes

    def submit(self, data: bytes, *keys: bytes) -> Outcome:
        """Send a request to the node of its first key."""
        return self._submit([(self.cluster.node_of(keys[0]), data)])[0]

    def flush(self) -> list[Outcome]:
        return self._submit([(target, b"flush_all\r\n") for target in self.cluster.targets])

    def change(self) -> None:
        """Replace all nodes but one."""
        self.cluster.change(parse_nodes("127.0.0.1:7,127.0.0.1:2,127.0.0.1:3"))

    def go_on(self) -> None:
        """Let the worker take the next request."""
        self._busy.pop().answer(END)

    def sent(self) -> dict[str, list[bytes]]:
        """Return the requests that wait for each node."""
        return {node.name: [*node._queue] for node in self.cluster.nodes if node._queue}

    def answer(self, *replies: bytes) -> None:
        """Answer the waiting requests with these replies, node by node."""
        following = iter(replies)
        for node in self.cluster.nodes:
            node._queue.clear()
            while node._pending:
                node._pending.popleft().answer(next(following))
        assert next(following, None) is None


async def test_a_queued_change_goes_to_the_current_node_of_its_key() -> None:
    moved = 0
    for key in KEYS:
        setup = Setup()
        data = b"set %b 0 0 1\r\nx\r\n" % key
        outcome = setup.submit(data, key)
        before, nodes = setup.cluster.node_of(key).name, setup.cluster.nodes  # type: ignore[attr-defined]
        setup.change()
        setup.go_on()
        after = setup.cluster.node_of(key).name  # type: ignore[attr-defined]
        assert setup.sent() == {after: [data]}
        assert not any(node._pending for node in nodes if node not in setup.cluster.nodes)
        moved += before != after
        setup.answer(b"STORED\r\n")
        assert outcome.replies == [b"STORED\r\n"]
        assert setup.queue.busy == 0
    assert moved > 10


async def test_requests_are_not_rerouted_without_a_change() -> None:
    setup = Setup()
    data = b"set k 0 0 1\r\nx\r\n"
    owner = setup.cluster.node_of(b"k")
    (other,) = [node for node in setup.cluster.nodes if node is not owner]
    setup._submit([(other, data)])
    setup.go_on()
    assert setup.sent() == {other.name: [data]}


async def test_a_queued_get_is_split_if_its_keys_move_to_different_nodes() -> None:
    setup = Setup()
    outcome = setup.submit(b"get %b\r\n" % b" ".join(KEYS), *KEYS)
    setup.change()
    setup.go_on()
    sent = setup.sent()
    assert len(sent) == 3
    asked = [one for requests in sent.values() for one in requests]
    assert sorted(asked) == sorted(b"get %b\r\n" % key for key in KEYS)
    items = {key: b"VALUE %b 0 1\r\nx\r\n" % key for key in KEYS[::2]}
    setup.answer(*[items.get(one[4:-2], b"") + END for one in asked])
    assert outcome.replies == [b"".join(items.values()) + END]
    assert setup.queue.busy == 0


async def test_a_flush_reaches_each_of_the_new_nodes_once() -> None:
    setup = Setup()
    outcomes = setup.flush()
    assert len(outcomes) == 2
    setup.change()
    setup.go_on()
    assert setup.sent() == {node.name: [b"flush_all\r\n"] for node in setup.cluster.nodes}
    assert [one.replies for one in outcomes] == [[], [OK]]
    setup.answer(OK, OK, OK)
    assert [one.replies for one in outcomes] == [[OK], [OK]]
    assert setup.queue.busy == 0


async def test_refused_requests_stay_refused() -> None:
    setup = Setup()
    (outcome,) = setup._submit([(NO_NUL, b"get a\0b\r\n")])
    setup.change()
    setup.go_on()
    assert outcome.replies == [NO_NUL.error]
    assert not setup.sent()


async def test_waiting_requests_are_refused_while_the_nodes_are_unknown() -> None:
    setup = Setup()
    outcome = setup.submit(b"set k 0 0 1\r\nx\r\n", b"k")
    setup.cluster.suspend("the nodes are unknown")
    setup.go_on()
    assert outcome.replies == [b"SERVER_ERROR the nodes are unknown\r\n"]
    assert not setup.sent()
