"""``memlite cluster show``: the nodes of a cluster, and the move of keys in progress."""

import json
from datetime import UTC, datetime

from memlite.cluster.hot_keys import HotKey
from memlite.cluster.membership.document import Document, Entry
from memlite.cluster.mover.permit import MoverNote
from memlite.cluster.plan import items_text
from memlite.core.uris import uri_encoded

__all__ = ["as_json", "as_text"]

_HEADINGS = ("NAME", "ADDRESS", "WEIGHT", "JOINED")


def as_text(document: Document, mover: MoverNote | None = None) -> str:
    """Return a human-readable table.

    Args:
        document: the cluster.
        mover: the note of the process that moves keys.
    """
    if not document.nodes:
        return "no members\n"
    headings = (*_HEADINGS, "STATE") if document.spares or document.move else _HEADINGS
    rows = [
        (one.name, one.address, str(one.weight), _time(one.joined), _state(document, one))
        for one in document.nodes
    ]
    cells = [headings, *(row[: len(headings)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    count = len(document.members)
    nodes = f"{count} node{'s' if count != 1 else ''}"
    copies = f", {document.replicas} replicas" if document.replicas > 1 else ""
    lines = [
        f"epoch {document.epoch}, {nodes}{copies}, hash {document.hash}",
        *("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells),
        *(f"hot key {uri_encoded(one.key)}, {_standing(one)}" for one in document.hot_keys),
        *_moving(document, mover),
    ]
    return "".join(f"{line}\n" for line in lines)


def _state(document: Document, entry: Entry) -> str:
    if document.move is not None and entry.name in document.move.lost:
        return "failed"
    member = document.is_member(entry.name)
    stays = any(one.name == entry.name for one in document.target)
    state = {
        (True, True): "member",
        (True, False): "being drained",
        (False, True): "being added",
        (False, False): "spare",
    }[member, stays]
    return state if entry.leased else f"{state}, without a lease"


def _moving(document: Document, mover: MoverNote | None) -> list[str]:
    if document.move is None:
        return []
    lines = [f"keys are moving, phase {document.move.phase.value}"]
    if mover is None or mover.ended:
        lines.append("no process is moving them: continue with memlite cluster resume")
    else:
        done = f"{mover.items:,} of {items_text(mover.total)}"
        lines.append(f"moved by {mover.where}: {done} at its last report")
    return lines


def as_json(document: Document, mover: MoverNote | None = None) -> str:
    """Return a line with a JSON object; see `as_text`."""
    cluster: dict[str, object] = {
        "epoch": document.epoch,
        "hash": document.hash,
        "replicas": document.replicas,
        "members": [_entry(one) for one in document.members],
        "spares": [_entry(one) for one in document.spares],
        "hot_keys": [
            {"key": uri_encoded(one.key), "state": _key_state(one), "epoch": one.epoch}
            for one in document.hot_keys
        ],
        "move": None,
    }
    move = document.move
    if move is not None:
        cluster["move"] = {
            "phase": move.phase.value,
            "target": list(move.target),
            "lost": list(move.lost),
            "epochs": dict(move.epochs),
            "mover": None
            if mover is None or mover.ended
            else {"where": mover.where, "items": mover.items, "total": mover.total},
        }
    return json.dumps(cluster, ensure_ascii=False) + "\n"


def _entry(one: Entry) -> dict[str, object]:
    return {
        "name": one.name,
        "address": one.address,
        "weight": one.weight,
        "joined": _time(one.joined),
        "incarnation": one.incarnation,
        "leased": one.leased,
    }


def _standing(key: HotKey) -> str:
    how = ", automatically" if key.automatic else ""
    return f"{_key_state(key)} in epoch {key.epoch}{how}"


def _key_state(key: HotKey) -> str:
    return "demoted" if key.demoted else "promoted"


def _time(unix: int) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
