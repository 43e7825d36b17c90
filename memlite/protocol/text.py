"""The text protocol's parser (memcached's ``doc/protocol.txt``): bytes in, handler calls out."""

from typing import Final

from memlite.core.errors import ProtocolViolation
from memlite.protocol import replies
from memlite.protocol.commands import Command
from memlite.protocol.handler import SEVERAL_GETS, Handler
from memlite.protocol.limits import Limits, item_total
from memlite.protocol.malformed import MalformedError
from memlite.protocol.meta import UnreadableError, parse_meta
from memlite.protocol.numbers import (
    exptime_of,
    length_of,
    signed,
    signed_32,
    small_number,
    unsigned,
    without_plus,
)
from memlite.protocol.partial import PartialSet, PartialStore
from memlite.protocol.pieces import Pieces
from memlite.protocol.store_line import MAX_FORMAT, known_rest, read_rest
from memlite.protocol.text_table import ADMIN, BAD_CHUNK, BY_WORD, SET, TOO_LARGE

__all__ = ["TextParser"]

_CR: Final = 13
_LF: Final = 10
_G: Final = b"g"[0]
_E: Final = b"e"[0]
_S: Final = b"s"[0]
_SPACE: Final = b" "[0]
# Everything that begins with "set " sorts between these two; comparing costs half as much as
# `startswith`.
_SET_PREFIX: Final = b"set "
_SET_PREFIX_END: Final = b"set!"
# The longest read, in bytes, that the fast path for a single small set accepts.
_MAX_SMALL_SET_LENGTH: Final = len(b"set  0 0 4096\r\n\r\n") + 250 + 4096
_FLAGS_END: Final = 2**32
_UINT64_END: Final = 2**64
# Values of at least this many bytes are large enough for an extra copy to matter.
_LARGE_VALUE: Final = 64 * 1024
# Bytes of the input that are split into gets at a time: enough for a turn of typical gets, and few
# enough that splitting them again in the next turn costs little.
_GETS_AT_ONCE: Final = 4 * 1024
_SHORTEST_LINE: Final = 4  # bytes, including the line ending
_MODES_OF_MS: Final = b"\0SEAPR"
_MODES_OF_MA: Final = b"\0I+D-"
_BAD_MODE: Final = b"CLIENT_ERROR invalid mode for ms M token\r\n"
_BAD_MA: Final = b"CLIENT_ERROR invalid or duplicate flag\r\n"
_BAD_MA_MODE: Final = b"CLIENT_ERROR invalid mode for ma M token\r\n"


def _parse_flags(token: bytes) -> int | None:
    """Return the flags of a storage command, None if `token` is not valid."""
    flags = signed(without_plus(token))  # memcached accepts -0 here too
    return flags if flags is not None and 0 <= flags < _FLAGS_END else None


class _MalformedError(MalformedError):
    """A malformed command, followed by `swallow` bytes of value that must be skipped."""

    def __init__(self, reply: bytes, noreply: bool = False, swallow: int = 0) -> None:
        super().__init__(reply)
        self.noreply = noreply
        self.swallow = swallow


class TextParser:
    """Finds commands in a stream and calls the handler's methods, in order.

    Lines end with a line feed, optionally preceded by a carriage return. Words are separated by one
    or more spaces. A value is framed by its declared length and may contain any bytes. Incomplete
    input is kept for the next `receive`, and no byte is scanned twice.

    Args:
        limits: the limits on what the peer may send.
        keep_requests: whether to set `request`, for handlers that forward commands.

    Attributes:
        request: the bytes of the command that the handler is being called for: the line, and the
            value if there is one and it is accepted.
        in_command: whether part of a command has arrived and the rest has not.
        in_value: whether a storage command is waiting for the rest of its value.
    """

    __slots__ = (
        "_backlog",
        "_backlog_position",
        "_cas",
        "_commands_per_turn",
        "_keeps",
        "_key_length",
        "_limits",
        "_line",
        "_partial",
        "_safe_size",
        "_swallow",
        "in_command",
        "request",
        "took_large_value",
    )

    def __init__(self, limits: Limits, *, keep_requests: bool = False) -> None:
        self._limits = limits
        self._keeps = keep_requests
        self.request = b""
        self._commands_per_turn = range(limits.commands_per_read)
        self._key_length = limits.key_length
        self._cas = limits.cas
        # A value of up to this many bytes fits regardless of its key and flags.
        self._safe_size = limits.item_size - item_total(limits.key_length, 1, 0)
        self.in_command = False  # whether any of the following is non-empty
        # Input left over when a turn ended starts at this position. Slicing it off instead would
        # copy the rest once per turn.
        self._backlog = b""
        self._backlog_position = 0
        self._line: bytes | bytearray = b""  # an incomplete line
        self._partial: Pieces | None = None
        self._swallow = 0  # bytes of a refused value still to arrive
        self.took_large_value = False  # whether `reserve` has been called

    @property
    def backlog(self) -> int:
        """Bytes of memory taken by input left over from the last turn."""
        return len(self._backlog)

    @property
    def in_value(self) -> bool:
        """Whether a storage command is waiting for the rest of its value."""
        return self._partial is not None or self._swallow > 0

    @property
    def missing_of_large(self) -> int:
        """Bytes of a value still to arrive, without the line ending; see `reserve`."""
        return 0 if self._partial is None else self._partial.missing_of_large

    def separate(self) -> "TextParser":
        """Return a new parser that takes over the incomplete input of this one.

        Connections without incomplete input may share a parser.
        """
        other = TextParser(self._limits, keep_requests=self._keeps)
        other.in_command, self.in_command = self.in_command, False
        other._backlog, self._backlog = self._backlog, b""
        other._backlog_position, self._backlog_position = self._backlog_position, 0
        other._line, self._line = self._line, b""
        other._partial, self._partial = self._partial, None
        other._swallow, self._swallow = self._swallow, 0
        return other

    def reserve(self) -> memoryview:
        """Return memory for `missing_of_large` bytes, which then count as received.

        The caller must fill that memory before the parser receives anything else.
        """
        assert self._partial is not None  # noqa: S101 - the caller has checked
        memory = self._partial.reserve()
        self.took_large_value = True
        return memory

    def keep_unparsed(self, part: bytes, missing: int) -> None:
        """Keep a storage command without parsing it until the missing bytes have arrived.

        Args:
            part: the command as far as it has arrived, which must be more than its line.
            missing: how many bytes complete it.
        """
        self.in_command = True
        self._partial = Pieces(missing, part, joins=True)

    def take_back(self, data: bytes) -> bytes:
        """Forget an incomplete command that `data` completes, and return both; else return nothing.

        A refused value is not included. A long value is left to `receive`, unless `reserve` was
        called for it.
        """
        if self._line:
            if b"\n" not in data:
                return b""
            whole = bytes(self._line) + data
            self._line = b""
        elif self._partial is not None:
            whole = self._partial.whole(data)
            if not whole:
                return b""
            self._partial = None
        elif 0 < self._swallow < len(data):
            whole = data[self._swallow :]
            self._swallow = 0
        else:
            return b""
        self.in_command = False
        return whole

    def begins_command(self, data: bytes, position: int) -> bool:
        """Return whether there is enough input at `position` to continue in the next turn."""
        return data.find(b"\n", position) >= 0

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
            ProtocolViolation: the connection must be closed (an endless line, an HTTP request).
        """
        position = 0
        if self.in_command:
            data, position, completed = self._resume(data, handler)
            served += completed
        elif (
            not served
            and _SET_PREFIX < data < _SET_PREFIX_END
            and self._single_small_set(data, handler)
        ):
            return False
        length = len(data)
        keeps = self._keeps
        shortcuts = handler.shortcuts
        commands = self._commands_per_turn
        if served:
            commands = commands[served:]
        refused = -1  # the position of a command without a shortcut
        newline = data.find(b"\n", position)
        if shortcuts and commands and 0 <= newline < length - 1:
            done, position = self._run(data, position, newline, len(commands), handler)
            refused = position
            if position >= length:
                return False
            if done:
                commands = commands[done:]
                newline = data.find(b"\n", position)
        for _ in commands:
            if newline < 0:
                break
            start = position
            position = newline + 1
            if keeps:
                self.request = data[start:position]
            # A get needs no parsing.
            if (
                data[start] == _G
                and data[start + 1] == _E  # in range: there is at least a line feed
                and handler.try_get(data[start:position])
            ):
                pass
            elif data[start] == _S and (end := self._small_set(data, start, newline, handler)):
                position = end
            else:
                # If the newline is at 0 this checks the last byte instead, which is harmless: the
                # line is empty either way.
                stop = newline - 1 if data[newline - 1] == _CR else newline
                whole = position - start >= _SHORTEST_LINE
                words = data[start:stop].split(b" ", 2) if whole else [b""]
                shortcut = shortcuts.get(words[0]) if start != refused else None
                end = 0 if shortcut is None else shortcut(handler, words, data, position)
                if end:
                    position = end
                else:
                    try:
                        if not whole:
                            raise _MalformedError(replies.BAD_FORMAT)
                        if len(words) > 2 and _SPACE in words[2]:
                            words[2:] = words[2].split(b" ")
                        entry = _PARSED_BY.get(words[0])
                        if entry is None:
                            self._other(words, handler)
                            return self._end_turn(data, position)
                        if b"" in words:
                            words = [word for word in words if word]
                        command, parse = entry
                        position = parse(self, command, words, handler, data, position)
                        if command is ADMIN:
                            return self._end_turn(data, position)
                    except _MalformedError as malformed:
                        handler.reject(malformed.reply, malformed.noreply)
                        if malformed.swallow:
                            position = self._skip(malformed.swallow, position, length)
            if position >= length:
                return False
            newline = data.find(b"\n", position)
        else:
            return self._end_turn(data, position)
        if position < length:
            self._buffer_line(data[position:] if position else data)
        return False

    def _run(
        self, data: bytes, position: int, newline: int, at_most: int, handler: Handler
    ) -> tuple[int, int]:
        """Carry out commands one after the other while there are shortcuts for them.

        Args:
            data: the input.
            position: where the first command begins.
            newline: the end of its line.
            at_most: the most commands to carry out.
            handler: provides the shortcuts.

        Returns:
            How many commands were carried out, and the position of the next one.
        """
        shortcuts = handler.shortcuts
        served = 0
        gets = shortcuts.get(SEVERAL_GETS) if data[position] == _G else None
        if gets is not None and data.startswith(b"get ", newline + 1):
            chunk = data[position : position + _GETS_AT_ONCE]
            lines = chunk.splitlines(keepends=True)[:at_most]
            served = gets(handler, lines)
            position += sum(map(len, lines[:served]))
            newline = data.find(b"\n", position)
        length = len(data)
        while newline > position and served < at_most and data[newline - 1] == _CR:
            if (
                data[position] == _G
                and data[position + 1] == _E
                and handler.try_get(data[position : newline + 1])
            ):
                position = newline + 1
            else:
                words = data[position : newline - 1].split(b" ", 2)
                shortcut = shortcuts.get(words[0])
                end = 0 if shortcut is None else shortcut(handler, words, data, newline + 1)
                if not end:
                    break
                position = end
            served += 1
            if position >= length:
                break
            newline = data.find(b"\n", position)
        return served, position

    def _single_small_set(self, data: bytes, handler: Handler) -> bool:
        """Carry out `data` if it is exactly one set of a small value, in canonical form.

        Most reads that begin with a set contain just that. This fast path splits off the line and
        its words in two calls and saves 6,000 of the 28,000 instructions of a set. All other input,
        errors included, is left to the general path.

        Returns:
            Whether it was carried out.
        """
        if len(data) > _MAX_SMALL_SET_LENGTH:
            return False
        line, _, value = data.partition(b"\r\n")  # with its line ending
        words = line.split(b" ", 2)
        if len(words) != 3:
            return False
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return False
        size, _, exptime, head, noreply = known
        if (
            len(value) == size + 2
            and value[size] == _CR
            and value[-1] == _LF
            and size <= self._safe_size
            and 0 < len(key) <= self._key_length
            and _LF not in key
        ):
            framed = (
                b"VALUE %b%b%bEND\r\n" % (key, head, value)
                if size <= MAX_FORMAT
                else b"".join((b"VALUE ", key, head, value, b"END\r\n"))
            )
            if self._keeps:
                self.request = data
            handler.set_framed(key, exptime, framed, noreply)
            return True
        return False

    def _small_set(self, data: bytes, start: int, newline: int, handler: Handler) -> int:
        """Carry out the command at `start` as `_single_small_set` does, within a pipeline.

        Returns:
            The position of the next command; 0 if nothing was done.
        """
        words = data[start : newline - 1].split(b" ", 2)
        if len(words) != 3 or words[0] != b"set":
            return 0
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return 0
        size, _, exptime, head, noreply = known
        end = newline + size + 3
        if (
            end <= len(data)
            and data[end - 2] == _CR
            and data[end - 1] == _LF
            and data[newline - 1] == _CR
            and size <= self._safe_size
            and 0 < len(key) <= self._key_length
        ):
            value = data[newline + 1 : end]  # with its line ending
            if self._keeps:
                self.request = data[start:end]
            framed = (
                b"VALUE %b%b%bEND\r\n" % (key, head, value)
                if size <= MAX_FORMAT
                else b"".join((b"VALUE ", key, head, value, b"END\r\n"))
            )
            handler.set_framed(key, exptime, framed, noreply)
            return end
        return 0

    # Incomplete input

    def _end_turn(self, data: bytes, position: int) -> bool:
        """Keep the rest for the next turn; return whether it contains a complete line.

        A turn ends when its quota of commands is used up, and after each administrative command:
        twenty stats over a million items in one turn would stall every other connection.
        """
        if position >= len(data):
            return False
        if not self.begins_command(data, position):
            self._buffer_line(data[position:])
            return False
        self.in_command = True
        self._backlog = data
        self._backlog_position = position
        return True

    def _buffer_line(self, part: bytes) -> None:
        """Buffer an incomplete line.

        Raises:
            ProtocolViolation: it is longer than any line may be.
        """
        self.in_command = True
        line = self._line
        if not isinstance(line, bytearray):
            line = self._line = bytearray()
        may_be_long = len(line) > self._limits.line_length
        line += part
        size = len(line)
        if size <= self._limits.line_length:
            return
        if not may_be_long:
            # As in memcached, only get and gets may exceed the limit, after at most 100 spaces.
            start = bytes(line[: 100 + len(b"gets ")])
            stripped = start.lstrip(b" ")
            may_be_long = len(start) - len(stripped) <= 100 and stripped.startswith(
                (b"get ", b"gets ")
            )
        if not may_be_long or size > self._limits.get_line_length:
            raise ProtocolViolation("an unterminated line")

    def _resume(self, data: bytes, handler: Handler) -> tuple[bytes, int, int]:
        """Continue an incomplete command with `data`.

        Returns:
            The bytes to parse next, the position to start at, and how many commands were completed
            and carried out, 0 or 1; no bytes while more are needed.
        """
        self.in_command = False
        if self._backlog:
            backlog, position = self._backlog, self._backlog_position
            self._backlog = b""
            return (backlog[position:] + data, 0, 0) if data else (backlog, position, 0)
        if self._line:
            if b"\n" not in data:
                self._buffer_line(data)
                return b"", 0, 0
            data = bytes(self._line) + data
            self._line = b""
            return data, 0, 0
        if self._swallow:
            return data, self._skip(self._swallow, 0, len(data)), 0
        store = self._partial
        assert store is not None  # noqa: S101 - nothing else can be incomplete
        missing = store.missing
        store.append(data[:missing] if len(data) > missing else data)
        if store.missing:
            self.in_command = True
            return b"", 0, 0
        self._partial = None
        if not isinstance(store, PartialStore):
            return store.head + store.value() + data[missing:], 0, 0
        value = store.framed_value()
        if value is not None and self._keeps:
            self.request += value + b"\r\n"
        if value is None:
            handler.execute(BAD_CHUNK, (*store.command.keys(store.before), store.noreply))
        else:
            handler.execute(store.command, (*store.before, value, *store.after))
        return data, missing, 1

    def _skip(self, count: int, position: int, length: int) -> int:
        """Skip `count` bytes from `position`, including those that have yet to arrive."""
        end = position + count
        if end <= length:
            self._swallow = 0
            return end
        self.in_command = True
        self._swallow = end - length
        return length

    # Commands. Each method takes the command's table row, the words of the line, and the data with
    # the position just after the line. It returns the position of the next command.

    def _get(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        """Take get and gets."""
        keys = words[1:]
        # One bad key fails the whole request.
        if not keys or max(map(len, keys)) > self._key_length:
            raise _MalformedError(replies.BAD_FORMAT)
        handler.execute(command, (keys,))
        return position

    def _gat(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        """Take gat and gats."""
        exptime = signed_32(words[1]) if len(words) > 2 else 0
        if exptime is None:
            raise _MalformedError(replies.INVALID_EXPTIME)
        keys = words[2:]
        if not keys or max(map(len, keys)) > self._key_length:
            raise _MalformedError(replies.BAD_FORMAT)
        handler.execute(command, (exptime, keys))
        return position

    def _store(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        """Take set, add, replace, append, prepend and cas."""
        count = len(words)
        if count < 5:
            raise _MalformedError(replies.BAD_FORMAT)
        # unsigned() alone would do for all three numbers, at twice the cost of this lookup.
        size = small_number(words[4])
        if size is None:
            size = length_of(words[4])
            if size is None:
                # The length of the value is unknown, so it will be read as commands.
                raise _MalformedError(replies.BAD_FORMAT)
        noreply = count > 5 and words[-1] == b"noreply"
        key = words[1]
        flags = small_number(words[2])
        exptime = small_number(words[3])
        if flags is None:
            flags = _parse_flags(words[2])
        if exptime is None:
            exptime = exptime_of(words[3])
        if flags is None or exptime is None or len(key) > self._key_length:
            raise _MalformedError(replies.BAD_FORMAT, noreply, size + 2)
        after: tuple[object, ...] = (noreply,)
        if command is _CAS:
            unique = unsigned(words[5], _UINT64_END) if count > 5 else None
            if unique is None:
                raise _MalformedError(replies.BAD_FORMAT, noreply, size + 2)
            after = (unique, noreply)
        length = len(data)
        if size > self._safe_size and (
            item_total(len(key), flags, size, cas=self._cas) > self._limits.item_size
        ):
            handler.execute(TOO_LARGE, (words[0], key, noreply))
            return self._skip(size + 2, position, length)
        end = position + size
        if end + 2 > length:
            self.in_command = True
            if command is SET and size >= _LARGE_VALUE and not self._keeps:
                begun = memoryview(data)[position:]
                self._partial = PartialSet(key, flags, exptime, size, noreply, begun)
            else:
                before = (key, flags, exptime)
                line = b" ".join(words) + b"\r\n"
                store = PartialStore(command, before, size, after, noreply, line)
                self._buffer_value(store, data, position)
            return length
        if data[end] != _CR or data[end + 1] != _LF:
            handler.execute(BAD_CHUNK, (key, noreply))
            return end + 2
        if self._keeps:
            self.request += data[position : end + 2]
        if command is SET:
            handler.set(key, flags, exptime, data[position:end], noreply)
        else:
            handler.execute(command, (key, flags, exptime, data[position:end], *after))
        return end + 2

    def _buffer_value(self, store: PartialStore, data: bytes, position: int) -> None:
        """Keep a command, and the part of its value from `position` on, until it is complete."""
        self.in_command = True
        self._partial = store
        store.append(data[position:])

    def _meta_set(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        size = length_of(words[2]) if len(words) > 2 else None
        if size is None:
            raise _MalformedError(replies.BAD_FORMAT)
        try:
            request = parse_meta(words, 3, self._key_length)
        except UnreadableError as unreadable:
            raise _MalformedError(unreadable.reply) from None
        except MalformedError as error:
            raise _MalformedError(error.reply, swallow=size + 2) from None
        if request.mode not in _MODES_OF_MS:
            raise _MalformedError(_BAD_MODE, swallow=size + 2)
        total = item_total(len(request.key), request.flags, size, cas=self._cas)
        if total > self._limits.item_size:
            handler.execute(TOO_LARGE, (words[0], request.key, False))
            return self._skip(size + 2, position, len(data))
        end = position + size
        if end + 2 > len(data):
            line = b" ".join(words) + b"\r\n"
            store = PartialStore(command, (request,), size, (), False, line)
            self._buffer_value(store, data, position)
            return len(data)
        if data[end : end + 2] == b"\r\n":
            if self._keeps:
                self.request += data[position : end + 2]
            handler.execute(command, (request, data[position:end]))
        else:
            handler.execute(BAD_CHUNK, (request.key, False))
        return end + 2

    def _meta(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        """Take mg, md, ma and me."""
        if len(words) < 2:
            raise _MalformedError(replies.BAD_FORMAT)
        counts = command is _META_COUNT
        try:
            request = parse_meta(words, 2, self._key_length, _BAD_MA if counts else b"")
        except MalformedError as error:
            raise _MalformedError(error.reply) from None
        if counts and request.mode not in _MODES_OF_MA:
            raise _MalformedError(_BAD_MA_MODE)
        handler.execute(command, (request,))
        return position

    def _meta_noop(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        """Take mn, ignoring any arguments."""
        handler.execute(command, ())
        return position

    def _delete(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        key, noreply = self._key(words, 2)
        # Words in between are ignored: old clients send "delete <key> 0".
        handler.execute(command, (key, noreply))
        return position

    def _count(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        """Take incr and decr."""
        key, noreply = self._key(words, 3)
        delta = unsigned(words[2], _UINT64_END)
        if delta is None:
            raise _MalformedError(replies.INVALID_DELTA, noreply)
        handler.execute(command, (key, delta, noreply))
        return position

    def _touch(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        key, noreply = self._key(words, 3)
        exptime = signed_32(words[2])
        if exptime is None:
            raise _MalformedError(replies.INVALID_EXPTIME, noreply)
        handler.execute(command, (key, exptime, noreply))
        return position

    def _key(self, words: list[bytes], at_least: int) -> tuple[bytes, bool]:
        if len(words) < at_least:
            raise _MalformedError(replies.BAD_FORMAT)
        noreply = words[-1] == b"noreply"
        if len(words[1]) > self._key_length:
            raise _MalformedError(replies.BAD_FORMAT, noreply)
        return words[1], noreply

    def _quit(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        handler.quit()
        return len(data)  # anything sent after it is discarded

    def _admin(
        self, command: Command, words: list[bytes], handler: Handler, data: bytes, position: int
    ) -> int:
        """Take stats and version, which reply even if their last word is "noreply"."""
        handler.execute(command, (words, False))
        return position

    def _other(self, words: list[bytes], handler: Handler) -> None:
        """Take a command without keys; the handler knows the valid commands."""
        words = [word for word in words if word]
        if not words:
            handler.reject(replies.ERROR, False)
            return
        if len(words) > 1 and words[-1].startswith(b"HTTP/"):
            raise ProtocolViolation("an HTTP request")
        noreply = words[-1] == b"noreply"
        if words[0] in _PARSED_BY:
            # Like memcached 1.6.45, which recognises only administrative commands after leading
            # spaces.
            handler.reject(replies.ERROR, noreply)
        else:
            handler.execute(ADMIN, (words, noreply))


_CAS: Final = BY_WORD[b"cas"]
_META_COUNT: Final = BY_WORD[b"ma"]
_PARSED_BY: Final = {
    word: (BY_WORD[word], parse)
    for words, parse in (
        ((b"get", b"gets"), TextParser._get),
        ((b"gat", b"gats"), TextParser._gat),
        ((b"set", b"add", b"replace", b"append", b"prepend", b"cas"), TextParser._store),
        ((b"delete",), TextParser._delete),
        ((b"incr", b"decr"), TextParser._count),
        ((b"touch",), TextParser._touch),
        ((b"mg", b"md", b"ma", b"me"), TextParser._meta),
        ((b"ms",), TextParser._meta_set),
        ((b"mn",), TextParser._meta_noop),
        ((b"quit",), TextParser._quit),
    )
    for word in words
} | dict.fromkeys((b"stats", b"version"), (ADMIN, TextParser._admin))
"""Commands and the methods that parse their arguments, by the first word of the line."""
