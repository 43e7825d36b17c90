"""The binary protocol's handler: each command becomes engine calls and a reply packet."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from memlite import __version__
from memlite.backends import Item, Part, nameable
from memlite.backends.item import VIEW_FROM
from memlite.engine import MetaEngine, Mode, Outcome
from memlite.errors import CommandError, OutOfMemoryError
from memlite.protocol import packets
from memlite.protocol.packets import QUIET, BinaryRequest, Opcode, Status

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["BinaryCommands", "failure_of"]

_FITS_NOTHING: Final = 2**64 - 1  # a cas unique that no item has
_DO_NOT_CREATE: Final = 0xFFFFFFFF  # as the exptime of increment and decrement

# Tables by plain numbers: looking a member of an enum up costs more than all else here.
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
_WITH_KEY: Final = frozenset(map(int, (Opcode.GETK, Opcode.GETKQ, Opcode.GATK, Opcode.GATKQ)))
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
# Why add and replace did not store, in this protocol.
_NOT_STORED: Final = {Mode.ADD: Status.EXISTS, Mode.REPLACE: Status.NOT_FOUND}


def failure_of(request: BinaryRequest, error: CommandError) -> bytes:
    """Return the reply to a command that could not be carried out."""
    if isinstance(error, OutOfMemoryError):
        return packets.failure(request, Status.OUT_OF_MEMORY, b"Out of memory allocating item")
    text = error.reply.removeprefix(b"SERVER_ERROR ").rstrip()
    return packets.failure(request, Status.INTERNAL_ERROR, text)


class BinaryCommands:
    """Answers a connection's commands at once.

    Implements `memlite.protocol.BinaryHandler`. Replies gather in `out`; the connection sends all
    those of one read together.

    Args:
        engine: holds the items.
        server: knows the commands that are not about keys.
        connection: whose commands they are.
        out: where replies are appended: bytes, or what returns them once the backend has given an
            item its version.

    Attributes:
        out: as above.
    """

    __slots__ = ("_admin", "_cas", "_connection", "_engine", "out")

    def __init__(
        self, engine: MetaEngine, server: "Server", connection: "Connection", out: list[Part]
    ) -> None:
        self._engine = engine
        self._cas = engine.cas_enabled
        self._admin = server.admin
        self._connection = connection
        self.out = out

    # Reading

    def binary_get(self, request: BinaryRequest) -> None:
        """GET, with the key in the reply GETK, and their quiet variants."""
        item = self._engine.fetch(request.key)
        if item is None:
            self._miss(request)
        else:
            key = request.key if request.opcode in _WITH_KEY else b""
            head = packets.hit_head(request, item.flags, key, item.size, self._unique(item))
            if len(item.wire) < VIEW_FROM:
                self.out.append(head + item.value)
            else:
                self.out += (head, item.value_view())

    def binary_touch(self, request: BinaryRequest) -> None:
        """TOUCH, and GAT and its variants: get and touch."""
        (exptime,) = request.numbers
        item = self._engine.fetch_and_touch(request.key, exptime)
        if item is None:
            self._miss(request)
        elif request.opcode == _TOUCH:
            self._append(partial(packets.hit_head, request, item.flags, b"", 0), item)
        else:
            key = request.key if request.opcode in _WITH_KEY else b""
            self._append(partial(packets.hit_head, request, item.flags, key, item.size), item)
            self.out.append(item.value_view())

    def _miss(self, request: BinaryRequest) -> None:
        if request.opcode in _WITH_KEY and request.opcode not in QUIET:
            self.out.append(packets.miss_with_key(request))
        elif request.opcode not in QUIET:
            self.out.append(_not_found(request))

    def _append(self, spell: Callable[[int], bytes], item: Item) -> None:
        """Append what `spell` returns for the cas unique of an item that was changed."""
        if not self._engine.unnumbered(item):
            self.out.append(spell(self._unique(item)))
        else:
            # It is about to be stored, and has none yet; see `memlite.server.deferred`.
            self.out.append(cast("Part", partial(self._spell, spell, item)))

    def _spell(self, spell: Callable[[int], bytes], item: Item) -> bytes:
        return spell(self._unique(item))

    def _unique(self, item: Item) -> int:
        """Return the cas unique to show."""
        # Write-back holds items that have no version before they are stored. Showing 0 would turn
        # the change on a condition that follows into one without.
        return (self._engine.unique(item) or _FITS_NOTHING) if self._cas else 0

    # Storing

    def binary_store(self, request: BinaryRequest) -> None:
        """SET, ADD, REPLACE, APPEND, PREPEND and their quiet variants."""
        flags, exptime = request.numbers or (0, 0)
        key, opcode = request.key, request.opcode
        engine = self._engine
        mode = _MODES[opcode]
        try:
            if opcode in _SETS and not request.cas and nameable(key):
                # The most frequent of all, by the shortest way.
                engine.set(key, flags, exptime, request.value)
                outcome, item = Outcome.STORED, engine.table.get(key)
            else:
                compare = (request.cas or None) if engine.cas_enabled else None
                if compare and mode in _NOT_STORED:
                    mode = Mode.SET  # if what is there is to be that, what else could it be?
                outcome, item = engine.store(
                    mode, key, flags, exptime, request.value, compare=compare
                )
        except CommandError as error:
            self.out.append(failure_of(request, error))
            return
        if outcome is not Outcome.STORED:
            status = _STATUS[outcome]
            if status is Status.NOT_STORED:
                status = _NOT_STORED.get(mode, status)
            self.out.append(packets.failure(request, status))
        elif item is not None and opcode not in QUIET:
            if not engine.unnumbered(item):
                self.out.append(packets.reply(request, b"", self._unique(item)))
            else:
                self._append(partial(packets.reply, request, b""), item)

    def binary_too_large(self, request: BinaryRequest) -> None:
        """Refuse a value; set, which cannot keep its promise, also removes the old one."""
        self._engine.refuse_large(request.key, removes=request.opcode in _SETS)
        self.out.append(packets.failure(request, Status.TOO_LARGE))

    # Changing and removing

    def binary_delete(self, request: BinaryRequest) -> None:
        """DELETE and DELETEQ."""
        outcome = self._engine.remove(request.key, compare=request.cas or None, command="delete")
        if outcome is Outcome.EXISTS:
            self._engine.counters.delete_misses -= 1  # which memcached counts for meta alone
        if outcome is not Outcome.DELETED:
            self.out.append(packets.failure(request, _STATUS[outcome]))
        elif not request.quiet:
            self.out.append(packets.reply(request))

    def binary_count(self, request: BinaryRequest) -> None:
        """INCREMENT, DECREMENT and their quiet variants."""
        delta, initial, exptime = request.numbers
        try:
            counted = self._engine.count(
                request.key,
                delta,
                down=request.opcode in _DECREMENTS,
                compare=request.cas or None,
                initial=None if exptime == _DO_NOT_CREATE else initial,
                exptime=exptime,
            )
        except CommandError:
            new = self._engine.peek(request.key) is None
            what = b"allocating new item" if new else b"incrementing value"
            text = b"Out of memory " + what
            self.out.append(packets.failure(request, Status.OUT_OF_MEMORY, text))
            return
        item = counted.item
        if item is None:
            self.out.append(packets.failure(request, _STATUS[counted.outcome]))
        elif not request.quiet:
            self._append(partial(packets.reply, request, counted.number.to_bytes(8)), item)

    # Everything else

    def binary_admin(self, request: BinaryRequest) -> None:
        """NOOP, VERSION, FLUSH, VERBOSITY, STAT, and the answer to QUIT."""
        opcode = request.opcode
        if opcode == Opcode.STAT:
            self.out.append(self._statistics(request))
            return
        value = b""
        if opcode == Opcode.VERSION:
            value = __version__.encode()
        elif opcode == Opcode.VERBOSITY:
            self._admin.set_verbosity(request.numbers[0])
        elif opcode in _FLUSHES:
            if not self._admin.flushes:
                self.out.append(packets.failure(request, Status.AUTH_ERROR))
                return
            self._engine.counters.cmd_flush += 1
            self._admin.flush(*request.numbers or (0,))
        if not request.quiet:
            self.out.append(packets.reply(request, value))

    def _statistics(self, request: BinaryRequest) -> bytes:
        admin, name = self._admin, request.key
        # Of these three memcached looks at the beginning only.
        if name.startswith(b"reset"):
            admin.reset()
            return packets.stat_packets(request, ())
        if name.startswith(b"settings"):
            name = b"settings"
        elif name.startswith(b"detail"):
            return self._detail(request)
        group = admin.group(name, self._connection)
        if group is not None:
            return packets.stat_packets(request, group)
        scan = admin.scan(name)
        if scan is not None:
            spell = partial(packets.stat_packets, request)
            answer = admin.answer_scan(scan, spell, self._connection)
            return packets.failure(request, Status.INVALID) if answer is None else answer
        return _not_found(request)

    def _detail(self, request: BinaryRequest) -> bytes:
        rest = request.key.removeprefix(b"detail")
        asked = [what for what in (b"dump", b"on", b"off") if rest.startswith(b" " + what)]
        if not (asked and self._admin.may_dump):
            return _not_found(request)
        dump = self._admin.detail(asked[0])
        return packets.stat_packets(request, [("detailed", dump)] if dump else ())

    def binary_reject(self, request: BinaryRequest, status: Status) -> None:
        """Answer what is malformed or unknown."""
        unknown = status is Status.UNKNOWN_COMMAND
        if unknown and request.opcode in _SASL and self._admin.authenticates:
            status = Status.AUTH_ERROR  # it has authenticated, and as in memcached it may not again
        self.out.append(packets.failure(request, status))

    def quit(self) -> None:
        """Close the connection once replies are out."""
        self._connection.close()


def _not_found(request: BinaryRequest) -> bytes:
    return packets.failure(request, Status.NOT_FOUND)
