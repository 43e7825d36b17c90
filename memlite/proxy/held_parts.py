"""Parts of replies that wait for other parts, for requests split downstream of an executor."""

from typing import Final

from memlite.proxy.unread_replies import MAX_UNREAD

__all__ = ["PARTS", "TOO_MUCH", "HeldParts"]

TOO_MUCH: Final = b"SERVER_ERROR too many parts of replies wait for others\r\n"
"""The reply to a get whose parts cannot be held."""


class HeldParts:
    """Bounds the total size of the parts of all replies.

    Parts that an executor has split count as held for its client; see `memlite.proxy.held_replies`.
    Parts that are split downstream of it are not known to any client.

    Args:
        most: the limit in bytes.

    Attributes:
        size: bytes held.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0

    def hold(self, size: int) -> bool:
        """Count bytes to be held, if there is room for them; return whether there is.

        There is always room for a single part, however large.
        """
        if self.size and self.size + size > self.most:
            return False
        self.size += size
        return True

    def release(self, size: int) -> None:
        """Stop counting bytes that were held."""
        self.size -= size


PARTS: Final = HeldParts(MAX_UNREAD)
"""The parts held by this process."""
