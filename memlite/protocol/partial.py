"""Text-protocol storage commands whose value has not arrived in full."""

from io import BytesIO
from typing import Final

from memlite.protocol.commands import Command
from memlite.protocol.pieces import Pieces, begin_memory
from memlite.protocol.text_table import SET_FRAMED

__all__ = ["PartialSet", "PartialStore"]

_LINE_END: Final = b"\r\n"
_REPLY_END: Final = b"\r\nEND\r\n"


class PartialStore(Pieces):
    """A storage command and the part of its value that has arrived.

    Args:
        command: the command's table row.
        before: its arguments before the value.
        size: the size of the value in bytes.
        after: its arguments after the value.
        noreply: whether the client wants no reply.
        line: the command's line, for `whole`.

    Attributes:
        command: as above; so are the other attributes.
    """

    __slots__ = ("after", "before", "command", "noreply")

    def __init__(
        self,
        command: Command,
        before: tuple[object, ...],
        size: int,
        after: tuple[object, ...],
        noreply: bool,
        line: bytes = b"",
    ) -> None:
        super().__init__(size + len(_LINE_END), line)
        self.command = command
        self.before = before
        self.after = after
        self.noreply = noreply

    def framed_value(self) -> bytes | None:
        """Return the value, copied once; None if it is not followed by a line ending."""
        if self._reserved is not None:
            memory = self._reserved.getbuffer()
            if bytes(memory[-len(_LINE_END) :]) != _LINE_END:
                return None
            return bytes(memory[len(self.head) : -len(_LINE_END)])
        pieces = self._blocks + self._pieces
        last = pieces.pop()
        if len(last) < len(_LINE_END) and pieces:
            last = pieces.pop() + last
        if not last.endswith(_LINE_END):
            return None
        pieces.append(last[: -len(_LINE_END)])
        return b"".join(pieces)


class PartialSet(PartialStore):
    """A set of a large value, assembled once in the form in which it will be stored.

    Args:
        key: the item's key.
        flags: the client flags.
        exptime: the exptime as sent.
        size: the size of the value in bytes.
        noreply: whether the client wants no reply.
        begun: the part of the value that has arrived; it is not copied until the rest has, too.
    """

    __slots__ = ("_begun", "_reply")

    def __init__(
        self, key: bytes, flags: int, exptime: int, size: int, noreply: bool, begun: memoryview
    ) -> None:
        super().__init__(SET_FRAMED, (key, exptime), size, (noreply,), noreply)
        self._begun: list[bytes | memoryview] = [b"VALUE %b %d %d\r\n" % (key, flags, size), begun]
        self.missing -= len(begun)
        self._reply: BytesIO | None = None  # once `reserve` was called

    def reserve(self) -> memoryview:
        """Allocate the whole reply; return the part of it where the rest of the value belongs.

        The rest then counts as received.
        """
        parts = (*self._begun, *self._blocks, *self._pieces)
        missing = self.missing_of_large
        self._reply, memory = begin_memory(parts, missing, len(_REPLY_END))
        self._reply.getbuffer()[-len(_REPLY_END) :] = _REPLY_END
        self._begun.clear()
        self._blocks.clear()
        self._pieces.clear()
        self.missing -= missing
        return memory

    def framed_value(self) -> bytes | None:
        """Return the reply to a later get; None if the value is not followed by a line ending."""
        if self._reply is not None:
            return self._reply.getvalue() if self.value() == _LINE_END else None
        framed = b"".join((*self._begun, *self._blocks, *self._pieces, _REPLY_END[2:]))
        return framed if framed.endswith(_REPLY_END) else None
