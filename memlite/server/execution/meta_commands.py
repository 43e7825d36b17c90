"""The meta commands of the text protocol: calls the engine and renders the replies."""

from collections.abc import Iterator
from functools import partial
from math import ceil
from typing import Final

from memlite.core.build import mypyc_attr
from memlite.core.errors import CommandError
from memlite.engine import MetaEngine, Mode, Outcome
from memlite.engine.meta import Counted, Found
from memlite.engine.semantics import expiry
from memlite.memory import Item, Part
from memlite.protocol import replies
from memlite.protocol.meta import MetaRequest, encode_key
from memlite.server.execution.command_set import CommandSet, Later
from memlite.server.execution.plain_meta import plain_flags, read_plain_flags

__all__ = ["MODES", "MetaCommands"]

MODES: Final = {
    0: Mode.SET,
    ord("S"): Mode.SET,
    ord("E"): Mode.ADD,
    ord("A"): Mode.APPEND,
    ord("P"): Mode.PREPEND,
    ord("R"): Mode.REPLACE,
}
"""The modes of ms, by the letter after M."""

_STATUS: Final = {
    Outcome.STORED: b"HD",
    Outcome.DELETED: b"HD",
    Outcome.NOT_STORED: b"NS",
    Outcome.EXISTS: b"EX",
    Outcome.NOT_FOUND: b"NF",
}
_NON_NUMERIC: Final = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
_DECREMENT: Final = b"D-"
_C, _F, _H, _K, _L, _N, _O, _S, _T_NEW, _T = b"cfhklNOsTt"


@mypyc_attr(allow_interpreted_subclasses=True)
class MetaCommands(CommandSet):
    """The meta commands of the text protocol.

    Args:
        engine: holds the items.
        out: the list to which replies are appended.
    """

    __slots__ = ("_engine",)

    def __init__(self, engine: MetaEngine, out: list[Part]) -> None:
        super().__init__(out)
        self._engine = engine

    def _reply(self, render: Later, request: MetaRequest, item: Item | None) -> Later | None:
        """Append the result of `render`, or return `render` if the cas unique is not known yet."""
        if request.unique_asked and item is not None and self._engine.awaits_version(item):
            return render
        self.out += render()
        return None

    def meta_get(self, request: MetaRequest) -> Later | None:
        """``mg <key> <flags>*``."""
        words = b" ".join(request.words)
        flags = plain_flags(words) or read_plain_flags(words)
        if flags is not None:
            plain = self._engine.fetch_plain(request.key)
            if plain is not None:
                self.out.append(flags.reply(request.key, plain))
                return None
            if self._engine.is_miss(b"get %b\r\n" % request.key):
                if not request.quiet:
                    self.out.append(b"EN%b\r\n" % (self._echo(request) if request.words else b""))
                return None
        found = self._engine.retrieve(
            request.key,
            touch=request.touch,
            vivify=None if request.vivify is None else request.made_with,
            recache=request.recache,
            recache_first=request.recache_first,
            unique=request.unique,
            bump=not request.keep,
            compares=request.compare is not None,
        )
        if found is None:
            if not request.quiet:
                self.out.append(b"EN%b\r\n" % self._echo(request))
            return None
        item = found.item
        with_value = request.value and (request.compare is None or request.compare != found.unique)
        return self._reply(partial(self._render_get, request, found, with_value), request, item)

    def _render_get(self, request: MetaRequest, found: Found, with_value: bool) -> tuple[Part, ...]:
        item = found.item
        meta_flags = item.meta_flags
        parts = [b"VA %d" % item.size if with_value else b"HD"]
        parts += self._details(request, found)
        if found.sent:
            parts.append(b"Z")
        if meta_flags is not None and meta_flags.stale:
            parts.append(b"X")
        if found.won:
            parts.append(b"W")
        head = b" ".join(parts) + b"\r\n"
        return (head, item.value_line()) if with_value else (head,)

    def _details(self, request: MetaRequest, found: Found) -> Iterator[bytes]:
        item, expires = found.item, found.expires
        for word in request.words:
            letter = word[0]
            if letter == _T_NEW:
                expires = self._expiry(request.touch)
            elif letter == _N and found.created:
                expires = self._expiry(request.vivify)
            elif letter == _S:
                yield b"s%d" % item.size
            elif letter == _T:
                yield self._time_to_live(expires)
            elif letter == _C:
                yield b"c%d" % self._engine.unique(item)
            elif letter == _F:
                yield b"f%d" % item.flags
            elif letter == _L:
                yield b"l%d" % max(0, self._engine.clock.second - found.accessed)
            elif letter == _H:
                yield b"h1" if found.fetched else b"h0"
            elif letter == _O:
                yield word
            elif letter == _K:
                yield self._key(request.key, item.meta_flags is not None and item.meta_flags.binary)

    def _expiry(self, exptime: int | None) -> float:
        return expiry(exptime or 0, self._engine.clock.now())

    def _time_to_live(self, expires: float) -> bytes:
        if not expires:
            return b"t-1"
        return b"t%d" % max(0, ceil(expires - self._engine.clock.now()))

    @staticmethod
    def _key(key: bytes, binary: bool) -> bytes:
        return b"k%b b" % encode_key(key) if binary else b"k" + key

    def _echo(self, request: MetaRequest) -> bytes:
        """Return the opaque and the key, if requested, each preceded by a space."""
        parts = [b""]
        for word in request.words:
            if word[0] == _O:
                parts.append(word)
            elif word[0] == _K:
                parts.append(self._key(request.key, request.binary))
        return b" ".join(parts)

    def meta_set(self, request: MetaRequest, value: bytes) -> Later | None:
        """``ms <key> <datalen> <flags>*``."""
        mode = MODES[request.mode]
        joins = mode in (Mode.APPEND, Mode.PREPEND)
        vivifies = joins and request.vivify is not None
        try:
            outcome, item = self._engine.store(
                mode,
                request.key,
                request.flags,
                (request.vivify if vivifies else request.touch) or 0,
                value,
                compare=request.compare,
                accept_older=request.invalidate,
                vivify=vivifies,
                unique=request.unique or None,  # as in memcached, E0 lets the server choose
                binary=request.binary,
            )
        except CommandError as error:
            self.out.append(replies.error_line(error))
            return None
        if outcome is Outcome.STORED and (request.quiet or not request.words):
            if not request.quiet:
                self.out.append(b"HD\r\n")
            return None
        render = partial(self._render_set, request, outcome, item, len(value))
        return self._reply(render, request, item)

    def _render_set(
        self, request: MetaRequest, outcome: Outcome, item: Item | None, sent: int
    ) -> tuple[Part]:
        parts = [_STATUS[outcome]]
        for word in request.words:
            letter = word[0]
            if letter == _O:
                parts.append(word)
            elif letter == _K:
                parts.append(self._key(request.key, request.binary))
            elif letter == _C:
                parts.append(b"c%d" % (0 if item is None else self._engine.unique(item)))
            elif letter == _S:
                parts.append(b"s%d" % (sent if item is None else item.size))
        return (b" ".join(parts) + b"\r\n",)

    def meta_delete(self, request: MetaRequest) -> None:
        """``md <key> <flags>*``."""
        try:
            outcome = self._engine.remove(
                request.key,
                compare=request.compare,
                empty=request.empty,
                flags=request.flags,
                stale=request.invalidate,
                touch=request.touch,
                unique=request.unique,
            )
        except CommandError:
            self.out.append(replies.OUT_OF_MEMORY)
            return
        if not (request.quiet and outcome is Outcome.DELETED):
            self.out.append(b"%b%b\r\n" % (_STATUS[outcome], self._echo(request)))

    def meta_count(self, request: MetaRequest) -> Later | None:
        """``ma <key> <flags>*``."""
        try:
            counted = self._engine.count(
                request.key,
                request.delta,
                down=request.mode in _DECREMENT,
                compare=request.compare or None,
                initial=None if request.vivify is None else request.initial,
                exptime=request.made_with,
                touch=request.touch,
                unique=request.unique,
            )
        except CommandError as error:
            self.out.append(replies.error_line(error))
            return None
        if counted.outcome is Outcome.NON_NUMERIC:
            self.out.append(_NON_NUMERIC)
        elif counted.item is None:
            self.out.append(b"%b%b\r\n" % (_STATUS[counted.outcome], self._echo(request)))
        elif not request.quiet:
            return self._reply(
                partial(self._render_number, request, counted), request, counted.item
            )
        return None

    def _render_number(self, request: MetaRequest, counted: Counted) -> tuple[Part]:
        item, expires = counted.item, counted.expires
        assert item is not None  # noqa: S101 - a number implies an item
        digits = b"%d" % counted.number
        parts = [b"VA %d" % len(digits) if request.value else b"HD"]
        for word in request.words:
            letter = word[0]
            if letter == _T_NEW:
                expires = self._expiry(request.touch)
            elif letter == _N and counted.created:
                expires = self._expiry(request.vivify)
            elif letter == _C:
                parts.append(b"c%d" % self._engine.unique(item))
            elif letter == _T:
                parts.append(self._time_to_live(expires))
            elif letter == _O:
                parts.append(word)
            elif letter == _K:
                parts.append(self._key(request.key, request.binary))
        head = b" ".join(parts) + b"\r\n"
        return (b"%b%b\r\n" % (head, digits) if request.value else head,)

    def meta_debug(self, request: MetaRequest) -> Later | None:
        """``me <key> [<flag>]``."""
        engine = self._engine
        engine.counters.cmd_meta += 1
        item = engine.look_up(request.key)
        if item is None:
            self.out.append(b"EN\r\n")
            return None
        render = partial(self._render_debug, request.key, item)
        if engine.awaits_version(item):
            return render
        self.out += render()
        return None

    def _render_debug(self, key: bytes, item: Item) -> tuple[Part]:
        engine = self._engine
        binary = item.meta_flags is not None and item.meta_flags.binary
        line = b"ME %b exp=%b la=%d cas=%d fetch=%b cls=%d size=%d\r\n" % (
            encode_key(key) if binary else key,
            self._time_to_live(item.expires)[1:],
            max(0, engine.clock.second - item.accessed),
            engine.unique(item),
            b"yes" if item.fetched else b"no",
            engine.sizes.of_item(len(key), item),
            engine.sizes.total(len(key), item),
        )
        return (line,)

    def meta_noop(self) -> None:
        """``mn``: its reply marks the end of the replies to earlier commands."""
        self.out.append(b"MN\r\n")
