"""Assembly of a value that arrives in pieces."""

from collections.abc import Sequence
from io import BytesIO
from typing import Final

from memlite.core.allocation import uninitialized_bytes

__all__ = ["Pieces", "begin_memory"]

_PIECES_PER_BLOCK: Final = 1024
# Blocks of this many bytes are returned to the system when they are freed. Pieces are not: they lie
# in the heap, where anything that was allocated after them can keep all of them resident.
_BLOCK: Final = 4 * 1024 * 1024
# Joining the head and the pieces of a value of at least this many bytes would cost more than it
# saves later.
_LONG: Final = 64 * 1024
# Bytes of a value, with its line ending if it has one, for which `reserve` leaves no room: its last
# bytes are received as usual, so that it is never complete while a transport writes to the memory.
_RECEIVED: Final = 2


class Pieces:
    """Collects a value without copying it repeatedly, however small its pieces are.

    Args:
        size: the size of the value in bytes.
        head: the bytes before it, for `whole`.
        joins: whether `whole` is worthwhile even if the value is long.

    Attributes:
        head: as above.
        missing: bytes still to arrive.
    """

    __slots__ = ("_blocks", "_long", "_loose", "_pieces", "_reserved", "head", "missing")

    def __init__(self, size: int, head: bytes = b"", *, joins: bool = False) -> None:
        self.missing = size
        self.head = head
        self._long = size >= _LONG and not joins
        self._blocks: list[bytes] = []
        self._pieces: list[bytes] = []
        self._loose = 0  # bytes in pieces
        self._reserved: BytesIO | None = None  # the head and the value, once `reserve` was called

    @property
    def missing_of_large(self) -> int:
        """Bytes still to arrive for which `reserve` can return memory."""
        return max(self.missing - _RECEIVED, 0)

    def reserve(self) -> memoryview:
        """Return memory for `missing_of_large` bytes, which then count as received."""
        missing = self.missing_of_large
        parts = (self.head, *self._blocks, *self._pieces)
        self._reserved, memory = begin_memory(parts, missing, _RECEIVED)
        self._blocks.clear()
        self._pieces.clear()
        self.missing -= missing
        return memory

    def append(self, piece: bytes) -> None:
        """Take the next piece, of at most `missing` bytes."""
        if not piece:
            return
        size = len(piece)
        if self._reserved is not None:
            self._write(piece)
            return
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
            Nothing if the head is unknown, `data` does not complete the value, or the value is
            long and has no memory.
        """
        missing = self.missing
        if not self.head or len(data) < missing:
            return b""
        reserved = self._reserved
        if reserved is not None:
            self._write(data[:missing])
            following = data[missing:]
            return reserved.getvalue() + following if following else reserved.getvalue()
        if self._long:
            return b""
        return b"".join((self.head, *self._blocks, *self._pieces, data))

    def _write(self, piece: bytes) -> None:
        """Write the next piece to the reserved memory."""
        assert self._reserved is not None  # noqa: S101 - the callers have checked
        memory = self._reserved.getbuffer()
        begin = len(memory) - self.missing
        memory[begin : begin + len(piece)] = piece
        self.missing -= len(piece)

    def value(self) -> bytes:
        """Return the whole value, copied once."""
        if self._reserved is not None:
            return bytes(self._reserved.getbuffer()[len(self.head) :])
        return b"".join(self._blocks + self._pieces)


def begin_memory(
    parts: Sequence[bytes | memoryview], missing: int, beyond: int
) -> tuple[BytesIO, memoryview]:
    """Allocate memory for something that has arrived in part.

    Args:
        parts: the part of it that has arrived.
        missing: the bytes that follow and are yet to arrive.
        beyond: the bytes after these.

    Returns:
        The memory, whose value is bytes without another copy, and the place for missing bytes.
    """
    begun = sum(map(len, parts))
    # A BytesIO can be written to and, unlike a bytearray, yields bytes without another copy.
    whole = BytesIO(uninitialized_bytes(begun + missing + beyond))
    memory = whole.getbuffer()
    position = 0
    for part in parts:
        memory[position : position + len(part)] = part
        position += len(part)
    return whole, memory[begun : begun + missing]
