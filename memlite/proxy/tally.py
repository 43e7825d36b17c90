"""Counts of clients' commands by class and result, for ``--http`` and ``--otlp``."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from memlite.protocol.packets import Status

__all__ = ["NO_REPLY", "QUIET", "Counts", "by_result", "head_of", "new_counts", "status_of"]

Counts = defaultdict[bytes, defaultdict[bytes, int]]
"""Reply counts of commands, by the command's first three bytes and the result of `head_of`.

For a reply to a get, its first three bytes may take the place of that result.
"""

NO_REPLY: Final = b""
"""Stands for the suppressed reply of a text command, with ``noreply`` or the flag q."""

QUIET: Final = b"quiet"
"""Stands for the suppressed reply of a quiet binary command."""

_CLASSES: Final = {
    b"get": "get", b"mg ": "get",
    b"set": "store", b"add": "store", b"rep": "store", b"app": "store", b"pre": "store",
    b"cas": "store", b"ms ": "store",
    b"del": "delete", b"md ": "delete",
    b"inc": "arithmetic", b"dec": "arithmetic", b"ma ": "arithmetic",
    b"tou": "touch", b"gat": "touch",
}  # fmt: skip
_DONE: Final = {"store": "stored", "other": "done"}
"""The names of success by class; for other classes it is ``hit``."""
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
    """Return empty counts."""
    return defaultdict(_zeros)


def _zeros() -> defaultdict[bytes, int]:
    return defaultdict(int)


def head_of(reply: bytes) -> bytes:
    """Return the result code of a text reply: one of few values, whatever the reply contains."""
    head = reply[:3]
    if head == b"NOT":  # NOT_STORED, NOT_FOUND
        return b"NS" if reply[4:5] == b"S" else b"NF"
    return b"0" if head[:1].isdigit() else head.rstrip()  # a number: of incr and decr


def status_of(packet: bytes) -> bytes:
    """Return the result code of a binary reply: its status."""
    return packet[6:8]


def by_result(counts: Mapping[bytes, Mapping[bytes, int]]) -> dict[tuple[str, str], int]:
    """Return the counts by class of commands (`COMMAND_CLASSES`) and result.

    The results are ``hit`` and ``miss``; for commands that store, ``stored``, ``not_stored``,
    ``exists`` (in another version) and ``miss``; for other commands, ``done``; ``noreply`` if it is
    unknown for lack of a reply; and ``error``. All possible results are included, even if 0.
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
        # The suppressed result of a quiet meta command is known; that of a "noreply" is not.
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
