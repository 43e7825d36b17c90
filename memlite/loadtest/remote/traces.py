"""Traces of proxies on other machines, whose clocks differ."""

import csv
import io
from pathlib import Path
from typing import Final

__all__ = ["add_trace"]

_TIMES: Final = frozenset(("arrival", "enqueued", "dequeued", "sent", "received", "replied"))


def add_trace(text: str, to: Path, ahead: float) -> None:
    """Append a trace to a file on this machine; a new file gets a header.

    Args:
        text: the trace, with its header; an incomplete line is omitted.
        to: the file.
        ahead: how many seconds the proxy's clock is ahead of the local one.

    Raises:
        OSError: the file cannot be written.
    """
    complete = text[: text.rfind("\n") + 1]
    header, *rows = list(csv.reader(io.StringIO(complete))) or [[]]
    times = [index for index, name in enumerate(header) if name in _TIMES]
    shift = round(ahead * 1e6)
    with to.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if header and not file.tell():
            writer.writerow(header)
        for row in rows:
            for index in times:
                row[index] = str(int(row[index]) - shift) if row[index] else ""
            writer.writerow(row)
