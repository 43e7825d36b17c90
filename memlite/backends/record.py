"""The records that backends store: one value object per item, independent of any protocol."""

from typing import NamedTuple, Protocol

from memlite.core.meta_flags import MetaFlags

__all__ = ["Record", "Versioned"]


class Record(NamedTuple):
    """An item as a backend stores and returns it.

    Attributes:
        key: 1 to 250 bytes.
        value: the bytes a client stored.
        flags: the client's flags, 0 to 2**32-1.
        expires: unix time in seconds from which the item counts as absent; 0 for never.
        version: identifies this state of the key, 1 to 2**64-1; 0 while not assigned. Clients see
            it as the cas unique.
        accessed: unix second at which the item was stored or last read, as far as is known.
        fetched: whether it was read since it was stored, as far as is known.
        meta_flags: properties that only a few items have; None for all others.
        token: lets the backend that read the record recognize that state; opaque to other code.
    """

    key: bytes
    value: bytes
    flags: int = 0
    expires: float = 0.0
    version: int = 0
    accessed: int = 0
    fetched: bool = False
    meta_flags: MetaFlags | None = None
    token: object = None


class Versioned(Protocol):
    """A state of a key that was read earlier: a record, or anything else with its version."""

    @property
    def version(self) -> int:
        """See `Record`."""
