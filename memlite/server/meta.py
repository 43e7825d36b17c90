"""The meta commands' part of the text protocol's handler: engine calls and reply bytes."""

from collections.abc import Iterator
from functools import partial
from math import ceil
from typing import Final, cast

from memlite.backends import Item, Part
from memlite.engine import MetaEngine, Mode, Outcome
from memlite.engine.meta import Counted, Found
from memlite.engine.semantics import expiry
from memlite.errors import CommandError
from memlite.native import mypyc_attr
from memlite.protocol.meta import MetaRequest, encode_key

__all__ = ["MODES", "MetaCommands"]

MODES: Final = {
    0: Mode.SET,
    ord("S"): Mode.SET,
    ord("E"): Mode.ADD,
    ord("A"): Mode.APPEND,
    ord("P"): Mode.PREPEND,
    ord("R"): Mode.REPLACE,
}
"""The letters behind M in ms."""

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
class MetaCommands:
    """Answers meta commands at once.

    Args:
        engine: holds the items.
        out: where replies are appended: bytes, or what returns them once the backend has given an
            item its version.

    Attributes:
        out: as above.
    """

    __slots__ = ("_engine", "out")

    def __init__(self, engine: MetaEngine, out: list[Part]) -> None:
        self._engine = engine
        self.out = out

    def meta_get(self, request: MetaRequest) -> None:
        """``mg <key> <flags>*``."""
        found = self._engine.retrieve(
            request.key,
            touch=request.touch,
            vivify=None if request.vivify is None else request.made_with,
            recache=request.recache,
            recache_first=request.recache_first,
            unique=request.unique,
            bump=not request.keep,
        )
        if found is None:
            if not request.quiet:
                self.out.append(b"EN%b\r\n" % self._echo(request))
            return
        item = found.item
        with_value = request.value and (
            request.compare is None or request.compare != self._engine.unique(item)
        )
        head = partial(self._head_of_get, request, found, with_value)
        self._append(head, item, request)
        if with_value:
            self.out.append(item.value_line())

    def _append(self, head: "partial[bytes]", item: Item | None, request: MetaRequest) -> None:
        later = request.unique_asked and item is not None and self._engine.unnumbered(item)
        self.out.append(cast("Part", head) if later else head())

    def _head_of_get(self, request: MetaRequest, found: Found, with_value: bool) -> bytes:
        item = found.item
        marks = item.marks
        parts = [b"VA %d" % item.size if with_value else b"HD"]
        parts += self._details(request, found)
        if found.sent:
            parts.append(b"Z")
        if marks is not None and marks.stale:
            parts.append(b"X")
        if found.won:
            parts.append(b"W")
        return b" ".join(parts) + b"\r\n"

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
                yield self._key(request.key, item.marks is not None and item.marks.binary)

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
        """Return the opaque and the key, as far as they are asked for, each behind a space."""
        parts = [b""]
        for word in request.words:
            if word[0] == _O:
                parts.append(word)
            elif word[0] == _K:
                parts.append(self._key(request.key, request.binary))
        return b" ".join(parts)

    def meta_set(self, request: MetaRequest, value: bytes) -> None:
        """``ms <key> <bytes> <flags>*``."""
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
                unique=request.unique,
                binary=request.binary,
            )
        except CommandError as error:
            self.out.append(error.reply)
            return
        if outcome is Outcome.STORED and request.quiet:
            return
        head = partial(self._head_of_set, request, outcome, item, len(value))
        self._append(head, item, request)

    def _head_of_set(
        self, request: MetaRequest, outcome: Outcome, item: Item | None, sent: int
    ) -> bytes:
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
        return b" ".join(parts) + b"\r\n"

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
            self.out.append(b"SERVER_ERROR out of memory\r\n")
            return
        if not (request.quiet and outcome is Outcome.DELETED):
            self.out.append(b"%b%b\r\n" % (_STATUS[outcome], self._echo(request)))

    def meta_count(self, request: MetaRequest) -> None:
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
            self.out.append(error.reply)
            return
        if counted.outcome is Outcome.NON_NUMERIC:
            self.out.append(_NON_NUMERIC)
        elif counted.item is None:
            self.out.append(b"%b%b\r\n" % (_STATUS[counted.outcome], self._echo(request)))
        elif not request.quiet:
            self._append(partial(self._number, request, counted), counted.item, request)

    def _number(self, request: MetaRequest, counted: Counted) -> bytes:
        item, expires = counted.item, counted.expires
        assert item is not None  # noqa: S101 - there is a number
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
        return b"%b%b\r\n" % (head, digits) if request.value else head

    def meta_debug(self, request: MetaRequest) -> None:
        """``me <key>``."""
        engine = self._engine
        engine.counters.cmd_meta += 1
        item = engine.peek(request.key)
        if item is None:
            self.out.append(b"EN\r\n")
            return
        head = partial(self._debug, request.key, item)
        self.out.append(cast("Part", head) if self._engine.unnumbered(item) else head())

    def _debug(self, key: bytes, item: Item) -> bytes:
        engine = self._engine
        binary = item.marks is not None and item.marks.binary
        return b"ME %b exp=%b la=%d cas=%d fetch=%b cls=%d size=%d\r\n" % (
            encode_key(key) if binary else key,
            self._time_to_live(item.expires)[1:],
            max(0, engine.clock.second - item.accessed),
            engine.unique(item),
            b"yes" if item.fetched else b"no",
            engine.sizes.of_item(len(key), item),
            engine.sizes.total(len(key), item),
        )

    def meta_noop(self) -> None:
        """``mn``: tells that all before it was carried out."""
        self.out.append(b"MN\r\n")
