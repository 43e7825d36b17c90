r"""Items in memory, in as few bytes as Python allows: an item is the reply to a get for it."""

import time
from typing import ClassVar, Final, Self, TypeAlias

from memlite.core.build import mypyc_attr
from memlite.core.meta_flags import MetaFlags

__all__ = [
    "END",
    "EPOCH",
    "FETCHED",
    "FREQUENCY",
    "FRESH_BITS",
    "FULL",
    "LINE_OVERHEAD",
    "MAIN",
    "META_FLAGS_SIZE",
    "NUMBER_SIZE",
    "SMALL_OBJECT",
    "STATE_BITS",
    "VIEW_FROM",
    "FullItem",
    "Item",
    "Part",
    "allocated",
    "extended",
    "key_of",
    "line_of",
    "nameable",
    "shared",
    "since_epoch",
    "wire_form",
]

# The state of an item is a single int, because each separate attribute would cost 8 bytes per item.
# The upper bits hold the second of the last use, the lower ones these flags.
FREQUENCY: Final = 0b11
"""How often it was used recently, up to 3."""
FETCHED: Final = 0b100
"""Whether it has been read since it was stored."""
MAIN: Final = 0b1000
"""Whether it is in S3-FIFO's main queue, not in the small one."""
FULL: Final = 0b10000
"""Whether it is a `FullItem`, which needs more checks before it can be served."""
STATE_BITS: Final = 5
FRESH_BITS: Final = FREQUENCY | MAIN
"""The flags that survive when the item is overwritten."""

# Counting seconds from here keeps states within one digit of a Python int for a year. With more
# digits, & takes twice as long.
EPOCH: Final = int(time.time())
"""Unix second from which states count seconds."""

# `shared` keeps this many states, about a hundred seconds' worth.
_MAX_SHARED: Final = 4096
_shared_states: Final[dict[int, int]] = {}

SMALL_OBJECT: Final = 512
"""Size in bytes up to which CPython allocates an object itself instead of calling malloc."""
NUMBER_SIZE: Final = 32
"""Bytes of a number too large to be cached by CPython."""
META_FLAGS_SIZE: Final = 160
"""Bytes of meta flags with the tuple around them."""

# Formatting more than 512 bytes allocates a quarter too much and gives the rest back, which leaves
# a hole too small for the next value: a cache of 1,000-byte values grew by half that way. For a
# megabyte, formatting also takes twenty times as long as join. Below this size it is faster.
_MAX_FORMAT: Final = 200
VIEW_FROM: Final = 1024
"""Size in bytes of a reply from which a view is cheaper than a copy."""

_KEY_AT: Final = len(b"VALUE ")
_SPACE: Final = b" "[0]
_LF: Final = b"\n"[0]
_LINE_END: Final = len(b"\r\n")
END: Final = len(b"END\r\n")
"""Bytes of a reply after the value and its line ending."""
_AFTER_VALUE: Final = _LINE_END + END


Part: TypeAlias = bytes | memoryview
"""A piece of a reply; for large values a view, to avoid a copy."""


LINE_OVERHEAD: Final = len(b"get \r\n")
"""Bytes of a request line in addition to the key."""


def line_of(key: bytes) -> bytes:
    r"""Return the request line for a key, ``get <key>\r\n``, by which tables index items."""
    return b"get %b\r\n" % key


def key_of(line: bytes) -> bytes:
    """Return the key in a request line."""
    return line[4:-2]


def wire_form(key: bytes, flags: int, value: bytes) -> bytes:
    r"""Return the reply to a get: ``VALUE <key> <flags> <size>\r\n<value>\r\nEND\r\n``.

    Pass an empty key if the text protocol cannot express it; see `nameable`.
    """
    size = len(value)
    if size > _MAX_FORMAT:
        return b"".join((b"VALUE %b %d %d\r\n" % (key, flags, size), value, b"\r\nEND\r\n"))
    return b"VALUE %b %d %d\r\n%b\r\nEND\r\n" % (key, flags, size, value)


def extended(wire: bytes, before: bytes, after: bytes) -> bytes:
    """Return the reply to a get of an item with more bytes around its value.

    Args:
        wire: the present reply.
        before: the bytes to add before the value.
        after: the bytes to add after it.
    """
    begin = wire.index(b"\n") + 1
    head = wire[: wire.rindex(b" ", 0, begin) + 1]
    value = wire[begin:-_AFTER_VALUE]
    size = len(before) + len(value) + len(after)
    if size > _MAX_FORMAT:
        return b"".join((b"%b%d\r\n" % (head, size), before, value, after, b"\r\nEND\r\n"))
    return b"%b%d\r\n%b%b%b\r\nEND\r\n" % (head, size, before, value, after)


def allocated(size: int) -> int:
    """Return the bytes of memory that a bytes object of length `size` takes, header included.

    CPython's allocator and malloc both round up to multiples of 16. Larger objects come from
    malloc, where 3/32 of the memory is lost to fragmentation: measured with mixed sizes, after ten
    turnovers of the cache.
    """
    size = (size + 33 + 15) & -16
    return size if size <= SMALL_OBJECT else size + (size >> 5) * 3


def since_epoch(second: int) -> int:
    """Return the state bits for a last use at `second`, in unix time."""
    return (second - EPOCH) << STATE_BITS


def nameable(key: bytes) -> bool:
    """Return whether the text protocol can express `key`; others need base64 or binary requests."""
    # Integers: searching bytes for bytes takes ten times as long.
    return not (_SPACE in key or _LF in key)


def shared(state: int) -> int:
    """Return the int object that most items with this state share.

    A freshly computed int would take 32 bytes per item that are not accounted for. The states in
    `memlite.memory.usage.Usage` are shared already.
    """
    if len(_shared_states) >= _MAX_SHARED:
        _shared_states.clear()
    return _shared_states.setdefault(state, state)


def _view(wire: bytes, begin: int, after: int) -> memoryview:
    """Return a view of `wire` from `begin` to `after` bytes before its end."""
    return memoryview(wire)[begin:-after]


# Items are never part of a reference cycle; compiled, they need no garbage collector support.
@mypyc_attr(acyclic=True, allow_interpreted_subclasses=True)
class Item:
    r"""A stored value with its flags, and when and how often it was used.

    The value is part of `wire`, the text protocol's reply, so that a hit sends bytes that already
    exist. Properties that only some items have take memory only in those: see `FullItem`.

    Only the table that holds an item changes it, except for `state`, which the engine updates.

    Attributes:
        wire: ``VALUE <key> <flags> <size>\r\n<value>\r\nEND\r\n``. The key is empty if the text
            protocol cannot express it.
        state: when and how often it was used; see the constants above, and `Usage`.
    """

    __slots__ = ("state", "wire")

    object_size: ClassVar[int] = 48
    """Bytes of the object itself, without the objects it refers to."""

    def __init__(self, wire: bytes, state: int) -> None:
        self.wire = wire
        self.state = state

    @property
    def expires(self) -> float:
        """Unix time in seconds from which the item counts as absent; 0 for never."""
        return 0.0

    @property
    def version(self) -> int:
        """A number that changes with every store, 1 to 2**64-1; 0 while none is assigned."""
        return 0

    @property
    def meta_flags(self) -> MetaFlags | None:
        """Properties that only a few items have; None for all others."""
        return None

    @property
    def accessed(self) -> int:
        """Unix second at which the item was stored or last read."""
        return (self.state >> STATE_BITS) + EPOCH

    @property
    def fetched(self) -> bool:
        """Whether the item has been read since it was stored."""
        return bool(self.state & FETCHED)

    @property
    def unique(self) -> int:
        """The cas unique: the version, unless a client assigned another."""
        meta = self.meta_flags
        return self.version if meta is None or meta.unique is None else meta.unique

    @property
    def key(self) -> bytes:
        """The key; empty if the text protocol cannot express it."""
        return self.wire[_KEY_AT : self.wire.index(b" ", _KEY_AT)]

    @property
    def flags(self) -> int:
        """The client's flags, 0 to 2**32-1."""
        wire = self.wire
        begin = wire.index(b" ", _KEY_AT) + 1
        if wire[begin : begin + 2] == b"0 ":  # the most common case
            return 0
        return int(wire[begin : wire.index(b" ", begin)])

    @property
    def _value_at(self) -> int:
        return self.wire.index(b"\n") + 1

    @property
    def size(self) -> int:
        """Bytes of the value."""
        wire = self.wire
        return len(wire) - wire.index(b"\n") - 1 - _LINE_END - END

    @property
    def value(self) -> bytes:
        """A copy of the value."""
        return self.wire[self._value_at : -_LINE_END - END]

    def content(self) -> tuple[bytes, int, int, bool]:
        """Return `value`, `flags`, `accessed` and `fetched` together, which is faster."""
        wire, state = self.wire, self.state
        line_end = wire.index(b"\n")
        at = wire.index(b" ", _KEY_AT) + 1
        flags = 0 if wire[at : at + 2] == b"0 " else int(wire[at : wire.index(b" ", at)])
        accessed = (state >> STATE_BITS) + EPOCH
        return wire[line_end + 1 : -_LINE_END - END], flags, accessed, bool(state & FETCHED)

    def entry(self) -> tuple[Part, ...]:
        """Return the reply without its END line, in parts."""
        wire = self.wire
        if len(wire) < VIEW_FROM:
            return (wire[:-END],)
        begin = self._value_at
        return wire[:begin], _view(wire, begin, END)

    def value_line(self) -> Part:
        """Return the value and its line ending."""
        if len(self.wire) < VIEW_FROM:
            return self.wire[self._value_at : -END]
        return _view(self.wire, self._value_at, END)

    def value_part(self) -> Part:
        """Return the value alone."""
        if len(self.wire) < VIEW_FROM:
            return self.wire[self._value_at : -_LINE_END - END]
        return _view(self.wire, self._value_at, _LINE_END + END)


@mypyc_attr(acyclic=True, allow_interpreted_subclasses=True)
class FullItem(Item):
    """An item with an expiry, a version or meta flags.

    Attributes:
        expires: see `Item`.
        extra: the version, or the version and meta flags; 0 for neither.
    """

    __slots__ = ("expires", "extra")

    object_size: ClassVar[int] = 64

    expires: float
    # A single attribute, because each takes 8 bytes per item.
    extra: int | tuple[int, MetaFlags]

    def __init__(self, wire: bytes, state: int, expires: float = 0.0) -> None:
        self.wire = wire
        state |= FULL
        self.state = _shared_states.get(state) or shared(state)
        self.expires = expires
        self.extra = 0

    @classmethod
    def like(cls, item: Item) -> Self:
        """Return an item with the content of another, but no version."""
        new = cls(item.wire, item.state & ~FRESH_BITS, item.expires)
        new.meta_flags = item.meta_flags
        return new

    @property
    def version(self) -> int:
        """See `Item`."""
        extra = self.extra
        return extra if isinstance(extra, int) else extra[0]

    @version.setter
    def version(self, version: int) -> None:
        extra = self.extra
        self.extra = version if isinstance(extra, int) else (version, extra[1])

    @property
    def meta_flags(self) -> MetaFlags | None:
        """See `Item`."""
        extra = self.extra
        return None if isinstance(extra, int) else extra[1]

    @meta_flags.setter
    def meta_flags(self, meta_flags: MetaFlags | None) -> None:
        self.extra = self.version if meta_flags is None else (self.version, meta_flags)
