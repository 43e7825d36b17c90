"""Storage commands of the text protocol whose values, with their line's ends, are yet to come."""

from io import BytesIO
from typing import Final

from memlite.protocol.pieces import Pieces

__all__ = ["PartialSet", "PartialStore"]

_LINE_END: Final = b"\r\n"
_BEHIND_VALUE: Final = b"\r\nEND\r\n"


class PartialStore(Pieces):
    """Any of them.

    Args:
        method: the handler's, to be called when all is there.
        before: its arguments before the value.
        size: bytes of the value.
        after: its arguments behind the value.
        noreply: whether the client wants no answer.

    Attributes:
        method: as above, and the others.
    """

    __slots__ = ("after", "before", "method", "noreply")

    def __init__(
        self,
        method: str,
        before: tuple[object, ...],
        size: int,
        after: tuple[object, ...],
        noreply: bool,
    ) -> None:
        super().__init__(size + len(_LINE_END))
        self.method = method
        self.before = before
        self.after = after
        self.noreply = noreply

    def framed_value(self) -> bytes | None:
        """Return the value, in one copy; None if no line end follows it."""
        pieces = self._blocks + self._pieces
        last = pieces.pop()
        if len(last) < len(_LINE_END) and pieces:
            last = pieces.pop() + last
        if not last.endswith(_LINE_END):
            return None
        pieces.append(last[: -len(_LINE_END)])
        return b"".join(pieces)


class PartialSet(PartialStore):
    """A set of a large value, which is put together once, as it is going to be kept.

    Args:
        key: the item's.
        flags: the client's.
        exptime: as on the wire.
        size: bytes of the value.
        noreply: whether the client wants no answer.
        begun: what there is of the value; it is not copied before the rest is there.
    """

    __slots__ = ("_begun", "_reserved")

    def __init__(
        self, key: bytes, flags: int, exptime: int, size: int, noreply: bool, begun: memoryview
    ) -> None:
        super().__init__("set_framed", (key, exptime), size, (noreply,), noreply)
        self._begun: list[bytes | memoryview] = [b"VALUE %b %d %d\r\n" % (key, flags, size), begun]
        self.missing -= len(begun)
        self._reserved: BytesIO | None = None

    @property
    def missing_of_value(self) -> int:
        """Bytes still to come before the line's end."""
        return max(self.missing - len(_LINE_END), 0)

    def reserve(self) -> memoryview:
        """Take memory for the whole reply; return where in it what is missing of the value goes.

        That counts as received, then.
        """
        parts = (*self._begun, *self._blocks, *self._pieces)
        missing = self.missing_of_value
        # Unlike a bytearray it can be written to, and be bytes in the end without another copy.
        self._reserved = BytesIO(bytes(sum(map(len, parts)) + missing + len(_BEHIND_VALUE)))
        memory = self._reserved.getbuffer()
        position = 0
        for part in parts:
            memory[position : position + len(part)] = part
            position += len(part)
        memory[position + missing :] = _BEHIND_VALUE
        self._begun.clear()
        self._blocks.clear()
        self._pieces.clear()
        self.missing -= missing
        return memory[position : position + missing]

    def framed_value(self) -> bytes | None:
        """Return the reply to a get of it; None if no line end follows the value."""
        if self._reserved is not None:
            return self._reserved.getvalue() if self.value() == _LINE_END else None
        framed = b"".join((*self._begun, *self._blocks, *self._pieces, _BEHIND_VALUE[2:]))
        return framed if framed.endswith(_BEHIND_VALUE) else None
