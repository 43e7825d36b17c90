"""``memlite cluster show``: the members of a cluster."""

import json
from datetime import UTC, datetime

from memlite.cluster.membership.document import Document

__all__ = ["as_json", "as_text"]

_HEADINGS = ("NAME", "ADDRESS", "WEIGHT", "JOINED")


def as_text(document: Document) -> str:
    """Return a table for people."""
    if not document.members:
        return "no members\n"
    rows = [
        _HEADINGS,
        *((one.name, one.address, str(one.weight), _time(one.joined)) for one in document.members),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    count = len(document.members)
    lines = [
        f"epoch {document.epoch}, {count} node{'s' if count > 1 else ''}, hash {document.hash}",
        *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
    ]
    return "".join(f"{line}\n" for line in lines)


def as_json(document: Document) -> str:
    """Return a line with a JSON object."""
    members = [
        {
            "name": one.name,
            "address": one.address,
            "weight": one.weight,
            "joined": _time(one.joined),
            "incarnation": one.incarnation,
        }
        for one in document.members
    ]
    cluster = {"epoch": document.epoch, "hash": document.hash, "members": members}
    return json.dumps(cluster, ensure_ascii=False) + "\n"


def _time(unix: int) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
