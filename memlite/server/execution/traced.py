"""Execution of traced commands: some of the sampled ones, and those that request it."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from memlite.memory import Part
from memlite.protocol.commands import Arguments, Command
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.protocol.meta import MetaRequest
from memlite.protocol.text_table import SET_FRAMED
from memlite.server.execution.command_set import CommandObserver, Executor, ObservableExecutor
from memlite.server.execution.dialects import TEXT, Dialect
from memlite.server.execution.execution import ExecutingClient, Execution
from memlite.server.execution.results import failed, result_of
from memlite.server.execution.text_commands import TextCommands
from memlite.server.interfaces import Client
from memlite.telemetry.spans import SpanName
from memlite.telemetry.tracing import Request, Tracer

if TYPE_CHECKING:
    from memlite.engine import MetaEngine
    from memlite.server.admin.admin import Admin

__all__ = ["NamedExecutor", "NamedTextCommands", "TracedExecution", "TracedExecutor", "traced"]

_PARENT: Final = re.compile(rb"P00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
"""W3C Trace Context's ``traceparent`` as the token of the meta flag P, which memcached ignores."""
_READS: Final = frozenset(("get", "gets", "meta_get", "meta_debug", "meta_noop"))


class TracedExecution:
    """Traces commands that name a span of their client.

    Args:
        execution: makes executors.
        tracer: makes the spans.
    """

    def __init__(self, execution: Execution, tracer: Tracer) -> None:
        self._execution = execution
        self._tracer = tracer
        self._named_text = TEXT._replace(commands=partial(NamedTextCommands, tracer))
        self.fast_gets = execution.fast_gets
        self.longest_immediate = execution.longest_immediate
        self.waits = execution.waits

    def executor(self, dialect: Dialect, client: ExecutingClient, out: list[Part]) -> Executor:
        """Return an executor; see `Execution`."""
        if dialect is not TEXT:
            return self._execution.executor(dialect, client, out)
        if not self.waits:
            return self._execution.executor(self._named_text, client, out)
        return NamedExecutor(self._tracer, self._execution.executor(dialect, client, out))


class NamedTextCommands(TextCommands):
    """A command set that traces the meta commands that name a span, sampled or not.

    Commands in their usual form keep their shortcuts. A meta command with the flag P has none.

    Args:
        tracer: makes the spans.
        engine: see `TextCommands`.
        admin: likewise.
        client: likewise.
        out: likewise.
    """

    def __init__(
        self,
        tracer: Tracer,
        engine: "MetaEngine",
        admin: "Callable[[], Admin]",
        client: Client,
        out: list[Part],
    ) -> None:
        super().__init__(engine, admin, client, out)
        self._tracer = tracer

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command."""
        if _parent_of(arguments) is None:
            getattr(self, command.name)(*arguments)  # as `CommandSet` does, but with one call less
        else:
            self.execute_observed(command, arguments, _NullObserver())

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""
        named = TracedExecutor(self._tracer, _Untraced(self), all_commands=False, measured=False)
        named.execute_observed(command, arguments, observer)


class _Untraced:
    """Carries out commands without the spans that `NamedTextCommands` makes.

    Args:
        commands: carries them out.
    """

    def __init__(self, commands: NamedTextCommands) -> None:
        self._commands = commands
        self.try_get = commands.try_get

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""
        TextCommands.execute_observed(self._commands, command, arguments, observer)


class NamedExecutor:
    """An executor for a store; traces the meta commands that name a span, sampled or not.

    Args:
        tracer: makes the spans.
        inner: carries out all commands.

    Attributes:
        inner: as above.
    """

    shortcuts = NO_SHORTCUTS  # as without traces

    def __init__(self, tracer: Tracer, inner: Executor) -> None:
        self.inner = inner
        self._execute = inner.execute
        self._traced = TracedExecutor(tracer, inner, all_commands=False, measured=False)
        self.try_get = inner.try_get
        self.set = inner.set
        self.set_framed = inner.set_framed
        self.reject = inner.reject
        self.quit = inner.quit
        self.execute_observed = self._traced.execute_observed
        self.immediate_reply = inner.immediate_reply
        self.detach = inner.detach
        self.peer_has_read = inner.peer_has_read

    @property
    def pending(self) -> bool:
        """See `Executor`."""
        return self.inner.pending

    @property
    def full(self) -> bool:
        """See `Executor`."""
        return self.inner.full

    @property
    def ended(self) -> bool:
        """See `Executor`."""
        return self.inner.ended

    @property
    def had_to_wait(self) -> bool:
        """See `Executor`."""
        return self.inner.had_to_wait

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command."""
        if _parent_of(arguments) is None:
            self._execute(command, arguments)
        else:
            self._traced.execute_observed(command, arguments, _NullObserver())


def traced(tracer: Tracer, executor: Executor) -> ObservableExecutor:
    """Return an executor that carries out the commands of a sampled read, and traces them."""
    inner: ObservableExecutor = executor
    if isinstance(executor, NamedExecutor):
        inner = executor.inner
    elif isinstance(executor, NamedTextCommands):
        inner = _Untraced(executor)
    return TracedExecutor(tracer, inner, all_commands=tracer.chooses(), measured=True)


class TracedExecutor:
    """Passes commands on to an executor, and makes a span of each.

    Args:
        tracer: makes the spans.
        executor: carries out the commands.
        all_commands: whether to trace even commands that name no span of their client.
        measured: whether the sampler measures them.
    """

    def __init__(
        self, tracer: Tracer, executor: ObservableExecutor, *, all_commands: bool, measured: bool
    ) -> None:
        self._measured = measured
        self._tracer = tracer
        self._executor = executor
        self._all = all_commands

    def try_get(self, line: bytes) -> bool:
        """Answer a get if its reply is ready."""
        if not self._all:
            return self._executor.try_get(line)
        request = self._tracer.begin("get", changes=False, measured="get")
        if not self._executor.try_get(line):
            self._tracer.forget(request)
            return False
        request.ready()
        request.end("VALUE", failed=False)
        return True

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""
        parent = _parent_of(arguments)
        if parent is None and not self._all:
            self._executor.execute_observed(command, arguments, observer)
            return
        keys, changes = len(command.keys(arguments)), command.name not in _READS
        measured = command.latency if self._measured else ""
        request = self._tracer.begin(
            _name_of(command), parent, keys, changes=changes, measured=measured
        )
        watching = _Watching(observer, request)
        work = partial(self._executor.execute_observed, command, arguments, watching)
        try:
            request.carry_out(work)
        except BaseException:
            self._tracer.forget(request)
            raise


class _NullObserver:
    """Observes nothing."""

    def ready(self) -> None:
        """See `CommandObserver`."""

    def replied(self, replies: Sequence[Part]) -> None:
        """See `CommandObserver`."""


class _Watching:
    """Notifies both the traced request and the original observer.

    Args:
        observer: the original observer.
        request: the request.
    """

    __slots__ = ("_observer", "_request")

    def __init__(self, observer: CommandObserver, request: Request) -> None:
        self._observer = observer
        self._request = request

    def ready(self) -> None:
        """See `CommandObserver`."""
        self._request.ready()
        self._observer.ready()

    def replied(self, replies: Sequence[Part]) -> None:
        """See `CommandObserver`."""
        result = result_of(bytes(replies[0][:64])) if replies else ""
        self._request.end(result, failed=failed(result))
        self._observer.replied(replies)


def _name_of(command: Command) -> str:
    """Return the word that clients use for a command, if there is one."""
    if command is SET_FRAMED:
        return "set"
    return command.syntax.partition(" ")[0] or command.name


def _parent_of(arguments: Arguments) -> SpanName | None:
    """Return the client's span if a meta command names one."""
    request = arguments[0] if arguments else None
    if not isinstance(request, MetaRequest):
        return None
    for word in request.words:
        if word[:3] != b"P00":
            continue
        match = _PARENT.fullmatch(word)
        if match:
            name = SpanName(int(match[1], 16), int(match[2], 16))
            return name if name.trace and name.span else None
    return None
