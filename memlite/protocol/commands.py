"""The description of a command, which all parts of the server share.

A command's row gives its syntax, the keys among its arguments, the data it needs before it runs,
and its latency class. Each protocol has a table of rows (`text_table`, `binary_table`), and its
command set has a method for each row, of the same name.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

__all__ = [
    "QUIT",
    "Access",
    "Arguments",
    "Command",
    "first_key",
    "first_keys",
    "no_keys",
    "second_key",
    "second_keys",
]

Arguments: TypeAlias = tuple[Any, ...]
"""A command's arguments, as its method in the protocol's command set takes them."""


class Access(enum.Enum):
    """What a command must read before it runs, and whether it may write."""

    BLIND = enum.auto()
    """Nothing: ``set`` overwrites any previous value."""
    CACHED = enum.auto()
    """A value, possibly from a near cache: ``get``."""
    CURRENT = enum.auto()
    """The current value: ``gets`` returns the version that a later ``cas`` is compared with."""
    CACHED_OR_CHANGE = enum.auto()
    """Like `CACHED`, but it may also write conditionally: ``mg``."""
    CURRENT_OR_CHANGE = enum.auto()
    """Like `CURRENT`, but it may also write conditionally: ``mg`` with ``c``."""
    CHANGE = enum.auto()
    """The current value: it writes on condition that the value has not changed since."""

    @property
    def cached(self) -> bool:
        """Whether a value from a near cache is acceptable."""
        return self in (Access.CACHED, Access.CACHED_OR_CHANGE)

    @property
    def conditional(self) -> bool:
        """Whether it may write on condition that nothing has changed since it read."""
        return self in (Access.CACHED_OR_CHANGE, Access.CURRENT_OR_CHANGE, Access.CHANGE)


def no_keys(arguments: Arguments) -> Sequence[bytes]:
    """Return no keys."""
    return ()


def first_key(arguments: Arguments) -> Sequence[bytes]:
    """Return the key that is the first argument, or the key of the request given there."""
    key = arguments[0]
    return (key if isinstance(key, bytes) else key.key,)


def second_key(arguments: Arguments) -> Sequence[bytes]:
    """Return the key that is the second argument."""
    return (arguments[1],)


def first_keys(arguments: Arguments) -> Sequence[bytes]:
    """Return the keys that the first argument lists."""
    keys: Sequence[bytes] = arguments[0]
    return keys


def second_keys(arguments: Arguments) -> Sequence[bytes]:
    """Return the keys that the second argument lists."""
    keys: Sequence[bytes] = arguments[1]
    return keys


class Command:
    """A row of a protocol's command table.

    Args:
        name: the name of the command set's method that carries it out.
        syntax: the syntax clients use; empty for pseudo-commands.
        latency: its latency class (`memlite.telemetry.counters.COMMAND_CLASSES`).
        access: what it must read before it runs; a function if that depends on the arguments.
        keys: returns the keys among its arguments.
        noreply: whether its last argument is a flag that suppresses the reply.
        alone: whether it must not overlap with any other command of the connection; a function
            if that depends on the arguments.

    Attributes:
        name: as above, and likewise the others.
    """

    __slots__ = ("_access", "_alone", "keys", "latency", "name", "noreply", "syntax")

    def __init__(
        self,
        name: str,
        syntax: str,
        latency: str,
        access: Access | Callable[[Arguments], Access] = Access.CHANGE,
        keys: Callable[[Arguments], Sequence[bytes]] = first_key,
        *,
        noreply: bool = False,
        alone: bool | Callable[[Arguments], bool] = False,
    ) -> None:
        self.name: Final = name
        self.syntax: Final = syntax
        self.latency: Final = latency
        self.keys: Final = keys
        self.noreply: Final = noreply
        self._access: Final = access
        self._alone: Final = alone

    def __repr__(self) -> str:
        """Return the name, for test reports."""
        return f"<{self.name}>"

    def access(self, arguments: Arguments) -> Access:
        """Return what it must read before it runs with these arguments."""
        access = self._access
        return access if isinstance(access, Access) else access(arguments)

    def alone(self, arguments: Arguments) -> bool:
        """Return whether it must not overlap with any other command of the connection."""
        alone = self._alone
        return alone if isinstance(alone, bool) else alone(arguments)

    def quiet(self, arguments: Arguments) -> bool:
        """Return whether the client wants no reply, not even to a failure."""
        return self.noreply and bool(arguments[-1])


QUIT: Final = Command("quit", "quit", "other", Access.BLIND, no_keys, alone=True)
"""Ends the connection, in every protocol."""
