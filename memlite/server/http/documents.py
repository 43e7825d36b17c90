"""Bodies of replies, rendered once for many requests."""

import gzip
from collections.abc import Callable
from functools import cached_property
from typing import Final

__all__ = ["Document", "Recent"]

_COMPRESSION_LEVEL: Final = 1  # other requests wait meanwhile
_RECENT_SECONDS: Final = 0.2


class Document:
    """A body and its compressed form, which is computed on first use.

    Args:
        plain: the body.
    """

    def __init__(self, plain: bytes) -> None:
        self.plain = plain

    @cached_property
    def compressed(self) -> bytes:
        """The body, compressed with gzip."""
        return gzip.compress(self.plain, _COMPRESSION_LEVEL, mtime=0)


class Recent:
    """Renders a document, at most once in a fifth of a second.

    Args:
        make: returns the body.
        clock: returns seconds, never decreasing.
    """

    def __init__(self, make: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self._made = 0.0
        self._document: Document | None = None

    def document(self) -> Document:
        """Return the document; it may be up to a fifth of a second old."""
        now = self._clock()
        if self._document is None or now - self._made >= _RECENT_SECONDS:
            self._document, self._made = Document(self._make()), now
        return self._document
