"""Traces of proxies: how long requests waited, and how long the nodes took, at each load.

The files may be large: they are read in pieces, and only sums and samples are kept.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from memlite.core.errors import ConfigError
from memlite.lab import Times

__all__ = ["RESOLUTION", "Period", "Piece", "Traced", "read_pieces", "read_trace"]

RESOLUTION: Final = 1e-6
"""The resolution of times in a trace, in seconds."""

_Floats = npt.NDArray[np.float64]
_ROWS: Final = 50_000
# Lines are in the order in which requests ended: a request may have arrived before requests
# that are up to this many lines earlier.
_DISORDER: Final = 20_000
_TIMES: Final = ("arrival", "enqueued", "dequeued", "sent", "received", "replied")
_COLUMNS: Final = (*_TIMES, "queue_length", "worker", "nodes")

Period = tuple[float, float]
"""The beginning and the end, in seconds since 1970."""


@dataclass(slots=True)
class Traced:
    """A proxy's trace of the requests that arrived in some periods.

    All times are in seconds.

    Attributes:
        seconds: the total length of the periods.
        requests: the number of requests that were sent and answered.
        workers: the largest number of requests in flight to nodes (``--in-flight``); 0 without
            a limit.
        queue: times in the queue, before a worker took the request.
        service: times for which a worker was busy; without workers, from sending to the reply.
        response: times from arrival to reply.
        gaps: times between arrivals.
        queue_length: for each request, how many others were waiting when it arrived.
        nodes: for each node, times from sending to the reply, for requests sent only to that node.
    """

    seconds: float
    requests: int = 0
    workers: int = 0
    queue: Times = field(default_factory=Times)
    service: Times = field(default_factory=Times)
    response: Times = field(default_factory=Times)
    gaps: Times = field(default_factory=Times)
    queue_length: Times = field(default_factory=Times)
    nodes: dict[str, Times] = field(default_factory=dict)

    @property
    def throughput(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds if self.seconds else 0.0


def read_trace(path: Path, periods: Sequence[Sequence[Period]]) -> list[Traced]:
    """Read a proxy's trace.

    Args:
        path: the path of the CSV file.
        periods: for each result, the periods in which its requests arrived. No two overlap.

    Returns:
        One result for each element of `periods`.

    Raises:
        ConfigError: the file cannot be read, or is not a trace.
    """
    found = [Traced(sum(end - begin for begin, end in one)) for one in periods]
    ordered = sorted((begin, end, index) for index, one in enumerate(periods) for begin, end in one)
    begins = np.array([begin for begin, _, _ in ordered])
    ends = np.array([end for _, end, _ in ordered])
    arrivals = [_Arrivals(found[index].gaps) for _, _, index in ordered]
    for piece in read_pieces(path):
        arrival = piece.times["arrival"] * 1e-6
        number = np.searchsorted(begins, arrival, side="right") - 1
        inside = (number >= 0) & (arrival < ends[np.maximum(number, 0)]) if ordered else number > 0
        for period in np.unique(number[inside]):
            chosen = inside & (number == period)
            arrivals[period].add(arrival[chosen])
            _add(found[ordered[period][2]], piece, chosen)
    for one in arrivals:
        one.end()
    return found


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of the file, by column.

    Attributes:
        times: the columns of numbers, as in the file; missing ones are NaN.
        nodes: the names of the nodes, with spaces between them.
    """

    times: Mapping[str, _Floats]
    nodes: npt.NDArray[np.str_]


def read_pieces(path: Path) -> Iterator[Piece]:
    """Yield the rows of a proxy's trace, many at a time.

    Raises:
        ConfigError: the file cannot be read, or is not a trace.
    """
    try:
        with path.open(newline="", encoding="utf-8", errors="backslashreplace") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            missing = [name for name in _COLUMNS if name not in header]
            if missing:
                raise ConfigError(f"{path} is not a proxy's trace: it has no column {missing[0]}")
            index = {name: header.index(name) for name in _COLUMNS}
            while rows := list(islice(lines, _ROWS)):
                # The last line may be incomplete: the proxy may still be writing it.
                columns = list(zip(*(row for row in rows if len(row) == len(header)), strict=True))
                if columns:
                    yield Piece(
                        {
                            name: _numbers(columns[at])
                            for name, at in index.items()
                            if name != "nodes"
                        },
                        np.array(columns[index["nodes"]]),
                    )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"{path} is not a proxy's trace: {error}") from None


def _numbers(texts: Sequence[str]) -> _Floats:
    return np.array([float(text) if text else math.nan for text in texts])


def _add(to: Traced, piece: Piece, chosen: npt.NDArray[np.bool_]) -> None:
    times = {name: values[chosen] for name, values in piece.times.items()}
    answered = ~np.isnan(times["sent"]) & ~np.isnan(times["received"])
    times = {name: values[answered] for name, values in times.items()}
    nodes = piece.nodes[chosen][answered]
    to.requests += int(answered.sum())
    worker = times["worker"][~np.isnan(times["worker"])]
    if len(worker):
        to.workers = max(to.workers, int(worker.max()) + 1)
    to.queue.add(_between(times["enqueued"], times["dequeued"]))
    begun = np.where(np.isnan(times["dequeued"]), times["sent"], times["dequeued"])
    to.service.add(_between(begun, times["received"]))
    to.response.add(_between(times["arrival"], times["replied"]))
    to.queue_length.add(times["queue_length"][~np.isnan(times["queue_length"])])
    for name in np.unique(nodes):
        if name and " " not in name:
            own = nodes == name
            taken = _between(times["sent"][own], times["received"][own])
            to.nodes.setdefault(str(name), Times()).add(taken)


def _between(begin: _Floats, end: _Floats) -> _Floats:
    """Return the times between two moments, in seconds; 0 if a clock was set back."""
    taken = (end - begin) * 1e-6
    found: _Floats = np.maximum(taken[~np.isnan(taken)], 0.0)
    return found


class _Arrivals:
    """Turns moments that are nearly in order into the times between them."""

    def __init__(self, gaps: Times) -> None:
        self._gaps = gaps
        self._waiting: _Floats = np.empty(0)

    def add(self, moments: _Floats) -> None:
        waiting = np.sort(np.concatenate((self._waiting, moments)))
        done = max(len(waiting) - _DISORDER, 0)
        if done:
            self._gaps.add(np.diff(waiting[: done + 1]))
        self._waiting = waiting[done:]

    def end(self) -> None:
        self._gaps.add(np.diff(self._waiting))
