"""The binary protocol's parser: bytes in, handler calls out."""

from struct import Struct
from typing import Final, NamedTuple

from memlite.errors import ProtocolViolation
from memlite.protocol.binary_handler import BinaryHandler
from memlite.protocol.limits import Limits, item_total
from memlite.protocol.magic import MAGIC
from memlite.protocol.packets import HEADER, BinaryRequest, Opcode, Status
from memlite.protocol.pieces import Pieces

__all__ = ["BinaryParser"]

# Magic, opcode, bytes of key and of extras, bytes of all behind the header, opaque, cas unique. The
# data type and the virtual bucket between them mean nothing here.
_header = Struct(">BBHBxxxIIQ").unpack_from
_LARGEST_BODY: Final = 1024 * 1024 * 1024
_NO_REQUEST: Final = "not a binary request"


class _Layout(NamedTuple):
    """What the packets of a command consist of; others are answered, and end the connection.

    Attributes:
        method: the handler's; empty for a command that there is not.
        numbers: what the extras hold.
        extras: how many bytes of them there may be.
        key: whether it has a key; None for either.
        value: whether a value belongs to it. Where None, one that is there nevertheless is read as
            the next packet, as memcached does.
    """

    method: str
    numbers: Struct = Struct("")
    extras: tuple[int, ...] | range = (0,)
    key: bool | None = True
    value: bool | None = False


_NUMBER: Final = Struct(">I")
_GET: Final = _Layout("binary_get")
_STORE: Final = _Layout("binary_store", Struct(">II"), (8,), value=True)
_JOIN: Final = _Layout("binary_store", value=True)
_DELETE: Final = _Layout("binary_delete")
_COUNT: Final = _Layout("binary_count", Struct(">QQI"), (20,))
_TOUCH: Final = _Layout("binary_touch", _NUMBER, (4,), value=None)
_STAT: Final = _Layout("binary_admin", key=None, value=None)
_FLUSH: Final = _Layout("binary_admin", _NUMBER, (0, 4), key=False)
_VERBOSITY: Final = _Layout("binary_admin", _NUMBER, (4,), key=False)
_PLAIN: Final = _Layout("binary_admin", key=False)
_QUIT: Final = _Layout("binary_admin", key=False)
_NO_MECHANISMS: Final = _Layout("", key=False)
_NO_AUTHENTICATION: Final = _Layout("", value=True)
_UNKNOWN: Final = _Layout("", extras=range(256), key=None, value=True)

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

    A packet is a header of 24 bytes with the lengths of what follows: extras (numbers), key and
    value. What is incomplete is kept for the next `receive`: all before the value, at most 66 KB,
    then the value in the pieces it comes in.

    Args:
        limits: what the peer may send.

    Attributes:
        in_value: whether a storage command waits for the rest of its value.
    """

    __slots__ = (
        "_backlog",
        "_backlog_position",
        "_head",
        "_key_length",
        "_limits",
        "_pieces",
        "_safe_size",
        "_share",
        "_store",
        "_swallow",
        "_unfinished",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._share = range(limits.commands_per_read)
        self._key_length = limits.key_length
        # Below this no item is too large, whatever its key and flags.
        self._safe_size = limits.item_size - item_total(limits.key_length, 1, 0)
        self._unfinished = False  # whether any of the following holds something
        # What was left when a read's share was used up begins here.
        self._backlog = b""
        self._backlog_position = 0
        self._head = b""  # of an unfinished packet: all before its value
        self._store: BinaryRequest | None = None  # one that waits for its value
        self._pieces: Pieces | None = None  # and those of it that there are
        self._swallow = 0  # bytes of a refused value still to come

    @property
    def in_value(self) -> bool:
        """Whether a storage command waits for the rest of its value."""
        return self._store is not None or self._swallow > 0

    @property
    def in_command(self) -> bool:
        """Whether a command has begun to arrive and is not complete."""
        return self._unfinished

    def receive(self, data: bytes, handler: BinaryHandler) -> bool:
        """Take bytes from the peer and carry out what they complete.

        Args:
            data: what has arrived; empty to go on after True was returned.
            handler: whose methods are called.

        Returns:
            True when `Limits.commands_per_read` commands were carried out and more is left: call
            again with ``b""`` once others had their turn.

        Raises:
            ProtocolViolation: the connection must be cut: what came is no request.
        """
        position = 0
        if self._unfinished:
            data, position = self._resume(data, handler)
        length = len(data)
        for _ in self._share:
            extras_at = position + HEADER
            if extras_at > length:
                break
            magic, opcode, key_size, extras_size, body, opaque, cas = _header(data, position)
            if magic != MAGIC:
                raise ProtocolViolation(_NO_REQUEST)
            key_at = extras_at + extras_size
            value_at = key_at + key_size
            if value_at > length:
                break
            size = body - extras_size - key_size  # of the value
            layout = _LAYOUTS[opcode]
            method, numbers, extras, has_key, has_value = layout
            request = BinaryRequest(opcode, data[key_at:value_at], opaque, cas)
            if (
                extras_size not in extras
                or (has_key is not None and has_key is not (key_size > 0))
                or key_size > self._key_length
                or (size and (size < 0 or has_value is False or body > _LARGEST_BODY))
            ):
                fault = Status.UNKNOWN_COMMAND if size < 0 else Status.INVALID
                handler.binary_reject(request, fault)
                handler.quit()
                return False
            if extras_size:
                request.numbers = numbers.unpack_from(data, extras_at)
            position = value_at + size if has_value else value_at
            if has_value and (not method or size > self._safe_size or position > length):
                position = self._take_value(request, method, size, handler, data, value_at)
            elif method:
                if has_value:
                    request.value = data[value_at:position]
                getattr(handler, method)(request)
                if layout is _STAT:
                    return self._end_turn(data, position)
                if layout is _QUIT:
                    handler.quit()
                    return False
            else:
                handler.binary_reject(request, Status.UNKNOWN_COMMAND)
            if position >= length:
                return False
        else:
            return self._end_turn(data, position)
        if position < length:
            self._keep_head(data[position:] if position else data)
        return False

    def _take_value(
        self,
        request: BinaryRequest,
        method: str,
        size: int,
        handler: BinaryHandler,
        data: bytes,
        start: int,
    ) -> int:
        """Take or refuse a value that is large, or not all there, or of an unknown command.

        Returns:
            Where the next packet begins.
        """
        length = len(data)
        if not method:
            handler.binary_reject(request, Status.UNKNOWN_COMMAND)
            return self._skip(size, start, length)
        flags = request.numbers[0] if request.numbers else 0
        total = item_total(len(request.key), flags, size, cas=self._limits.cas)
        if total > self._limits.item_size:
            handler.binary_too_large(request)
            return self._skip(size, start, length)
        end = start + size
        if end <= length:
            request.value = data[start:end]
            handler.binary_store(request)
            return end
        self._unfinished = True
        self._store = request
        self._pieces = Pieces(size)
        self._pieces.append(data[start:])
        return length

    # What is incomplete

    def _end_turn(self, data: bytes, position: int) -> bool:
        """Keep what is left for the next turn; return whether a command is among it.

        Turns end when the share is used up, and behind each stat: see `TextParser`.
        """
        if position >= len(data):
            return False
        if _is_partial(data, position):
            self._keep_head(data[position:])
            return False
        self._unfinished = True
        self._backlog = data
        self._backlog_position = position
        return True

    def _keep_head(self, part: bytes) -> None:
        """Keep the beginning of a packet until there is more; cut off who sends something else."""
        self._unfinished = True
        self._head += part
        if self._head[0] != MAGIC:
            raise ProtocolViolation(_NO_REQUEST)

    def _resume(self, data: bytes, handler: BinaryHandler) -> tuple[bytes, int]:
        """Complete what an earlier read began, as far as `data` goes.

        Returns:
            Bytes and the position in them from which to go on; none while more is needed.
        """
        self._unfinished = False
        if self._backlog:
            backlog, position = self._backlog, self._backlog_position
            self._backlog = b""
            return (backlog[position:] + data, 0) if data else (backlog, position)
        if self._head:
            self._head += data
            if _is_partial(self._head, 0):
                self._unfinished = True
                return b"", 0
            data, self._head = self._head, b""
            return data, 0
        if self._swallow:
            return data, self._skip(self._swallow, 0, len(data))
        request, pieces = self._store, self._pieces
        assert request is not None and pieces is not None  # noqa: S101 - nothing else is left
        missing = pieces.missing
        pieces.append(data[:missing] if len(data) > missing else data)
        if pieces.missing:
            self._unfinished = True
            return b"", 0
        request.value = pieces.value()
        self._store = self._pieces = None
        handler.binary_store(request)
        return data, missing

    def _skip(self, count: int, position: int, length: int) -> int:
        """Pass over `count` bytes from `position`, now and, where they lack, later."""
        end = position + count
        if end <= length:
            self._swallow = 0
            return end
        self._unfinished = True
        self._swallow = end - length
        return length


def _is_partial(data: bytes | bytearray, position: int) -> bool:
    """Return whether a packet that begins at `position` lacks something before its value."""
    there = len(data) - position
    if there < HEADER:
        return True
    key_size = int.from_bytes(data[position + 2 : position + 4])
    return there < HEADER + data[position + 4] + key_size
