"""Every error memlite raises on purpose, in one tree.

An error that can reach a client carries the line the protocol answers with; an error
that stops the program carries the exit code. Nothing else decides either of them.
"""

__all__ = [
    "CommandError",
    "ConfigError",
    "MemliteError",
    "OutOfMemoryError",
    "ProtocolViolation",
    "StartError",
    "StorageError",
    "VersionConflict",
]

# sysexits.h, which memcached uses as well.
EXIT_USAGE = 64
EXIT_OS_ERROR = 71


class MemliteError(Exception):
    """The root of memlite's errors."""


class ConfigError(MemliteError):
    """A setting is wrong. Its text is one line that names the setting and the cure."""

    exit_code = EXIT_USAGE


class StartError(MemliteError):
    """The server cannot start (port in use, address unknown, …). Its text is one line."""

    exit_code = EXIT_OS_ERROR


class CommandError(MemliteError):
    """A command was refused, and the connection goes on.

    Attributes:
        reply: the wire line that says so, with its line end.
    """

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply.rstrip().decode("latin-1"))
        self.reply = reply


class OutOfMemoryError(CommandError):
    """The item does not fit and the backend may not evict (``-M``)."""

    def __init__(self) -> None:
        super().__init__(b"SERVER_ERROR out of memory storing object\r\n")


class StorageError(CommandError):
    """The backend cannot do what a command needs, now or at all.

    Args:
        text: a few words without a line end; clients see them.
    """

    def __init__(self, text: str) -> None:
        super().__init__(b"SERVER_ERROR %b\r\n" % " ".join(text.split()).encode())


class VersionConflict(MemliteError):  # noqa: N818 - part of the game, not an error
    """What was to be replaced is no longer there; nothing was stored."""


class ProtocolViolation(MemliteError):  # noqa: N818 - it is the peer's deed, not our error
    """The peer sent what no client sends; the connection is cut without an answer."""
