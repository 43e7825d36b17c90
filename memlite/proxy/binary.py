"""Execution of binary commands by forwarding them as text; nodes need no binary protocol."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, NamedTuple

from memlite.core.build import mypyc_attr
from memlite.core.version import SERVER_VERSION
from memlite.protocol import packets, replies
from memlite.protocol.commands import Arguments, Command
from memlite.protocol.discovery import CLUSTER_KEY, CONFIG_GET, config_packet
from memlite.protocol.packets import QUIET, BinaryRequest, Opcode, Status
from memlite.proxy import binary_replies, binary_requests
from memlite.proxy.binary_replies import Decode
from memlite.proxy.binary_requests import MODES, UnsendableKeyError
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.requests import Flush, Origin, Request

__all__ = ["BinaryProxyExecutor"]


class _Translation(NamedTuple):
    """How a node carries out a command.

    Attributes:
        encode: returns the request to the node.
        decode: returns the client's reply, given the node's.
        reads: whether it changes nothing.
    """

    encode: Callable[[BinaryRequest], bytes]
    decode: Decode
    reads: bool = False


_FORWARDED: Final = {
    "binary_get": _Translation(binary_requests.getting, binary_replies.fetched, reads=True),
    "binary_touch": _Translation(binary_requests.touching, binary_replies.fetched),
    "binary_store": _Translation(binary_requests.storing, binary_replies.stored),
    "binary_delete": _Translation(binary_requests.deleting, binary_replies.deleted),
    "binary_count": _Translation(binary_requests.counting, binary_replies.counted),
}
_REMOVAL: Final = _Translation(binary_requests.removing, binary_replies.refused)
_QUIET_RETRIEVALS: Final = frozenset(
    map(int, (Opcode.GETQ, Opcode.GETKQ, Opcode.GATQ, Opcode.GATKQ))
)
_FLUSHES: Final = frozenset(map(int, (Opcode.FLUSH, Opcode.FLUSHQ)))
_SASL: Final = frozenset(map(int, (Opcode.SASL_LIST_MECHS, Opcode.SASL_AUTH, Opcode.SASL_STEP)))
_LONG_KEY: Final = b"a key with a space, line feed or NUL has at most 186 bytes through a proxy"
_UNREADABLE: Final = b"the node's reply is not one of memcached"


@mypyc_attr(allow_interpreted_subclasses=True)
class BinaryProxyExecutor(ProxyExecutor):
    """Forwards one connection's binary commands, and sends the replies in order of arrival.

    Quiet commands are forwarded like others, so that each has a reply; the client gets only the
    replies that a server would send.

    Args:
        cluster: the nodes.
        admin: carries out commands that are not about keys.
        client: the connection.
        out: the list to which replies are appended.
        recognizer: see `ProxyExecutor`.
    """

    special: ClassVar[Mapping[str, str]] = {
        "binary_admin": "_administer_packet",
        "binary_reject": "_reject_packet",
        "binary_too_large": "_refuse",
        "quit": "quit",
    }

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command."""
        translation = _FORWARDED.get(command.name)
        if translation is None:
            getattr(self, self.special[command.name])(*arguments)
        else:
            self._translate(arguments[0], translation)

    def _translate(self, asked: BinaryRequest, translation: _Translation) -> None:
        if translation.reads and asked.key == CLUSTER_KEY:
            listed = self._admin.discovery.item(with_unique=True)
            self._reply(translation.decode(asked, listed))
            return
        try:
            data = translation.encode(asked)
        except UnsendableKeyError:
            self._reply(packets.failure(asked, Status.INVALID, _LONG_KEY))
            return
        node = self._cluster.node_of(asked.key)
        kind = _TranslatedRead if translation.reads else _Translated
        self._forward(node, data, kind(self, asked, translation.decode))

    def _refuse(self, asked: BinaryRequest) -> None:
        """Refuse a value, and delete the old item if a set would have replaced it."""
        if MODES[asked.opcode]:
            self._reply(packets.failure(asked, Status.TOO_LARGE))
        else:
            self._translate(asked, _REMOVAL)

    def _reject_packet(self, asked: BinaryRequest, status: Status) -> None:
        """Answer a malformed or unknown command."""
        unknown = status is Status.UNKNOWN_COMMAND
        if unknown and asked.opcode == CONFIG_GET:
            reply = self._admin.execute([b"config", b"get", asked.key])
            self._reply(config_packet(asked, reply))
            return
        if unknown and asked.opcode in _SASL and self._admin.authenticates:
            status = Status.AUTH_ERROR  # clients may not authenticate twice
        self._reply(packets.failure(asked, status))

    def _administer_packet(self, asked: BinaryRequest) -> None:
        """NOOP, VERSION, FLUSH, VERBOSITY, STAT, and the reply to QUIT."""
        opcode, value = asked.opcode, b""
        if opcode in _FLUSHES:
            self._flush_nodes(asked)
            return
        if opcode == Opcode.STAT:
            self._reply(self._statistics(asked))
            return
        if opcode == Opcode.VERSION:
            value = SERVER_VERSION.encode()
        elif opcode == Opcode.VERBOSITY:
            self._admin.execute([b"verbosity", b"%d" % asked.numbers[0]])
        self._reply(b"" if opcode in QUIET else packets.reply(asked, value))

    def _statistics(self, asked: BinaryRequest) -> bytes:
        if not asked.key:
            return packets.stat_packets(asked, self._admin.stats())
        if asked.key == b"proxy":
            return packets.stat_packets(asked, self._admin.times())
        reply = self._admin.execute([b"stats", asked.key])
        if reply == replies.RESET:
            return packets.stat_packets(asked, ())
        return binary_replies.failed(asked, reply)

    def _flush_nodes(self, asked: BinaryRequest) -> None:
        data, nodes = binary_requests.flushing(asked), self._cluster.targets
        whole = _FlushPacket(self, len(nodes), asked)
        self._forward_all(whole, [(node, data) for node in nodes])


class _Translated(Request):
    """A binary request to one node.

    Args:
        executor: the client's executor.
        asked: the request.
        decode: returns the client's reply, given the node's.
    """

    __slots__ = ("_asked", "_decode")

    def __init__(self, executor: Origin, asked: BinaryRequest, decode: Decode) -> None:
        super().__init__(executor)
        self._asked = asked
        self._decode = decode

    def answer(self, reply: bytes) -> None:
        """Take the node's reply."""
        try:
            packet = self._decode(self._asked, reply)
        except binary_replies.UNREADABLE:
            self._executor.count_failure()
            packet = packets.failure(self._asked, Status.INTERNAL_ERROR, _UNREADABLE)
        super().answer(packet)

    def fail(self, error: bytes) -> None:
        """Take the error; a quiet retrieval, which is part of a larger one, is a miss."""
        if self._asked.opcode in _QUIET_RETRIEVALS:
            self._executor.count_failed_shards(1)
            super().fail(b"")
        else:
            super().fail(binary_replies.failed(self._asked, error))


class _TranslatedRead(_Translated):
    """A binary request that changes nothing."""

    __slots__ = ()

    reads = True


class _FlushPacket(Flush):
    """A binary request to all nodes.

    Args:
        executor: the client's executor.
        nodes: the number of nodes.
        asked: the request.
    """

    __slots__ = ("_asked",)

    def __init__(self, executor: Origin, nodes: int, asked: BinaryRequest) -> None:
        super().__init__(executor, nodes)
        self._asked = asked

    def combined(self) -> bytes:
        """Return the client's reply."""
        return binary_replies.flushed(self._asked, super().combined())
