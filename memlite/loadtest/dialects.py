"""What the clients of a target speak."""

import enum

__all__ = ["Dialect"]


class Dialect(enum.StrEnum):
    """A protocol in which gets and sets can be sent.

    Attributes:
        MEMCACHED: memcached's text protocol.
        LITE: the classroom's lite dialect of it.
        RESP: that of Redis and Valkey, https://valkey.io/topics/protocol, in its second version.
    """

    MEMCACHED = "memcached"
    LITE = "lite"
    RESP = "resp"
