"""What the binary protocol's parser calls: one method per kind of command."""

from typing import Protocol

from memlite.protocol.packets import BinaryRequest, Status

__all__ = ["BinaryHandler"]


class BinaryHandler(Protocol):
    """What `Handler` is, for the binary protocol: one method per kind of command.

    The request says which command it is (`memlite.protocol.packets.Opcode`).
    """

    def binary_get(self, request: BinaryRequest) -> None: ...
    def binary_store(self, request: BinaryRequest) -> None: ...
    def binary_delete(self, request: BinaryRequest) -> None: ...
    def binary_count(self, request: BinaryRequest) -> None: ...
    def binary_touch(self, request: BinaryRequest) -> None:
        """Set a new expiry and, but for TOUCH itself, answer like `binary_get`."""

    def binary_too_large(self, request: BinaryRequest) -> None:
        """Refuse a value that is over the item size limit; the parser swallows it."""

    def binary_admin(self, request: BinaryRequest) -> None:
        """Carry out a command that is not about a key; `quit` follows a QUIT."""

    def binary_reject(self, request: BinaryRequest, status: Status) -> None:
        """Answer a malformed or unknown command."""

    def quit(self) -> None: ...
