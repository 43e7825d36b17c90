"""``stats hotkeys`` as a table."""

from collections.abc import Sequence

from memlite.shell.display import Style

__all__ = ["LEAST_SAMPLES", "hot_keys_table"]

LEAST_SAMPLES = 5
"""A key with fewer sampled requests is not shown: one sample stands for hundreds of requests."""

_TITLES = ("share", "per second", "requests", "key")
_FIELDS = ("share", "per_second", "requests", "error", "key")


def hot_keys_table(rows: Sequence[tuple[str, str]], style: Style) -> list[str]:
    """Return the lines of a table with a line for each key, the hottest first.

    Args:
        rows: names and values, as the server sends them.
        style: the capabilities of the output.
    """
    stats = dict(rows)
    least = LEAST_SAMPLES * _number(stats.get("hotkeys:sample_interval", ""))
    table = []
    left_out = 0
    for rank in range(1, len(rows)):
        fields = [stats.get(f"hotkeys:{rank}:{name}") for name in _FIELDS]
        if None in fields:
            break
        share, per_second, requests, error, key = map(str, fields)
        if _number(requests) - _number(error) < least:
            left_out += 1
            continue
        table.append((f"{share}%", per_second, style.number(int(_number(requests))), key))
    widths = [max(map(len, column)) for column in zip(_TITLES, *table, strict=True)]
    lines = [style.dim(_line(_TITLES, widths)), *(_line(row, widths) for row in table)]
    if left_out:
        keys = "1 key" if left_out == 1 else f"{left_out} keys"
        lines.append(style.dim(f"({keys} with fewer than {LEAST_SAMPLES} samples not shown)"))
    elif not table:
        lines = [style.dim("(no key is requested often)")]
    return lines if table or not left_out else lines[1:]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    *numbers, key = cells
    aligned = (cell.rjust(width) for cell, width in zip(numbers, widths, strict=False))
    return "  ".join([*aligned, key])
