"""The output of ``memlite top --json``."""

from collections.abc import Sequence

from memlite.top.readings import Figures, totals
from memlite.top.table import Row

__all__ = ["as_json"]


def as_json(rows: Sequence[Row]) -> dict[str, object]:
    """Return the figures of each server and the totals; unknown figures are None."""
    up = [row.figures for row in rows if not row.trouble]
    return {"servers": [_server(row) for row in rows], "total": _figures(totals(up))}


def _server(row: Row) -> dict[str, object]:
    return {
        "server": row.name,
        "up": not row.trouble,
        "trouble": row.trouble or None,
        **_figures(row.figures),
        "hot_keys": [
            {"key": hot.key, "per_second": hot.per_second, "percent": hot.percent}
            for hot in row.hot_keys
        ],
    }


def _figures(found: Figures) -> dict[str, object]:
    return {
        "operations_per_second": found.operations,
        "gets_per_second": found.gets,
        "sets_per_second": found.sets,
        "hit_ratio": found.hit_ratio,
        "get_p99_seconds": found.latency,
        "memory_bytes": _whole(found.memory),
        "memory_limit_bytes": _whole(found.memory_limit),
        "items": _whole(found.items),
        "evictions_per_second": found.evictions,
        "connections": _whole(found.connections),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
