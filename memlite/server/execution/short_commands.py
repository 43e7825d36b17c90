"""The text protocol's commands in their usual form: from the words of the line to the reply.

For most commands of one key, it is enough to split the line into words. They need no parsed
request, no lookup of a method by its name and no values passed between layers: each takes a third
to a half of the instructions of the general path (see docs/performance.md).
"""

from collections.abc import Callable
from typing import Final

from memlite.core.build import mypyc_attr
from memlite.core.errors import CommandError
from memlite.engine import Outcome
from memlite.memory.item import VIEW_FROM, Item
from memlite.protocol import replies
from memlite.protocol.handler import SEVERAL_GETS, Shortcuts
from memlite.protocol.limits import CLUSTER_KEY, MAX_KEY_LENGTH
from memlite.protocol.numbers import small_number
from memlite.protocol.store_line import MAX_FORMAT, known_rest, read_rest
from memlite.server.execution.meta_commands import MetaCommands
from memlite.server.execution.plain_meta import plain_flags, read_plain_flags

__all__ = ["SHORTCUTS", "ShortCommands"]

_STORED: Final = Outcome.STORED
_NOT_STORED: Final = Outcome.NOT_STORED
_EXISTS: Final = Outcome.EXISTS
_REPLY: Final = {
    Outcome.NOT_STORED: replies.NOT_STORED,
    Outcome.EXISTS: replies.EXISTS,
    Outcome.NOT_FOUND: replies.NOT_FOUND,
    Outcome.NON_NUMERIC: replies.NON_NUMERIC,
}
_STORED_LINE: Final = b"STORED\r\n"
_NOT_STORED_LINE: Final = replies.NOT_STORED
_NOREPLY: Final = b"noreply"
_G: Final = b"g"[0]
_SPACE: Final = b" "[0]
_CR: Final = 13
_LF: Final = 10
# Numbers of more digits may exceed 64 bits.
_SAFE_DIGITS: Final = 19
# The reply to ma with v, by the digits of the number, formatted in advance.
_NUMBER_OF: Final = tuple(b"VA %d\r\n%%b\r\n" % digits for digits in range(_SAFE_DIGITS + 1))


@mypyc_attr(allow_interpreted_subclasses=True)
class ShortCommands(MetaCommands):
    """Shortcuts of `memlite.protocol.Handler`.

    Each takes the first word, the second and the rest of a line, the input, and the position after
    the line. It returns the position of the next command, or 0 if the command has another form or
    the engine has no shortcut for it. In that case, nothing has been done, and the general path
    handles the command.
    """

    __slots__ = ()

    # Reading

    def short_lines(self, lines: list[bytes]) -> int:
        r"""Several lines ``get <key>*\r\n``; see `SEVERAL_GETS`."""
        served = self._engine.serve_lines(lines, self.out)
        for line in lines[served:]:
            if line[0] != _G or line[1:2] != b"e" or not self.try_get(line):
                break
            served += 1
        return served

    def short_gat(self, words: list[bytes], data: bytes, position: int) -> int:
        """``gat <exptime> <key>`` and ``gats <exptime> <key>``."""
        if len(words) != 3:
            return 0
        name, digits, key = words
        exptime = small_number(digits)
        # Searching bytes for an integer takes a tenth of the time of searching for bytes.
        if exptime is None or _SPACE in key or not 0 < len(key) <= MAX_KEY_LENGTH:
            return 0
        engine = self._engine
        item = engine.retime_plain(key, exptime) or engine.fetch_and_touch(key, exptime)
        if item is None:
            self.out.append(b"END\r\n")
        elif name == b"gat":
            self.out.append(item.wire)
        else:
            self._show_with_unique(item)
        return position

    def short_gets(self, words: list[bytes], data: bytes, position: int) -> int:
        """``gets <key>``."""
        if len(words) != 2 or not 0 < len(words[1]) <= MAX_KEY_LENGTH or words[1] == CLUSTER_KEY:
            return 0
        item = self._engine.fetch(words[1])
        if item is None:
            self.out.append(b"END\r\n")
        else:
            self._show_with_unique(item)
        return position

    def _show_with_unique(self, item: Item) -> None:
        unique = self._engine.unique(item)
        wire = item.wire
        line_end = wire.index(b"\n") - 1
        if len(wire) < VIEW_FROM:
            self.out.append(b"%b %d%b" % (wire[:line_end], unique, wire[line_end:]))
        else:
            view = memoryview(wire)[line_end:]
            self.out += (b"%b %d" % (wire[:line_end], unique), view)

    # Storing

    def short_set(self, words: list[bytes], data: bytes, position: int) -> int:
        """``set <key> <flags> <exptime> <bytes> [noreply]``."""
        if len(words) != 3:
            return 0
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return 0
        size, _, exptime, head, noreply = known
        engine = self._engine
        end = position + size + 2
        if end > len(data) or size > engine.safe_size or not 0 < len(key) <= MAX_KEY_LENGTH:
            return 0
        value = data[position:end]  # with its line ending
        if value[size] != _CR or value[-1] != _LF:
            return 0
        wire = (
            b"VALUE %b%b%bEND\r\n" % (key, head, value)
            if size <= MAX_FORMAT
            else b"".join((b"VALUE ", key, head, value, b"END\r\n"))
        )
        reply = b"STORED\r\n"
        try:
            engine.set_framed(key, exptime, wire)
        except CommandError as error:
            reply = replies.error_line(error)
        if not noreply:
            self.out.append(reply)
        return end

    def short_replace(self, words: list[bytes], data: bytes, position: int) -> int:
        """``replace <key> <flags> <exptime> <bytes> [noreply]``."""
        if len(words) != 3:
            return 0
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return 0
        size, _, exptime, head, noreply = known
        engine = self._engine
        end = position + size + 2
        if end > len(data) or size > engine.safe_size or not 0 < len(key) <= MAX_KEY_LENGTH:
            return 0
        value = data[position:end]  # with its line ending
        if value[size] != _CR or value[-1] != _LF:
            return 0
        wire = (
            b"VALUE %b%b%bEND\r\n" % (key, head, value)
            if size <= MAX_FORMAT
            else b"".join((b"VALUE ", key, head, value, b"END\r\n"))
        )
        reply = b"STORED\r\n"
        try:
            if engine.replace_framed(key, exptime, wire) is not _STORED:
                reply = replies.NOT_STORED
        except CommandError as error:
            reply = replies.error_line(error)
        if not noreply:
            self.out.append(reply)
        return end

    def short_add(self, words: list[bytes], data: bytes, position: int) -> int:
        """``add <key> <flags> <exptime> <bytes> [noreply]``."""
        return self._short_store(self._engine.add, words, data, position)

    def short_append(self, words: list[bytes], data: bytes, position: int) -> int:
        """``append <key> <flags> <exptime> <bytes> [noreply]``."""
        return self._short_store(self._engine.append, words, data, position)

    def short_prepend(self, words: list[bytes], data: bytes, position: int) -> int:
        """``prepend <key> <flags> <exptime> <bytes> [noreply]``."""
        return self._short_store(self._engine.prepend, words, data, position)

    def _short_store(
        self,
        store: Callable[[bytes, int, int, bytes], Outcome],
        words: list[bytes],
        data: bytes,
        position: int,
    ) -> int:
        if len(words) != 3:
            return 0
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return 0
        size, flags, exptime, _, noreply = known
        end = position + size + 2
        if (
            data[end - 2 : end] != b"\r\n"
            or size > self._engine.safe_size
            or not 0 < len(key) <= MAX_KEY_LENGTH
        ):
            return 0
        try:
            outcome = store(key, flags, exptime, data[position : end - 2])
            # Hashing an enum member takes a method call.
            if outcome is _STORED:
                reply = _STORED_LINE
            elif outcome is _NOT_STORED:
                reply = _NOT_STORED_LINE
            else:
                reply = _REPLY[outcome]
        except CommandError as error:
            reply = replies.error_line(error)
        if not noreply:
            self.out.append(reply)
        return end

    def short_cas(self, words: list[bytes], data: bytes, position: int) -> int:
        """``cas <key> <flags> <exptime> <bytes> <unique>``."""
        if len(words) != 3:
            return 0
        _, key, rest = words
        rest, _, digits = rest.rpartition(b" ")
        known = known_rest(rest) or read_rest(rest)
        if known is None or not digits.isdigit() or len(digits) > _SAFE_DIGITS:
            return 0
        size, flags, exptime, _, noreply = known
        end = position + size + 2
        if (
            noreply
            or data[end - 2 : end] != b"\r\n"
            or size > self._engine.safe_size
            or not 0 < len(key) <= MAX_KEY_LENGTH
        ):
            return 0
        try:
            outcome = self._engine.cas(key, flags, exptime, data[position : end - 2], int(digits))
            if outcome is _STORED:
                reply = _STORED_LINE
            else:
                reply = replies.EXISTS if outcome is _EXISTS else _REPLY[outcome]
        except CommandError as error:
            reply = replies.error_line(error)
        self.out.append(reply)
        return end

    # Changing and removing

    def short_delete(self, words: list[bytes], data: bytes, position: int) -> int:
        """``delete <key> [noreply]``."""
        if len(words) != 2 or not 0 < len(words[1]) <= MAX_KEY_LENGTH:
            return self._unanswered(ShortCommands.short_delete, words, position)
        if words[1] == _NOREPLY:  # the key, which also suppresses the reply, as in memcached
            return 0
        self.out.append(b"DELETED\r\n" if self._engine.delete(words[1]) else b"NOT_FOUND\r\n")
        return position

    def short_touch(self, words: list[bytes], data: bytes, position: int) -> int:
        """``touch <key> <exptime> [noreply]``."""
        if len(words) != 3 or not 0 < len(words[1]) <= MAX_KEY_LENGTH:
            return 0
        exptime = small_number(words[2])
        if exptime is None:
            return self._unanswered(ShortCommands.short_touch, words, position)
        engine, key = self._engine, words[1]
        touched = engine.retime_plain(key, exptime) is not None or engine.touch(key, exptime)
        self.out.append(b"TOUCHED\r\n" if touched else b"NOT_FOUND\r\n")
        return position

    def short_incr(self, words: list[bytes], data: bytes, position: int) -> int:
        """``incr <key> <value> [noreply]``."""
        delta = small_number(words[2]) if len(words) == 3 else None
        if delta is None:
            return self._unanswered(ShortCommands.short_incr, words, position)
        return self._short_count(words[1], delta, False, position)

    def short_decr(self, words: list[bytes], data: bytes, position: int) -> int:
        """``decr <key> <value> [noreply]``."""
        delta = small_number(words[2]) if len(words) == 3 else None
        if delta is None:
            return self._unanswered(ShortCommands.short_decr, words, position)
        return self._short_count(words[1], delta, True, position)

    def _unanswered(
        self,
        shortcut: "Callable[[ShortCommands, list[bytes], bytes, int], int]",
        words: list[bytes],
        position: int,
    ) -> int:
        """Handle a line that ends with ``noreply`` like the same line without it."""
        if len(words) != 3 or not (b" " + words[2]).endswith(b" noreply"):
            return 0
        rest = words[2][: -len(b" noreply")]
        answered = len(self.out)
        end = shortcut(self, [*words[:2], rest] if rest else words[:2], b"", position)
        if end:
            del self.out[answered:]
        return end

    def _short_count(self, key: bytes, delta: int, down: bool, position: int) -> int:
        counted = self._engine.count_in_place(key, delta, down)
        if counted is not None:
            self.out.append(counted[1] + b"\r\n")
            return position
        if not 0 < len(key) <= MAX_KEY_LENGTH:
            return 0
        try:
            result = self._engine.recount(key, delta, down)
            reply = _REPLY[result] if isinstance(result, Outcome) else b"%d\r\n" % result
        except CommandError as error:
            reply = replies.error_line(error)
        self.out.append(reply)
        return position

    # Meta commands

    def short_meta_get(self, words: list[bytes], data: bytes, position: int) -> int:
        """``mg <key> <flags>*`` with `PlainFlags`, for a plain item or a miss."""
        count = len(words)
        if count < 2:
            return 0
        key = words[1]
        asked = words[2] if count > 2 else b""
        flags = plain_flags(asked) or read_plain_flags(asked)
        if flags is None:
            return 0
        item = self._engine.fetch_plain(key)
        if item is not None:
            self.out.append(flags.reply(key, item))
        elif not self._engine.is_miss(b"get %b\r\n" % key):
            return 0
        elif not flags.quiet:
            self.out.append(b"EN k%b\r\n" % key if flags.key else b"EN\r\n")
        return position

    def short_meta_set(self, words: list[bytes], data: bytes, position: int) -> int:
        """``ms <key> <datalen>``."""
        if len(words) != 3:
            return 0
        _, key, digits = words
        size = small_number(digits)
        if size is None:
            return 0
        end = position + size + 2
        if end > len(data) or size > self._engine.safe_size or not 0 < len(key) <= MAX_KEY_LENGTH:
            return 0
        value = data[position:end]  # with its line ending
        if value[size] != _CR or value[-1] != _LF:
            return 0
        try:
            wire = b"".join((b"VALUE ", key, b" 0 ", digits, b"\r\n", value, b"END\r\n"))
            self._engine.set_framed(key, 0, wire)
            self.out.append(b"HD\r\n")
        except CommandError as error:
            self.out.append(replies.error_line(error))
        return end

    def short_meta_delete(self, words: list[bytes], data: bytes, position: int) -> int:
        """``md <key>``."""
        if len(words) != 2 or not 0 < len(words[1]) <= MAX_KEY_LENGTH or self._engine.observed:
            return 0
        self.out.append(b"HD\r\n" if self._engine.delete(words[1]) else b"NF\r\n")
        return position

    def short_meta_noop(self, words: list[bytes], data: bytes, position: int) -> int:
        """``mn``."""
        self.out.append(b"MN\r\n")
        return position

    def short_meta_count(self, words: list[bytes], data: bytes, position: int) -> int:
        """``ma <key>`` and ``ma <key> v``, if the new number needs no more room."""
        if len(words) < 2:
            return 0
        shown = len(words) > 2
        if shown and words[2] != b"v":
            return 0
        counted = self._engine.count_in_place(words[1], 1, False)
        if counted is None:
            return 0
        _, digits, _ = counted
        self.out.append(_NUMBER_OF[len(digits)] % digits if shown else b"HD\r\n")
        return position


SHORTCUTS: Final[Shortcuts] = {
    SEVERAL_GETS: ShortCommands.short_lines,
    b"set": ShortCommands.short_set,
    b"gat": ShortCommands.short_gat,
    b"gats": ShortCommands.short_gat,
    b"gets": ShortCommands.short_gets,
    b"add": ShortCommands.short_add,
    b"replace": ShortCommands.short_replace,
    b"append": ShortCommands.short_append,
    b"prepend": ShortCommands.short_prepend,
    b"cas": ShortCommands.short_cas,
    b"delete": ShortCommands.short_delete,
    b"touch": ShortCommands.short_touch,
    b"incr": ShortCommands.short_incr,
    b"decr": ShortCommands.short_decr,
    b"mg": ShortCommands.short_meta_get,
    b"ms": ShortCommands.short_meta_set,
    b"md": ShortCommands.short_meta_delete,
    b"ma": ShortCommands.short_meta_count,
    b"mn": ShortCommands.short_meta_noop,
}
"""The shortcuts by the first word of the line."""
