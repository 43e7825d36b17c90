"""Immediate execution: command sets, which carry out commands while a read is being served."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from memlite.core.build import mypyc_attr
from memlite.core.errors import CommandError
from memlite.memory import Part
from memlite.protocol import replies
from memlite.protocol.commands import Arguments, Command
from memlite.protocol.handler import NO_SHORTCUTS, Shortcuts

__all__ = ["CommandObserver", "CommandSet", "Executor", "Later", "ObservableExecutor"]

Later: TypeAlias = Callable[[], Sequence[Part]]
"""Renders a reply with cas uniques, once the store has assigned them."""


class CommandObserver(Protocol):
    """Observes the execution of one command."""

    def ready(self) -> None:
        """Called when the reply is complete."""

    def replied(self, replies: Sequence[Part]) -> None:
        """Called with the reply, in the order in which replies are sent."""


class ObservableExecutor(Protocol):
    """Carries out commands, and notifies an observer of each."""

    def try_get(self, line: bytes) -> bool: ...  # noqa: D102 - see `Handler`

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""


class Executor(Protocol):
    """Carries out a connection's commands; extends `memlite.protocol.Handler`.

    A `CommandSet` answers at once, a `StoreExecutor` later, in order; the executor of
    `memlite.proxy` forwards commands to other servers.

    Attributes:
        pending: whether there are commands still to be answered.
        full: whether too many commands are in progress to read more input.
        ended: whether the client has sent ``quit``; any further input is discarded.
        had_to_wait: whether the running administrative command had to wait for earlier ones.
    """

    @property
    def shortcuts(self) -> Shortcuts: ...  # noqa: D102 - see `Handler`
    @property
    def pending(self) -> bool: ...  # noqa: D102 - see the class
    @property
    def full(self) -> bool: ...  # noqa: D102
    @property
    def ended(self) -> bool: ...  # noqa: D102
    @property
    def had_to_wait(self) -> bool: ...  # noqa: D102

    def try_get(self, line: bytes) -> bool: ...  # noqa: D102 - these six: see `Handler`
    def set(  # noqa: D102
        self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool
    ) -> None: ...
    def set_framed(  # noqa: D102
        self, key: bytes, exptime: int, framed: bytes, noreply: bool
    ) -> None: ...
    def execute(self, command: Command, arguments: Arguments) -> None: ...  # noqa: D102
    def reject(self, reply: bytes, noreply: bool) -> None: ...  # noqa: D102
    def quit(self) -> None: ...  # noqa: D102

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command like `execute`, and notify `observer`."""

    def immediate_reply(self, line: bytes) -> Part | None:
        r"""Answer ``get <key>*\r\n`` without the parser, if that is possible.

        Args:
            line: a read that begins with ``g``; the rest may be anything.

        Returns:
            The reply; empty if it follows later or has been appended for the client; None if
            nothing was done and the line must be parsed.
        """

    def detach(self) -> None:
        """Disconnect from a lost connection; commands under way are still carried out."""

    def peer_has_read(self) -> None:
        """Continue work that has waited for the peer to read its replies."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CommandSet:
    """A protocol's commands, with a method for each row of its command table.

    A method appends its reply to `out` and returns None. If the reply contains a cas unique that
    the store has yet to assign, it instead returns a function that renders the reply later. Items
    in memory have their cas unique at once.

    Args:
        out: the list to which replies are appended.

    Attributes:
        out: as above.
        pending: always False, like the next three, because commands are answered at once; see
            `Executor`.
        shows_stored_replies: whether a get is answered with the reply stored with the item.
    """

    __slots__ = ("out",)

    pending: ClassVar[bool] = False
    full: ClassVar[bool] = False
    ended: ClassVar[bool] = False
    had_to_wait: ClassVar[bool] = False
    shortcuts: ClassVar[Shortcuts] = NO_SHORTCUTS
    shows_stored_replies: ClassVar[bool] = False

    def __init__(self, out: list[Part]) -> None:
        self.out = out

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command; see `memlite.protocol.Handler`."""
        getattr(self, command.name)(*arguments)

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""
        replied = len(self.out)
        getattr(self, command.name)(*arguments)
        observer.ready()
        observer.replied(self.out[replied:])

    def error_reply(self, error: CommandError, arguments: Arguments) -> bytes:
        """Return the reply to a command that could not be carried out."""
        return replies.error_line(error)

    def try_get(self, line: bytes) -> bool:
        """Return False: there is no fast path; see `memlite.protocol.Handler`."""
        return False

    def immediate_reply(self, line: bytes) -> Part | None:
        """Return None: connections look items up themselves."""
        return None

    def peer_has_read(self) -> None:
        """Do nothing: a command is carried out when its reply can be sent."""

    def detach(self) -> None:
        """Do nothing: no command is ever under way."""

    def quit(self) -> Any:
        """Close the connection once replies are sent."""
        raise NotImplementedError
