"""The protocols that clients of a target speak."""

import enum

__all__ = ["Dialect"]


class Dialect(enum.StrEnum):
    """A protocol in which gets and sets can be sent.

    Attributes:
        MEMCACHED: memcached's text protocol.
        LITE: the lite dialect of that protocol, for the classroom.
        RESP: the protocol of Redis and Valkey, version 2, https://valkey.io/topics/protocol.
    """

    MEMCACHED = "memcached"
    LITE = "lite"
    RESP = "resp"
