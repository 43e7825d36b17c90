"""A target that refuses every request, in place of unknown nodes."""

from typing import Final, Protocol

__all__ = ["NO_NUL", "Refusal"]


class _Failing(Protocol):
    def fail(self, error: bytes) -> None: ...


class Refusal:
    """Refuses every request.

    Args:
        reason: why, in a few words.
        kind: the first word of the reply.

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
"""The target for text keys with a NUL.

In older versions of memcached, the NUL ends the line. They would execute the value as further
commands, with replies that would go to other clients.
"""
