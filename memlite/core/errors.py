"""The hierarchy of errors that memlite raises on purpose.

An error that can reach a client says why a command failed, by its type and a few words; each
protocol has its own wording for it. An error that stops the program carries its exit code.
"""

import enum

__all__ = [
    "CommandError",
    "ConfigError",
    "MemliteError",
    "OutOfMemoryError",
    "ProtocolViolation",
    "Shortage",
    "StartError",
    "StorageError",
    "UnconfirmedError",
    "VersionConflict",
]

# From sysexits.h, as memcached uses them.
EXIT_USAGE = 64
EXIT_OS_ERROR = 71


class MemliteError(Exception):
    """The base class of memlite's errors."""


class ConfigError(MemliteError):
    """A setting is invalid. The text is one line that names the setting and how to fix it."""

    exit_code = EXIT_USAGE


class StartError(MemliteError):
    """The server cannot start (port in use, address unknown, …). The text is one line."""

    exit_code = EXIT_OS_ERROR


class CommandError(MemliteError):
    """A command failed; the connection stays open. The text says why, in a few words."""


class Shortage(enum.Enum):
    """The purposes for which there was not enough memory."""

    ITEM = "storing object"
    NUMBER = "storing the new number"
    NEW_NUMBER = "allocating new item"
    """A counter that an increment was to create."""


class OutOfMemoryError(CommandError):
    """The item does not fit: eviction is disabled (``-M``), or would not free enough memory.

    Attributes:
        shortage: the purpose of the memory.
    """

    def __init__(self, shortage: Shortage = Shortage.ITEM) -> None:
        super().__init__(f"out of memory {shortage.value}")
        self.shortage = shortage


class StorageError(CommandError):
    """The backend cannot do what a command needs, for now or in principle.

    Args:
        text: a few words for clients to see; line breaks become spaces.
    """

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))


class UnconfirmedError(StorageError):
    """A change was made, but it is not known to be safe: too few replicas have confirmed it.

    A caller that may repeat a failed change must not repeat this one.
    """


class VersionConflict(MemliteError):  # noqa: N818 - expected in normal operation
    """The state that a write was to replace is no longer current; nothing was stored."""


class ProtocolViolation(MemliteError):  # noqa: N818 - the peer's fault, not an error of ours
    """The peer sent data that no client sends; the connection is closed without a reply."""
