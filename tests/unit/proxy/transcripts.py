"""Transcripts of all that a proxy's clients and nodes receive, step by step, in random scripts.

A separate process prints them, so that they can be compared with those of a process that uses no
code compiled from C.
"""

import asyncio
import hashlib
import random
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from memlite.core.clock import Clock
from memlite.protocol import Limits
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.proxy.cluster import Cluster
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.framing import NATIVE
from memlite.proxy.native_link import NativeLink
from memlite.proxy.node import Node
from memlite.proxy.recognizer import Recognizer
from memlite.telemetry.counters import Counters
from tests.unit.proxy.clusters import cluster_of

KEYS = [b"k%d" % number for number in range(12)]
# Single replies to a request that expects another reply.
WRONG = [
    b"VALUE other 0 1\r\nx\r\nEND\r\n", b"STORED\r\n", b"X\r\n", b"ERROR\r\n", b"END\r\n",
    b"VALUE k1 0 1\r\nx\r\nVALUE k1 0 1\r\ny\r\nEND\r\n", b"SERVER_ERROR out of memory\r\n",
    b"VALUE k1 0 2\r\n\r\n\r\nEND\r\n", b"V\r\n", b"STORED \r\n", b"END \r\n", b"ENDS\r\n",
    b"VA 1\r\nx\r\n", b"NOT_STORED\r\n", b"HD\r\n", b"D" * 300 + b"\r\n", b"7 \r\n",
    b"OK\r\n", b"EXISTS\r\n",
]  # fmt: skip
# Replies to requests that change an item and have no value.
CHANGED = [b"DELETED\r\n", b"NOT_FOUND\r\n", b"TOUCHED\r\n", b"18446744073709551615\r\n", b"7\r\n"]
STORED = [b"STORED\r\n", b"NOT_STORED\r\n"]
CHANGES = [
    b"delete %b\r\n",
    b"incr %b 1\r\n",
    b"decr %b 20\r\n",
    b"touch %b 0\r\n",
    b"incr %b 07\r\n",
    b"mg %b v\r\n",
]
ADDING = [b"%b %%b 0 0 %%d\r\n" % name for name in (b"add", b"replace", b"append", b"prepend")]
# Data that no node sends, or that answers no request.
RUBBISH = [
    b"VALUE k1 0 -1\r\nx\r\nEND\r\n", b"VALUE\r\n", b"VALUE k1 0 1\r\nxyzEND\r\n", b"\0" * 3000,
    b"VALUE k1 0 2\r\nEND\r\nEND\r\n", b"VALUE k1 0 0 1 2 3\r\n\r\nEND\r\n",
    b"VALUE k1 0 3\r\nx", b"V", b"\r\n", b"VA 3\r\nabcd\r\n", b"VA x\r\n", b"E", b"7", b"DELETED",
]  # fmt: skip
# Surplus replies, sent only if no request is pending: a pending one would get some of them.
SURPLUS = [b"STORED\r\n" * 1000, b"END\r\n" * 1000, b"END\r\n"]


class Loop:
    """An event loop whose iterations and timers run when the script says so."""

    def __init__(self) -> None:
        self.soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self.later: list[Callable[..., object]] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        self.soon.append((function, arguments))

    def call_later(self, seconds: float, function: Callable[..., object]) -> "Loop":
        if seconds < 1:  # not a deadline
            self.later.append(function)
        return self

    def cancel(self) -> None: ...

    def turn(self) -> None:
        for _ in range(len(self.soon)):
            function, arguments = self.soon.popleft()
            function(*arguments)

    def timers(self) -> None:
        due, self.later = self.later, []
        for function in due:
            function()


class NodeTransport:
    """Keeps the requests written to a node, and answers them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.written = b""
        self.replies = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, _name: str) -> object:
        return None

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def answer(self) -> None:
        """Generate replies to some of the requests."""
        while self.written and self.rng.random() < 0.8:
            line, _, rest = self.written.partition(b"\r\n")
            words = line.split(b" ")
            if len(words) == 5 and words[0] not in (b"get", b"gets"):
                rest = rest[int(words[4]) + 2 :]
            if self.rng.random() < 0.02:
                self.replies += self.rng.choice(WRONG)
            elif len(words) == 5 and words[0] not in (b"get", b"gets"):
                self.replies += b"STORED\r\n" if words[0] == b"set" else self.rng.choice(STORED)
            elif words[0] in (b"get", b"gets"):
                self.replies += b"".join(map(self._item, words[1:])) + b"END\r\n"
            elif words[0] == b"mg":
                self.replies += self.rng.choice([b"EN\r\n", b"HD\r\n", b"VA 2 f0\r\n\r\n\r\n"])
            else:
                self.replies += self.rng.choice(CHANGED)
            self.written = rest

    def _item(self, key: bytes) -> bytes:
        if self.rng.random() < 0.3:
            return b""
        value = self.rng.choice(
            [b"", b"x", b"END\r\n", b"\r\nEND\r\n", b"VALUE k1 0 1\r\n", b"z" * 700]
        )
        unique = b" 7" if self.rng.random() < 0.05 else b""
        return b"VALUE %b 0 %d%b\r\n%b\r\n" % (key, len(value), unique, value)


class Client:
    """A client connection."""

    def __init__(self, cluster: Cluster, recognizer: Recognizer, counters: Counters) -> None:
        self.out: list[Any] = []
        self._out = self.out  # the name that connections use
        self.got = b""
        self.counters = self._counters = counters
        self.unread = 0
        self._immediate_limit = 0
        self._clock = Clock(lambda: 5.0, lambda: 1000.0)
        self.last_command = 0
        self.alone = False  # others may be written together, or not
        self.executor = ProxyExecutor(
            cluster, cast("Any", None), cast("Any", self), self.out, recognizer
        )

    def data_received(self, data: bytes) -> None:
        left = self.counters.until_slow_sample - 1
        if not left or self._immediate_limit < 0:  # the parser is not part of the transcript
            self.counters.until_slow_sample = 20
            return
        taken = self.executor.take(data)
        if taken:
            self.counters.bytes_read += taken
            self.counters.until_slow_sample = left
            self.last_command = self._clock.second
            self._flush()
            if taken < len(data):
                Client.data_received(self, data[taken:])

    def fast(self, on: bool) -> None:
        self._immediate_limit = 0 if on else -1
        self.executor.lone.write = self.write if on else None
        self.executor.lone.counters = self.counters

    def write(self, data: bytes) -> None:
        self.got += data
        if self.alone and len(self.got) % 7 == 0:
            self.fast(False)  # as if it had stopped reading

    def reply(self, data: bytes) -> None:
        self.counters.bytes_written += len(data)
        self.write(data)

    def count_unread(self) -> None:
        self.unread += 1

    def replies_ready(self) -> None:
        data = b"".join(map(bytes, self.out))
        self.counters.bytes_written += len(data)
        self.got += data
        self.out.clear()

    _flush = close = replies_ready


class ReceivingClient(Client):
    """Receives data in C, as `Client` does in Python."""

    if NATIVE is not None:
        data_received = NATIVE.Receiver(Client, ProxyExecutor, Counters, Clock, MAX_GET_LENGTH)


def requests_of(rng: random.Random) -> bytes:
    """Return random requests that a client may send in one write."""
    kind = rng.random()
    if kind < 0.3:
        return b"get %b\r\n" % rng.choice(KEYS)
    if kind < 0.45:
        return b"get " + b" ".join(rng.choices(KEYS, k=rng.randint(2, 9))) + b"\r\n"
    if kind < 0.75:
        count = rng.choice([2, 5, 16, 80])
        return b"".join(_one(rng, sets=0.0 if kind < 0.6 else 0.3) for _ in range(count))
    return _one(rng, sets=0.8)


def _one(rng: random.Random, *, sets: float) -> bytes:
    key = rng.choice(KEYS)
    if rng.random() < 0.1:
        return rng.choice(CHANGES) % key
    if rng.random() >= sets:
        return b"get %b\r\n" % key
    value = rng.choice([b"", b"v", b"\r\n", b"w" * 300])
    line = rng.choice([b"set %b 0 0 %d\r\n"] * 9 + [b"set %b 0 00 %d\r\n", *ADDING])
    return line % (key, len(value)) + value + b"\r\n"


def serve(node: Node, rng: random.Random) -> tuple[NativeLink, NodeTransport]:
    link, transport = NativeLink(node), NodeTransport(rng)
    link.connection_made(cast("Any", transport))
    node._serve(link)
    return link, transport


def transcript(seed: int) -> str:
    """Return the transcript of one script."""
    rng, loop, counters = random.Random(seed), Loop(), Counters()
    cluster = cluster_of(3, cast("Any", loop))
    recognizer = Recognizer(cluster, Limits())
    links = [serve(node, rng) for node in cluster.nodes]
    clients = [ReceivingClient(cluster, recognizer, counters) for _ in range(3)]
    for client in clients[:2]:
        client.fast(True)
    for key in KEYS:
        cluster.node_of_line(b"get %b\r\n" % key, key)
        node = cluster.node_of(key)
        cluster.remember(b"mg %b v\r\n" % key, node)
    seen = hashlib.sha256()
    for _ in range(120):
        step = rng.random()
        number = rng.randrange(3)
        if step < 0.45:
            client, data = clients[number], requests_of(rng)
            client.data_received(data)
            client.alone = client.executor.lone.alone
            numbers = counters.bytes_read, counters.until_slow_sample, client.last_command
            seen.update(b"%d %d %d" % numbers)
            client.replies_ready()
        elif step < 0.6:
            loop.turn()
        elif step < 0.9:
            link, transport = links[number]
            transport.answer()
            size = rng.choice([1, 3, 10, 100, 10_000])
            while transport.replies:
                part, transport.replies = transport.replies[:size], transport.replies[size:]
                link.data_received(part)
            if rng.random() < 0.02:
                none = cluster.nodes[number].pending == 0
                link.data_received(rng.choice(SURPLUS if none else RUBBISH))
                if cluster.nodes[number]._link is link:  # later replies would be out of step
                    cluster.nodes[number].link_lost("gone", down=True)
            if cluster.nodes[number]._link is None:
                links[number] = serve(cluster.nodes[number], rng)
        elif step < 0.94:
            loop.timers()
        elif step < 0.96:
            cluster.nodes[number].link_lost("gone", down=rng.random() < 0.5)
            links[number] = serve(cluster.nodes[number], rng)
        elif step < 0.98:
            clients[number].fast(rng.random() < 0.7)
        else:
            clients[number].executor.detach()
            seen.update(clients[number].got)
            clients[number] = ReceivingClient(cluster, recognizer, counters)
        seen.update(
            repr((
                [client.got for client in clients],
                [(one.requests, one.failed, one.pending, one.refused) for one in cluster.nodes],
                [transport.written for _, transport in links],
                cluster.failures, cluster.failed_shards, cluster.multigets,
            )).encode()
        )  # fmt: skip
    cluster.stop()
    seen.update(repr([client.got for client in clients]).encode())
    return f"{seed} {seen.hexdigest()} {counters.bytes_written} {len(clients[0].got)}"


async def main(first: int, last: int) -> None:
    for seed in range(first, last):
        sys.stdout.write(transcript(seed) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
