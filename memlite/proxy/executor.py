"""Execution by forwarding: commands go to the nodes that have their keys."""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from memlite.memory import Part
from memlite.protocol import replies
from memlite.protocol.commands import Arguments, Command
from memlite.protocol.discovery import CLUSTER_KEY
from memlite.protocol.limits import LONGEST_GET
from memlite.protocol.meta import MetaRequest
from memlite.protocol.numbers import signed_32
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.cluster import Cluster, Target
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
)
from memlite.server.execution.command_set import CommandObserver

__all__ = ["ForwardingClient", "ProxyExecutor"]

# Limits at which a connection stops reading, as in `PipelinedExecutor`.
_MOST_REQUESTS: Final = 64
_MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
_RETRIEVALS: Final = frozenset(("get", "gets", "gat", "gats"))
_READS: Final = frozenset(("get", "gets"))
"""Those that change nothing."""
_HIDDEN: Final = {
    "meta_get": (b"EN",),
    "meta_set": (b"HD",),
    "meta_delete": (b"HD",),
    "meta_count": (b"HD", b"VA"),
}
"""What the replies to quiet meta commands begin with that are not sent."""


class _KeepingParser(Protocol):
    @property
    def request(self) -> bytes: ...


class ForwardingClient(Protocol):
    """A client whose requests are forwarded.

    Attributes:
        out: receives the replies, in order.
        parser: has the bytes of the request that is being carried out.
    """

    out: list[Part]

    @property
    def parser(self) -> _KeepingParser: ...  # noqa: D102 - see the class

    def settle(self) -> None:
        """Send the replies in `out`."""

    def close(self) -> None:
        """Close once all replies are sent."""


class ProxyExecutor:
    """Forwards one connection's commands, and sends the replies in order of arrival.

    Each node gets the commands for it in order, so that commands on the same key stay in order.

    Args:
        cluster: the nodes.
        admin: carries out commands that are not about keys.
        client: the connection.
        out: the list to which replies are appended.

    Attributes:
        ended: whether the client has sent ``quit``; any further input is discarded.
        had_to_wait: always False.
    """

    had_to_wait = False

    def __init__(
        self, cluster: Cluster, admin: ProxyAdmin, client: ForwardingClient, out: list[Part]
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._client: ForwardingClient | None = client
        self._out = out
        self._queue: deque[Request] = deque()
        self._observer: CommandObserver | None = None  # of the command being submitted
        self._due = False
        self.ended = False
        self._special: dict[str, Callable[..., None]] = {
            "admin": self._administer,
            "bad_chunk": self._bad_chunk,
            "meta_noop": lambda: self._reply(b"MN\r\n"),
            "quit": self.quit,
            "reject": self.reject,
            "too_large": self._too_large,
        }

    @property
    def pending(self) -> bool:
        """Whether there are commands still to be answered."""
        return bool(self._queue)

    @property
    def full(self) -> bool:
        """Whether so much is in progress that no more input should be read."""
        queue = self._queue
        if len(queue) >= _MOST_REQUESTS:
            return True
        return (
            len(queue) > 1
            and sum(len(request.reply or b"") for request in queue) > _MOST_WAITING_BYTES
        )

    def detach(self) -> None:
        """Disconnect from a lost connection; the nodes still answer."""
        self._client = None

    # Called by parsers and by the connection

    def ready_reply(self, line: bytes) -> bytes | None:
        r"""Forward a known ``get <key>\r\n``, and return no bytes: the reply follows.

        Returns:
            None if the line must be parsed.
        """
        node = self._cluster.by_line.get(line)
        if node is None or len(self._queue) >= _MOST_REQUESTS:
            return None
        request = Read(self)
        self._queue.append(request)
        node.send(line, request)
        if request.reply is not None and self._queue[0] is request:
            self._queue.popleft()
            return request.reply
        return b""

    def hit(self, line: bytes) -> bool:
        """Forward a known ``get <key>``."""
        node = self._cluster.by_line.get(line)
        if node is None:
            return False
        self._forward(node, line, Read(self))
        return True

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Forward a set."""
        self._change(key, noreply)

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """Forward a set, which has no surplus words."""
        data = self._request()
        node = self._cluster.node_of(key)
        if noreply:
            self._forward(node, _plain(data), Silent(self))
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
        special = self._special.get(name)
        if special is not None:
            special(*arguments)
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
        request = Request(self)
        request.closes = True
        request.reply = b""
        self._queue.append(request)
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

    def _begin(self, request: Request) -> None:
        request.observer = self._observer
        self._queue.append(request)

    def _end(self, request: Request) -> None:
        """Send at once what was answered at once; the connection flushes after the parser."""
        if request.reply is not None and self._queue[0] is request:
            self._out_of_queue()

    def _reply(self, reply: bytes) -> None:
        """Answer without a node."""
        if not self._queue and self._observer is None:
            if reply:
                self._out.append(reply)
            return
        request = Request(self)
        request.reply = reply
        self._begin(request)
        self._end(request)

    def _change(self, key: bytes, noreply: bool) -> None:
        data = self._request()
        if noreply:
            request: Request = Silent(self)
            data = _plain(data)
        else:
            request = Request(self)
            words = _WORDS.get(data[: data.find(b" ")], 5)
            if data.count(b" ", 0, data.find(b"\n")) >= words:
                data = _plain(data)
        self._forward(self._cluster.node_of(key), data, request)

    def _retrieve(self, name: str, arguments: Arguments) -> None:
        keys: list[bytes] = arguments[-1]
        cluster, data = self._cluster, self._request()
        node = cluster.node_of(keys[0])
        if len(keys) == 1:
            if keys[0] == CLUSTER_KEY and name in _READS:
                self._reply(self._admin.discovery.item(with_unique=name == "gets"))
                return
            if name == "get" and len(data) <= LONGEST_GET and data == b"get %b\r\n" % keys[0]:
                cluster.remember(data, node)
            self._forward(node, data, self._retrieval(name))
            return
        parts: dict[Target, int] = {}
        asked: list[list[bytes]] = []
        owned: list[tuple[bytes, int]] = []
        for key in keys:
            node = cluster.node_of(key)
            index = parts.setdefault(node, len(asked))
            if index == len(asked):
                asked.append([])
            asked[index].append(key)
            owned.append((key, index))
        if len(parts) == 1:
            self._forward(node, data, self._retrieval(name))
            return
        cluster.multigets += 1
        words = [name.encode(), *(b"%d" % number for number in arguments[:-1])]
        kind = MultiGet if name in _READS else MultiTouch
        whole = kind(self, len(parts), owned, strict=cluster.strict)
        self._begin(whole)
        for node, index in parts.items():
            node.send(b" ".join([*words, *asked[index]]) + b"\r\n", whole.part(index))
        self._end(whole)

    def _retrieval(self, name: str) -> Request:
        return Read(self) if name in _READS else Request(self)

    def _forward_meta(self, name: str, meta: MetaRequest) -> None:
        node, data = self._cluster.node_of(meta.key), self._request()
        reads = name == "meta_get" and meta.touch is None and meta.vivify is None
        if meta.quiet:
            data = _without_quiet(data, 3 if name == "meta_set" else 2)
            kind = QuietRead if reads else Quiet
            self._forward(node, data, kind(self, _HIDDEN[name]))
        else:
            self._forward(node, data, Read(self) if reads else Request(self))

    def _too_large(self, command: bytes, key: bytes, noreply: bool) -> None:
        """Refuse a value; as a set would have replaced it, the old item goes."""
        reply = b"" if noreply else replies.TOO_LARGE
        if command in (b"set", b"ms"):
            node = self._cluster.node_of(key)
            self._forward(node, _delete(key), Replaced(self, reply))
        else:
            self._reply(reply)

    def _bad_chunk(self, key: bytes, noreply: bool) -> None:
        self.reject(replies.BAD_DATA_CHUNK, noreply)

    def _administer(self, words: list[bytes], noreply: bool) -> None:
        if words[0] == b"flush_all":
            self._flush(words, noreply)
        else:
            reply = self._admin.execute(words)
            self._reply(b"" if noreply else reply)

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
        self._begin(whole)
        for index, node in enumerate(nodes):
            node.send(data, whole.part(index))
        self._end(whole)

    # Replies

    def answered(self) -> None:
        """Note that a request was answered."""
        if not self._due:
            self._due = True
            self._cluster.due.append(self)

    def count_failure(self) -> None:
        """Count a request, or a part of one, that failed."""
        self._cluster.failures += 1

    def count_failed_shards(self, number: int) -> None:
        """Count parts of a retrieval whose keys are misses because a node failed."""
        self._cluster.failed_shards += number

    def deliver(self) -> None:
        """Send the replies that are due, in one write."""
        self._due = False
        self._out_of_queue()
        if self._client is not None:
            self._client.settle()

    def _out_of_queue(self) -> None:
        queue, client = self._queue, self._client
        while queue and queue[0].reply is not None:
            request = queue.popleft()
            reply = request.reply
            if request.observer is not None and reply is not None:
                request.observer.ready()
                request.observer.replied([reply] if reply else [])
            if client is None:
                continue
            if reply:
                self._out.append(reply)
            if request.closes:
                client.close()


class _SilentFlush(Flush):
    """A flush with ``noreply``."""

    __slots__ = ()

    def combined(self) -> bytes:
        return b""


def _delete(key: bytes) -> bytes:
    from memlite.protocol.meta import encode_key  # rarely needed

    return b"md %b b\r\n" % encode_key(key)


_WORDS: Final = {b"cas": 6, b"delete": 2, b"incr": 3, b"decr": 3, b"touch": 3}
"""The words of a command without surplus ones; of other storage commands there are 5."""


def _plain(data: bytes) -> bytes:
    """Return a change without ``noreply`` and other surplus words, so that it has one reply."""
    line, _, rest = data.partition(b"\n")
    words = [word for word in line.rstrip(b"\r").split(b" ") if word]
    if words[0] == b"delete":
        # The 0, which old clients send, keeps the key "noreply" from being taken for the option.
        return b"delete %b 0\r\n" % words[1]
    return b" ".join(words[: _WORDS.get(words[0], 5)]) + b"\r\n" + rest


def _without_quiet(data: bytes, first: int) -> bytes:
    """Return a meta request without the flag q; `first` is the index of its first flag."""
    line, _, rest = data.partition(b"\n")
    words = line.rstrip(b"\r").split(b" ")
    words = [word for word in words if word]
    flags = [word for word in words[first:] if word[:1] != b"q"]
    return b" ".join([*words[:first], *flags]) + b"\r\n" + rest
