"""What every backend keeps."""

__all__ = ["Item"]


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
        fetched: whether it was read since.
    """

    __slots__ = ("expires", "fetched", "flags", "size", "stored", "version", "wire")

    def __init__(
        self, wire: bytes, size: int, flags: int, expires: float, version: int, stored: int
    ) -> None:
        self.wire = wire
        self.size = size
        self.flags = flags
        self.expires = expires
        self.version = version
        self.stored = stored
        self.fetched = False

    @property
    def value(self) -> bytes:
        """The value, copied out of `wire`."""
        return self.wire[-self.size - 2 : -2]
