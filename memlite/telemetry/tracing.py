"""Spans of sampled requests, and of store operations in the course of those."""

import os
import time
from bisect import bisect_right
from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from typing import Final

from memlite.telemetry.snapshot import DURATION_LIMITS, FSYNC, Exemplar
from memlite.telemetry.spans import Span, SpanName

__all__ = ["Request", "Tracer", "new_name"]

_current: Final[ContextVar["Request | None"]] = ContextVar("memlite_request", default=None)
_random: Final = Random()  # noqa: S311 - no secret
if hasattr(os, "register_at_fork"):  # names must not be the same in all workers
    os.register_at_fork(after_in_child=_random.seed)
_SYSTEM: Final = {"db.system.name": "memcached"}


def new_name(parent: SpanName | None = None) -> SpanName:
    """Return a name for a new span, in its parent's trace or in a new one."""
    trace = parent.trace if parent is not None else _random.getrandbits(128) or 1
    return SpanName(trace, _random.getrandbits(64) or 1)


class Request:
    """A sampled request under way.

    Args:
        tracer: receives its span.
        name: the command.
        parent: the client's span, if known.
        keys: how many keys it has.
        changes: whether it may change something.
        measured: the class of commands in which it is measured; empty if it is not measured.

    Attributes:
        itself: the name of its span.
        changes: as above.
        start: unix time in nanoseconds.
        over: whether its reply is ready.
    """

    __slots__ = (
        "_began", "_keys", "_measured", "_name", "_parent", "_took", "_tracer", "changes",
        "itself", "over", "start",
    )  # fmt: skip

    def __init__(
        self,
        tracer: "Tracer",
        name: str,
        parent: SpanName | None,
        keys: int,
        *,
        changes: bool,
        measured: str,
    ) -> None:
        self._measured = measured
        self._tracer = tracer
        self._name = name
        self._parent = parent
        self._keys = keys
        self._took = 0
        self.itself = new_name(parent)
        self.changes = changes
        self.over = False
        self.start = time.time_ns()
        self._began = time.perf_counter_ns()

    def carry_out(self, work: Callable[[], None]) -> None:
        """Do some work, and attribute the store's operations for it to the request."""
        token = _current.set(self)
        try:
            work()
        finally:
            _current.reset(token)

    def ready(self) -> None:
        """Record that the reply is ready."""
        self._took = time.perf_counter_ns() - self._began
        self.over = True
        self._tracer.forget(self)

    def end(self, result: str, *, failed: bool) -> None:
        """Hand over the span.

        Args:
            result: the reply's first word.
            failed: whether that means a failure of the server.
        """
        end = self.start + self._took
        if self._measured:
            self._tracer.measured(self._measured, Exemplar(self.itself, self._took, end))
        attributes: dict[str, str | int] = {**_SYSTEM, "db.operation.name": self._name}
        if self._keys > 1:
            attributes["db.operation.batch.size"] = self._keys
        if result:
            attributes["db.response.status_code"] = result
        self._tracer.take(
            Span(
                self._name,
                self.itself,
                self._parent,
                "server",
                self.start,
                end,
                attributes,
                result if failed else "",
            )
        )


class Tracer:
    """Makes spans of sampled requests.

    The sampler decides which reads are measured; some or all of these are traced, so that requests
    are chosen in one place.

    Args:
        take: receives finished spans; any thread may call it.
        share: the share of the measured reads to trace, up to 1.
        store: the store, as spans name it.
        exemplars: returns the mapping for durations of measured requests; see
            `memlite.telemetry.sampling.Sampler`.

    Attributes:
        take: as above.
    """

    def __init__(
        self,
        take: Callable[[Span], None],
        share: float,
        store: str,
        exemplars: Callable[[], dict[str, dict[int, Exemplar]]],
    ) -> None:
        self.take = take
        self._exemplars = exemplars
        self._share = share
        self._store = store
        self._open: set[Request] = set()

    def chooses(self) -> bool:
        """Return whether to trace a measured read."""
        return self._share >= 1 or _random.random() < self._share

    def begin(
        self,
        name: str,
        parent: SpanName | None = None,
        keys: int = 1,
        *,
        changes: bool,
        measured: str = "",
    ) -> Request:
        """Return a request that begins now; see `Request`."""
        request = Request(self, name, parent, keys, changes=changes, measured=measured)
        self._open.add(request)
        return request

    def forget(self, request: Request) -> None:
        """Forget a request that is over, or turned out not to be one."""
        self._open.discard(request)

    def measured(self, command_class: str, exemplar: Exemplar) -> None:
        """Keep the duration of a measured request, in place of an earlier one."""
        of_class = self._exemplars().setdefault(command_class, {})
        of_class[bisect_right(DURATION_LIMITS, exemplar.nanoseconds)] = exemplar

    def operation(self, operation: str, outcome: str, nanoseconds: int) -> None:
        """Record a finished operation of the store; see `memlite.backends.Backend.measure`.

        An fsync belongs to all changes that wait for it, of any client.
        """
        end = time.time_ns()
        start = end - nanoseconds
        if (operation, outcome) == FSYNC:
            waiting = [one for one in list(self._open) if one.changes and one.start <= start]
        else:
            current = _current.get()
            waiting = [current] if current is not None and not current.over else []
        if not waiting:
            return
        first, *others = sorted(waiting, key=lambda request: request.start)
        self.take(
            Span(
                operation,
                new_name(first.itself),
                first.itself,
                "client",
                start,
                end,
                {"db.operation.name": operation, "memlite.store": self._store},
                "" if outcome == "ok" else outcome,
                tuple(one.itself for one in others),
            )
        )
