"""The choice between immediate and pipelined execution, made once for a server."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memlite.engine import MemoryEngine
from memlite.memory import Item, ItemTable, Part
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.server.execution.command_set import Executor
from memlite.server.execution.dialects import Dialect
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.interfaces import Client
from memlite.server.scheduler import Scheduler

if TYPE_CHECKING:
    from memlite.engine.store import StoreEngine  # not needed by in-memory servers
    from memlite.server.admin.admin import Admin

__all__ = ["ExecutingClient", "Execution", "FastGets", "ImmediateExecution", "StoreExecution"]


class FastGets(NamedTuple):
    """The parts needed to answer a get of one key on the fast path of a connection.

    Attributes:
        table: finds items by the whole request line.
        used: the engine's `memlite.memory.usage.Usage.fast_read`.
        can_serve: the engine's `can_serve`.
    """

    table: ItemTable
    used: list[int]
    can_serve: Callable[[Item], bool]


class Execution(Protocol):
    """Makes executors.

    Attributes:
        fast_gets: for the fast path of connections; None if they must use the executor.
        longest_immediate: the longest get to pass to `Executor.immediate_reply`, in bytes; 0 for
            none.
        waits: whether commands may be answered later.
    """

    @property
    def fast_gets(self) -> FastGets | None: ...  # noqa: D102 - see the class
    @property
    def longest_immediate(self) -> int: ...  # noqa: D102
    @property
    def waits(self) -> bool: ...  # noqa: D102

    def executor(self, dialect: Dialect, client: "ExecutingClient", out: list[Part]) -> Executor:
        """Return an executor for a client.

        Args:
            dialect: the protocol the client speaks.
            client: the client.
            out: the list to which replies are appended.
        """


class ExecutingClient(Client, Protocol):
    """A client that receives replies from executors.

    Attributes:
        out: receives the replies, in order.
        unread: bytes of replies that it has yet to read.
    """

    @property
    def out(self) -> list[Part]: ...  # noqa: D102 - see the class
    @property
    def unread(self) -> int: ...  # noqa: D102

    def replies_ready(self) -> None:
        """Send the replies in `out`."""


class ImmediateExecution:
    """Execution in memory: commands are answered as they are parsed.

    Args:
        engine: carries out commands on the table.
        table: holds all items.
        admin: returns the object that carries out administrative commands.
    """

    longest_immediate = 8 * 1024  # of several keys; for one, connections use `fast_gets`
    waits = False

    def __init__(
        self, engine: MemoryEngine, table: ItemTable, admin: "Callable[[], Admin]"
    ) -> None:
        self._engine = engine
        self._admin = admin
        self.fast_gets = FastGets(table, engine.usage.fast_read, engine.can_serve)

    def executor(self, dialect: Dialect, client: ExecutingClient, out: list[Part]) -> Executor:
        """Return a protocol's command set; see `Execution`."""
        commands: Executor = dialect.commands(self._engine, self._admin, client, out)
        return commands


class StoreExecution:
    """Execution on a store that must be awaited.

    Args:
        engine: carries out commands as transactions on the store.
        admin: returns the object that carries out administrative commands.
        scheduler: runs commands that must wait.
        instrumentation: is told which client's command is running.
    """

    fast_gets = None
    longest_immediate = MAX_GET_LENGTH
    waits = True

    def __init__(
        self,
        engine: "StoreEngine",
        admin: "Callable[[], Admin]",
        scheduler: Scheduler,
        instrumentation: Instrumentation,
    ) -> None:
        self._engine = engine
        self._admin = admin
        self._scheduler = scheduler
        self._instrumentation = instrumentation

    def executor(self, dialect: Dialect, client: ExecutingClient, out: list[Part]) -> Executor:
        """Return a `StoreExecutor` around a protocol's command set; see `Execution`."""
        from memlite.server.execution.pipelined import StoreExecutor

        commands = dialect.commands(self._engine, self._admin, client, [])
        return StoreExecutor(self._engine, commands, client, self._scheduler, self._instrumentation)
