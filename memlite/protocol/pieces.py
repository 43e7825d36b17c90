"""Assembly of a value that arrives in pieces."""

from typing import Final

__all__ = ["Pieces"]

_PIECES_PER_BLOCK: Final = 1024
# Blocks of this many bytes are returned to the system when they are freed. Pieces are not: they lie
# in the heap, where anything that was allocated after them can keep all of them resident.
_BLOCK: Final = 4 * 1024 * 1024
# The head of a value of at least this many bytes is not kept: joining them again would cost more
# than it saves later.
_LONG: Final = 64 * 1024


class Pieces:
    """Collects a value without copying it repeatedly, however small its pieces are.

    Args:
        size: the size of the value in bytes.
        head: the bytes before it, for `whole`.

    Attributes:
        missing: bytes still to arrive.
    """

    __slots__ = ("_blocks", "_head", "_loose", "_pieces", "missing")

    def __init__(self, size: int, head: bytes = b"") -> None:
        self.missing = size
        self._head = head if size < _LONG else b""
        self._blocks: list[bytes] = []
        self._pieces: list[bytes] = []
        self._loose = 0  # bytes in pieces

    def append(self, piece: bytes) -> None:
        """Take the next piece, of at most `missing` bytes."""
        if not piece:
            return
        size = len(piece)
        self._pieces.append(piece)
        self._loose += size
        self.missing -= size
        # If a peer sends a byte at a time, the list would otherwise outgrow its contents.
        if self._loose >= _BLOCK or len(self._pieces) == _PIECES_PER_BLOCK:
            self._blocks.append(b"".join(self._pieces))
            self._pieces.clear()
            self._loose = 0

    def whole(self, data: bytes) -> bytes:
        """Return everything from the head to the end of `data`, the next input.

        Returns:
            Nothing if the head is unknown, the value is long, or `data` does not complete it.
        """
        if not self._head or len(data) < self.missing:
            return b""
        return b"".join((self._head, *self._blocks, *self._pieces, data))

    def value(self) -> bytes:
        """Return the whole value, copied once."""
        return b"".join(self._blocks + self._pieces)
