"""Counts of clients' commands by class and result, for ``--http`` and ``--otlp``."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from memlite.protocol.packets import Status

__all__ = ["NO_REPLY", "QUIET", "Counts", "by_result", "head_of", "new_counts", "status_of"]

Counts = defaultdict[bytes, defaultdict[bytes, int]]
"""For commands, by their first three bytes: how often they had a reply, by what `head_of` returns.

The first three bytes of a reply to a get will do as well.
"""

NO_REPLY: Final = b""
"""Stands for a reply that a text command is not to have: with ``noreply``, or with the flag q."""

QUIET: Final = b"quiet"
"""Stands for one that a quiet binary command does not have."""

_CLASSES: Final = {
    b"get": "get", b"mg ": "get",
    b"set": "store", b"add": "store", b"rep": "store", b"app": "store", b"pre": "store",
    b"cas": "store", b"ms ": "store",
    b"del": "delete", b"md ": "delete",
    b"inc": "arithmetic", b"dec": "arithmetic", b"ma ": "arithmetic",
    b"tou": "touch", b"gat": "touch",
}  # fmt: skip
_DONE: Final = {"store": "stored", "other": "done"}
"""What success is called; of other classes it is ``hit``."""
_SUCCESSES: Final = frozenset((b"VAL", b"VA", b"STO", b"DEL", b"TOU", b"OK", b"0", b"HD", b"ME"))
_RESULTS: Final = {
    b"END": "miss", b"EN": "miss", b"NF": "miss",
    b"NS": "not_stored",
    b"EXI": "exists", b"EX": "exists",
}  # fmt: skip
_OF_STATUS: Final[dict[int, str]] = {
    Status.NOT_FOUND: "miss",
    Status.NOT_STORED: "not_stored",
    Status.EXISTS: "exists",
}
_ALWAYS: Final = (
    ("get", ("hit", "miss", "error")),
    ("store", ("stored", "not_stored", "exists", "miss", "noreply", "error")),
    ("delete", ("hit", "miss", "exists", "noreply", "error")),
    ("arithmetic", ("hit", "miss", "exists", "noreply", "error")),
    ("touch", ("hit", "miss", "noreply", "error")),
    ("other", ("done", "noreply", "error")),
)


def new_counts() -> Counts:
    """Return counts of nothing."""
    return defaultdict(_zeros)


def _zeros() -> defaultdict[bytes, int]:
    return defaultdict(int)


def head_of(reply: bytes) -> bytes:
    """Return what tells the result of a text command: few values, whatever is in the reply."""
    head = reply[:3]
    if head == b"NOT":  # NOT_STORED, NOT_FOUND
        return b"NS" if reply[4:5] == b"S" else b"NF"
    return b"0" if head[:1].isdigit() else head.rstrip()  # a number: of incr and decr


def status_of(packet: bytes) -> bytes:
    """Return what tells the result of a binary command: the status."""
    return packet[6:8]


def by_result(counts: Mapping[bytes, Mapping[bytes, int]]) -> dict[tuple[str, str], int]:
    """Return the counts by class of commands (`COMMAND_CLASSES`) and result.

    The results are ``hit`` and ``miss``; of commands that store ``stored``, ``not_stored``,
    ``exists`` (in another version) and ``miss``; ``done`` of others; ``noreply`` if it is not
    known, as there is no reply; ``error``. All that can be are there, if only with 0.
    """
    found = {(kind, result): 0 for kind, results in _ALWAYS for result in results}
    for command, heads in counts.items():
        kind = _CLASSES.get(command, "other")
        for head, count in heads.items():
            key = kind, _result(command, kind, head)
            found[key] = found.get(key, 0) + count
    return found


def _result(command: bytes, kind: str, head: bytes) -> str:
    success = _DONE.get(kind, "hit")
    if head == NO_REPLY:
        # Of a quiet meta command, what is left out is known; of a "noreply" it is not.
        if not command.endswith(b" "):
            return "noreply"
        return "miss" if kind == "get" else success
    if head == QUIET:
        return "miss" if command in (b"get", b"mg ", b"gat") else success
    if len(head) == 2 and head[0] == 0:
        status = int.from_bytes(head)
        return _OF_STATUS.get(status, "error") if status else success
    head = head.rstrip()
    return success if head in _SUCCESSES else _RESULTS.get(head, "error")
