"""Errors of requests on an open connection."""

from memlite.core.errors import MemliteError

__all__ = [
    "CommandFailedError",
    "ConnectionLostError",
    "DiscoveryError",
    "NodeUnreachableError",
    "OutcomeUnknownError",
]

_SHOWN = 40


class ConnectionLostError(MemliteError, ConnectionError):
    """The connection was lost, or given up, before a request was sent.

    The request was not carried out, and can be sent to another server.

    Attributes:
        cause: the reason: a `memlite.client.replies.ReplyError`, a TimeoutError or another
            OSError; None if the server closed the connection, or `Connection.close` was called.
    """

    def __init__(self, text: str, cause: Exception | None) -> None:
        super().__init__(text)
        self.cause = cause


class OutcomeUnknownError(ConnectionLostError):
    """The connection was lost while a request was outstanding.

    The server may or may not have carried it out. Sending it again is safe only if carrying it out
    twice does no harm.

    Attributes:
        request: the request.
    """

    def __init__(self, text: str, cause: Exception | None, request: bytes) -> None:
        line = request.partition(b"\r\n")[0]
        shown = repr(line[:_SHOWN])[1:] + (" …" if len(line) > _SHOWN else "")
        super().__init__(f"{text}; the outcome of {shown} is unknown", cause)
        self.request = request


class NodeUnreachableError(ConnectionLostError):
    """There is no connection to a node. Nothing was sent."""


class DiscoveryError(MemliteError):
    """No server has listed the nodes of a cluster in a usable form."""


class CommandFailedError(MemliteError):
    """A server has answered with an error.

    Attributes:
        reply: the error line.
    """

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply.decode("utf-8", "backslashreplace"))
        self.reply = reply
