"""The binary protocol's commands: calls the engine and renders reply packets."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from memlite.core.errors import CommandError
from memlite.core.version import SERVER_VERSION
from memlite.engine import MetaEngine, Mode, Outcome
from memlite.memory import Item, Part, nameable
from memlite.memory.item import VIEW_FROM
from memlite.protocol import packets
from memlite.protocol.commands import Arguments
from memlite.protocol.discovery import CLUSTER_KEY, CONFIG_GET, config_packet, item_packet
from memlite.protocol.handler import Shortcuts
from memlite.protocol.packets import (
    DO_NOT_CREATE,
    QUIET,
    WITH_KEY,
    BinaryRequest,
    Opcode,
    Status,
)
from memlite.server.execution.command_set import Later
from memlite.server.execution.short_binary_commands import (
    SHORTCUTS,
    ShortBinaryCommands,
    failure_of,
)
from memlite.server.interfaces import Client

if TYPE_CHECKING:
    from memlite.server.admin.admin import Admin  # imported lazily, on the first such command

__all__ = ["BinaryCommands"]

# Tables keyed by plain ints, because enum lookups would dominate the cost of a command.
_MODES: Final = {
    int(opcode): mode
    for mode, opcodes in (
        (Mode.SET, (Opcode.SET, Opcode.SETQ)),
        (Mode.ADD, (Opcode.ADD, Opcode.ADDQ)),
        (Mode.REPLACE, (Opcode.REPLACE, Opcode.REPLACEQ)),
        (Mode.APPEND, (Opcode.APPEND, Opcode.APPENDQ)),
        (Mode.PREPEND, (Opcode.PREPEND, Opcode.PREPENDQ)),
    )
    for opcode in opcodes
}
_SETS: Final = frozenset(map(int, (Opcode.SET, Opcode.SETQ)))
_TOUCH: Final = int(Opcode.TOUCH)
_DECREMENTS: Final = frozenset((Opcode.DECREMENT, Opcode.DECREMENTQ))
_SASL: Final = frozenset((Opcode.SASL_LIST_MECHS, Opcode.SASL_AUTH, Opcode.SASL_STEP))
_FLUSHES: Final = frozenset((Opcode.FLUSH, Opcode.FLUSHQ))

_STATUS: Final = {
    Outcome.NOT_STORED: Status.NOT_STORED,
    Outcome.EXISTS: Status.EXISTS,
    Outcome.NOT_FOUND: Status.NOT_FOUND,
    Outcome.NON_NUMERIC: Status.NON_NUMERIC,
}
# The status of an add or replace that did not store.
_NOT_STORED: Final = {Mode.ADD: Status.EXISTS, Mode.REPLACE: Status.NOT_FOUND}


class BinaryCommands(ShortBinaryCommands):
    """The binary protocol's commands.

    A quiet command that fails gets a reply like any other.

    Args:
        engine: holds the items.
        admin: returns the object that carries out administrative commands.
        client: the client that sends the commands.
        out: the list to which replies are appended.
    """

    __slots__ = ("_admin", "_client")

    shortcuts: ClassVar[Shortcuts] = SHORTCUTS

    def __init__(
        self, engine: MetaEngine, admin: "Callable[[], Admin]", client: Client, out: list[Part]
    ) -> None:
        super().__init__(engine, out)
        self._admin = admin
        self._client = client

    def error_reply(self, error: CommandError, arguments: Arguments) -> bytes:
        """Return the reply to a command that could not be carried out."""
        request = arguments[0] if arguments else None
        return failure_of(request, error) if isinstance(request, BinaryRequest) else b""

    # Reading

    def binary_get(self, request: BinaryRequest) -> None:
        """GET, GETK (with the key in the reply), and their quiet variants."""
        item = self._engine.fetch(request.key)
        if item is None:
            listed = self._nodes(request) if request.key == CLUSTER_KEY else b""
            if listed:
                self.out.append(listed)
            else:
                self._miss(request)
        else:
            key = request.key if request.opcode in WITH_KEY else b""
            unique = self._unique(item)
            if len(item.wire) < VIEW_FROM:
                value, flags, _, _ = item.content()
                self.out.append(packets.hit_head(request, flags, key, len(value), unique) + value)
            else:
                head = packets.hit_head(request, item.flags, key, item.size, unique)
                self.out += (head, item.value_part())

    def _nodes(self, request: BinaryRequest) -> bytes:
        """Return the reply to a retrieval of `CLUSTER_KEY`, for which there is no item."""
        reply = self._admin().execute([b"config", b"get", b"cluster"], False, self._client)
        return item_packet(request, request.key if request.opcode in WITH_KEY else b"", reply)

    def binary_touch(self, request: BinaryRequest) -> Later | None:
        """TOUCH, and GAT and its variants: get and touch."""
        (exptime,) = request.numbers
        item = self._engine.fetch_and_touch(request.key, exptime)
        if item is None:
            self._miss(request)
            return None
        return self._reply(partial(self._render_touched, request, item), item)

    def _render_touched(self, request: BinaryRequest, item: Item) -> tuple[Part, ...]:
        unique = self._unique(item)
        if request.opcode == _TOUCH:
            return (packets.hit_head(request, item.flags, b"", 0, unique),)
        key = request.key if request.opcode in WITH_KEY else b""
        return packets.hit_head(request, item.flags, key, item.size, unique), item.value_part()

    def _miss(self, request: BinaryRequest) -> None:
        reply = packets.miss(request)
        if reply:
            self.out.append(reply)

    def _reply(self, render: Later, item: Item) -> Later | None:
        """Append the result of `render`, or return `render` if the cas unique is not known yet."""
        if self._engine.awaits_version(item):
            return render
        self.out += render()
        return None

    # Storing

    def binary_store(self, request: BinaryRequest) -> Later | None:
        """SET, ADD, REPLACE, APPEND, PREPEND and their quiet variants."""
        flags, exptime = request.numbers or (0, 0)
        key, opcode = request.key, request.opcode
        engine = self._engine
        mode = _MODES[opcode]
        try:
            item: Item | None
            if opcode in _SETS and not request.cas and nameable(key):
                # Fast path for the most frequent case.
                item = engine.set_for_unique(key, flags, exptime, request.value)
                outcome = Outcome.STORED
            else:
                compare = (request.cas or None) if engine.cas_enabled else None
                if compare and mode in _NOT_STORED:
                    mode = Mode.SET  # comparing cas uniques already requires an item
                outcome, item = engine.store(
                    mode, key, flags, exptime, request.value, compare=compare
                )
        except CommandError as error:
            self.out.append(failure_of(request, error))
            return None
        if outcome is not Outcome.STORED:
            status = _STATUS[outcome]
            if status is Status.NOT_STORED:
                status = _NOT_STORED.get(mode, status)
            self.out.append(packets.failure(request, status))
        elif item is not None and opcode not in QUIET:
            if engine.awaits_version(item):
                return partial(self._render_stored, request, item)
            self.out.append(packets.reply(request, b"", self._unique(item)))
        return None

    def _render_stored(self, request: BinaryRequest, item: Item, value: bytes = b"") -> tuple[Part]:
        return (packets.reply(request, value, self._unique(item)),)

    def binary_too_large(self, request: BinaryRequest) -> None:
        """Refuse a value that is too large; a set also removes the old item, which is now stale."""
        self._engine.refuse_large(request.key, removes=request.opcode in _SETS)
        self.out.append(packets.failure(request, Status.TOO_LARGE))

    # Changing and removing

    def binary_delete(self, request: BinaryRequest) -> None:
        """DELETE and DELETEQ."""
        outcome = self._engine.remove(request.key, compare=request.cas or None, command="delete")
        if outcome is Outcome.EXISTS:
            self._engine.counters.delete_misses -= 1  # memcached counts this for meta only
        if outcome is not Outcome.DELETED:
            self.out.append(packets.failure(request, _STATUS[outcome]))
        elif not request.quiet:
            self.out.append(packets.reply(request))

    def binary_count(self, request: BinaryRequest) -> Later | None:
        """INCREMENT, DECREMENT and their quiet variants."""
        delta, initial, exptime = request.numbers
        try:
            counted = self._engine.count(
                request.key,
                delta,
                down=request.opcode in _DECREMENTS,
                compare=request.cas or None,
                initial=None if exptime == DO_NOT_CREATE else initial,
                exptime=exptime,
            )
        except CommandError as error:
            self.out.append(failure_of(request, error))
            return None
        item = counted.item
        if item is None:
            self.out.append(packets.failure(request, _STATUS[counted.outcome]))
        elif not request.quiet:
            number = counted.number.to_bytes(8)
            if not self._engine.awaits_version(item):
                self.out.append(packets.reply(request, number, self._unique(item)))
                return None
            return self._reply(partial(self._render_stored, request, item, number), item)
        return None

    # Everything else

    def binary_admin(self, request: BinaryRequest) -> None:
        """NOOP, VERSION, FLUSH, VERBOSITY, STAT, and the reply to QUIT."""
        opcode = request.opcode
        if opcode == Opcode.STAT:
            self.out.append(self._statistics(request))
            return
        value = b""
        if opcode == Opcode.VERSION:
            value = SERVER_VERSION.encode()
        elif opcode == Opcode.VERBOSITY:
            self._admin().set_verbosity(request.numbers[0])
        elif opcode in _FLUSHES:
            if not self._admin().flushes:
                self.out.append(packets.failure(request, Status.AUTH_ERROR))
                return
            self._engine.counters.cmd_flush += 1
            self._admin().flush(*request.numbers or (0,))
        if not request.quiet:
            self.out.append(packets.reply(request, value))

    def _statistics(self, request: BinaryRequest) -> bytes:
        admin, name = self._admin(), request.key
        # memcached matches these three by their prefix only.
        if name.startswith(b"reset"):
            admin.reset()
            return packets.stat_packets(request, ())
        if name.startswith(b"settings"):
            name = b"settings"
        elif name.startswith(b"detail"):
            return self._detail(request)
        group = admin.group(name, self._client)
        if group is not None:
            return packets.stat_packets(request, group)
        scan = admin.scan(name)
        if scan is not None:
            encode = partial(packets.stat_packets, request)
            answer = admin.answer_scan(scan, encode, self._client)
            return packets.failure(request, Status.INVALID) if answer is None else answer
        return _not_found(request)

    def _detail(self, request: BinaryRequest) -> bytes:
        rest = request.key.removeprefix(b"detail")
        found = [word for word in (b"dump", b"on", b"off") if rest.startswith(b" " + word)]
        if not (found and self._admin().may_dump):
            return _not_found(request)
        dump = self._admin().detail(found[0])
        return packets.stat_packets(request, [("detailed", dump)] if dump else ())

    def binary_reject(self, request: BinaryRequest, status: Status) -> None:
        """Answer a malformed or unknown command."""
        unknown = status is Status.UNKNOWN_COMMAND
        if unknown and request.opcode == CONFIG_GET:
            words = [b"config", b"get", request.key]
            reply = self._admin().execute(words, False, self._client)
            self.out.append(config_packet(request, reply))
            return
        if unknown and request.opcode in _SASL and self._admin().authenticates:
            status = Status.AUTH_ERROR  # as in memcached, clients may not authenticate twice
        self.out.append(packets.failure(request, status))

    def quit(self) -> None:
        """Close the connection once replies are sent."""
        self._client.close()


def _not_found(request: BinaryRequest) -> bytes:
    return packets.failure(request, Status.NOT_FOUND)
