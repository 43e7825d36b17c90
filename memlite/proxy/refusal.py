"""A target that refuses every request: it stands for nodes that are not known."""

from typing import Final, Protocol

__all__ = ["NO_NUL", "Refusal"]


class _Failing(Protocol):
    def fail(self, error: bytes) -> None: ...


class Refusal:
    """Refuses every request.

    Args:
        reason: why, in a few words.
        kind: what the reply begins with.

    Attributes:
        error: the reply to every request.
    """

    def __init__(self, reason: str, kind: str = "SERVER_ERROR") -> None:
        self.reason: Final = reason
        text = " ".join(f"{kind} {reason}".split())
        self.error: Final = text.encode("ascii", "backslashreplace") + b"\r\n"

    def send(self, _request: bytes, receiver: _Failing) -> None:
        """Refuse a request."""
        receiver.fail(self.error)


NO_NUL: Final = Refusal("a key with a NUL needs base64 through a proxy", "CLIENT_ERROR")
"""What stands for the node of a text key with a NUL.

For older memcacheds a line ends there. They would take the value for further commands, with replies
that would go to other clients.
"""
