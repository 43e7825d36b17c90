"""Execution by forwarding: commands go to the nodes that have their keys."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from memlite.core.build import mypyc_attr
from memlite.memory import Part
from memlite.protocol import replies
from memlite.protocol.commands import Arguments, Command
from memlite.protocol.discovery import CLUSTER_KEY
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.protocol.meta import MetaRequest
from memlite.protocol.numbers import signed_32
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.batch import Batch
from memlite.proxy.cluster import Cluster, Target
from memlite.proxy.framing import gather
from memlite.proxy.node import Node
from memlite.proxy.ordering import MAX_REQUESTS, ForwardingClient, OrderedReplies
from memlite.proxy.parts import SPLIT, SPLIT_KEYS, JoinedBatch, JoinedMultiGet
from memlite.proxy.plain import WORDS, delete_of, plain, without_quiet
from memlite.proxy.recognizer import Recognizer
from memlite.proxy.refusal import NO_NUL
from memlite.proxy.requests import (
    Flush,
    MultiGet,
    MultiTouch,
    Quiet,
    QuietRead,
    Read,
    Replaced,
    Request,
    Silent,
    Whole,
)
from memlite.server.admin.request import PIPELINED
from memlite.server.execution.command_set import CommandObserver
from memlite.server.interfaces import Client

__all__ = ["ProxyExecutor", "is_multiget"]

_RETRIEVALS: Final = frozenset(("get", "gets", "gat", "gats"))
_READS: Final = frozenset(("get", "gets"))
"""Retrievals that change nothing."""
_NOTHING: Final[dict[bytes, Target]] = {}
_HIDDEN: Final = {
    "meta_get": (b"EN",),
    "meta_set": (b"HD",),
    "meta_delete": (b"HD",),
    "meta_count": (b"HD", b"VA"),
}
"""The beginnings of replies to quiet meta commands that are not sent."""


def is_multiget(data: bytes) -> bool:
    """Return whether input is one line that gets several keys."""
    if data[:4] != b"get " or data.find(b"\n") != len(data) - 1 or data.find(b" ", 4) < 0:
        return False
    return b"\0" not in data  # a key with a NUL may be known by other commands


@mypyc_attr(allow_interpreted_subclasses=True)
class ProxyExecutor(OrderedReplies):
    """Forwards one connection's commands.

    Each node gets the commands for it in order, so that commands on the same key stay in order.

    Args:
        cluster: the nodes.
        admin: carries out commands that are not about keys.
        client: the connection.
        out: the list to which replies are appended.
        recognizer: finds the requests that need no parser; None if there is none.

    Attributes:
        ended: whether the client has sent ``quit``; any further input is discarded.
        had_to_wait: always False.
        special: the names of the methods for commands that are not forwarded as they are. Bound
            methods kept by the object would keep it from being freed.
    """

    had_to_wait = False
    shortcuts = NO_SHORTCUTS
    special: ClassVar[Mapping[str, str]] = {
        "admin": "_administer",
        "bad_chunk": "_bad_chunk",
        "meta_noop": "_meta_noop",
        "quit": "quit",
        "reject": "reject",
        "too_large": "_too_large",
    }

    def __init__(
        self,
        cluster: Cluster,
        admin: ProxyAdmin,
        client: ForwardingClient,
        out: list[Part],
        recognizer: Recognizer | None = None,
    ) -> None:
        super().__init__(cluster, client, out)
        self._by_line: Mapping[bytes, Target] = cluster.by_line
        self._recognizer = recognizer
        if recognizer is not None:
            recognizer.know(self.lone)
        self._admin = admin
        self.ended = False

    # Called by parsers and by the connection

    def take(self, data: bytes) -> int:
        """Forward requests of the usual kinds, if the input begins with them.

        Returns:
            The number of bytes taken; the rest must be parsed.
        """
        if SPLIT_KEYS is not None and is_multiget(data):
            # The receiver in C has left it, or was not asked because the read is sampled.
            if not self._queue and self.lone.take_keys(data):
                return len(data)
            return self._take_multiget(data)
        lone = self.lone
        if len(data) <= MAX_GET_LENGTH:
            if not self._queue and lone.take(self._by_line, data, Node):
                return len(data)
            node = self._by_line.get(data)
            if node is not None:
                if self._queue or lone.alone:
                    if len(self._queue) >= MAX_REQUESTS:
                        return 0
                    self._forward(node, data, Read(self))
                else:
                    self._send_alone(node, data, reads=True)
                return len(data)
        if data[:4] == b"set " and not (self._queue or lone.alone) and self._recognizer:
            if self._recognizer.take_set(lone, data):
                return len(data)
            target = self._recognizer.lone_set(data)
            if target is not None:
                self._send_alone(target, data, reads=False)
                return len(data)
        return self._take_others(data)

    def _send_alone(self, target: Target, data: bytes, *, reads: bool) -> None:
        lone = self.lone
        lone.alone, lone.reads = True, reads
        if lone.since:
            self._timing.end_thinking(lone)
        target.send(data, lone)

    def _take_others(self, data: bytes) -> int:
        if self._recognizer is None:
            return 0
        if SPLIT_KEYS is None and is_multiget(data):  # as in `take`
            return self._take_multiget(data)
        most = self._most_together()
        if most < 2:
            return 0
        if SPLIT is not None and self.writes_lone:
            taken = 0 if self._queue else self.lone.take_batch(data)
            taken = taken or self._take_in_c(self._recognizer, data, most)
            if taken:
                return taken
        taken, reads = len(data), True
        requests: list[bytes] = []
        targets: list[Target] = []
        if data[:4] == b"get ":
            requests = data.splitlines(keepends=True)
            try:
                targets = list(map(self._cluster.by_line.__getitem__, requests))
            except KeyError:
                requests = []
        if not targets or len(targets) > most:
            requests, targets = [], []
            taken, reads = self._recognizer.scan(data, most, requests, targets)
        if len(targets) > 1:
            return taken if self._forward_batch(requests, targets, reads=reads) else 0
        if not targets:
            return 0
        if self._queue or self.lone.alone:
            self._forward(targets[0], requests[0], Read(self) if reads else Request(self))
        else:
            self._send_alone(targets[0], requests[0], reads=reads)
        return taken

    def _room(self) -> int:
        """Return how many more requests may be in progress."""
        if not self._queue:
            return MAX_REQUESTS
        taken: int = sum(request.count for request in self._queue)
        return MAX_REQUESTS - taken

    def _most_together(self) -> int:
        """Return how many requests may be forwarded together."""
        return self._room()

    def _take_multiget(self, data: bytes) -> int:
        """Forward a get of several keys."""
        if self._recognizer is None or data[-2:] != b"\r\n" or self._room() < 1:
            return 0
        if SPLIT_KEYS is not None and self.writes_lone:
            found = SPLIT_KEYS(data, self._cluster.known_nodes, Node)
            if found is not None and len(found[0]) > 1:
                self._cluster.multigets += 1
                parts = [(node, request) for node, request, _ in found[0]]
                self._forward_all(JoinedMultiGet(self, *found), parts)
                return len(data)
        keys = data[4:-2].split(b" ")
        nodes: list[Any] = list(map(self._cluster.known_nodes.__getitem__, keys))
        if None in nodes:
            lengths = list(map(len, keys))
            if not min(lengths) or max(lengths) > self._recognizer.longest_key:
                return 0
            nodes = list(map(self._cluster.node_of_word, keys))
        self._retrieve_several("get", keys, nodes, b"get", data)
        return len(data)

    def _take_in_c(self, recognizer: Recognizer, data: bytes, most: int) -> int:
        """Forward several gets and sets without lists."""
        found = recognizer.split(data, most)
        if found is None:
            return 0
        shares, order, taken, reads = found
        if taken < len(data) and len(order) < most:
            return 0  # the other requests need more than this
        for node, _, _ in shares:
            if not node.takes_batches:
                return 0
        self._forward_joined(shares, order, reads=reads)
        return int(taken)

    def _forward_joined(self, shares: Sequence[Any], order: bytes, *, reads: bool) -> None:
        batch = JoinedBatch(self, order)
        self._begin(batch)
        for node, requests, count in shares:
            node.send_batch(requests, batch.part(count, reads=reads))

    def _forward_batch(self, requests: list[bytes], targets: list[Target], *, reads: bool) -> bool:
        """Send each node its requests all at once, unless something is unusual."""
        parts: dict[Target, list[bytes]] = gather(targets, requests)
        for target in parts:
            if type(target) is not Node or not target.takes_batches:
                return False
        batch = Batch(self, targets)
        self._begin(batch)
        node: Any
        for node, of_node in parts.items():
            node.send_batch(b"".join(of_node), batch.part(node, len(of_node), reads=reads))
        return True

    def immediate_reply(self, line: bytes) -> bytes | None:
        """Return None: connections use `take`."""
        return None

    def try_get(self, line: bytes) -> bool:
        """Forward a known ``get <key>``."""
        if len(line) > MAX_GET_LENGTH:
            return False
        node = self._cluster.by_line.get(line)
        if node is None:
            return False
        self._forward(node, line, Read(self))
        return True

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Forward a set."""
        self._change(key, noreply)

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """Forward a set without surplus words."""
        data = self._request()
        node = self._cluster.node_of_word(key)
        if noreply:
            self._forward(node, plain(data), Silent(self))
        else:
            self._forward(node, data, Request(self))

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""
        self._observer = observer
        try:
            self.execute(command, arguments)
        finally:
            self._observer = None

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command."""
        name = command.name
        if name in _RETRIEVALS:
            self._retrieve(name, arguments)
            return
        special = self.special.get(name)
        if special is not None:
            getattr(self, special)(*arguments)
            return
        if name.startswith("meta_"):
            self._forward_meta(name, arguments[0])
            return
        self._change(command.keys(arguments)[0], command.quiet(arguments))

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer a malformed command."""
        self._reply(b"" if noreply else reply)

    def quit(self) -> None:
        """Close the connection after all earlier commands."""
        self.ended = True
        # Take no further input, not even past the parser.
        self._by_line, self._recognizer = _NOTHING, None
        self.lone.by_line = self.lone.nodes = None
        request = Request(self)
        request.closes = True
        request.reply = b""
        self._begin(request)
        if self._queue[0] is request:
            self.deliver()

    # Forwarding

    def _request(self) -> bytes:
        assert self._client is not None  # noqa: S101 - a lost connection has no input
        return self._client.parser.request

    def _forward(self, node: Target, data: bytes, request: Request) -> None:
        self._begin(request)
        node.send(data, request)
        self._end(request)

    def _forward_all(self, whole: Whole | Any, parts: Sequence[tuple[Target, bytes]]) -> None:
        """Send each node its part of a request; a `JoinedMultiGet` is no `Whole`."""
        self._begin(whole)
        for index, (node, data) in enumerate(parts):
            node.send(data, whole.part(index))
        self._end(whole)

    def _change(self, key: bytes, noreply: bool) -> None:
        data = self._request()
        if noreply:
            request: Request = Silent(self)
            data = plain(data)
        else:
            request = Request(self)
            words = WORDS.get(data[: data.find(b" ")], 5)
            if data.count(b" ", 0, data.find(b"\n")) >= words:
                data = plain(data)
        self._forward(self._cluster.node_of_word(key), data, request)

    def _retrieve(self, name: str, arguments: Arguments) -> None:
        keys: list[bytes] = arguments[-1]
        cluster, data = self._cluster, self._request()
        node = cluster.node_of_word(keys[0])
        if len(keys) == 1:
            if keys[0] == CLUSTER_KEY and name in _READS:
                self._reply(self._admin.discovery.item(with_unique=name == "gets"))
                return
            if name == "get" and len(data) <= MAX_GET_LENGTH and data == b"get %b\r\n" % keys[0]:
                cluster.remember(data, node)
            self._forward(node, data, self._retrieval(name))
            return
        words = [name.encode(), *(b"%d" % number for number in arguments[:-1])]
        nodes = list(map(cluster.node_of_word, keys))
        self._retrieve_several(name, keys, nodes, b" ".join(words), data)

    def _retrieve_several(
        self,
        name: str,
        keys: list[bytes],
        nodes: list[Target],
        command: bytes,
        data: bytes,
    ) -> None:
        """Ask each node for its keys.

        Args:
            name: the name of the command.
            keys: all keys.
            nodes: the node of each.
            command: the request up to the first key.
            data: the request.
        """
        cluster = self._cluster
        parts: dict[Target, list[bytes]] = gather(nodes, keys)
        if len(parts) == 1:
            self._forward(nodes[0], data, self._retrieval(name))
            return
        whole_gets = cluster.whole_gets
        if whole_gets is not None and name == "get" and NO_NUL not in parts:
            self._forward(whole_gets, data, Read(self))
            return
        cluster.multigets += 1
        kind = MultiGet if name in _READS else MultiTouch
        whole = kind(self, parts, nodes, strict=cluster.strict)
        self._forward_all(
            whole,
            [(node, b" ".join((command, *own)) + b"\r\n") for node, own in parts.items()],
        )

    def _retrieval(self, name: str) -> Request:
        return Read(self) if name in _READS else Request(self)

    def _forward_meta(self, name: str, meta: MetaRequest) -> None:
        data = self._request()
        # Except for the key, only an opaque can contain a NUL.
        nul = b"\0" in data and b"\0" in data[: data.index(b"\n")]
        node = NO_NUL if nul else self._cluster.node_of(meta.key)
        reads = name == "meta_get" and meta.touch is None and meta.vivify is None
        if meta.quiet and name in _HIDDEN:  # `me` ignores it
            data = without_quiet(data, 3 if name == "meta_set" else 2)
            kind = QuietRead if reads else Quiet
            self._forward(node, data, kind(self, _HIDDEN[name]))
        else:
            if (
                reads and len(data) <= MAX_GET_LENGTH and b" O" not in data
            ):  # an opaque is not repeated
                self._cluster.remember_meta(data, node)
            self._forward(node, data, Read(self) if reads else Request(self))

    def _too_large(self, command: bytes, key: bytes, noreply: bool) -> None:
        """Refuse a value, and delete the old item if a set would have replaced it."""
        if command in (b"set", b"ms"):
            node = self._cluster.node_of(key)
            request = Silent(self) if noreply else Replaced(self, replies.TOO_LARGE)
            self._forward(node, delete_of(key), request)
        else:
            self.reject(replies.TOO_LARGE, noreply)

    def _meta_noop(self) -> None:
        self._reply(b"MN\r\n")

    def _bad_chunk(self, key: bytes, noreply: bool) -> None:
        self.reject(replies.BAD_DATA_CHUNK, noreply)

    def _administer(self, words: list[bytes], noreply: bool) -> None:
        if words[0] == b"flush_all":
            self._flush(words, noreply)
        else:
            reply = self._watch(words) if words[0] == b"watch" else self._admin.execute(words)
            self._reply(b"" if noreply else reply)

    def _watch(self, words: list[bytes]) -> bytes:
        if self.pending or self._client is None:
            return PIPELINED % b"watch"
        return self._admin.watch(words[1:], cast("Client", self._client))

    def _flush(self, words: list[bytes], noreply: bool) -> None:
        data = b"flush_all\r\n"
        if len(words) != (2 if noreply else 1):
            exptime = signed_32(words[1])
            if exptime is None:
                self.reject(replies.INVALID_EXPTIME, noreply)
                return
            data = b"flush_all %d\r\n" % exptime
        nodes = self._cluster.targets
        whole = _SilentFlush(self, len(nodes)) if noreply else Flush(self, len(nodes))
        self._forward_all(whole, [(node, data) for node in nodes])


class _SilentFlush(Flush):
    """A flush with ``noreply``."""

    __slots__ = ()

    def combined(self) -> bytes:
        return b""
