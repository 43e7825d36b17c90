"""What is stored under a key, in as few bytes as Python allows for."""

import time
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

from memlite.native import mypyc_attr

__all__ = [
    "END",
    "EPOCH",
    "FETCHED",
    "FREQUENCY",
    "FRESH_BITS",
    "FULL",
    "LINE_BESIDE_KEY",
    "MAIN",
    "PYTHONS_OWN",
    "STATE_BITS",
    "VIEW_FROM",
    "FullItem",
    "Item",
    "Marks",
    "Part",
    "allocated",
    "key_of",
    "line_of",
    "nameable",
    "shared",
    "since_epoch",
    "wire_form",
]

# An item's state is one number, as each attribute of its own would take 8 bytes of every item: the
# second of its last use, and before it these bits.
FREQUENCY: Final = 0b11
"""How often it was used of late, up to 3."""
FETCHED: Final = 0b100
"""Whether it was read since it was stored."""
MAIN: Final = 0b1000
"""Which of S3-FIFO's two queues it is in."""
FULL: Final = 0b10000
"""Whether it is a `FullItem`, of which there is more to look at."""
STATE_BITS: Final = 5
FRESH_BITS: Final = FREQUENCY | MAIN
"""What is left of the bits when it is stored anew."""

# Seconds are counted from here so that, for a year, a state is one digit of a Python int: what is
# larger takes & twice as long.
EPOCH: Final = int(time.time())
"""Unix second from which states count."""

# States that `shared` knows: of a good hundred seconds.
_KNOWN_AT_MOST: Final = 4096
_known: Final[dict[int, int]] = {}

PYTHONS_OWN: Final = 512
"""Bytes of an object up to which CPython's own allocator has it."""

# Formatting more than 512 bytes takes a quarter more of the heap and gives back what it did not
# need, a hole too small for the next: a cache of 1,000-byte values came to take half as much again.
# And a megabyte costs twenty times what join does. Below, it is the faster of the two.
_FORMAT_AT_MOST: Final = 200
# Bytes of a reply from which a view of it is cheaper than a copy.
VIEW_FROM: Final = 1024

_START: Final = len(b"VALUE ")
_LINE_END: Final = len(b"\r\n")
END: Final = len(b"END\r\n")
"""Bytes of a reply behind the value and its line's end."""


Part: TypeAlias = bytes | memoryview
"""A piece of a reply: of a large value only a view."""


LINE_BESIDE_KEY: Final = len(b"get \r\n")
"""Bytes of such a line beside the key."""


def line_of(key: bytes) -> bytes:
    r"""Return what a client asks for an item with, ``get <key>\r\n``: tables find it under that."""
    return b"get %b\r\n" % key


def key_of(line: bytes) -> bytes:
    """Return the key in such a line."""
    return line[4:-2]


def wire_form(key: bytes, flags: int, value: bytes) -> bytes:
    r"""Return the reply to a get: ``VALUE <key> <flags> <size>\r\n<value>\r\nEND\r\n``.

    A key that the text protocol cannot name must be left empty.
    """
    size = len(value)
    if size > _FORMAT_AT_MOST:
        return b"".join((b"VALUE %b %d %d\r\n" % (key, flags, size), value, b"\r\nEND\r\n"))
    return b"VALUE %b %d %d\r\n%b\r\nEND\r\n" % (key, flags, size, value)


def allocated(size: int) -> int:
    """Return the bytes of memory a bytes object of `size` takes, its header and all.

    CPython's allocator and the C library's both give out multiples of 16. The latter has the
    larger ones, and of its memory three parts in 32 lie in holes when sizes have been mixed for
    ten turnovers, as measured.
    """
    size = (size + 33 + 15) & -16
    return size if size <= PYTHONS_OWN else size + (size >> 5) * 3


def since_epoch(second: int) -> int:
    """Return the bits of a state that say when the item was last used; `second` is unix time."""
    return (second - EPOCH) << STATE_BITS


def nameable(key: bytes) -> bool:
    """Return whether the text protocol has a way to name `key`: others come as base64 or binary."""
    return not (b" " in key or b"\n" in key)


def shared(state: int) -> int:
    """Return a state that was just reckoned as the one object that most items of it have.

    Each of its own would take 32 bytes that nobody counts. What `Usage` gives is shared already.
    """
    if len(_known) >= _KNOWN_AT_MOST:
        _known.clear()
    return _known.setdefault(state, state)


def _view(wire: bytes, begin: int, behind: int) -> memoryview:
    """Return a part of a reply that can be sent, and joined with others, and is not copied."""
    return memoryview(wire)[begin:-behind]


class Marks(NamedTuple):
    """What only few items have.

    Attributes:
        stale: it was invalidated, and is shown until somebody has stored it anew.
        won: somebody was told to do that, or to fill what was made empty.
        binary: its key came as base64, or could not come in any other way as text.
        unique: the cas unique that a client gave it; None where it is the version.
    """

    stale: bool = False
    won: bool = False
    binary: bool = False
    unique: int | None = None


# What an item refers to never refers back; compiled, it needs nothing of the garbage collector's.
@mypyc_attr(acyclic=True, allow_interpreted_subclasses=True)
class Item:
    r"""A stored value with what memcached keeps beside it.

    The value lives inside `wire`, the reply that get sends for it, so that a hit sends what is
    already there. What only some items have takes no memory of the others: it is a `FullItem`'s.

    Items are changed in place by nobody but the table that holds them, and their `state` by the
    engine.

    Attributes:
        wire: ``VALUE <key> <flags> <size>\r\n<value>\r\nEND\r\n``, without the key where the text
            protocol has no way to name it.
        state: when and how often it was used; see the constants above and `Usage`.
    """

    __slots__ = ("state", "wire")

    memory: ClassVar[int] = 48
    """Bytes of the object, without what it refers to."""

    def __init__(self, wire: bytes, state: int) -> None:
        self.wire = wire
        self.state = state

    @property
    def expires(self) -> float:
        """Unix time in seconds from which it counts as absent; 0 for never."""
        return 0.0

    @property
    def version(self) -> int:
        """The cas unique, 1 to 2**64-1, another one after every store; 0 while it has none."""
        return 0

    @property
    def marks(self) -> Marks | None:
        """What only few items have; None for the others."""
        return None

    @property
    def held(self) -> int:
        """Bytes of memory it takes: the object, and what it alone refers to."""
        return self.memory + allocated(len(self.wire))

    @property
    def accessed(self) -> int:
        """Unix second at which it was stored or last read."""
        return (self.state >> STATE_BITS) + EPOCH

    @property
    def fetched(self) -> bool:
        """Whether it was read since it was stored."""
        return bool(self.state & FETCHED)

    @property
    def unique(self) -> int:
        """The cas unique: its version, unless a client gave it another."""
        marks = self.marks
        return self.version if marks is None or marks.unique is None else marks.unique

    @property
    def key(self) -> bytes:
        """The key, empty where the text protocol has no way to name it."""
        return self.wire[_START : self.wire.index(b" ", _START)]

    @property
    def flags(self) -> int:
        """The client's flags, 0 to 2**32-1."""
        wire = self.wire
        begin = wire.index(b" ", _START) + 1
        if wire[begin : begin + 2] == b"0 ":  # as most are
            return 0
        return int(wire[begin : wire.index(b" ", begin)])

    @property
    def begin(self) -> int:
        """Where in `wire` the value begins."""
        return self.wire.index(b"\n") + 1

    @property
    def size(self) -> int:
        """Bytes of the value."""
        wire = self.wire
        return len(wire) - wire.index(b"\n") - 1 - _LINE_END - END

    @property
    def value(self) -> bytes:
        """The value, copied out of `wire`."""
        return self.wire[self.begin : -_LINE_END - END]

    def entry(self) -> tuple[Part, ...]:
        """Return the reply without its END line, in parts; of a large one only a view."""
        wire = self.wire
        if len(wire) < VIEW_FROM:
            return (wire[:-END],)
        begin = self.begin
        return wire[:begin], _view(wire, begin, END)

    def value_line(self) -> Part:
        """Return the value with the line's end behind it; of a large one a view."""
        if len(self.wire) < VIEW_FROM:
            return self.wire[self.begin : -END]
        return _view(self.wire, self.begin, END)

    def value_view(self) -> memoryview:
        """Return a view of the value."""
        return _view(self.wire, self.begin, _LINE_END + END)


@mypyc_attr(acyclic=True, allow_interpreted_subclasses=True)
class FullItem(Item):
    """An item with an expiry, a version or marks; backends deal in these.

    Attributes:
        expires: see `Item`.
        extra: what few items have: the version, alone or with the marks, if any; else 0.
    """

    __slots__ = ("expires", "extra")

    memory: ClassVar[int] = 64

    expires: float
    # In one, as each attribute takes 8 bytes of every item.
    extra: int | tuple[int, Marks]

    def __init__(self, wire: bytes, state: int, expires: float = 0.0) -> None:
        self.wire = wire
        self.state = shared(state | FULL)
        self.expires = expires
        self.extra = 0

    @classmethod
    def of(
        cls,
        key: bytes,
        value: bytes,
        flags: int = 0,
        expires: float = 0.0,
        version: int = 0,
        accessed: int = 0,
        marks: Marks | None = None,
    ) -> Self:
        """Return an item of these; backends make what they read into one."""
        if not nameable(key):
            key = b""
            marks = marks or Marks(binary=True)
        item = cls(wire_form(key, flags, value), since_epoch(accessed), expires)
        item.extra = version
        item.marks = marks
        return item

    @classmethod
    def like(cls, item: Item, version: int = 0) -> Self:
        """Return an unread item with the content of another."""
        new = cls(item.wire, item.state & ~FRESH_BITS & ~FETCHED, item.expires)
        new.extra = version
        new.marks = item.marks
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
    def marks(self) -> Marks | None:
        """See `Item`."""
        extra = self.extra
        return None if isinstance(extra, int) else extra[1]

    @marks.setter
    def marks(self, marks: Marks | None) -> None:
        self.extra = self.version if marks is None else (self.version, marks)

    @property
    def held(self) -> int:
        """See `Item`."""
        extra = self.extra
        size = self.memory + allocated(len(self.wire))
        if self.expires:
            size += _NUMBER
        if extra:
            size += _NUMBER if isinstance(extra, int) else _NUMBER + _MARKS
        return size


# Bytes of a number that is no small one, and of marks with the pair that holds them.
_NUMBER: Final = 32
_MARKS: Final = 160
