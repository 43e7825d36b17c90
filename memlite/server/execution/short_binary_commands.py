"""The binary protocol's commands in their usual form: from the parts of the packet to the reply.

They need no object for the request and no lookup of a method by its name. Commands with a
condition, an unusual key or an error are left to `memlite.server.execution.binary_commands`.
"""

from struct import Struct
from typing import Final

from memlite.core.errors import CommandError, OutOfMemoryError, Shortage
from memlite.engine import MetaEngine
from memlite.memory import FullItem, Item, Part
from memlite.memory.item import END, VIEW_FROM
from memlite.protocol import packets
from memlite.protocol.limits import CLUSTER_KEY
from memlite.protocol.magic import MAGIC_OF_REPLIES
from memlite.protocol.packets import (
    QUIET,
    WITH_KEY,
    BinaryRequest,
    Opcode,
    Status,
    pack_hit,
    pack_number,
    pack_reply,
    pack_success,
)
from memlite.server.execution.command_set import CommandSet

__all__ = ["SHORTCUTS", "ShortBinaryCommands", "failure_of"]

_NEVER_MATCHES: Final = 2**64 - 1  # a cas unique that no item has
_KEY_AT: Final = len(b"VALUE ")
_SPACE: Final = b" "[0]
_LF: Final = 10
_AFTER_VALUE: Final = len(b"\r\n") + END
_NOT_FOUND: Final = int(Status.NOT_FOUND)
_NOT_FOUND_TEXT: Final = b"Not found"
_FLAGS_SIZE: Final = 4
_EXPTIME_SIZE: Final = 4
_COUNT_SIZE: Final = 20
_NO_FLAGS: Final = bytes(8)  # nor an exptime
_flags_and_exptime = Struct(">II").unpack
_delta = Struct(">Q12x").unpack
_DECREMENTS: Final = frozenset(map(int, (Opcode.DECREMENT, Opcode.DECREMENTQ)))
_APPENDS: Final = frozenset(map(int, (Opcode.APPEND, Opcode.APPENDQ)))

_SHORTAGE: Final = {
    Shortage.ITEM: b"Out of memory allocating item",
    Shortage.NUMBER: b"Out of memory incrementing value",
    Shortage.NEW_NUMBER: b"Out of memory allocating new item",
}


def failure_of(request: BinaryRequest, error: CommandError) -> bytes:
    """Return the reply to a command that could not be carried out."""
    if isinstance(error, OutOfMemoryError):
        return packets.failure(request, Status.OUT_OF_MEMORY, _SHORTAGE[error.shortage])
    return packets.failure(request, Status.INTERNAL_ERROR, str(error).encode())


class ShortBinaryCommands(CommandSet):
    """Shortcuts of `memlite.protocol.Handler`, for packets with a key.

    Each takes the opcode, the opaque and the cas unique of a packet, its extras, key and value. It
    returns False if the engine has no shortcut for it, or the packet is unusual. In that case,
    nothing has been done, and the general path handles the command.

    Args:
        engine: holds the items.
        out: the list to which replies are appended.
    """

    __slots__ = ("_cas", "_engine")

    def __init__(self, engine: MetaEngine, out: list[Part]) -> None:
        super().__init__(out)
        self._engine = engine
        self._cas = engine.cas_enabled

    def _unique(self, item: Item) -> int:
        """Return the cas unique to show in a reply."""
        if not self._cas:
            return 0
        if isinstance(item, FullItem) and isinstance(item.extra, int) and item.extra:
            return item.extra  # the version, without a call
        # With write-back, an item has no version until it has been stored. Replying 0 would make
        # the client's next conditional change unconditional.
        return self._engine.unique(item) or _NEVER_MATCHES

    # All shortcuts have the same signature, even if a command does not use all parameters.

    def short_get(
        self, opcode: int, opaque: int, cas: int, extras: bytes, key: bytes, value: bytes
    ) -> bool:
        """GET, GETK and their quiet variants."""
        if extras or value or key == CLUSTER_KEY:
            return False
        item = self._engine.fetch(key)
        if item is None:
            if opcode not in QUIET:
                self._not_found(opcode, opaque, key)
            return True
        wire = item.wire
        length = len(key)
        # The stored reply has no key if the text protocol cannot express it.
        named = wire[_KEY_AT] != _SPACE
        usual = named and wire[_KEY_AT + length : _KEY_AT + length + 3] == b" 0 "
        flags = 0 if usual else item.flags
        begin = wire.index(b"\n") + 1
        if opcode not in WITH_KEY:
            length = 0
        size = _FLAGS_SIZE + length + len(wire) - begin - _AFTER_VALUE
        unique = self._unique(item)
        head = pack_hit(
            MAGIC_OF_REPLIES, opcode, length, _FLAGS_SIZE, 0, size, opaque, unique, flags
        )
        if length:
            head += key
        if len(wire) < VIEW_FROM:
            self.out.append(head + wire[begin:-_AFTER_VALUE])
        else:
            self.out += (head, item.value_part())
        return True

    def _not_found(self, opcode: int, opaque: int, key: bytes) -> None:
        length = len(key) if opcode in WITH_KEY else 0
        text = key if length else _NOT_FOUND_TEXT
        head = pack_reply(MAGIC_OF_REPLIES, opcode, length, 0, _NOT_FOUND, len(text), opaque, 0)
        self.out.append(head + text)

    def short_touch(
        self, opcode: int, opaque: int, cas: int, extras: bytes, key: bytes, value: bytes
    ) -> bool:
        """TOUCH of an existing item."""
        if len(extras) != _EXPTIME_SIZE or value:
            return False
        item = self._engine.retime_plain(key, int.from_bytes(extras))
        if item is None:
            return False
        unique = self._unique(item)
        self.out.append(
            pack_hit(
                MAGIC_OF_REPLIES, opcode, 0, _FLAGS_SIZE, 0, _FLAGS_SIZE, opaque, unique, item.flags
            )
        )
        return True

    def short_set(
        self, opcode: int, opaque: int, cas: int, extras: bytes, key: bytes, value: bytes
    ) -> bool:
        """SET and SETQ, unconditionally."""
        engine = self._engine
        if (
            cas
            or len(extras) != len(_NO_FLAGS)
            or len(value) > engine.safe_size
            or _SPACE in key  # an integer: searching for bytes takes ten times as long
            or _LF in key
        ):
            return False
        flags, exptime = (0, 0) if extras == _NO_FLAGS else _flags_and_exptime(extras)
        try:
            item = engine.set_for_unique(key, flags, exptime, value)
        except CommandError as error:
            self.out.append(failure_of(BinaryRequest(opcode, key, opaque, cas), error))
            return True
        if item is not None and opcode not in QUIET:
            self._succeed(opcode, opaque, item)
        return True

    def _succeed(self, opcode: int, opaque: int, item: Item) -> None:
        extra = item.extra if isinstance(item, FullItem) else 0
        unique = extra if self._cas and isinstance(extra, int) and extra else self._unique(item)
        self.out.append(pack_success(MAGIC_OF_REPLIES, opcode, opaque, unique))

    def short_join(
        self, opcode: int, opaque: int, cas: int, extras: bytes, key: bytes, value: bytes
    ) -> bool:
        """APPEND, PREPEND and their quiet variants, unconditionally, to an existing item."""
        if cas or extras:
            return False
        try:
            if opcode in _APPENDS:
                item = self._engine.join(key, b"", value)
            else:
                item = self._engine.join(key, value, b"")
        except CommandError as error:
            self.out.append(failure_of(BinaryRequest(opcode, key, opaque, cas), error))
            return True
        if item is None:
            return False
        if opcode not in QUIET:
            self._succeed(opcode, opaque, item)
        return True

    def short_count(
        self, opcode: int, opaque: int, cas: int, extras: bytes, key: bytes, value: bytes
    ) -> bool:
        """INCREMENT, DECREMENT and their quiet variants, if the number keeps its digit count."""
        if cas or value or len(extras) != _COUNT_SIZE:
            return False
        (delta,) = _delta(extras)
        counted = self._engine.count_in_place(key, delta, opcode in _DECREMENTS)
        if counted is None:
            return False
        if opcode not in QUIET:
            number, _, item = counted
            self.out.append(
                pack_number(MAGIC_OF_REPLIES, opcode, 8, opaque, self._unique(item), number)
            )
        return True

    def short_delete(
        self, opcode: int, opaque: int, cas: int, extras: bytes, key: bytes, value: bytes
    ) -> bool:
        """DELETE and DELETEQ, unconditionally."""
        engine = self._engine
        if cas or extras or value or engine.observed:
            return False
        if not engine.delete(key):
            self._not_found(opcode, opaque, key)
        elif opcode not in QUIET:
            self.out.append(pack_reply(MAGIC_OF_REPLIES, opcode, 0, 0, 0, 0, opaque, 0))
        return True


SHORTCUTS: Final = {
    int(opcode): shortcut
    for shortcut, opcodes in (
        (ShortBinaryCommands.short_get, (Opcode.GET, Opcode.GETQ, Opcode.GETK, Opcode.GETKQ)),
        (ShortBinaryCommands.short_touch, (Opcode.TOUCH,)),
        (ShortBinaryCommands.short_set, (Opcode.SET, Opcode.SETQ)),
        (
            ShortBinaryCommands.short_join,
            (Opcode.APPEND, Opcode.APPENDQ, Opcode.PREPEND, Opcode.PREPENDQ),
        ),
        (
            ShortBinaryCommands.short_count,
            (Opcode.INCREMENT, Opcode.INCREMENTQ, Opcode.DECREMENT, Opcode.DECREMENTQ),
        ),
        (ShortBinaryCommands.short_delete, (Opcode.DELETE, Opcode.DELETEQ)),
    )
    for opcode in opcodes
}
"""The shortcuts by opcode."""
