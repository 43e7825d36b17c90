"""The text protocol's commands in their usual form: from the words of the line to the reply.

A line that is split into words says enough for most commands of one key. They need no parsed
request, no lookup of a method by its name and no values between the layers: each takes a third to
a half of the instructions of the general way (see docs/performance.md).
"""

from collections.abc import Callable
from typing import Final

from memlite.core.build import mypyc_attr
from memlite.core.errors import CommandError
from memlite.engine import Outcome
from memlite.memory.item import VIEW_FROM
from memlite.protocol import replies
from memlite.protocol.handler import NO_VALUE, SEVERAL_GETS, Shortcuts
from memlite.protocol.limits import LONGEST_KEY
from memlite.protocol.numbers import small_number
from memlite.protocol.store_line import known_rest, read_rest
from memlite.server.execution.meta_commands import USUAL_FLAGS, MetaCommands, render_plain

__all__ = ["SHORTCUTS", "ShortCommands"]

_STORED: Final = Outcome.STORED
_REPLY: Final = {
    Outcome.NOT_STORED: replies.NOT_STORED,
    Outcome.EXISTS: replies.EXISTS,
    Outcome.NOT_FOUND: replies.NOT_FOUND,
    Outcome.NON_NUMERIC: replies.NON_NUMERIC,
}
_QUIET: Final = b"q"
_KEY: Final = b"k"
_G: Final = b"g"[0]
# Numbers of more digits may exceed 64 bits.
_SAFE_DIGITS: Final = 19
_NO_FLAGS: Final[tuple[bytes, ...]] = ()
# The combinations of `USUAL_FLAGS` that clients have sent; there are 1,956.
_FLAG_SETS: Final[dict[bytes, tuple[bytes, ...]]] = {}


def _read_flags(words: bytes) -> tuple[bytes, ...] | None:
    """Split the flags of an mg; return None if there are others than `USUAL_FLAGS`, or twice."""
    flags = tuple(words.split(b" "))
    if not USUAL_FLAGS.issuperset(flags) or len({*flags}) != len(flags):
        return None
    _FLAG_SETS[words] = flags
    return flags


@mypyc_attr(allow_interpreted_subclasses=True)
class ShortCommands(MetaCommands):
    """Shortcuts of `memlite.protocol.Handler`.

    Each takes the first word, the second and the rest of a line, and what follows the line, which
    may be its value. It returns how many of the two it has taken; or 0 if the command has another
    form, or the engine no shortcut for it. Nothing has been done then, and the general way takes
    the command.
    """

    __slots__ = ()

    # Reading

    def short_lines(self, lines: list[bytes]) -> int:
        r"""``get <key>*\r\n``, several of them; see `SEVERAL_GETS`."""
        served = self._engine.serve_lines(lines, self.out)
        for line in lines[served:]:
            if line[0] != _G or line[1:2] != b"e" or not self.hit(line):
                break
            served += 1
        return served

    def short_get(self, words: list[bytes], value: bytes) -> int:
        """``get <key>``."""
        if len(words) != 2:
            return 0
        key = words[1]
        item = self._engine.fetch_plain(key)
        if item is not None:
            self.out.append(item.wire)
        elif self._engine.is_miss(b"get %b\r\n" % key):
            self.out.append(b"END\r\n")
        else:
            return 0
        return 1

    def short_gat(self, words: list[bytes], value: bytes) -> int:
        """``gat <exptime> <key>``."""
        if len(words) != 3:
            return 0
        _, digits, key = words
        exptime = small_number(digits)
        if exptime is None or b" " in key or not 0 < len(key) <= LONGEST_KEY:
            return 0
        engine = self._engine
        item = engine.retime_plain(key, exptime) or engine.fetch_and_touch(key, exptime)
        self.out.append(b"END\r\n" if item is None else item.wire)
        return 1

    def short_gets(self, words: list[bytes], value: bytes) -> int:
        """``gets <key>``."""
        if len(words) != 2 or not 0 < len(words[1]) <= LONGEST_KEY:
            return 0
        engine = self._engine
        item = engine.fetch(words[1])
        if item is None:
            self.out.append(b"END\r\n")
            return 1
        unique = engine.unique(item)
        wire = item.wire
        line_end = wire.index(b"\n") - 1
        if len(wire) < VIEW_FROM:
            self.out.append(b"%b %d%b" % (wire[:line_end], unique, wire[line_end:]))
        else:
            view = memoryview(wire)[line_end:]
            self.out += (b"%b %d" % (wire[:line_end], unique), view)
        return 1

    # Storing

    def short_set(self, words: list[bytes], value: bytes) -> int:
        """``set <key> <flags> <exptime> <bytes> [noreply]``."""
        if len(words) != 3:
            return 0
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return 0
        size, _, exptime, head, noreply = known
        engine = self._engine
        if len(value) != size or size > engine.safe_size or not 0 < len(key) <= LONGEST_KEY:
            return 0
        # Joined rather than formatted, which would over-allocate; see `wire_form`.
        wire = b"".join((b"VALUE ", key, head, value, b"\r\nEND\r\n"))
        reply = b"STORED\r\n"
        try:
            engine.set_framed(key, exptime, wire)
        except CommandError as error:
            reply = replies.error_line(error)
        if not noreply:
            self.out.append(reply)
        return 2

    def short_replace(self, words: list[bytes], value: bytes) -> int:
        """``replace <key> <flags> <exptime> <bytes> [noreply]``."""
        if len(words) != 3:
            return 0
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return 0
        size, _, exptime, head, noreply = known
        engine = self._engine
        if len(value) != size or size > engine.safe_size or not 0 < len(key) <= LONGEST_KEY:
            return 0
        # Joined rather than formatted, which would over-allocate; see `wire_form`.
        wire = b"".join((b"VALUE ", key, head, value, b"\r\nEND\r\n"))
        reply = b"STORED\r\n"
        try:
            if engine.replace_framed(key, exptime, wire) is not _STORED:
                reply = replies.NOT_STORED
        except CommandError as error:
            reply = replies.error_line(error)
        if not noreply:
            self.out.append(reply)
        return 2

    def short_add(self, words: list[bytes], value: bytes) -> int:
        """``add <key> <flags> <exptime> <bytes> [noreply]``."""
        return self._short_store(self._engine.add, words, value)

    def short_append(self, words: list[bytes], value: bytes) -> int:
        """``append <key> <flags> <exptime> <bytes> [noreply]``."""
        return self._short_store(self._engine.append, words, value)

    def short_prepend(self, words: list[bytes], value: bytes) -> int:
        """``prepend <key> <flags> <exptime> <bytes> [noreply]``."""
        return self._short_store(self._engine.prepend, words, value)

    def _short_store(
        self,
        store: Callable[[bytes, int, int, bytes], Outcome],
        words: list[bytes],
        value: bytes,
    ) -> int:
        if len(words) != 3:
            return 0
        _, key, rest = words
        known = known_rest(rest) or read_rest(rest)
        if known is None:
            return 0
        size, flags, exptime, _, noreply = known
        if len(value) != size or size > self._engine.safe_size or not 0 < len(key) <= LONGEST_KEY:
            return 0
        try:
            outcome = store(key, flags, exptime, value)
            reply = b"STORED\r\n" if outcome is _STORED else _REPLY[outcome]
        except CommandError as error:
            reply = replies.error_line(error)
        if not noreply:
            self.out.append(reply)
        return 2

    def short_cas(self, words: list[bytes], value: bytes) -> int:
        """``cas <key> <flags> <exptime> <bytes> <unique>``."""
        if len(words) != 3:
            return 0
        _, key, rest = words
        rest, _, digits = rest.rpartition(b" ")
        known = known_rest(rest) or read_rest(rest)
        if known is None or not digits.isdigit() or len(digits) > _SAFE_DIGITS:
            return 0
        size, flags, exptime, _, noreply = known
        if (
            noreply
            or len(value) != size
            or size > self._engine.safe_size
            or not 0 < len(key) <= LONGEST_KEY
        ):
            return 0
        try:
            outcome = self._engine.cas(key, flags, exptime, value, int(digits))
            reply = b"STORED\r\n" if outcome is _STORED else _REPLY[outcome]
        except CommandError as error:
            reply = replies.error_line(error)
        self.out.append(reply)
        return 2

    # Changing and removing

    def short_delete(self, words: list[bytes], value: bytes) -> int:
        """``delete <key> [noreply]``."""
        if len(words) != 2 or not 0 < len(words[1]) <= LONGEST_KEY:
            return self._unanswered(ShortCommands.short_delete, words)
        self.out.append(b"DELETED\r\n" if self._engine.delete(words[1]) else b"NOT_FOUND\r\n")
        return 1

    def short_touch(self, words: list[bytes], value: bytes) -> int:
        """``touch <key> <exptime> [noreply]``."""
        if len(words) != 3 or not 0 < len(words[1]) <= LONGEST_KEY:
            return 0
        exptime = small_number(words[2])
        if exptime is None:
            return self._unanswered(ShortCommands.short_touch, words)
        engine, key = self._engine, words[1]
        touched = engine.retime_plain(key, exptime) is not None or engine.touch(key, exptime)
        self.out.append(b"TOUCHED\r\n" if touched else b"NOT_FOUND\r\n")
        return 1

    def short_incr(self, words: list[bytes], value: bytes) -> int:
        """``incr <key> <value> [noreply]``."""
        delta = small_number(words[2]) if len(words) == 3 else None
        if delta is None:
            return self._unanswered(ShortCommands.short_incr, words)
        return self._short_count(words[1], delta, False)

    def short_decr(self, words: list[bytes], value: bytes) -> int:
        """``decr <key> <value> [noreply]``."""
        delta = small_number(words[2]) if len(words) == 3 else None
        if delta is None:
            return self._unanswered(ShortCommands.short_decr, words)
        return self._short_count(words[1], delta, True)

    def _unanswered(
        self, shortcut: "Callable[[ShortCommands, list[bytes], bytes], int]", words: list[bytes]
    ) -> int:
        """Take a line that ends with ``noreply`` like the same one without it."""
        if len(words) != 3 or not (b" " + words[2]).endswith(b" noreply"):
            return 0
        rest = words[2][: -len(b" noreply")]
        answered = len(self.out)
        taken = shortcut(self, [*words[:2], rest] if rest else words[:2], NO_VALUE)
        if taken:
            del self.out[answered:]
        return taken

    def _short_count(self, key: bytes, delta: int, down: bool) -> int:
        counted = self._engine.count_in_place(key, delta, down)
        if counted is not None:
            self.out.append(counted[0] + b"\r\n")
            return 1
        if not 0 < len(key) <= LONGEST_KEY:
            return 0
        try:
            result = self._engine.recount(key, delta, down)
            reply = _REPLY[result] if isinstance(result, Outcome) else b"%d\r\n" % result
        except CommandError as error:
            reply = replies.error_line(error)
        self.out.append(reply)
        return 1

    # Meta commands

    def short_meta_get(self, words: list[bytes], value: bytes) -> int:
        """``mg <key> <flags>*`` with `USUAL_FLAGS`, of a plain item or none."""
        count = len(words)
        if count < 2:
            return 0
        key = words[1]
        flags = _NO_FLAGS if count == 2 else _FLAG_SETS.get(words[2])
        if flags is None:
            flags = _read_flags(words[2])
            if flags is None:
                return 0
        item = self._engine.fetch_plain(key)
        if item is not None:
            self.out.append(render_plain(key, flags, item))
        elif not self._engine.is_miss(b"get %b\r\n" % key):
            return 0
        elif _QUIET not in flags:
            self.out.append(b"EN k%b\r\n" % key if _KEY in flags else b"EN\r\n")
        return 1

    def short_meta_set(self, words: list[bytes], value: bytes) -> int:
        """``ms <key> <datalen>``."""
        if len(words) != 3:
            return 0
        _, key, digits = words
        if (
            small_number(digits) != len(value)
            or len(value) > self._engine.safe_size
            or not 0 < len(key) <= LONGEST_KEY
        ):
            return 0
        try:
            wire = b"".join((b"VALUE ", key, b" 0 ", digits, b"\r\n", value, b"\r\nEND\r\n"))
            self._engine.set_framed(key, 0, wire)
            self.out.append(b"HD\r\n")
        except CommandError as error:
            self.out.append(replies.error_line(error))
        return 2

    def short_meta_delete(self, words: list[bytes], value: bytes) -> int:
        """``md <key>``."""
        if len(words) != 2 or not 0 < len(words[1]) <= LONGEST_KEY or self._engine.observed:
            return 0
        self.out.append(b"HD\r\n" if self._engine.delete(words[1]) else b"NF\r\n")
        return 1

    def short_meta_noop(self, words: list[bytes], value: bytes) -> int:
        """``mn``."""
        self.out.append(b"MN\r\n")
        return 1

    def short_meta_count(self, words: list[bytes], value: bytes) -> int:
        """``ma <key>`` and ``ma <key> v``, if the number takes as many digits afterwards."""
        count = len(words)
        if count > 3 or count < 2 or (count == 3 and words[2] != b"v"):
            return 0
        counted = self._engine.count_in_place(words[1], 1, False)
        if counted is None:
            return 0
        digits = counted[0]
        self.out.append(b"HD\r\n" if count == 2 else b"VA %d\r\n%b\r\n" % (len(digits), digits))
        return 1


SHORTCUTS: Final[Shortcuts] = {
    SEVERAL_GETS: ShortCommands.short_lines,
    b"get": ShortCommands.short_get,
    b"set": ShortCommands.short_set,
    b"gat": ShortCommands.short_gat,
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
