"""What readers copy from a report: its tables as CSV."""

import csv
import html
import io
import re

__all__ = ["copied_tables", "without_numbers"]

# Numbers as people read them: with units, intervals, or thousands apart.
_FOR_PEOPLE = re.compile(
    r"[\d.,∞]+ ?([kMG]?B|[kMG]|[mµ]?s|min|%|USD|W)\b|\d%|±|\d,\d{3}|\d to \d|× \d"
)


def copied_tables(page: str) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each table by its name.

    Args:
        page: its HTML.
    """
    found = {}
    for name, text in re.findall(r'<pre id="([^"]*)-CSV"[^>]*>(.*?)</pre>', page, re.DOTALL):
        found[name] = list(csv.DictReader(io.StringIO(html.unescape(text))))
    return found


def without_numbers(rows: list[dict[str, str]]) -> list[str]:
    """Return the cells, but for the first column's, that no program reads as a number."""
    cells = [cell for row in rows for cell in list(row.values())[1:]]
    return [cell for cell in cells if _FOR_PEOPLE.search(cell)]
