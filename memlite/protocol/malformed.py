"""The error for commands that cannot be parsed."""

from memlite.core.errors import MemliteError

__all__ = ["MalformedError"]


class MalformedError(MemliteError):
    """A command is malformed; the connection stays open.

    Attributes:
        reply: the text protocol's reply line, including its line ending.
    """

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply.rstrip().decode("latin-1"))
        self.reply = reply
