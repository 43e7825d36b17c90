"""The binary protocol's parser: bytes in, handler calls out."""

from struct import Struct
from typing import Final, NamedTuple

from memlite.core.errors import ProtocolViolation
from memlite.protocol import binary_table as table
from memlite.protocol.commands import Command
from memlite.protocol.handler import Handler
from memlite.protocol.limits import Limits, item_total
from memlite.protocol.magic import MAGIC
from memlite.protocol.packets import HEADER, BinaryRequest, Opcode, Status
from memlite.protocol.pieces import Pieces

__all__ = ["BinaryParser"]

# Magic, opcode, key length, extras length, total body length, opaque, cas unique. The data type and
# the virtual bucket in between are ignored.
_header = Struct(">BBHBxxxIIQ").unpack_from
_MAX_BODY_SIZE: Final = 1024 * 1024 * 1024
_NO_REQUEST: Final = "not a binary request"


class _Layout(NamedTuple):
    """The packet layout of a command. A packet with another layout ends the connection.

    Attributes:
        command: the command's table row, None if there is no such command.
        numbers: the format of the extras.
        extras: the permitted lengths of the extras, in bytes.
        key: whether there must be a key; None if it is optional.
        value: whether a value follows. If None, the packet has no value, and any extra bytes are
            parsed as the next packet, as in memcached.
    """

    command: Command | None
    numbers: Struct = Struct("")
    extras: tuple[int, ...] | range = (0,)
    key: bool | None = True
    value: bool | None = False


_NUMBER: Final = Struct(">I")
_GET: Final = _Layout(table.GET)
_EXTRAS: Final = 8  # bytes of the extras that come before a value, if there are any
_STORE: Final = _Layout(table.STORE, Struct(">II"), (_EXTRAS,), value=True)
_JOIN: Final = _Layout(table.STORE, value=True)
_DELETE: Final = _Layout(table.DELETE)
_COUNT: Final = _Layout(table.COUNT, Struct(">QQI"), (20,))
_TOUCH: Final = _Layout(table.TOUCH, _NUMBER, (4,), value=None)
_STAT: Final = _Layout(table.ADMIN, key=None, value=None)
_FLUSH: Final = _Layout(table.ADMIN, _NUMBER, (0, 4), key=False)
_VERBOSITY: Final = _Layout(table.ADMIN, _NUMBER, (4,), key=False)
_PLAIN: Final = _Layout(table.ADMIN, key=False)
_QUIT: Final = _Layout(table.ADMIN, key=False)
_NO_MECHANISMS: Final = _Layout(None, key=False)
_NO_AUTHENTICATION: Final = _Layout(None, value=True)
_UNKNOWN: Final = _Layout(None, extras=range(256), key=None, value=True)

_KNOWN: Final[dict[int, _Layout]] = {
    Opcode.GET: _GET,
    Opcode.GETQ: _GET,
    Opcode.GETK: _GET,
    Opcode.GETKQ: _GET,
    Opcode.SET: _STORE,
    Opcode.SETQ: _STORE,
    Opcode.ADD: _STORE,
    Opcode.ADDQ: _STORE,
    Opcode.REPLACE: _STORE,
    Opcode.REPLACEQ: _STORE,
    Opcode.APPEND: _JOIN,
    Opcode.APPENDQ: _JOIN,
    Opcode.PREPEND: _JOIN,
    Opcode.PREPENDQ: _JOIN,
    Opcode.DELETE: _DELETE,
    Opcode.DELETEQ: _DELETE,
    Opcode.INCREMENT: _COUNT,
    Opcode.INCREMENTQ: _COUNT,
    Opcode.DECREMENT: _COUNT,
    Opcode.DECREMENTQ: _COUNT,
    Opcode.TOUCH: _TOUCH,
    Opcode.GAT: _TOUCH,
    Opcode.GATQ: _TOUCH,
    Opcode.GATK: _TOUCH,
    Opcode.GATKQ: _TOUCH,
    Opcode.STAT: _STAT,
    Opcode.FLUSH: _FLUSH,
    Opcode.FLUSHQ: _FLUSH,
    Opcode.VERBOSITY: _VERBOSITY,
    Opcode.VERSION: _PLAIN,
    Opcode.NOOP: _PLAIN,
    Opcode.QUIT: _QUIT,
    Opcode.QUITQ: _QUIT,
    Opcode.SASL_LIST_MECHS: _NO_MECHANISMS,
    Opcode.SASL_AUTH: _NO_AUTHENTICATION,
    Opcode.SASL_STEP: _NO_AUTHENTICATION,
}
_LAYOUTS: Final = tuple(_KNOWN.get(opcode, _UNKNOWN) for opcode in range(256))


class BinaryParser:
    """Finds packets in a stream and calls the handler's methods, in order.

    A packet is a 24-byte header with the lengths of the parts that follow: extras (numbers), key
    and value. An incomplete packet is kept for the next `receive`: first everything before the
    value, at most 66 KB, then the value in the pieces in which it arrives.

    Args:
        limits: the limits on what the peer may send.
        keep_requests: whether to set `request`, for handlers that forward commands.

    Attributes:
        request: the packet that the handler is being called for, excluding a refused value.
        in_value: whether a storage command is waiting for the rest of its value.
    """

    __slots__ = (
        "_backlog",
        "_backlog_position",
        "_commands_per_turn",
        "_head",
        "_keeps",
        "_key_length",
        "_limits",
        "_pieces",
        "_safe_size",
        "_store",
        "_swallow",
        "_unfinished",
        "request",
        "took_large_value",
    )

    def __init__(self, limits: Limits, *, keep_requests: bool = False) -> None:
        self._limits = limits
        self._keeps = keep_requests
        self.request = b""
        self._commands_per_turn = range(limits.commands_per_read)
        self._key_length = limits.key_length
        # A value of up to this many bytes fits regardless of its key and flags.
        self._safe_size = limits.item_size - item_total(limits.key_length, 1, 0)
        self._unfinished = False  # whether any of the following is non-empty
        # Input left over when a turn ended starts at this position.
        self._backlog = b""
        self._backlog_position = 0
        self._head = b""  # an incomplete packet up to its value
        self._store: BinaryRequest | None = None  # a request waiting for its value
        self._pieces: Pieces | None = None  # the part of that value that has arrived
        self._swallow = 0  # bytes of a refused value still to arrive
        self.took_large_value = False  # whether `reserve` has been called

    @property
    def backlog(self) -> int:
        """Bytes of memory taken by input left over from the last turn."""
        return len(self._backlog)

    @property
    def in_value(self) -> bool:
        """Whether a storage command is waiting for the rest of its value."""
        return self._pieces is not None or self._swallow > 0

    @property
    def in_command(self) -> bool:
        """Whether part of a command has arrived and the rest has not."""
        return self._unfinished

    @property
    def missing_of_large(self) -> int:
        """Bytes of a value still to arrive, without the last two; see `reserve`."""
        return 0 if self._pieces is None else self._pieces.missing_of_large

    def reserve(self) -> memoryview:
        """Return memory for `missing_of_large` bytes; see `TextParser.reserve`."""
        assert self._pieces is not None  # noqa: S101 - the caller has checked
        memory = self._pieces.reserve()
        self.took_large_value = True
        return memory

    def keep_unparsed(self, part: bytes, missing: int) -> None:
        """Keep a packet without parsing it until the missing bytes have arrived.

        Args:
            part: the packet as far as it has arrived, which must be more than its header.
            missing: how many bytes complete it.
        """
        self._unfinished = True
        self._pieces = Pieces(missing, part, joins=True)

    def take_back(self, data: bytes) -> bytes:
        """Forget an incomplete packet that `data` completes, and return both; else return nothing.

        A refused value is not included. A packet that arrives a few bytes at a time and a long
        value are left to `receive`, the latter unless `reserve` was called for it.
        """
        if self._head:
            if len(data) < HEADER or _is_partial(self._head + data, 0):
                return b""
            whole = self._head + data
            self._head = b""
        elif self._pieces is not None:
            whole = self._pieces.whole(data)
            if not whole:
                return b""
            self._store = self._pieces = None
        elif 0 < self._swallow < len(data):
            whole = data[self._swallow :]
            self._swallow = 0
        else:
            return b""
        self._unfinished = False
        return whole

    def begins_command(self, data: bytes, position: int) -> bool:
        """Return whether there is enough input at `position` to continue in the next turn."""
        return not _is_partial(data, position)

    def receive(self, data: bytes, handler: Handler, served: int = 0) -> bool:
        """Take bytes from the peer and carry out the commands they complete.

        Args:
            data: the bytes that arrived; empty to continue after True was returned.
            handler: carries out the commands.
            served: commands before these that have been carried out in this turn.

        Returns:
            True if `Limits.commands_per_read` commands were carried out and more are buffered:
            call again with ``b""`` once other connections have had their turn.

        Raises:
            ProtocolViolation: the connection must be closed: the bytes are not a request.
        """
        position = 0
        if self._unfinished:
            data, position, completed = self._resume(data, handler)
            served += completed
        length = len(data)
        keeps = self._keeps
        shortcuts = handler.shortcuts
        key_length = self._key_length
        for _ in self._commands_per_turn[served:] if served else self._commands_per_turn:
            extras_at = position + HEADER
            if extras_at > length:
                break
            magic, opcode, key_size, extras_size, body, opaque, cas = _header(data, position)
            if magic != MAGIC:
                raise ProtocolViolation(_NO_REQUEST)
            key_at = extras_at + extras_size
            value_at = key_at + key_size
            end = extras_at + body
            shortcut = shortcuts.get(opcode)
            if (
                shortcut is not None
                and value_at <= end <= length
                and key_size
                and key_size <= key_length
                and shortcut(
                    handler,
                    opcode,
                    opaque,
                    cas,
                    data[extras_at:key_at] if extras_size else b"",
                    data[key_at:value_at],
                    data[value_at:end] if end > value_at else b"",
                )
            ):
                if end == length:
                    return False
                position = end
                continue
            if value_at > length:
                break
            size = end - value_at
            if keeps:
                self.request = data[position:value_at]
            layout = _LAYOUTS[opcode]
            command, numbers, extras, has_key, has_value = layout
            request = BinaryRequest(opcode, data[key_at:value_at], opaque, cas)
            if (
                extras_size not in extras
                or (has_key is not None and has_key is not (key_size > 0))
                or key_size > key_length
                or (size and (size < 0 or has_value is False or body > _MAX_BODY_SIZE))
            ):
                fault = Status.UNKNOWN_COMMAND if size < 0 else Status.INVALID
                handler.execute(table.REJECT, (request, fault))
                handler.quit()
                return False
            if extras_size:
                request.numbers = numbers.unpack_from(data, extras_at)
            position = value_at + size if has_value else value_at
            if has_value and (command is None or size > self._safe_size or position > length):
                position = self._take_value(request, command, size, handler, data, value_at)
            elif command is not None:
                if has_value:
                    request.value = data[value_at:position]
                    if keeps:
                        self.request += request.value
                handler.execute(command, (request,))
                if layout is _STAT:
                    return self._end_turn(data, position)
                if layout is _QUIT:
                    handler.quit()
                    return False
            else:
                handler.execute(table.REJECT, (request, Status.UNKNOWN_COMMAND))
            if position >= length:
                return False
        else:
            return self._end_turn(data, position)
        if position < length:
            self._buffer_head(data[position:] if position else data)
        return False

    def _take_value(
        self,
        request: BinaryRequest,
        command: Command | None,
        size: int,
        handler: Handler,
        data: bytes,
        start: int,
    ) -> int:
        """Take or refuse a value that is large, incomplete, or part of an unknown command.

        Returns:
            The position of the next packet.
        """
        length = len(data)
        if command is None:
            handler.execute(table.REJECT, (request, Status.UNKNOWN_COMMAND))
            return self._skip(size, start, length)
        flags = request.numbers[0] if request.numbers else 0
        total = item_total(len(request.key), flags, size, cas=self._limits.cas)
        if total > self._limits.item_size:
            handler.execute(table.TOO_LARGE, (request,))
            return self._skip(size, start, length)
        end = start + size
        if end <= length:
            request.value = data[start:end]
            if self._keeps:
                self.request += request.value
            handler.execute(table.STORE, (request,))
            return end
        self._unfinished = True
        self._store = request
        begin = start - len(request.key) - _EXTRAS * bool(request.numbers) - HEADER
        self._pieces = Pieces(size, data[begin:start])
        self._pieces.append(data[start:])
        return length

    # Incomplete input

    def _end_turn(self, data: bytes, position: int) -> bool:
        """Keep the rest for the next turn; return whether it contains a packet to parse.

        A turn ends when its quota of commands is used up, and after each STAT; see `TextParser`.
        """
        if position >= len(data):
            return False
        if not self.begins_command(data, position):
            self._buffer_head(data[position:])
            return False
        self._unfinished = True
        self._backlog = data
        self._backlog_position = position
        return True

    def _buffer_head(self, part: bytes) -> None:
        """Buffer an incomplete packet.

        Raises:
            ProtocolViolation: it does not start like a request.
        """
        self._unfinished = True
        self._head += part
        if self._head[0] != MAGIC:
            raise ProtocolViolation(_NO_REQUEST)

    def _resume(self, data: bytes, handler: Handler) -> tuple[bytes, int, int]:
        """Continue an incomplete packet with `data`.

        Returns:
            The bytes to parse next, the position to start at, and how many requests were completed
            and carried out, 0 or 1; no bytes while more are needed.
        """
        self._unfinished = False
        if self._backlog:
            backlog, position = self._backlog, self._backlog_position
            self._backlog = b""
            return (backlog[position:] + data, 0, 0) if data else (backlog, position, 0)
        if self._head:
            self._head += data
            if _is_partial(self._head, 0):
                self._unfinished = True
                return b"", 0, 0
            data, self._head = self._head, b""
            return data, 0, 0
        if self._swallow:
            return data, self._skip(self._swallow, 0, len(data)), 0
        request, pieces = self._store, self._pieces
        assert pieces is not None  # noqa: S101 - nothing else is left
        missing = pieces.missing
        pieces.append(data[:missing] if len(data) > missing else data)
        if pieces.missing:
            self._unfinished = True
            return b"", 0, 0
        self._store = self._pieces = None
        if request is None:  # it has not been parsed
            return pieces.head + pieces.value() + data[missing:], 0, 0
        request.value = pieces.value()
        if self._keeps:
            self.request += request.value
        handler.execute(table.STORE, (request,))
        return data, missing, 1

    def _skip(self, count: int, position: int, length: int) -> int:
        """Skip `count` bytes from `position`, including those that have yet to arrive."""
        end = position + count
        if end <= length:
            self._swallow = 0
            return end
        self._unfinished = True
        self._swallow = end - length
        return length


def _is_partial(data: bytes | bytearray, position: int) -> bool:
    """Return whether the packet at `position` is incomplete up to its value."""
    available = len(data) - position
    if available < HEADER:
        return True
    key_size = int.from_bytes(data[position + 2 : position + 4])
    return available < HEADER + data[position + 4] + key_size
