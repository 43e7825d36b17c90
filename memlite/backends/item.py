"""What is stored under a key, in as few bytes as Python allows for."""

import time
from typing import ClassVar, Final, NamedTuple, Self

__all__ = [
    "FETCHED",
    "FREQUENCY",
    "FRESH_BITS",
    "MAIN",
    "STATE_BITS",
    "STRAIGHT_AT_MOST",
    "UNHURRIED",
    "Item",
    "Marks",
    "allocated",
    "nameable",
    "since_epoch",
    "tail_form",
]

# An item's state is one number, as each attribute of its own would take 8 bytes of every item: the
# second of its last use, and before it these bits.
FREQUENCY: Final = 0b11
"""How often it was used of late, up to 3."""
FETCHED: Final = 0b100
"""Whether it was read since it was stored."""
MAIN: Final = 0b1000
"""Which of S3-FIFO's two queues it is in."""
UNHURRIED: Final = 0b10000
"""Whether it is too large, or too particular, for the straight path."""
STATE_BITS: Final = 5
FRESH_BITS: Final = FREQUENCY | MAIN
"""What is left of the bits when it is stored anew."""

# Seconds are counted from here so that, for a year, a state is one digit of a Python int: what is
# larger takes & twice as long.
_EPOCH: Final = int(time.time())

# Formatting grows its buffer as it goes, which costs a megabyte twenty times what join does; for
# a small value it is the faster of the two.
_FORMAT_AT_MOST: Final = 4096
# Bytes of a tail up to which a copy costs less than a second buffer in the reply.
STRAIGHT_AT_MOST: Final = 1024 + len(b" 0 1024\r\n\r\n")


def tail_form(flags: int, value: bytes) -> bytes:
    r"""Return what get sends behind ``VALUE <key>``: `` <flags> <size>\r\n<value>\r\n``."""
    size = len(value)
    if size > _FORMAT_AT_MOST:
        return b"".join((b" %d %d\r\n" % (flags, size), value, b"\r\n"))
    return b" %d %d\r\n%b\r\n" % (flags, size, value)


def allocated(size: int) -> int:
    """Return the bytes of memory a bytes object of `size` takes, its header and all.

    CPython's allocator and the C library's both give out multiples of 16.
    """
    return (size + 33 + 15) & -16


def since_epoch(second: int) -> int:
    """Return the bits of a state that say when the item was last used; `second` is unix time."""
    return (second - _EPOCH) << STATE_BITS


def nameable(key: bytes) -> bool:
    """Return whether the text protocol has a way to name `key`: others come as base64 or binary."""
    return not (b" " in key or b"\n" in key)


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


class Item:
    r"""A stored value with what memcached keeps beside it.

    The value lives inside `tail`, the reply that get sends for it, so that a hit sends bytes that
    are already there; the key, which the table has, is not in it a second time. Items are changed
    in place by nobody but the table that holds them, and their `state` by the engine.

    Attributes:
        tail: `` <flags> <size>\r\n<value>\r\n``.
        expires: unix time in seconds from which the item counts as absent; 0 for never.
        state: when and how often it was used; see the constants above and `Usage`.
        extra: what few items have: the version, alone or with the marks, if any; else 0.
    """

    __slots__ = ("expires", "extra", "state", "tail")

    memory: ClassVar[int] = 64
    """Bytes of the object, without what it refers to."""

    # In one, as each attribute takes 8 bytes of every item.
    extra: int | tuple[int, Marks]

    def __init__(self, tail: bytes, expires: float, state: int) -> None:
        self.tail = tail
        self.expires = expires
        self.state = state
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
        if marks is None and not nameable(key):
            marks = Marks(binary=True)
        item = cls(tail_form(flags, value), expires, since_epoch(accessed))
        item.extra = version
        item.marks = marks
        return item

    @classmethod
    def like(cls, item: "Item", version: int = 0) -> Self:
        """Return an unread item with the content of another."""
        new = cls(item.tail, item.expires, item.state & ~FRESH_BITS & ~FETCHED)
        new.extra = version
        new.marks = item.marks
        return new

    @property
    def version(self) -> int:
        """The cas unique, 1 to 2**64-1, another one after every store; 0 while it has none."""
        extra = self.extra
        return extra if isinstance(extra, int) else extra[0]

    @version.setter
    def version(self, version: int) -> None:
        extra = self.extra
        self.extra = version if isinstance(extra, int) else (version, extra[1])

    @property
    def marks(self) -> Marks | None:
        """What only few items have; None for the others."""
        extra = self.extra
        return None if isinstance(extra, int) else extra[1]

    @marks.setter
    def marks(self, marks: Marks | None) -> None:
        self.extra = self.version if marks is None else (self.version, marks)
        self.settle()

    def settle(self) -> None:
        """Bring the state up to date with what was changed; the straight path goes by it."""
        if len(self.tail) > STRAIGHT_AT_MOST or not isinstance(self.extra, int):
            self.state |= UNHURRIED
        else:
            self.state &= ~UNHURRIED

    @property
    def held(self) -> int:
        """Bytes of memory it takes: the object, and what it alone refers to."""
        extra = self.extra
        size = self.memory + allocated(len(self.tail))
        if self.expires:
            size += _NUMBER
        if extra:
            size += _NUMBER if isinstance(extra, int) else _NUMBER + _MARKS
        return size

    @property
    def accessed(self) -> int:
        """Unix second at which it was stored or last read."""
        return (self.state >> STATE_BITS) + _EPOCH

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
    def flags(self) -> int:
        """The client's flags, 0 to 2**32-1."""
        return int(self.tail[1 : self.tail.index(b" ", 1)])

    @property
    def begin(self) -> int:
        """Where in `tail` the value begins; it ends two bytes before the end."""
        return self.tail.index(b"\n") + 1

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.tail) - self.begin - 2

    @property
    def value(self) -> bytes:
        """The value, copied out of `tail`."""
        return self.tail[self.begin : -2]


# Bytes of a number that is no small one, and of marks with the pair that holds them.
_NUMBER: Final = 32
_MARKS: Final = 160
