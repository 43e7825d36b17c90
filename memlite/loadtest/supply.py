"""What a worker's connections share out among them: operations, as many as there are to be."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from memlite.errors import ConfigError
from memlite.loadtest.clients.pacing import arrivals
from memlite.loadtest.operations import Operation, Operations
from memlite.loadtest.plain import PlainOperations, is_plain
from memlite.loadtest.trace import Trace
from memlite.loadtest.workload import Workload

__all__ = ["Supply"]

# Operations that are made before they are needed: one by one they cost twice as much.
_AHEAD = 64
# Those whose replies have uniques.
_UNIQUES = frozenset(("gets", "cas"))


class Supply:
    """A worker's share of a workload's operations.

    All of its connections take from one stream, which has tables as large as there are keys.

    Args:
        workload: what there is to do.
        worker: the worker's number.
        workers: how many there are.
        seed: of all that is random.
        verify: whether values are to be such that they can be checked.
        lite: whether requests are the lite dialect's.

    Attributes:
        check: tells whether a value is one that was stored under a key; None not to look.
        keep: whether clients have to keep values, for that or for their uniques.
        ends: whether there is an end to it.
        plain: gives the same operations where they are plain gets and sets; else None.
        error: why it ended early; None when it did not.
        arrivals: when operations are to begin, in nanoseconds from the start; None for as soon as
            those before have ended.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        worker: int,
        workers: int,
        seed: int,
        verify: bool,
        lite: bool = False,
    ) -> None:
        load = workload.load
        self.keep = verify or bool(workload.trace) or not _UNIQUES.isdisjoint(workload.mix)
        self.error: ConfigError | None = None
        self.arrivals: Iterator[int] | None = None
        self.plain: PlainOperations | None = None
        self._count: int | None = None
        self._left: int | None = None
        self._ready: list[Operation] = []
        self._more: Callable[[int], list[Operation]]
        if workload.trace:
            source: Operations | Trace = self._replay(workload, worker, workers, verify)
        else:
            if load.operations:
                self._count = load.operations // workers + (worker < load.operations % workers)
            source = stream = Operations(
                workload, seed=seed, client=worker, clients=workers, verify=verify, lite=lite
            )
            self._more = stream.take
            if load.rate:
                self.arrivals = arrivals(
                    load.rate / workers, load.arrivals, seed + worker, worker / workers
                )
            if is_plain(workload) and not verify:
                self.plain = PlainOperations(stream, workload.values.size)
        self.check = source.check if verify else None
        self.ends = bool(workload.trace) or self._count is not None

    def _replay(self, workload: Workload, worker: int, workers: int, verify: bool) -> Trace:
        trace = Trace(workload, verify=verify)
        lines = self._until_wrong(trace.operations(worker, workers))
        first = next(lines, None)
        if first is None:
            self._more = lambda count: []
        elif first[0] is None:
            rest = itertools.chain([first], lines)
            self._more = lambda count: [operation for _, operation in islice(rest, count)]
        else:
            due: deque[Operation] = deque()
            self.arrivals = _times(itertools.chain([first], lines), first[0], due)
            self._more = lambda count: [due.popleft()] if due else []
        return trace

    def _until_wrong(
        self, lines: Iterator[tuple[float | None, Operation]]
    ) -> Iterator[tuple[float | None, Operation]]:
        # Whoever takes from it is called by the event loop, which has no use for an error.
        try:
            yield from lines
        except ConfigError as error:
            self.error = error

    def pause(self) -> None:
        """Give no operations until `begin`."""
        self._limit(0)

    def begin(self) -> None:
        """Start counting: what was taken until now was for the warm-up."""
        self._limit(self._count)

    def _limit(self, count: int | None) -> None:
        self._left = count
        if self.plain is not None:
            self.plain.left = count

    def take(self, count: int) -> list[Operation]:
        """Return so many operations, fewer when there are no more."""
        if self._left is not None:
            count = min(count, self._left)
            self._left -= count
        if count != 1:
            return self._more(count) if count else []
        if not self._ready:
            self._ready = self._more(_AHEAD)
            self._ready.reverse()
        return [self._ready.pop()] if self._ready else []


def _times(
    lines: Iterator[tuple[float | None, Operation]], start: float, due: deque[Operation]
) -> Iterator[int]:
    """Yield when each operation of a trace is due; it is in `due` by then."""
    last = start
    for time, operation in lines:
        last = last if time is None else time
        due.append(operation)
        yield int((last - start) * 1e9)
