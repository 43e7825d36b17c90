"""Parts of replies that wait for the others, of requests that were split behind an executor."""

from typing import Final

from memlite.proxy.unread_replies import MAX_UNREAD

__all__ = ["PARTS", "TOO_MUCH", "HeldParts"]

TOO_MUCH: Final = b"SERVER_ERROR too many parts of replies wait for others\r\n"
"""The reply to a get whose parts cannot be held."""


class HeldParts:
    """Bounds the parts of all replies together.

    What an executor has split is counted as held for its client; see `memlite.proxy.held_replies`.
    What is split behind it, no client knows of.

    Args:
        most: bytes.

    Attributes:
        size: bytes held.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0

    def hold(self, size: int) -> bool:
        """Count bytes that are to be held; return whether there is room, else nothing is counted.

        A part that is alone has room, however large it is.
        """
        if self.size and self.size + size > self.most:
            return False
        self.size += size
        return True

    def release(self, size: int) -> None:
        """Count bytes no more."""
        self.size -= size


PARTS: Final = HeldParts(MAX_UNREAD)
"""Those of this process."""
