"""What stands for the nodes while they are not known."""

from typing import Final, Protocol

__all__ = ["Refusing"]


class _Failing(Protocol):
    def fail(self, error: bytes) -> None: ...


class Refusing:
    """Refuses every request.

    Args:
        reason: why, in a few words.

    Attributes:
        error: the reply to every request.
    """

    def __init__(self, reason: str) -> None:
        self.reason: Final = reason
        text = " ".join(f"SERVER_ERROR {reason}".split())
        self.error: Final = text.encode("ascii", "backslashreplace") + b"\r\n"

    def send(self, _request: bytes, receiver: _Failing) -> None:
        """Refuse a request."""
        receiver.fail(self.error)
