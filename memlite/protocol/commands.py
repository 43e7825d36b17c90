"""The description of a command, which all parts of the server share.

A command's row gives its syntax, the keys among its arguments, the data it needs before it runs,
and its latency class. Each protocol has a table of rows (`text_table`, `binary_table`), and its
command set has a method for each row, of the same name.
"""

import enum
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

__all__ = [
    "QUIT",
    "Access",
    "Arguments",
    "Command",
    "first_key",
    "first_keys",
    "no_keys",
    "request_key",
    "second_key",
    "second_keys",
]

Arguments: TypeAlias = tuple[Any, ...]
"""A command's arguments, as its method in the protocol's command set takes them."""


class Access(enum.Enum):
    """The data a command must read before it runs, and whether it may write.

    Attributes:
        reads: whether anything must be read.
        cached: whether a value from a near cache is acceptable.
        conditional: whether it may write on condition that nothing has changed since it read.
    """

    reads: bool
    cached: bool
    conditional: bool

    ALONE = enum.auto()
    """Nothing, and no other command of the connection may overlap with it: ``flush_all``."""
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


# Plain attributes, because every command reads them; mypyc cannot compile an enum's __init__.
for _access in Access:
    _access.reads = _access not in (Access.ALONE, Access.BLIND)
    _access.cached = _access in (Access.CACHED, Access.CACHED_OR_CHANGE)
    _access.conditional = _access in (
        Access.CACHED_OR_CHANGE,
        Access.CURRENT_OR_CHANGE,
        Access.CHANGE,
    )


def no_keys(arguments: Arguments) -> Sequence[bytes]:
    """Return no keys."""
    return ()


def request_key(arguments: Arguments) -> Sequence[bytes]:
    """Return the key of the request that is the first argument."""
    return (arguments[0].key,)


# These are not Python functions, because one is called for each command. A slice of the arguments
# is a tuple.
first_key: Final[Callable[[Arguments], Sequence[bytes]]] = itemgetter(slice(0, 1))
"""Returns the key that is the first argument."""
second_key: Final[Callable[[Arguments], Sequence[bytes]]] = itemgetter(slice(1, 2))
"""Returns the key that is the second argument."""
first_keys: Final[Callable[[Arguments], Sequence[bytes]]] = itemgetter(0)
"""Returns the keys that the first argument lists."""
second_keys: Final[Callable[[Arguments], Sequence[bytes]]] = itemgetter(1)
"""Returns the keys that the second argument lists."""


class Command:
    """A row of a protocol's command table.

    Args:
        name: the name of the command set's method that carries it out.
        syntax: the syntax clients use; empty for pseudo-commands.
        latency: its latency class (`memlite.telemetry.counters.COMMAND_CLASSES`).
        access: what it must read before it runs, if that does not depend on the arguments; else
            a function that returns it.
        keys: returns the keys among its arguments.
        noreply: whether its last argument is a flag that suppresses the reply.

    Attributes:
        fixed_access: what it must read before it runs; None if that depends on the arguments.
        name: as above; so are the other attributes.
    """

    __slots__ = ("_access_for", "fixed_access", "keys", "latency", "name", "noreply", "syntax")

    def __init__(
        self,
        name: str,
        syntax: str,
        latency: str,
        access: Access | Callable[[Arguments], Access] = Access.CHANGE,
        keys: Callable[[Arguments], Sequence[bytes]] = first_key,
        *,
        noreply: bool = False,
    ) -> None:
        self.name: Final = name
        self.syntax: Final = syntax
        self.latency: Final = latency
        self.keys: Final = keys
        self.noreply: Final = noreply
        self.fixed_access: Access | None = None
        self._access_for: Callable[[Arguments], Access]
        if isinstance(access, Access):
            self.fixed_access = access
        else:
            self._access_for = access

    def __repr__(self) -> str:
        """Return the name, for test reports."""
        return f"<{self.name}>"

    def access(self, arguments: Arguments) -> Access:
        """Return what it must read before it runs with these arguments."""
        return self.fixed_access or self._access_for(arguments)

    def quiet(self, arguments: Arguments) -> bool:
        """Return whether the client wants no reply, not even to a failure."""
        return self.noreply and bool(arguments[-1])


QUIT: Final = Command("quit", "quit", "other", Access.ALONE, no_keys)
"""Ends the connection, in every protocol."""
