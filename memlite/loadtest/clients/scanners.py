"""Scanners that find the ends of replies, by the server's protocol."""

from collections.abc import Callable
from typing import Protocol

from memlite.client.scanner import Outcome, ReplyScanner, fixed_size_matcher
from memlite.loadtest.clients.resp import RespScanner, fixed_size_resp_matcher
from memlite.loadtest.dialects import Dialect

__all__ = ["Scanner", "matcher_of", "scanner_of"]


class Scanner(Protocol):
    """Splits bytes, as they arrive, into replies."""

    @property
    def in_reply(self) -> bool:
        """Whether a part of a reply was received, but not all of it."""

    def feed(self, data: bytes) -> list[Outcome]:
        """Return the outcomes of the replies that `data` completes, in order.

        Raises:
            ReplyError: the server does not speak the protocol.
        """


def scanner_of(dialect: Dialect) -> Scanner:
    """Return a scanner of replies."""
    return RespScanner() if dialect is Dialect.RESP else ReplyScanner()


def matcher_of(dialect: Dialect, size: int) -> Callable[[bytes], list[bytes]]:
    """Return a matcher of the usual replies; see `memlite.client.scanner.fixed_size_matcher`."""
    if dialect is Dialect.RESP:
        return fixed_size_resp_matcher(size)
    return fixed_size_matcher(size, lite=dialect is Dialect.LITE)
