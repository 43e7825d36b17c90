"""What a parser calls: one method per command."""

from typing import Protocol

from memlite.protocol.meta import MetaRequest

__all__ = ["COMMAND_CLASS", "KEY_ARGUMENT", "Handler"]


class Handler(Protocol):
    """Carries out commands in the order they arrived and sees to their replies.

    Values come without their line end. `noreply` means that the peer wants no answer, not even
    an error. Methods return nothing: a handler may answer at once (memory) or later, in order.
    """

    def hit(self, line: bytes) -> bool:
        r"""Answer ``get <key>\r\n`` at once if that is possible; else do nothing, return False.

        The parser asks this first with any line, end and all, that may be a get and did not come
        alone, and goes on as usual after False. A handler that cannot answer at once returns False
        always.
        """

    def get(self, keys: list[bytes]) -> None: ...
    def gets(self, keys: list[bytes]) -> None: ...
    def gat(self, exptime: int, keys: list[bytes]) -> None: ...
    def gats(self, exptime: int, keys: list[bytes]) -> None: ...

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None: ...
    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        r"""Set a value that comes as get will send it, as large ones do, and small ones that can.

        Args:
            key: the item's.
            exptime: as for `set`.
            framed: ``VALUE <key> <flags> <size>\r\n<value>\r\nEND\r\n``.
            noreply: as for `set`.
        """

    def add(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None: ...
    def replace(
        self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool
    ) -> None: ...
    def append(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None: ...
    def prepend(
        self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool
    ) -> None: ...
    def cas(
        self, key: bytes, flags: int, exptime: int, value: bytes, unique: int, noreply: bool
    ) -> None: ...

    def delete(self, key: bytes, noreply: bool) -> None: ...
    def incr(self, key: bytes, delta: int, noreply: bool) -> None: ...
    def decr(self, key: bytes, delta: int, noreply: bool) -> None: ...
    def touch(self, key: bytes, exptime: int, noreply: bool) -> None: ...

    def meta_get(self, request: MetaRequest) -> None: ...
    def meta_set(self, request: MetaRequest, value: bytes) -> None: ...
    def meta_delete(self, request: MetaRequest) -> None: ...
    def meta_count(self, request: MetaRequest) -> None: ...
    def meta_debug(self, request: MetaRequest) -> None: ...
    def meta_noop(self) -> None: ...

    def too_large(self, command: bytes, key: bytes, noreply: bool) -> None:
        """Refuse a value that is over the item size limit; the parser swallows it."""

    def admin(self, words: list[bytes], noreply: bool) -> None:
        """Carry out any other command; `words` is never empty, and its first may be unknown."""

    def quit(self) -> None:
        """Close the connection once earlier replies are out."""

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer a malformed command with the wire line `reply`."""


COMMAND_CLASS = {
    "hit": "get",
    "get": "get",
    "gets": "get",
    "gat": "touch",
    "gats": "touch",
    "set": "store",
    "set_framed": "store",
    "add": "store",
    "replace": "store",
    "append": "store",
    "prepend": "store",
    "cas": "store",
    "delete": "delete",
    "incr": "arithmetic",
    "decr": "arithmetic",
    "touch": "touch",
    "meta_get": "get",
    "meta_set": "store",
    "meta_delete": "delete",
    "meta_count": "arithmetic",
    "meta_debug": "other",
    "meta_noop": "other",
    "too_large": "other",
    "admin": "other",
    "quit": "other",
    "reject": "other",
    "binary_get": "get",
    "binary_store": "store",
    "binary_delete": "delete",
    "binary_count": "arithmetic",
    "binary_touch": "touch",
    "binary_too_large": "other",
    "binary_admin": "other",
    "binary_reject": "other",
}
"""Every handler method and the class its latency counts in (`memlite.stats.COMMAND_CLASSES`)."""

KEY_ARGUMENT = {
    "get": 0,
    "gets": 0,
    "gat": 1,
    "gats": 1,
    "set": 0,
    "set_framed": 0,
    "add": 0,
    "replace": 0,
    "append": 0,
    "prepend": 0,
    "cas": 0,
    "delete": 0,
    "incr": 0,
    "decr": 0,
    "touch": 0,
    "meta_get": 0,
    "meta_set": 0,
    "meta_delete": 0,
    "meta_count": 0,
    "meta_debug": 0,
    "too_large": 1,
    "binary_get": 0,
    "binary_store": 0,
    "binary_delete": 0,
    "binary_count": 0,
    "binary_touch": 0,
    "binary_too_large": 0,
}
"""Which argument of a handler method is its key, the list of them, or the request with it.

But for `hit`, which has it in a line.
"""
