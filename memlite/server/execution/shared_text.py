"""The text protocol on a table shared by several processes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from memlite.engine.shared_plain import PlainSharedEngine
from memlite.memory import Part
from memlite.server.execution.command_set import Executor
from memlite.server.execution.dialects import TEXT, Dialect
from memlite.server.execution.execution import ExecutingClient, ImmediateExecution
from memlite.server.execution.text_commands import TextCommands
from memlite.server.interfaces import Client

if TYPE_CHECKING:
    from memlite.server.admin.admin import Admin

__all__ = ["SharedExecution", "SharedTextCommands"]

_SHORTEST_GET = len(b"get k\r\n")


class SharedTextCommands(TextCommands):
    """Answers the gets of a pipeline with the shared table's stored reply for each line.

    Args:
        engine: see `TextCommands`.
        admin: likewise.
        client: likewise.
        out: likewise.
    """

    __slots__ = ("_find", "_used")

    def __init__(
        self,
        engine: PlainSharedEngine,
        admin: "Callable[[], Admin]",
        client: Client,
        out: list[Part],
    ) -> None:
        super().__init__(engine, admin, client, out)
        self._find = engine.find_reply
        self._used = engine.usage.fast_read

    def try_get(self, line: bytes) -> bool:
        """``get <key>*``, in the usual form; see `TextCommands.try_get`."""
        if not self._used[0]:  # while commands are observed
            return super().try_get(line)
        reply = self._find(line)
        if reply is None:
            reply = self._engine.miss(line)
            if reply is None:
                return len(line) > _SHORTEST_GET and self._get_many(line)
        else:
            self._engine.counters.hits += 1
        self.out.append(reply)
        return True


class SharedExecution(ImmediateExecution):
    """Execution on a shared table."""

    def executor(self, dialect: Dialect, client: ExecutingClient, out: list[Part]) -> Executor:
        """Return a protocol's command set; see `Execution`."""
        if dialect is not TEXT:
            return super().executor(dialect, client, out)
        engine = cast("PlainSharedEngine", self._engine)
        return SharedTextCommands(engine, self._admin, client, out)
