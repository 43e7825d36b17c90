"""The columns of the trace: the row of each request."""

import base64
import binascii
import csv
import io
from collections.abc import Sequence
from typing import Final

from memlite.proxy.gutter_requests import words_of
from memlite.proxy.queue import Ticket
from memlite.proxy.turns import Traced
from memlite.server.execution.results import result_of

__all__ = ["COLUMNS", "Row", "command_of", "lines_of", "row_of", "row_of_traced"]

Row = tuple[object, ...]

COLUMNS: Final[Row] = (
    "client", "arrival", "queue_length", "enqueued", "dequeued", "sent", "received", "replied",
    "worker", "command", "keys", "nodes", "result", "bytes", "epoch",
)  # fmt: skip

_LINE: Final = ",".join(["%s"] * len(COLUMNS)) + "\n"
_FIRST_KEY: Final = {b"get": 1, b"gets": 1, b"gat": 2, b"gats": 2}
"""Index of the first key in commands that take several."""
_MAX_KEYS_NAMED: Final = 100


def lines_of(rows: Sequence[Row]) -> bytes:
    """Return the lines of rows."""
    text = "".join([_LINE % row for row in rows])
    odd = '"' in text or "\r" in text or text.count("\n") != len(rows)
    if not odd and text.count(",") == len(rows) * _LINE.count(","):
        return text.encode()
    # A field needs quotes. This takes twice as long.
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue().encode()


def row_of(ticket: Ticket, offset: int, epoch: int, *, names: bool) -> Row:
    """Return the row of a finished request.

    Args:
        ticket: the request.
        offset: nanoseconds from `time.monotonic_ns` to the time since 1970.
        epoch: the version of the topology.
        names: whether keys are named, up to 100 of them, instead of counted.
    """

    def at(moment: int) -> object:
        return (moment + offset) // 1000 if moment else ""

    command, keys = command_of(ticket)
    return (
        ticket.client.number,
        at(ticket.arrival),
        ticket.ahead,
        at(ticket.enqueued),
        at(ticket.dequeued),
        at(ticket.sent),
        at(ticket.received),
        at(ticket.replied_at),
        ticket.worker if ticket.worker >= 0 else "",
        command,
        _named(keys) if names else len(keys),
        " ".join(str(getattr(target, "name", "")) for target, _, _ in ticket.sends),
        result_of(ticket.reply),
        len(ticket.reply),
        epoch,
    )


def row_of_traced(traced: Traced, offset: int, *, names: bool) -> Row:
    """Return the row of a request that was traced in C; see `row_of`."""
    words = traced.request.split(b" ", 2)
    key = words[1]
    if names and words[0][:1] == b"m" and b"b" in b" ".join(words[2:]).split(b" "):
        key = _decoded(key)
    arrival = (traced.arrival + offset) // 1000
    return (
        traced.client,
        arrival,
        0,
        arrival,
        arrival,
        (traced.sent + offset) // 1000 if traced.sent else "",
        (traced.received + offset) // 1000,
        (traced.replied_at + offset) // 1000,
        "",
        words[0].decode("ascii", "backslashreplace"),
        _named([key]) if names else traced.keys,
        traced.node,
        result_of(traced.reply),
        traced.size,
        traced.epoch,
    )


def command_of(ticket: Ticket) -> tuple[str, list[bytes]]:
    """Return the command of a request, as sent to the nodes, and its keys."""
    keys: list[bytes] = []
    word = b""
    for _, data, _ in ticket.sends:
        words = words_of(data)
        word = words[0]
        if word == b"flush_all":
            break
        first = _FIRST_KEY.get(word)
        if first is not None:
            keys += words[first:]
        elif word[:1] == b"m" and b"b" in words[2:]:  # a meta command whose key is in base64
            keys.append(_decoded(words[1]))
        else:
            keys += words[1:2]
    return word.decode("ascii", "backslashreplace"), keys


def _decoded(key: bytes) -> bytes:
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error:
        return key


def _named(keys: list[bytes]) -> str:
    return " ".join(key.decode("utf-8", "backslashreplace") for key in keys[:_MAX_KEYS_NAMED])
