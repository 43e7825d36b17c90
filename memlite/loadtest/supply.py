"""The stream of operations that a worker's connections draw from."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from memlite.core.errors import ConfigError
from memlite.loadtest.clients.pacing import arrivals
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.operations import Operation, Operations
from memlite.loadtest.plain import PlainOperations, is_plain
from memlite.loadtest.trace import Trace
from memlite.loadtest.workload import Workload

__all__ = ["Supply"]

# Operations are generated in batches; one at a time, they would cost twice as much.
_BATCH_SIZE = 64
# Operations whose replies carry unique values.
_NEED_UNIQUES = frozenset(("gets", "cas"))


class Supply:
    """A worker's share of a workload's operations.

    All connections share one stream, because each stream holds tables as large as the keyspace.

    Args:
        workload: the workload to run.
        worker: the worker's number.
        workers: the number of workers.
        seed: the seed of all randomness.
        verify: whether values are generated so that they can be checked.
        dialect: protocol of the requests.

    Attributes:
        check: returns whether a value was stored under a key; None to skip the check.
        keep_values: whether clients must keep values, to check them or for their unique values.
        finite: whether the stream ends.
        plain: the same operations as plain gets and sets; None for other workloads.
        error: why the stream ended early; None if it did not.
        arrivals: intended send times, in nanoseconds from the start; None to send each operation
            as soon as the previous one has completed.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        worker: int,
        workers: int,
        seed: int,
        verify: bool,
        dialect: Dialect = Dialect.MEMCACHED,
    ) -> None:
        load = workload.load
        self.keep_values = (
            verify or bool(workload.trace) or not _NEED_UNIQUES.isdisjoint(workload.mix)
        )
        self.error: ConfigError | None = None
        self.arrivals: Iterator[int] | None = None
        self.plain: PlainOperations | None = None
        self._count: int | None = None
        self._remaining: int | None = None
        self._batch: list[Operation] = []
        self._next_operations: Callable[[int], list[Operation]]
        if workload.trace:
            source: Operations | Trace = self._replay(workload, worker, workers, verify)
        else:
            if load.operations:
                self._count = load.operations // workers + (worker < load.operations % workers)
            source = stream = Operations(
                workload,
                seed=seed,
                client=worker,
                clients=workers,
                verify=verify,
                dialect=dialect,
            )
            self._next_operations = stream.take
            if load.rate:
                self.arrivals = arrivals(
                    load.rate / workers, load.arrivals, seed + worker, worker / workers
                )
            if is_plain(workload) and not verify:
                self.plain = PlainOperations(stream, workload.values.size)
        self.check = source.check if verify else None
        self.finite = bool(workload.trace) or self._count is not None

    def _replay(self, workload: Workload, worker: int, workers: int, verify: bool) -> Trace:
        trace = Trace(workload, verify=verify)
        lines = self._stop_at_error(trace.operations(worker, workers))
        first = next(lines, None)
        if first is None:
            self._next_operations = lambda count: []
        elif first[0] is None:
            rest = itertools.chain([first], lines)
            self._next_operations = lambda count: [
                operation for _, operation in islice(rest, count)
            ]
        else:
            due: deque[Operation] = deque()
            self.arrivals = _due_times(itertools.chain([first], lines), first[0], due)
            self._next_operations = lambda count: [due.popleft()] if due else []
        return trace

    def _stop_at_error(
        self, lines: Iterator[tuple[float | None, Operation]]
    ) -> Iterator[tuple[float | None, Operation]]:
        # The consumer runs in an event loop callback, where an exception would be lost.
        try:
            yield from lines
        except ConfigError as error:
            self.error = error

    def pause(self) -> None:
        """Supply no operations until `begin` is called."""
        self._set_limit(0)

    def begin(self) -> None:
        """Start counting; everything taken so far belonged to the warm-up."""
        self._set_limit(self._count)

    def _set_limit(self, count: int | None) -> None:
        self._remaining = count
        if self.plain is not None:
            self.plain.left = count

    def take(self, count: int) -> list[Operation]:
        """Return up to `count` operations, fewer if the stream ends."""
        if self._remaining is not None:
            count = min(count, self._remaining)
            self._remaining -= count
        if count != 1:
            return self._next_operations(count) if count else []
        if not self._batch:
            self._batch = self._next_operations(_BATCH_SIZE)
            self._batch.reverse()
        return [self._batch.pop()] if self._batch else []


def _due_times(
    lines: Iterator[tuple[float | None, Operation]], start: float, due: deque[Operation]
) -> Iterator[int]:
    """Yield the due time of each operation of a trace, after appending the operation to `due`."""
    last = start
    for time, operation in lines:
        last = last if time is None else time
        due.append(operation)
        yield int((last - start) * 1e9)
