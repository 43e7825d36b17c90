"""What every backend keeps."""

__all__ = ["RENEWED", "SPENT", "UNUSED", "USED", "Item"]

UNUSED, SPENT, RENEWED, USED = range(4)


class Item:
    r"""A stored value with what memcached keeps beside it.

    The value lives inside `wire`, the reply that get sends for it, so that a hit sends bytes that
    are already there. Items are changed in place by nobody but the backend that holds them and
    the engine that drives it.

    Attributes:
        wire: ``VALUE <key> <flags> <size>\r\n<value>\r\n``.
        size: bytes of the value.
        flags: the client's flags, 0 to 2**32-1.
        expires: unix time in seconds from which the item counts as absent; 0 for never.
        version: the cas unique; grows with every store.
        stored: unix second at which it was stored.
        uses: `UNUSED` until it is read, then `USED`; `SPENT` once the backend has passed over it
            for that when it made room; `RENEWED` when it was stored again and not read since.
    """

    __slots__ = ("expires", "flags", "size", "stored", "uses", "version", "wire")

    def __init__(
        self, wire: bytes, size: int, flags: int, expires: float, version: int, stored: int
    ) -> None:
        self.wire = wire
        self.size = size
        self.flags = flags
        self.expires = expires
        self.version = version
        self.stored = stored
        self.uses = UNUSED

    @property
    def fetched(self) -> bool:
        """Whether it was ever read."""
        return self.uses in (SPENT, USED)

    @property
    def value(self) -> bytes:
        """The value, copied out of `wire`."""
        return self.wire[-self.size - 2 : -2]
