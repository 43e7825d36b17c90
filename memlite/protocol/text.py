"""The text protocol's parser (memcached's ``doc/protocol.txt``): bytes in, handler calls out."""

from typing import Final

from memlite.errors import CommandError, ProtocolViolation
from memlite.protocol import replies
from memlite.protocol.handler import Handler
from memlite.protocol.limits import LONGEST_GET, Limits, item_total
from memlite.protocol.magic import MAGIC
from memlite.protocol.meta import UnreadableError, parse_meta
from memlite.protocol.numbers import signed, signed_32, small_number, unsigned
from memlite.protocol.partial import PartialSet, PartialStore

__all__ = ["TextParser"]

_CR: Final = 13
_LF: Final = 10
_G: Final = b"g"[0]
# What begins with "set " lies between: half the cost of `startswith`.
_SET: Final = b"set "
_BEHIND_SETS: Final = b"set!"
# Bytes of a read up to which it may be a set of a value whose size is a small number.
_ALONE_AT_MOST: Final = len(b"set  0 0 4096\r\n\r\n") + 250 + 4096
_BINARY_MAGIC: Final = bytes([MAGIC])
_BINARY: Final = "a binary request where text belongs"
_MAX_VALUE_LENGTH: Final = 2**31 - 1 - 2
_FLAGS_END: Final = 2**32
_UNIQUE_END: Final = 2**64
# Bytes of a value from which a copy counts.
_FRAMED_FROM: Final = 64 * 1024
_SHORTEST_LINE: Final = 4  # bytes with the line's end
# Of each command that stores, as one object: of names Python's cache of methods keeps up to 4,096,
# told apart by their addresses, and each may be what holds a mebibyte.
_METHODS: Final = {
    name.encode(): name for name in ("set", "add", "replace", "append", "prepend", "cas")
}
_MODES_OF_MS: Final = b"\0SEAPR"
_MODES_OF_MA: Final = b"\0I+D-"
_BAD_MODE: Final = b"CLIENT_ERROR invalid mode for ms M token\r\n"
_BAD_MA: Final = b"CLIENT_ERROR invalid or duplicate flag\r\n"
_BAD_MA_MODE: Final = b"CLIENT_ERROR invalid mode for ma M token\r\n"


def _without_plus(token: bytes) -> bytes:
    """Return what is left of a number as strtol takes it, which memcached uses here and there."""
    return token[1:] if token.startswith(b"+") and token[1:].isdigit() else token


def _time(token: bytes) -> int | None:
    """Return the expiry that `token` spells in a storage command."""
    return signed(_without_plus(token))


class _MalformedError(CommandError):
    """A malformed command: `swallow` bytes of value still follow it."""

    def __init__(self, reply: bytes, noreply: bool = False, swallow: int = 0) -> None:
        super().__init__(reply)
        self.noreply = noreply
        self.swallow = swallow


def _too_short(first: int) -> Exception:
    """Return what to raise over a line too short for any command, by its first byte."""
    return ProtocolViolation(_BINARY) if first == MAGIC else _MalformedError(replies.BAD_FORMAT)


class TextParser:
    """Finds commands in a stream and calls the handler's methods, in order.

    Lines end with a line feed, perhaps after a carriage return; words are parted by one or more
    spaces; a value is framed by its declared length, whatever its bytes. What is incomplete is
    kept for the next `receive`, and no byte is searched twice.

    Args:
        limits: what the peer may send.

    Attributes:
        in_command: whether a command has begun to arrive and is not complete.
        in_value: whether a storage command waits for the rest of its value.
    """

    __slots__ = (
        "_backlog",
        "_backlog_position",
        "_cas",
        "_key_length",
        "_limits",
        "_line",
        "_safe_size",
        "_share",
        "_store",
        "_swallow",
        "in_command",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._share = range(limits.commands_per_read)
        self._key_length = limits.key_length
        self._cas = limits.cas
        # Below this no item is too large, whatever its key and flags.
        self._safe_size = limits.item_size - item_total(limits.key_length, 1, 0)
        self.in_command = False  # whether any of the following holds something
        # What was left when a read's share was used up begins here; not sliced off, as that
        # would copy the rest once per share.
        self._backlog = b""
        self._backlog_position = 0
        self._line: bytes | bytearray = b""  # an unfinished line
        self._store: PartialStore | None = None
        self._swallow = 0  # bytes of a refused value still to come

    @property
    def in_value(self) -> bool:
        """Whether a storage command waits for the rest of its value."""
        return self._store is not None or self._swallow > 0

    @property
    def missing_of_large(self) -> int:
        """Bytes still to come of a large value, without the line's end; see `reserve`."""
        store = self._store
        return store.missing_of_value if isinstance(store, PartialSet) else 0

    def reserve(self) -> memoryview:
        """Return memory for `missing_of_large` bytes, which then count as received.

        Whoever asks for it reads them into it, before the parser receives anything else.
        """
        store = self._store
        assert isinstance(store, PartialSet)  # noqa: S101 - the caller has looked
        return store.reserve()

    def receive(self, data: bytes, handler: Handler) -> bool:
        """Take bytes from the peer and carry out what they complete.

        Args:
            data: what has arrived; empty to go on after True was returned.
            handler: whose methods are called.

        Returns:
            True when `Limits.commands_per_read` commands were carried out and more is left: call
            again with ``b""`` once others had their turn.

        Raises:
            ProtocolViolation: the connection must be cut (an endless line, an HTTP request).
        """
        position = 0
        if self.in_command:
            data, position = self._resume(data, handler)
        elif _SET < data < _BEHIND_SETS and self._set_alone(data, handler):
            return False
        length = len(data)
        for _ in self._share:
            newline = data.find(b"\n", position)
            if newline < 0:
                break
            start = position
            position = newline + 1
            # A hit needs no parsing. Who reads a line alone has asked for it already.
            if not (
                data[start] == _G
                and (start or position < length)
                and position - start <= LONGEST_GET
                and handler.hit(data[start:position])
            ):
                # At 0 this looks at the last byte instead, harmlessly: an empty line stays one.
                stop = newline - 1 if data[newline - 1] == _CR else newline
                try:
                    if position - start < _SHORTEST_LINE:
                        raise _too_short(data[start])
                    words = data[start:stop].split(b" ")
                    method = _COMMANDS.get(words[0])
                    if method is None:
                        self._other(words, handler)
                        return self._end_turn(data, position)
                    if b"" in words:
                        words = [word for word in words if word]
                    position = method(self, words, handler, data, position)
                    if method is _ADMIN:
                        return self._end_turn(data, position)
                except _MalformedError as malformed:
                    handler.reject(malformed.reply, malformed.noreply)
                    if malformed.swallow:
                        position = self._skip(malformed.swallow, position, length)
            if position >= length:
                return False
        else:
            return self._end_turn(data, position)
        if position < length:
            self._keep_line(data[position:] if position else data)
        return False

    def _set_alone(self, data: bytes, handler: Handler) -> bool:
        """Carry out a set of a small value if `data` is that, spelt as usual, and nothing else.

        Most reads that come here are. Of the 28,000 instructions of a set on the general way, this
        saves 6,000: two cuts take the line from the value, and apart. It knows nothing of what is
        wrong: that, and what is spelt otherwise or longer, goes the general way.

        Returns:
            Whether it was carried out.
        """
        if len(data) > _ALONE_AT_MOST:
            return False
        line, _, rest = data.partition(b"\r\n")
        words = line.split(b" ")
        count = len(words)
        noreply = count == 6 and words[5] == b"noreply"
        if count != 5 and not noreply:
            return False
        key = words[1]
        exptime = small_number(words[3])
        if exptime is None:
            exptime = _time(words[3])
        size = small_number(words[4])
        if (
            size is not None
            and len(rest) == size + 2
            and rest[size] == _CR
            and rest[-1] == _LF
            and size <= self._safe_size
            and small_number(words[2]) is not None
            and exptime is not None
            and 0 < len(key) <= self._key_length
            and _LF not in key
        ):
            # Numbers this small are spelt in one way, so what came is what get will send.
            # Joined, as formatting would leave a hole; see `wire_form`.
            parts = (b"VALUE ", key, b" ", words[2], b" ", words[4], b"\r\n", rest, b"END\r\n")
            framed = b"".join(parts)
            handler.set_framed(key, exptime, framed, noreply)
            return True
        return False

    # What is incomplete

    def _end_turn(self, data: bytes, position: int) -> bool:
        """Keep what is left for the next turn; return whether a command is among it.

        Turns end when the share is used up, and behind each administrative command: twenty stats
        of a million items in one turn would make everybody wait.
        """
        if position >= len(data):
            return False
        if data.find(b"\n", position) < 0:
            self._keep_line(data[position:])
            return False
        self.in_command = True
        self._backlog = data
        self._backlog_position = position
        return True

    def _keep_line(self, part: bytes) -> None:
        """Keep the beginning of a line until its end arrives; cut off who never ends one."""
        self.in_command = True
        line = self._line
        if not isinstance(line, bytearray):
            line = self._line = bytearray()
        known_as_get = len(line) > self._limits.line_length
        line += part
        size = len(line)
        if line.startswith(_BINARY_MAGIC):
            raise ProtocolViolation(_BINARY)
        if size <= self._limits.line_length:
            return
        if not known_as_get:
            # Only get and gets may be longer, after at most 100 spaces, as in memcached.
            start = bytes(line[: 100 + len(b"gets ")])
            stripped = start.lstrip(b" ")
            known_as_get = len(start) - len(stripped) <= 100 and stripped.startswith(
                (b"get ", b"gets ")
            )
        if not known_as_get or size > self._limits.get_line_length:
            raise ProtocolViolation("a line without an end")

    def _resume(self, data: bytes, handler: Handler) -> tuple[bytes, int]:
        """Complete what an earlier read began, as far as `data` goes.

        Returns:
            Bytes and the position in them from which to go on; none while more is needed.
        """
        self.in_command = False
        if self._backlog:
            backlog, position = self._backlog, self._backlog_position
            self._backlog = b""
            return (backlog[position:] + data, 0) if data else (backlog, position)
        if self._line:
            if b"\n" not in data:
                self._keep_line(data)
                return b"", 0
            data = bytes(self._line) + data
            self._line = b""
            return data, 0
        if self._swallow:
            return data, self._skip(self._swallow, 0, len(data))
        store = self._store
        assert store is not None  # noqa: S101 - nothing else is left unfinished
        missing = store.missing
        store.append(data[:missing] if len(data) > missing else data)
        if store.missing:
            self.in_command = True
            return b"", 0
        self._store = None
        value = store.framed_value()
        if value is None:
            handler.reject(replies.BAD_DATA_CHUNK, store.noreply)
        else:
            getattr(handler, store.method)(*store.before, value, *store.after)
        return data, missing

    def _skip(self, count: int, position: int, length: int) -> int:
        """Pass over `count` bytes from `position`, now and, where they lack, later."""
        end = position + count
        if end <= length:
            self._swallow = 0
            return end
        self.in_command = True
        self._swallow = end - length
        return length

    # Commands. Each takes the line's words, and the data from where a value would begin, and
    # returns the position of the next command.

    def _get(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        keys = self._keys(words, 1)
        if words[0] == b"get":
            handler.get(keys)
        else:
            handler.gets(keys)
        return position

    def _gat(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        exptime = signed_32(words[1]) if len(words) > 2 else 0
        if exptime is None:
            raise _MalformedError(replies.INVALID_EXPTIME)
        keys = self._keys(words, 2)
        if words[0] == b"gat":
            handler.gat(exptime, keys)
        else:
            handler.gats(exptime, keys)
        return position

    def _keys(self, words: list[bytes], first: int) -> list[bytes]:
        keys = words[first:]
        # One bad key and the whole request answers only the error line.
        if not keys or max(map(len, keys)) > self._key_length:
            raise _MalformedError(replies.BAD_FORMAT)
        return keys

    def _set(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        """Take set, add, replace, append, prepend and cas."""
        name = words[0]
        count = len(words)
        if count < 5:
            raise _MalformedError(replies.BAD_FORMAT)
        # unsigned() would do for all three, at twice the cost of looking up here first.
        size = small_number(words[4])
        if size is None:
            size = unsigned(words[4], _MAX_VALUE_LENGTH + 1)
            if size is None:
                # Nothing tells how long the value is, so it will be read as commands.
                raise _MalformedError(replies.BAD_FORMAT)
        noreply = count > 5 and words[-1] == b"noreply"
        key = words[1]
        flags = small_number(words[2])
        exptime = small_number(words[3])
        if flags is None:
            flags = unsigned(_without_plus(words[2]), _FLAGS_END)
        if exptime is None:
            exptime = _time(words[3])
        if flags is None or exptime is None or len(key) > self._key_length:
            raise _MalformedError(replies.BAD_FORMAT, noreply, size + 2)
        unique = 0
        if name == b"cas":
            checked = unsigned(words[5], _UNIQUE_END) if count > 5 else None
            if checked is None:
                raise _MalformedError(replies.BAD_FORMAT, noreply, size + 2)
            unique = checked
        length = len(data)
        if size > self._safe_size and (
            item_total(len(key), flags, size, cas=self._cas) > self._limits.item_size
        ):
            handler.too_large(name, key, noreply)
            return self._skip(size + 2, position, length)
        end = position + size
        if end + 2 > length:
            self.in_command = True
            if name == b"set" and size >= _FRAMED_FROM:
                begun = memoryview(data)[position:]
                self._store = PartialSet(key, flags, exptime, size, noreply, begun)
            else:
                after = (unique, noreply) if name == b"cas" else (noreply,)
                store = PartialStore(_METHODS[name], (key, flags, exptime), size, after, noreply)
                self._await(store, data, position)
            return length
        if data[end] != _CR or data[end + 1] != _LF:
            handler.reject(replies.BAD_DATA_CHUNK, noreply)
        elif name == b"set":
            handler.set(key, flags, exptime, data[position:end], noreply)
        elif name == b"cas":
            handler.cas(key, flags, exptime, data[position:end], unique, noreply)
        else:
            method = getattr(handler, _METHODS[name])
            method(key, flags, exptime, data[position:end], noreply)
        return end + 2

    def _await(self, store: PartialStore, data: bytes, position: int) -> None:
        """Keep a command until its value is complete, with what there is from `position`."""
        self.in_command = True
        self._store = store
        store.append(data[position:])

    def _meta_set(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        size = unsigned(words[2], _MAX_VALUE_LENGTH + 1) if len(words) > 2 else None
        if size is None:
            raise _MalformedError(replies.BAD_FORMAT)
        try:
            request = parse_meta(words, 3, self._key_length)
        except UnreadableError as unreadable:
            raise _MalformedError(unreadable.reply) from None
        except CommandError as error:
            raise _MalformedError(error.reply, swallow=size + 2) from None
        if request.mode not in _MODES_OF_MS:
            raise _MalformedError(_BAD_MODE, swallow=size + 2)
        total = item_total(len(request.key), request.flags, size, cas=self._cas)
        if total > self._limits.item_size:
            handler.too_large(b"ms", request.key, False)
            return self._skip(size + 2, position, len(data))
        end = position + size
        if end + 2 > len(data):
            self._await(PartialStore("meta_set", (request,), size, (), False), data, position)
            return len(data)
        if data[end : end + 2] == b"\r\n":
            handler.meta_set(request, data[position:end])
        else:
            handler.reject(replies.BAD_DATA_CHUNK, False)
        return end + 2

    def _meta(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        """Take mg, md, ma, me and mn."""
        name = words[0]
        if name == b"mn":
            handler.meta_noop()
            return position
        if len(words) < 2:
            raise _MalformedError(replies.BAD_FORMAT)
        try:
            request = parse_meta(words, 2, self._key_length, _BAD_MA if name == b"ma" else b"")
        except CommandError as error:
            raise _MalformedError(error.reply) from None
        if name == b"mg":
            handler.meta_get(request)
        elif name == b"md":
            handler.meta_delete(request)
        elif name == b"me":
            handler.meta_debug(request)
        elif request.mode in _MODES_OF_MA:
            handler.meta_count(request)
        else:
            raise _MalformedError(_BAD_MA_MODE)
        return position

    def _delete(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        key, noreply = self._key(words, 2)
        # Words between are passed over: old clients send "delete <key> 0".
        handler.delete(key, noreply)
        return position

    def _arithmetic(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        key, noreply = self._key(words, 3)
        delta = unsigned(words[2], _UNIQUE_END)
        if delta is None:
            raise _MalformedError(replies.INVALID_DELTA, noreply)
        if words[0] == b"incr":
            handler.incr(key, delta, noreply)
        else:
            handler.decr(key, delta, noreply)
        return position

    def _touch(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        key, noreply = self._key(words, 3)
        exptime = signed_32(words[2])
        if exptime is None:
            raise _MalformedError(replies.INVALID_EXPTIME, noreply)
        handler.touch(key, exptime, noreply)
        return position

    def _key(self, words: list[bytes], at_least: int) -> tuple[bytes, bool]:
        if len(words) < at_least:
            raise _MalformedError(replies.BAD_FORMAT)
        noreply = words[-1] == b"noreply"
        if len(words[1]) > self._key_length:
            raise _MalformedError(replies.BAD_FORMAT, noreply)
        return words[1], noreply

    def _quit(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        handler.quit()
        # What was sent behind it is nobody's any more.
        return len(data)

    def _admin(self, words: list[bytes], handler: Handler, data: bytes, position: int) -> int:
        handler.admin(words, False)
        return position

    def _other(self, words: list[bytes], handler: Handler) -> None:
        """Pass on a command that is not about a key; the handler knows which there are."""
        words = [word for word in words if word]
        if not words:
            handler.reject(replies.ERROR, False)
            return
        if words[0].startswith(_BINARY_MAGIC):
            raise ProtocolViolation(_BINARY)
        if len(words) > 1 and words[-1].startswith(b"HTTP/"):
            raise ProtocolViolation("an HTTP request")
        noreply = words[-1] == b"noreply"
        if words[0] in _COMMANDS:
            # After leading spaces memcached (1.6.45) knows only the commands it looks up last.
            handler.reject(replies.ERROR, noreply)
        else:
            handler.admin(words, noreply)


_COMMANDS: Final = {
    b"get": TextParser._get,
    b"gets": TextParser._get,
    b"gat": TextParser._gat,
    b"gats": TextParser._gat,
    b"set": TextParser._set,
    b"add": TextParser._set,
    b"replace": TextParser._set,
    b"append": TextParser._set,
    b"prepend": TextParser._set,
    b"cas": TextParser._set,
    b"delete": TextParser._delete,
    b"incr": TextParser._arithmetic,
    b"decr": TextParser._arithmetic,
    b"touch": TextParser._touch,
    b"mg": TextParser._meta,
    b"ms": TextParser._meta_set,
    b"md": TextParser._meta,
    b"ma": TextParser._meta,
    b"me": TextParser._meta,
    b"mn": TextParser._meta,
    b"quit": TextParser._quit,
    # These two answer although their last word is "noreply".
    b"stats": TextParser._admin,
    b"version": TextParser._admin,
}
_ADMIN: Final = TextParser._admin
