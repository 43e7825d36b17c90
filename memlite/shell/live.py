"""``--latency`` and ``--stat``: a line for each interval, as in redis-cli."""

import time
from collections.abc import Iterator
from itertools import count, islice
from time import perf_counter
from typing import TextIO

from memlite.client.replies import Line, Shape
from memlite.shell.link import Link, LinkError

__all__ = ["latency", "rounds", "statistics"]

# As often as redis-cli: often enough to detect a stall, too rarely to cause one.
_PAUSE_SECONDS = 0.01
_ROWS_PER_HEADER = 20
_COLUMNS = ("items", "memory", "clients", "gets/s", "hits", "sets/s", "evicted/s")
_MEGABYTE = 1024 * 1024


def rounds(repeat: int, interval: float) -> Iterator[int]:
    """Yield 0, 1, … with a pause before each number except the first.

    Args:
        repeat: the number of rounds; negative for no end.
        interval: the pause in seconds.
    """
    for number in count() if repeat < 0 else range(repeat):
        if number:
            time.sleep(interval)
        yield number


def latency(link: Link, out: TextIO, repeat: int, interval: float) -> None:
    """Show the times of round trips, measured with a request that reads nothing.

    Args:
        link: the connection.
        out: receives a line for each interval.
        repeat: the number of lines; negative for no end.
        interval: seconds.

    Raises:
        LinkError: the server cannot be reached.
    """
    for _ in islice(count(), repeat if repeat >= 0 else None):
        times: list[float] = []
        end = perf_counter() + interval
        while not times or perf_counter() < end:
            link.refresh()
            began = perf_counter()
            for _ in link.ask(b"version\r\n", Shape.LINE):
                pass
            times.append((perf_counter() - began) * 1000)
            time.sleep(_PAUSE_SECONDS)
        times.sort()
        middle, high = (times[int(len(times) * share)] for share in (0.5, 0.99))
        out.write(
            f"min {times[0]:.3f}  p50 {middle:.3f}  p99 {high:.3f}  max {times[-1]:.3f} ms  "
            f"({len(times)} samples)\n"
        )
        out.flush()


def statistics(link: Link, out: TextIO, repeat: int, interval: float) -> None:
    """Show the numbers of items and connections, and the rates of requests.

    Args:
        link: the connection.
        out: receives a line for each interval, after a header line.
        repeat: the number of lines; negative for no end.
        interval: seconds between two lines.

    Raises:
        LinkError: the server cannot be reached, or has no statistics.
    """
    before, at = _counters(link), perf_counter()
    for number in islice(count(), repeat if repeat >= 0 else None):
        time.sleep(interval)
        now = _counters(link)
        then, at = at, perf_counter()
        if number % _ROWS_PER_HEADER == 0:
            out.write(_row(_COLUMNS))
        out.write(_row(_cells(before, now, at - then)))
        out.flush()
        before = now


def _counters(link: Link) -> dict[str, int]:
    link.refresh()
    found: dict[str, int] = {}
    for part in link.ask(b"stats\r\n", Shape.ROWS):
        words = part.text.split(b" ") if isinstance(part, Line) else []
        if len(words) == 3 and words[2].isdigit():
            found[words[1].decode("ascii", "replace")] = int(words[2])
    if "cmd_get" not in found:
        raise LinkError(f"{link.address} has no statistics")
    return found


def _cells(before: dict[str, int], now: dict[str, int], seconds: float) -> Iterator[str]:
    def rate(name: str) -> float:
        return max(0, now.get(name, 0) - before.get(name, 0)) / seconds

    gets = rate("cmd_get")
    yield f"{now.get('curr_items', 0):,}"
    yield f"{now.get('bytes', 0) / _MEGABYTE:,.1f} MB"
    yield f"{now.get('curr_connections', 0):,}"
    yield f"{gets:,.0f}"
    yield f"{rate('get_hits') / gets:.1%}" if gets else "-"
    yield f"{rate('cmd_set'):,.0f}"
    yield f"{rate('evictions'):,.0f}"


def _row(cells: Iterator[str] | tuple[str, ...]) -> str:

    return "".join(cell.rjust(11) for cell in cells) + "\n"
